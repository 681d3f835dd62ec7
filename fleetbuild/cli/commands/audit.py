"""`fleetbuild audit`: show which CPU features, SMs and libc a wheel needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.extension import find_evidence

if TYPE_CHECKING:
    from fleetbuild import Verdict
    from fleetbuild.cli.session import Session

WheelArguments = Annotated[
    list[Path], typer.Argument(metavar="WHEEL", help="Wheel files.", show_default=False)
]


def audit(
    wheels: WheelArguments,
    output: options.OutputOptions,
    kinds: options.Kinds = None,
    emulate: options.Emulate = False,
) -> None:
    """Show which CPU features, SMs and libc wheels need.

    The exit code is 7 if a wheel has a defect or dies on one of the kinds that --for names, else 4
    if that is not decided for one of them.
    """
    with output.session() as run:
        if emulate and not kinds:
            raise UsageError("--emulate needs --for KIND.", "Name one, such as: --for x86-64-v2")
        if output.json and len(wheels) > 1:
            raise UsageError("--json describes one wheel.", "Name one wheel, or leave out --json.")
        run.exit_code = max(_audit_one(run, wheel, output, kinds, emulate) for wheel in wheels)


def _audit_one(
    run: Session, wheel: Path, output: options.OutputOptions, kinds: list[str] | None, emulate: bool
) -> int:
    import fleetbuild
    from fleetbuild.cli.show import audit as report

    wheel_audit = fleetbuild.audit_wheel(wheel)
    verdicts: Mapping[str, Verdict] = {}
    if kinds:
        evidence = find_evidence()
        if evidence is None:
            raise UsageError(
                "No extension of this fleetbuild judges wheels for kinds of machines.",
                "Leave out --for.",
            )
        verdicts = evidence.judge(
            wheel,
            kinds,
            requires=wheel_audit.requires,
            emulate=emulate,
            state_dir=output.state_dir,
            progress=run.out.warn,
        )
    if output.json:
        run.out.document(report.audit_document(wheel_audit, verdicts))
    else:
        run.out.say(*report.audit_lines(wheel_audit, every_use=output.verbose))
        run.out.say(*report.verdict_lines(verdicts))
    if wheel_audit.problems or any(verdict.dies for verdict in verdicts.values()):
        return 7
    return 4 if any(verdict.verdict == "undecided" for verdict in verdicts.values()) else 0
