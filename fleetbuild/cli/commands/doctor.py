"""`fleetbuild doctor`: check whether this machine has what a run needs."""

from __future__ import annotations

from fleetbuild.cli import options


def doctor(
    output: options.OutputOptions,
) -> None:
    """Check this machine: ssh, Ansible, uv, disk, the package index. Exit 2 if one is missing."""
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show import doctor as report

        findings = fleetbuild.Fleet(state_dir=output.state_dir).doctor()
        if output.json:
            run.out.document(report.document(findings))
        else:
            run.out.show(report.table(findings))
            run.out.say("", report.ending(findings))
        run.exit_code = 2 if any(finding.state == "fail" for finding in findings) else 0
