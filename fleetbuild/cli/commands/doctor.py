"""`fleetbuild doctor`: check whether this machine has what a run needs."""

from __future__ import annotations

from fleetbuild.cli import options
from fleetbuild.cli.session import Session


def doctor(
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Check this machine: ssh, Ansible, uv, disk, the package index. Exit 2 if one is missing."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.report import doctor as report

        findings = fleetbuild.Fleet(state_dir=state_dir).doctor()
        if json:
            run.out.document(report.document(findings))
        else:
            run.out.show(report.table(findings))
            run.out.say("", report.ending(findings))
        run.exit_code = 2 if any(finding.state == "fail" for finding in findings) else 0
