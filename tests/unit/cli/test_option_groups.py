"""Groups of options: what Typer sees of a command that takes one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fleetbuild.cli.options import OptionGroup, expand

Size = Annotated[int, typer.Option("--size", min=1, help="How many.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="A name.")]


@dataclass(frozen=True, kw_only=True)
class Base(OptionGroup):
    size: Size = 3


@dataclass(frozen=True, kw_only=True)
class Wider(Base):
    name: Names = None


def made() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @expand
    def show(what: Annotated[str, typer.Argument()], *, group: Wider, loud: bool = False) -> None:
        """Show it."""
        assert isinstance(group, Wider)
        typer.echo(json.dumps([what, group.size, group.name, loud]))

    return app


def test_the_fields_of_a_group_are_options_with_their_help_and_types() -> None:
    help_ = CliRunner().invoke(made(), ["--help"]).stdout
    for text in ("Show it.", "--size", "How many.", "--name", "--loud", "default: 3"):
        assert text in help_
    assert "--group" not in help_
    done = CliRunner().invoke(made(), ["x", "--name", "a", "--name", "b", "--size", "5"])
    assert json.loads(done.stdout) == ["x", 5, ["a", "b"], False]
    assert json.loads(CliRunner().invoke(made(), ["x"]).stdout)[1] == 3
    assert CliRunner().invoke(made(), ["x", "--size", "0"]).exit_code == 2
