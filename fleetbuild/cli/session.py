"""What every command stands in: its output, its state directory, and how it ends."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from fleetbuild import FleetbuildError, Interrupted, UsageError
from fleetbuild.report import Output

if TYPE_CHECKING:
    from fleetbuild import Secrets

PROMPT = "@prompt"


class Session:
    """`with Session(…) as run:` turns every way of ending into a sentence and an exit code."""

    def __init__(
        self,
        *,
        state_dir: Path,
        json: bool = False,
        verbose: bool = False,
        no_color: bool = False,
    ) -> None:
        self.out = Output(json=json, verbose=verbose, color=not no_color)
        self.state_dir = state_dir
        self.exit_code = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, typer.Exit | typer.Abort | SystemExit | GeneratorExit):
            return
        if isinstance(problem, KeyboardInterrupt | Interrupted):
            self._interrupted(problem)
        elif isinstance(problem, FleetbuildError):
            self.out.error(problem)
            self.exit_code = problem.exit_code
            if self.out.verbose:
                self.out.warn("".join(traceback.format_exception(problem)).rstrip())
        elif problem is not None:
            self._unexpected(problem)
            self.exit_code = 1
        raise typer.Exit(self.exit_code)

    def _interrupted(self, problem: BaseException) -> None:
        if not isinstance(problem, Interrupted):
            problem = Interrupted("interrupted", "run the same command again")
        self.out.error(problem)
        self.exit_code = Interrupted.exit_code

    def _unexpected(self, problem: BaseException) -> None:
        """A fault of ours: one line, and the traceback in a file that can be sent to us."""
        story = "".join(traceback.format_exception(problem))
        what = f"unexpected {type(problem).__name__}: {problem}"
        where = self.state_dir / "logs" / "traceback.txt"
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(story, encoding="utf-8")
            fix = f"this is a fault in fleetbuild; please report it with {where}"
        except OSError:
            fix = "this is a fault in fleetbuild; please report it with the output of -v"
        self.out.error(FleetbuildError(what, fix))
        if self.out.verbose:
            self.out.warn(story.rstrip())


def secrets(
    ask_pass: bool,
    ask_become_pass: bool,
    vault_password_files: Sequence[str] | None,
    vault_ids: Sequence[str] | None,
) -> Secrets:
    """The passwords that the options ask for, typed at the terminal and kept nowhere."""
    from fleetbuild import Secrets

    prompted = [vault_id for vault_id in vault_ids or () if vault_id.endswith(PROMPT)]
    labels = [vault_id.removesuffix(PROMPT) for vault_id in prompted]
    return Secrets(
        ask_pass=_ask("SSH password: ", "--ask-pass") if ask_pass else None,
        become_pass=_ask("become password: ", "--ask-become-pass") if ask_become_pass else None,
        vault_password_files=tuple(vault_password_files or ()),
        vault_ids=tuple(vault_id for vault_id in vault_ids or () if vault_id not in prompted),
        vault_passwords=tuple(
            (label, _ask(f"vault password ({label}): ", "--vault-id @prompt")) for label in labels
        ),
    )


def _ask(prompt: str, option: str) -> str:
    from getpass import getpass

    if not sys.stdin.isatty():
        raise UsageError(
            f"{option} needs a terminal to ask at, and there is none",
            "put the password into the inventory with ansible-vault, or use an SSH key",
        )
    return getpass(prompt)
