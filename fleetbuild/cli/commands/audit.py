"""`fleetbuild audit`: show which CPU features, SMs and libc a wheel needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options

WheelArgument = Annotated[Path, typer.Argument(help="A wheel file.")]


def audit(
    wheel: WheelArgument,
    output: options.OutputOptions,
    kinds: options.Kinds = None,
    emulate: options.Emulate = False,
) -> None:
    """Show which CPU features, SMs and libc a wheel needs.

    With --for, the exit code is 7 if it dies on one of these kinds, else 4 if that is not decided
    for one of them.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show import audit as report
        from fleetbuild.cli.show.check import progress

        if emulate and not kinds:
            raise UsageError("--emulate needs --for KIND.", "Name one, such as: --for x86-64-v2")

        wheel_audit = fleetbuild.audit_wheel(wheel)
        verdicts = {}
        if kinds:
            verdicts = fleetbuild.judge_wheel(
                wheel,
                kinds,
                requires=wheel_audit.requires,
                emulate=emulate,
                state_dir=output.state_dir,
                progress=progress(run.out),
            )
        if output.json:
            run.out.document(report.audit_document(wheel_audit, verdicts))
        else:
            run.out.say(*report.audit_lines(wheel_audit, every_use=output.verbose))
            run.out.say(*report.verdict_lines(verdicts))
        dies = wheel_audit.problems or any(verdict.dies for verdict in verdicts.values())
        unknown = any(verdict.verdict == "undecided" for verdict in verdicts.values())
        run.exit_code = 7 if dies else 4 if unknown else 0
