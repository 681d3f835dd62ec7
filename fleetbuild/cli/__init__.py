"""The command line: one module per command, which reads arguments, calls `Fleet`, shows the answer.

Heavy modules are imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import ClassVar

import typer

from fleetbuild import Interrupted, UsageError
from fleetbuild.cli.commands import (
    apply,
    audit,
    doctor,
    emit,
    env,
    explain,
    facts,
    init,
    plan,
    remove,
    rollback,
    run,
    status,
    store,
    verify,
)
from fleetbuild.cli.foreign_options import Command, SectionedGroup
from fleetbuild.cli.options import expand
from fleetbuild.extension import extensions


class Program(SectionedGroup):
    """The program: first the commands of a fleet's life, then what a user looks for later."""

    sections: ClassVar = {
        "Commands": ("init", "plan", "apply", "status", "rollback", "explain"),
        "Nodes": ("facts", "verify", "remove"),
        "Wheels": ("audit", "store"),
        "This machine": ("doctor", "run", "env"),
    }
    rest: ClassVar = "Extensions"


app = typer.Typer(
    name="fleetbuild",
    cls=Program,
    help="Build one Python wheel for each kind of machine in an Ansible inventory, install it "
    "there and verify it.",
    epilog="Exit codes: 0 done; 1 unexpected error; 2 bad use or configuration; 3 nodes "
    "unreachable; 4 blocked; 5 build, 6 install, 7 verification failed; 8 locked; 9 stale plan; "
    "130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    init.init,
    doctor.doctor,
    facts.facts,
    plan.plan,
    apply.apply,
    status.status,
    verify.verify,
    rollback.rollback,
    remove.remove,
    explain.explain,
    audit.audit,
    env.env,
):
    app.command(cls=Command)(expand(command))
# What follows the command's name is the command's own.
app.command(cls=Command, context_settings={"allow_interspersed_args": False})(expand(run.run))
app.add_typer(emit.app, name="emit")
app.add_typer(store.app, name="store")
for of_store in (store.list_, store.check, store.rm, store.gc, store.fetch):
    store.app.command(name=of_store.__name__.rstrip("_"), cls=Command)(expand(of_store))
_GROUPS = {"": app, "emit": emit.app, "store": store.app}
for extension in extensions():
    for command in extension.commands():
        group, _, name = command.__name__.rpartition("_")  # store_push: a command of store
        if group not in _GROUPS:
            raise UsageError(
                f"An extension has the command {command.__name__}, but not its group {group}.",
                f"Repair or uninstall the package of {command.__module__}.",
            )
        kind = emit.KindCommand if group == "emit" else Command
        _GROUPS[group].command(name=name, cls=kind)(expand(command))


def _version(wanted: bool) -> None:
    if wanted:
        import fleetbuild

        typer.echo(f"fleetbuild {fleetbuild.__version__}")
        raise typer.Exit


@app.callback()
def _fleetbuild(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(_: int, __: FrameType | None) -> None:
    """End as Ctrl-C does; ignore repeated signals, which would cut that short.

    If a terminal closes, both the kernel and the shell send SIGHUP.
    """
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Run the program `fleetbuild`."""
    # Facts and plans have no cycles: to search them for cycles takes a seventh of a large plan.
    gc.set_threshold(50_000, 10, 1000)
    for ending in _ENDINGS:
        if signal.getsignal(ending) is not signal.SIG_IGN:  # nohup
            # As on Ctrl-C: Ansible runs in a session of its own and must end with this process.
            signal.signal(ending, _end)
    try:
        # Not `app()`: Typer would install its own hook for unexpected errors.
        sys.exit(typer.main.get_command(app)(prog_name="fleetbuild"))
    except SystemExit as end:
        if end.code != Interrupted.exit_code:
            raise
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(Interrupted.exit_code)  # Python would wait for a thread whose server is silent
