"""`fleetbuild revoke`, `provenance`, `store export` and `store push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.text import count

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
StoredWheelArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHEEL",
        help="A wheel file, or a wheel in the store: NAME==VERSION, or the start of a sha256.",
    ),
]
Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The folder to write to; each group gets a folder in it."),
]
Destination = Annotated[
    str,
    typer.Argument(
        metavar="DIR|URL",
        help="A folder of static indexes, or the address that twine would upload to.",
    ),
]
IndexUrl = Annotated[
    str | None,
    typer.Option(
        "--index-url",
        metavar="URL",
        help="The address that pip installs from, for the table; default: URL/simple/.",
    ),
]


def provenance(
    *,
    wheel: StoredWheelArgument,
    output: options.OutputOptions,
) -> None:
    """Show and check where a wheel comes from.

    The key of its signature is signing.key of fleetbuild.yml in this folder. The exit code is 7 if
    a check fails.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.supply import show as report
        from fleetbuild.extensions.supply.provenance import provenance_of
        from fleetbuild.store.wheels import Store

        state = fleetbuild.Fleet(state_dir=output.state_dir).store.state
        file = fleetbuild.find_config(".")
        config = fleetbuild.load_config(file) if file else None
        origin = provenance_of(wheel, Store(state.store), config)
        if output.json:
            run.out.document(report.provenance_document(origin))
        else:
            run.out.say(*report.provenance_lines(origin, every_file=output.verbose))
        run.exit_code = 7 if origin.failed else 0


def revoke(
    *,
    wheel: RevokedWheelArgument = None,
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
        from fleetbuild.extensions.supply import revoke as recall
        from fleetbuild.extensions.supply import show as report

        state = fleetbuild.Fleet(state_dir=output.state_dir).store.state
        if list_:
            _refuse(wheel, reason, undo)
            entries = recall.revoked_wheels(state)
            if output.json:
                run.out.document(report.revocations_document(entries))
            elif entries:
                run.out.show(report.revocations_table(entries))
            else:
                run.out.say("Nothing is revoked.")
            return
        if wheel is None:
            raise UsageError(
                "No wheel is named.",
                "Name one: fleetbuild revoke SHA256|NAME==VERSION --reason TEXT; or list them:"
                " fleetbuild revoke --list",
            )
        if undo:
            if reason is not None:
                raise UsageError("--undo needs no --reason.", "Leave it out.")
            entry = recall.take_back(wheel, state)
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
        revoked = recall.revoke(wheel, reason, state)
        if output.json:
            run.out.document(report.revocations_document([revoked]))
        else:
            run.out.say(*report.revoked_lines(revoked))


def _refuse(wheel: str | None, reason: str | None, undo: bool) -> None:
    if wheel is not None or reason is not None or undo:
        raise UsageError("--list goes with nothing else.", "Leave out the rest.")


def store_export(
    *,
    folder: Folder,
    config: options.Config = None,
    output: options.OutputOptions,
) -> None:
    """Write a package index for each group of the last plan.

    The indexes are for pip and uv. variants.md lists which wheel is for which machine.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.supply.publish import export

        store = fleetbuild.Fleet(config=config, state_dir=output.state_dir).store
        written = [str(path) for path in export(store, folder)]
        if output.json:
            run.out.document({"indexes": written})
        else:
            run.out.say(*(f"Wrote {path}" for path in written))
            if written:
                run.out.say(f"Which wheel is for which machine: {folder / 'variants.md'}")


def store_push(
    *,
    destination: Destination,
    index_url: IndexUrl = None,
    config: options.Config = None,
    output: options.OutputOptions,
) -> None:
    """Publish the last plan's wheels.

    They go into static indexes in a folder, or are uploaded to an index server.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.supply.publish import push

        def tell(name: str, new: bool) -> None:
            if not output.json:
                run.out.say(f"{'Uploaded' if new else 'Already published'}: {name}")

        store = fleetbuild.Fleet(config=config, state_dir=output.state_dir).store
        pushed = push(store, destination, index=index_url, on_file=tell)
        if output.json:
            table = str(pushed.table) if pushed.table else None
            run.out.document({"new": pushed.new, "there": pushed.there, "table": table})
        else:
            there = f", {count(len(pushed.there), 'file')} there already" if pushed.there else ""
            run.out.say(f"{count(len(pushed.new), 'file')} published{there}.")
            if pushed.table:
                run.out.say(f"Which wheel is for which machine: {pushed.table}")
