"""A command's output, state directory and end: exceptions become messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from fleetbuild import FleetbuildError, Interrupted, UsageError
from fleetbuild.cli.show import Output

if TYPE_CHECKING:
    from fleetbuild import Secrets
    from fleetbuild.cli.options import NodeOptions

PROMPT = "@prompt"
_LARGEST = 1 << 16  # bytes of a password
_HOMELESS = "Could not determine home directory."  # what pathlib says


class Session:
    """`with Session(…) as run:` turns each exception into a message and an exit code."""

    def __init__(
        self,
        *,
        state_dir: Path,
        json: bool = False,
        verbose: bool = False,
        no_color: bool = False,
        events: bool = False,
    ) -> None:
        """`events` says that the command's JSON is one event per line, not one document."""
        self.out = Output(json=json, verbose=verbose, color=not no_color)
        self.state_dir = state_dir
        self.exit_code = 0
        self._events = events

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
        if isinstance(problem, KeyboardInterrupt):
            problem = Interrupted("Interrupted.", "Run the same command again.")
        elif isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            where = problem.filename or self.state_dir
            problem = FleetbuildError(
                f"The disk of this machine is full: {where} was not written.",
                f"Free space (df -h {shlex.quote(str(self._existing(where)))}) or name another"
                f" {'--state-dir' if self._is_in_state(str(where)) else 'folder'}, then run the"
                " same command again; finished work is kept.",
            )
        elif isinstance(problem, OSError) and self._is_in_state(problem.filename):
            problem = UsageError(
                f"{problem.filename} cannot be used: {problem.strerror}.",
                f"See what it is (ls -ld {problem.filename}), move it away, and run the same"
                " command again.",
            )
        elif isinstance(problem, RuntimeError) and str(problem) == _HOMELESS:
            problem = UsageError(
                f"HOME is not set, and no home folder is known for the user {os.geteuid()}.",
                "Name a folder of your own: HOME=FOLDER fleetbuild …",
            )
        if isinstance(problem, FleetbuildError):
            self._report(problem)
        elif problem is not None:
            self._unexpected(problem)
        raise typer.Exit(self.exit_code)

    def _report(self, error: FleetbuildError) -> None:
        """Show an error and end with its exit code; `--json` has it on standard output as well."""
        self.out.error(error)
        self.exit_code = error.exit_code
        with contextlib.suppress(OSError):  # standard output may be full
            self._report_to_programs(error)

    def _report_to_programs(self, error: FleetbuildError) -> None:
        if self.out.json and self._events:
            from fleetbuild import Event

            fix = self.out.hints.completed(error.fix)
            event = Event(stage="done", state="failed", message=error.message, fix=fix)
            self.out.text(event.model_dump_json(exclude_none=True) + "\n")
        elif self.out.json and not self.out.written:
            problem = {"message": error.message, "fix": error.fix, "exit_code": error.exit_code}
            self.out.document({"error": problem})

    def _existing(self, path: object) -> Path:
        """Return the path or the first folder above it that exists, which df takes."""
        places = [Path(str(path)), *Path(str(path)).parents]
        return next(place for place in places if place.exists())

    def _is_in_state(self, name: object) -> bool:
        """Return whether a path is below the state directory, such as a folder of this name."""
        state = self.state_dir.absolute()
        return isinstance(name, str) and Path(name).absolute().is_relative_to(state)

    def _unexpected(self, problem: BaseException) -> None:
        """A fault in fleetbuild: one line, and a file with the traceback to report."""
        story = "".join(traceback.format_exception(problem))
        what = f"unexpected {type(problem).__name__}: {problem}"
        where = self.state_dir / "logs" / "traceback.txt"
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True)
            if self.state_dir.lstat().st_uid != os.geteuid():
                raise PermissionError  # a link of another user could lead anywhere
            where.parent.mkdir(exist_ok=True)
            where.write_text(story, encoding="utf-8")
            fix = f"This is a fault in fleetbuild. Report it with {where}."
        except OSError:
            fix = "This is a fault in fleetbuild. Report it with the output of -v."
        self._report(FleetbuildError(what, fix))
        if self.out.verbose:
            self.out.warn(*story.splitlines())


def at_terminal() -> bool:
    """Whether someone can answer a question."""
    return sys.stdin.isatty()


def read_secrets(nodes: NodeOptions) -> Secrets:
    """Return the passwords that the options ask for. They are written nowhere."""
    from fleetbuild import Secrets

    vault_ids = nodes.vault_id or ()
    prompted = [vault_id for vault_id in vault_ids if vault_id.endswith(PROMPT)]
    labels = [vault_id.removesuffix(PROMPT) for vault_id in prompted]
    return Secrets(
        ask_pass=_ask("SSH password: ", "--ask-pass") if nodes.ask_pass else None,
        become_pass=_become_password(nodes.ask_become_pass, nodes.become_password_file),
        vault_password_files=tuple(nodes.vault_password_file or ()),
        vault_ids=tuple(vault_id for vault_id in vault_ids if vault_id not in prompted),
        vault_passwords=tuple(
            (label, _ask(f"vault password ({label}): ", "--vault-id @prompt")) for label in labels
        ),
    )


def _become_password(ask: bool, file: Path | None) -> str | None:
    if file is None:
        return _ask("become password: ", "--ask-become-pass") if ask else None
    if ask:
        raise UsageError(
            "--ask-become-pass does not go with --become-password-file.", "Leave out one of them."
        )
    try:
        if os.access(file, os.X_OK) and file.is_file():  # a program, as for Ansible
            done = subprocess.run([file.absolute()], capture_output=True, check=True, text=True)
            return done.stdout.strip("\r\n")
        if file.stat().st_size > _LARGEST or not file.is_file():  # /dev/zero, a pipe, a disk image
            raise OSError(errno.EINVAL, "it is not a regular file of a few bytes")
        return file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError, subprocess.CalledProcessError) as problem:
        if isinstance(problem, subprocess.CalledProcessError):
            why = f"the program ended with exit code {problem.returncode}"
        else:
            why = getattr(problem, "strerror", None) or "it is not a text file"
        raise UsageError(
            f"The become password cannot be read from {file}: {why}.",
            "Name a text file that holds it, or a program that prints it.",
        ) from None


def _ask(prompt: str, option: str) -> str:
    from getpass import getpass

    if not at_terminal():
        raise UsageError(
            f"{option} needs a terminal, and standard input is not one.",
            "Put the password into the inventory with ansible-vault, or use an SSH key.",
        )
    return getpass(prompt)
