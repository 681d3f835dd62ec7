"""`fleetbuild emit KIND`: write files from the last plan, with labels of what serves on each node.

Extensions have the kinds. Each is a command; its options are the keyword parameters of the
function that writes the files, unless its extension has a command of its own for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

import fleetbuild
from fleetbuild import UsageError
from fleetbuild.cli.foreign_options import Command, SectionedGroup, refuse
from fleetbuild.cli.options import OutputOptions, expand
from fleetbuild.cli.session import Session

if TYPE_CHECKING:
    from fleetbuild import EmitKind, EmittedFiles

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="The folder to write to; default: .fleetbuild/manifests/KIND.",
    ),
]


class KindCommand(Command):
    """The command of a kind, which says where an option of another kind belongs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse options of other kinds, then parse the arguments."""
        kinds = ctx.parent.command.commands
        own = {name for param in self.params for name in param.opts}
        for arg in args:
            name = arg.partition("=")[0]
            fitting = [kind for kind, command in kinds.items() if name in _options_of(command)]
            if name.startswith("-") and name not in own and fitting:
                refuse(
                    f"{name} does not go with emit {self.name}.",
                    f"Leave it out. It goes with: {', '.join(f'emit {kind}' for kind in fitting)}.",
                )
        return super().parse_args(ctx, args)


def _options_of(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts}


class KindGroup(SectionedGroup):
    """The kinds as commands. One of an extension is loaded when its command is shown or run."""

    sections: ClassVar = {"Commands": ("k8s", "labels")}
    rest: ClassVar = "Rarely needed"

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all kinds."""
        ours = super().list_commands(ctx)
        return [*ours, *sorted(fleetbuild.emit_kinds().keys() - set(ours))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a kind, or None."""
        if (ours := super().get_command(ctx, cmd_name)) is not None:
            return ours
        kind = fleetbuild.emit_kinds().get(cmd_name)
        return _command_of(kind) if kind else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Refuse a kind that neither the core nor an extension has."""
        if args and args[0] not in self.list_commands(ctx):
            kinds = ", ".join(self.list_commands(ctx))
            refuse(
                f"{ctx.command_path} does not accept {args[0]!r} as a kind.",
                f"Use one of: {kinds}.",
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=KindGroup,
    help="Write Kubernetes manifests and other files for the last plan.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _command_of(kind: EmitKind) -> Any:
    """Return the command of a kind, with the keyword parameters of its function as options."""
    broken: UsageError | None = None
    try:
        function = kind.load()
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        help_ = inspect.getdoc(function) or f"Write {kind.name}, by an extension."
    except UsageError as problem:
        broken, own, help_ = problem, [], problem.message

    def command(*, out: Out = None, output: OutputOptions, **options: Any) -> None:
        with output.session() as run:
            if broken:
                raise broken
            emit(run, kind.name, out, **options)

    shared = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name=kind.name, cls=KindCommand, help=help_)(expand(command))
    return typer.main.get_command(alone)


def emit(run: Session, kind: str, out: Path | None, **options: Any) -> None:
    """Write the files of a kind, and say which."""
    tell(
        run,
        fleetbuild.Fleet(state_dir=run.state_dir).emit(
            kind, out=folder_of(run, kind, out), **options
        ),
    )


def folder_of(run: Session, kind: str, out: Path | None) -> Path:
    """Return the folder that the files of a kind go to."""
    return out or run.state_dir / "manifests" / kind


def tell(
    run: Session, emitted: EmittedFiles, then: Callable[[], Mapping[str, Any]] | None = None
) -> None:
    """Say which files were written. `then` does more, and returns its part of the document."""
    files = [str(path) for path in emitted.paths]
    if not run.out.json:
        run.out.say(*(f"Wrote {file}" for file in files))
        for sentence in emitted.warnings:
            run.out.warn(f"warning: {sentence}")
    more = then() if then else {}
    if run.out.json:
        run.out.document({"files": files, "warnings": list(emitted.warnings), **more})
