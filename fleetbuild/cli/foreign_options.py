"""Options that users of Ansible and Terraform type, and values that a command does not accept.

In: the arguments of a command. Out: the same with our names for options that mean the same here;
for the others, an error with the command to run. An invalid value gets an error with the valid
ones.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from fleetbuild.cli.hints import Hints, started

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
    "rollback": "To see from which release to which each node goes, run: fleetbuild rollback"
    " INVENTORY. It asks before it changes any.",
    "remove": "To see what it would remove, run: fleetbuild remove INVENTORY. It asks before it"
    " removes any.",
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
    "--private-key": _VARIABLE.format("ansible_ssh_private_key_file"),
    **dict.fromkeys(("-r", "--requirement", "--constraint", "--lock", "--group"), _OF_PIP),
    **dict.fromkeys(
        ("--index-url", "--extra-index-url", "--find-links"),
        "Name indexes under index: in fleetbuild.yml, or in a requirements file.",
    ),
    **dict.fromkeys(("--target-node", "--hosts", "--host"), "Choose nodes with: --limit PATTERN"),
    "-o": "To save a plan to a file, run: fleetbuild plan INVENTORY --out FILE",
}
_LISTS = {"txt": "-r", "lock": "--lock", "toml": "--lock"}  # by suffix
# What belongs into options that have no list of values.
_NUMBERS = {"--timeout": "a number of seconds, 1 to 86400", "--forks": "a whole number, 1 or more"}


class Command(TyperCommand):
    """A command that also understands what users of Ansible and Terraform type."""

    def make_context(self, *names: Any, **more: Any) -> Any:
        """Parse the command line; with --json, a mistake in it is a document for programs too."""
        as_json = "--json" in names[1]
        try:
            return super().make_context(*names, **more)
        except Exception as problem:
            if as_json and getattr(problem, "exit_code", 0) == 2:
                said = {"message": str(problem), "fix": getattr(problem, "fix", ""), "exit_code": 2}
                typer.echo(json.dumps({"format_version": "1.0", "error": said}))
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Translate the arguments, then parse them."""
        own = {name for param in self.params for name in param.opts}
        try:
            return super().parse_args(ctx, list(_translated(_words(ctx), own, args)))
        except _UnknownOption as unknown:
            name, fix = unknown.args
            refuse(f"fleetbuild {_words(ctx)} has no option {name}.", fix, self._hints(ctx, args))
        except typer.BadParameter as problem:
            self._refuse_value(ctx, args, problem)
            raise
        except TyperException as problem:
            second = re.search(r"extra argument.*\((\S+?)[ )]", problem.message)
            if second and "--package" in own:
                option = _LISTS.get(second[1].rpartition(".")[2], "--package")
                what = f"fleetbuild {_words(ctx)} takes one argument, and {second[1]} is another."
                refuse(what, f"If it names packages, write: {option} {second[1]}")
            raise

    def _hints(self, ctx: Any, args: list[str]) -> Hints:
        """Return the hints of a command line as far as it can be parsed."""
        lenient: Any = type(ctx)(
            self, parent=ctx.parent, info_name=ctx.info_name, resilient_parsing=True,
            allow_extra_args=True, ignore_unknown_options=True,
        )  # fmt: skip
        super().parse_args(lenient, args)
        hints = Hints.of(lenient)
        words = [*lenient.params.values(), *lenient.args]  # a value of an unknown option, too
        files = (word for word in words if isinstance(word, str) and os.path.exists(word))  # noqa: PTH110
        hints.note(what=None, inventory=next(files, None))
        return hints

    def invoke(self, ctx: Any) -> Any:
        """Run the command; messages name further commands as this one was started."""
        with started(Hints.of(ctx)):
            return super().invoke(ctx)

    def _refuse_value(self, ctx: Any, args: list[str], problem: typer.BadParameter) -> None:
        """End with the valid values, or the missing argument, in place of Typer's message."""
        if (param := problem.param) is None:
            return
        name = param.opts[0] if param.opts[0].startswith("-") else param.metavar
        if not problem.message:
            whole = f"fleetbuild {_words(ctx)}"
            first = str(name).partition("|")[0]
            refuse(f"{whole} needs {name}.", f"Name it: {whole} {first}", self._hints(ctx, args))
        values = ", ".join(item.value for item in param.shell_complete(ctx, "") if item.value)
        valid = f"one of: {values}" if values else _NUMBERS.get(str(name))
        if valid:
            quoted = re.search("'[^']*'(?= is not)", problem.message)
            value = quoted[0] if quoted else "this value"
            refuse(f"fleetbuild {_words(ctx)} does not accept {value} as {name}.", f"Use {valid}.")


def _words(ctx: Any) -> str:
    """Return the command as it was typed: the words after fleetbuild."""
    return " ".join(ctx.command_path.split()[1:])


def refuse(error: str, fix: str, hints: Hints | None = None) -> NoReturn:
    """End with a message about the command line."""
    fix = (hints or Hints()).completed(fix)
    typer.echo(f"error: {error}\nfix: {fix}", err=True)
    raise _Refused(error, fix)


class _Refused(typer.Exit):
    """The end of a command line that cannot be used; a person has been told."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(2)
        self.message, self.fix = message, fix

    def __str__(self) -> str:
        return self.message


class _UnknownOption(Exception):
    """An option of other programs, and what to do here."""


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
            raise _UnknownOption(name, answers[name])
        else:
            yield arg


class SectionedGroup(TyperGroup):
    """Commands under headings, in the order in which a reader needs them; the rest at the end."""

    sections: ClassVar[Mapping[str, Sequence[str]]]
    rest: ClassVar[str]  # the last heading

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, by section."""
        names = super().list_commands(ctx)
        first = [each for section in self.sections.values() for each in section if each in names]
        return [*first, *(name for name in names if name not in first)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands for each section."""
        names = self.list_commands(ctx)
        wide = max(map(len, names))
        listed = [name for names in self.sections.values() for name in names]
        rest = {self.rest: [name for name in names if name not in listed]}
        for heading, section in {**self.sections, **rest}.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name.ljust(wide), command.get_short_help_str(formatter.width - wide - 6))
                        for name in section
                        if (command := self.get_command(ctx, name))
                    ]
                )
