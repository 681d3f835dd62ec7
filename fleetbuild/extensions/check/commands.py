"""`fleetbuild check`: show what of a stack runs on each kind of machine, and what dies there."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options

if TYPE_CHECKING:
    from fleetbuild.cli.session import Session

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[REQUIREMENT]... [INVENTORY]",
        help="What to check, such as numpy or torch==2.13.0; last, an Ansible inventory whose nodes"
        " are judged for (a folder as ./FOLDER).",
    ),
]


class Format(StrEnum):
    """Formats of the report."""

    table = "table"
    markdown = "markdown"
    github = "github"
    sarif = "sarif"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="A table for people, Markdown, annotations for GitHub Actions, or SARIF for code"
        " scanning.",
    ),
]
Environment = Annotated[
    Path | None,
    typer.Option(
        "--env",
        metavar="DIR",
        help="Check the packages installed in this folder, by their files: a virtual environment or"
        " an unpacked image.",
    ),
]
Instead = Annotated[
    bool,
    typer.Option(
        "--instead",
        help="Fetch and read up to six other versions of each package that dies, to name one that"
        " runs. Without it, only files whose results are known are named.",
    ),
]
Use = Annotated[
    str | None,
    typer.Option(
        "--use",
        metavar="CODE",
        help="Needs --emulate. Run also this Python code, or the code in this file, for each"
        " checked package that it imports.",
    ),
]
Core = Annotated[
    Path | None,
    typer.Option(
        "--core",
        metavar="FILE",
        help="Say which instruction, package, file and function the core file of a crash is about.",
    ),
]


def check(
    nodes: options.NodeOptions,
    output: options.OutputOptions,
    arguments: Arguments = None,
    requirements: options.Requirements = None,
    lock: options.Lock = None,
    env: Environment = None,
    kinds: options.Kinds = None,
    emulate: options.Emulate = False,
    use: Use = None,
    instead: Instead = False,
    format: FormatOption = Format.table,  # noqa: A002 (the option's name)
    core: Core = None,
    captures: options.Captures = None,
) -> None:
    """Show what of a stack runs on each kind of machine.

    It says why a package dies on a kind, and what to take instead. It judges for the kinds that
    --for names, also nodes of INVENTORY; else for INVENTORY's groups, else for this machine.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.check import check_stack
        from fleetbuild.extensions.check import show as report

        output.refuse_format(format)
        if core:
            others = (arguments, requirements, lock, env, emulate, use, instead)
            more = (captures, nodes.limit, nodes.config, format is not Format.table)
            _explain(run, core, kinds or (), alone=not any(others + more))
            return
        wanted, inventory = _split(arguments or [], alone=not (requirements or lock or env))
        fleet: dict[str, Any] = {}
        if inventory is not None:
            fleet = _read_fleet(run, inventory, nodes, captures)
            wanted = wanted or ([] if requirements or lock or env else fleet.pop("packages"))
            fleet.pop("packages", None)
        elif nodes.limit or captures:
            option = "--limit" if nodes.limit else "--facts"
            raise UsageError(f"{option} needs an INVENTORY.", "Name one, or leave out the option.")
        elif nodes.config:
            fleet = {"config": fleetbuild.load_config(nodes.config)}
        outcome = check_stack.check(
            wanted,
            files=requirements or (),
            lock=lock,
            env=env,
            kinds=kinds or (),
            emulate=emulate,
            use=use,
            instead=instead,
            state_dir=output.state_dir,
            progress=run.out.warn,
            **fleet,
        )
        if output.json:
            run.out.document(outcome.document())
        elif format is Format.sarif:
            run.out.document(report.sarif_document(outcome))
        elif format is Format.table:
            run.out.show(report.check_table(outcome, every_row=output.verbose))
            run.out.say("", *report.check_ending(outcome))
            if inventory is not None and not kinds:
                run.out.say("A plan joins groups that its packages do not tell apart.")
        else:
            write = report.markdown_lines if format is Format.markdown else report.github_lines
            run.out.say(*write(outcome))
        for kind, (problem, fix) in outcome.unresolved.items():
            run.out.warn(f"error: {kind}: {problem}")
            run.out.warn(f"fix: {fix}")
        run.exit_code = outcome.exit_code


def _explain(run: Session, core: Path, kinds: Sequence[str], *, alone: bool) -> None:
    """Show what a core file says, and which of the kinds would run the instruction."""
    from fleetbuild.extensions.check import show
    from fleetbuild.extensions.check.crash import read_crash
    from fleetbuild.extensions.check.machine_kinds import named_kinds, this_machine

    if not alone:
        raise UsageError(
            "--core explains a crash and checks no stack.",
            "Leave out everything but --for and --json.",
        )
    crash = read_crash(core)
    if run.out.json:
        run.out.document({"format_version": "1.0", **crash.model_dump(mode="json")})
    else:
        run.out.say(*show.crash_lines(crash, named_kinds(kinds) if kinds else [this_machine()]))


def _split(arguments: list[str], *, alone: bool) -> tuple[list[str], str | None]:
    """Return the requirements and the inventory: the last argument, if it is a file or folder.

    A folder's name without a slash is a requirement, unless other options name those: `check numpy`
    in a folder that has a numpy beside it.
    """
    if not arguments:
        return [], None
    last = arguments[-1]
    path = Path(last)
    is_name = alone and "/" not in last and path.is_dir()
    if len(last) < 4096 and path.exists() and not is_name:
        return arguments[:-1], last
    return arguments, None


def _read_fleet(
    run: Session, inventory: str, nodes: options.NodeOptions, captures: Path | None
) -> dict[str, Any]:
    from fleetbuild.cli import steps

    fleet = steps.open_fleet(run, inventory, command="check", nodes=nodes)
    facts, _ = steps.probe(run, fleet, captures=captures)
    return {"facts": facts, "config": fleet.config, "packages": list(fleet.packages)}
