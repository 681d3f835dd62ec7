"""`fleetbuild revoke`: recall a wheel from everywhere, list recalled wheels, or undo it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options

RevokedWheelArgument = Annotated[
    str | None,
    typer.Argument(metavar="SHA256|NAME==VERSION", help="A wheel's hash, or a version."),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why; every refusal says it."),
]
Undo = Annotated[bool, typer.Option("--undo", help="Take the revocation back.")]
List = Annotated[bool, typer.Option("--list", help="List revoked wheels, and where they serve.")]


def revoke(
    *,
    what: RevokedWheelArgument = None,
    reason: Reason = None,
    undo: Undo = False,
    list_: List = False,
    output: options.OutputOptions,
) -> None:
    """Recall a wheel from the store and from nodes.

    It is not used any more, and the next apply replaces it on nodes.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show import store as report

        fleet = fleetbuild.Fleet(state_dir=output.state_dir)
        if list_:
            _refuse(what, reason, undo)
            entries = fleet.store.revocations()
            if output.json:
                run.out.document(report.revocations_document(entries))
            elif entries:
                run.out.show(report.revocations_table(entries))
            else:
                run.out.say("Nothing is revoked.")
            return
        if what is None:
            raise UsageError(
                "No wheel is named.",
                "Name one: fleetbuild revoke SHA256|NAME==VERSION --reason TEXT; or list them:"
                " fleetbuild revoke --list",
            )
        if undo:
            if reason is not None:
                raise UsageError("--undo needs no --reason.", "Leave it out.")
            entry = fleet.store.take_back(what)
            if output.json:
                run.out.document(report.undone_document(entry))
            else:
                run.out.say(
                    f"{entry.what} is no longer revoked. It was: {entry.reason}",
                    "Next: fleetbuild plan INVENTORY",
                )
            return
        if reason is None:
            raise UsageError("A revocation needs a reason.", "Say why: --reason TEXT")
        revoked = fleet.store.revoke(what, reason)
        if output.json:
            run.out.document(report.revocations_document([revoked]))
        else:
            run.out.say(*report.revoked_lines(revoked))


def _refuse(what: str | None, reason: str | None, undo: bool) -> None:
    if what is not None or reason is not None or undo:
        raise UsageError("--list goes with nothing else.", "Leave out the rest.")
