"""Options that users of Ansible and Terraform type, and values that a command does not accept.

In: the arguments of a command. Out: the same with our names for options that mean the same here;
for the others, an error with the command to run. An invalid value gets an error with the valid
ones.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

# Another name for an option of ours, on the commands that have it.
_SAME = {
    "-out": "--out",
    "-auto-approve": "--yes",
    "--auto-approve": "--yes",
}
_INVENTORY = ("-i", "--inventory")
_TAKE_INVENTORY = ("facts", "plan", "apply", "status", "verify", "rollback", "remove")
_DRY_RUN = "To see what an apply would do without changing any node, run: fleetbuild plan INVENTORY"
_DRY_RUNS = {
    "rollback": "At a terminal, fleetbuild rollback INVENTORY shows from which release to which"
    " each node goes, and asks before it changes any.",
    "remove": "Without --yes, fleetbuild remove INVENTORY shows what it would remove, and removes"
    " nothing before somebody agrees.",
    "verify": "To see what serves on each node without running its checks, run:"
    " fleetbuild status INVENTORY",
}
_CHECK = ("--check", "-C", "--diff", "-D", "--dry-run", "-n")
_OF_PIP = (
    "Packages are named with --package, -r FILE and --lock FILE when a plan is made:"
    " fleetbuild plan INVENTORY -r FILE"
)
_VARIABLE = "Set {} in the inventory; fleetbuild reads it as Ansible does."
_ANSWERS = {
    **dict.fromkeys(("-b", "--become"), _VARIABLE.format("ansible_become: true")),
    **dict.fromkeys(("-u", "--user"), _VARIABLE.format("ansible_user")),
    **dict.fromkeys(("-e", "--extra-vars"), _VARIABLE.format("the variable")),
    **dict.fromkeys(
        ("-t", "--tags", "--skip-tags", "--start-at-task", "--step", "--list-tasks"),
        "A run has no parts to choose. For some nodes: --limit PATTERN; after an interruption, the"
        " same command goes on from where it stood.",
    ),
    **dict.fromkeys(
        ("-m", "--module-name", "-a", "--args"),
        "fleetbuild runs no single module; use ansible for that.",
    ),
    "--private-key": _VARIABLE.format("ansible_ssh_private_key_file"),
    **dict.fromkeys(("-r", "--requirement", "--constraint", "--lock", "--group"), _OF_PIP),
    **dict.fromkeys(
        ("--index-url", "--extra-index-url", "--find-links"),
        "Name indexes under index: in fleetbuild.yml, or in a requirements file.",
    ),
    **dict.fromkeys(("--target-node", "--hosts", "--host"), "Choose nodes with: --limit PATTERN"),
    "-o": "To save a plan to a file, run: fleetbuild plan INVENTORY --out FILE",
    "-out": "To save a plan to a file, run: fleetbuild plan INVENTORY --out FILE",
}
# What belongs into options that have no list of values.
_NUMBERS = {"--timeout": "a number of seconds, 1 to 86400", "--forks": "a whole number, 1 or more"}


class Command(TyperCommand):
    """A command that also understands what users of Ansible and Terraform type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Translate the arguments, then parse them."""
        own = {name for param in self.params for name in param.opts}
        try:
            return super().parse_args(ctx, list(_translated(_words(ctx), own, args)))
        except typer.BadParameter as problem:
            self._refuse_value(ctx, problem)
            raise

    def _refuse_value(self, ctx: Any, problem: typer.BadParameter) -> None:
        """End with the valid values in place of Typer's message, if they are known."""
        if (param := problem.param) is None or not problem.message:  # it is missing
            return
        name = param.opts[0] if param.opts[0].startswith("-") else param.metavar
        values = ", ".join(item.value for item in param.shell_complete(ctx, "") if item.value)
        valid = f"one of: {values}" if values else _NUMBERS.get(str(name))
        if valid:
            quoted = re.search("'[^']*'(?= is not)", problem.message)
            value = quoted[0] if quoted else "this value"
            refuse(f"fleetbuild {_words(ctx)} does not accept {value} as {name}.", f"Use {valid}.")


def _words(ctx: Any) -> str:
    """Return the command as it was typed: the words after fleetbuild."""
    return " ".join(ctx.command_path.split()[1:])


def refuse(error: str, fix: str) -> NoReturn:
    """End with a message about the command line."""
    typer.echo(f"error: {error}\nfix: {fix}", err=True)
    raise typer.Exit(2)


def _translated(command: str, own: set[str], args: Sequence[str]) -> Iterator[str]:
    if command == "run":  # its arguments belong to another program
        yield from args
        return
    answers = _ANSWERS | dict.fromkeys(_CHECK, _DRY_RUNS.get(command, _DRY_RUN))
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            yield from (arg, *rest)
            return
        name, equals, value = arg.partition("=")
        if name in own:
            yield arg
        elif command in _TAKE_INVENTORY and name in _INVENTORY:
            value = value if equals else next(rest, "")
            if not value:
                refuse(f"{name} of fleetbuild {command} names no inventory.", "Name one.")
            yield value
        elif _SAME.get(name) in own:
            yield f"{_SAME[name]}{equals}{value}"
        elif name in answers:
            fix = answers[name].replace("INVENTORY", _inventory(args))
            refuse(f"fleetbuild {command} has no option {name}.", fix)
        else:
            yield arg


def _inventory(args: Sequence[str]) -> str:
    """Return the inventory that these arguments name, to put it into the command to run."""
    for before, arg in pairwise(("", *args)):
        is_value = before.startswith("-") and before not in _INVENTORY  # of another option
        exists = os.path.exists(arg)  # noqa: PTH110 (Path.exists fails for a long list of hosts)
        if not is_value and Path(arg).suffix != ".json" and exists:
            return shlex.quote(arg)
    return "INVENTORY"
