"""Clean up after a killed run, on nodes where this run changes nothing.

In: the progress after the check. Out: nothing; the nodes no longer hold that run's lease, which
would refuse other controllers, nor the wheels that it copied. Other nodes lose both in a wave.
"""

from __future__ import annotations

from fleetbuild.apply.context import Progress, Run
from fleetbuild.models.role_parameters import ChangedRelease


def clean_up(run: Run, progress: Progress) -> None:
    """Run playbooks/clean_up.yml where an earlier run of this controller may hold a lease."""
    names = sorted(
        name
        for name, result in progress.nodes.items()
        if result.state == "up_to_date" and run.state.is_reserved(name)
    )
    if not names:
        return
    job = ChangedRelease(
        path=run.plan.install_path, release=run.plan.release, controller=run.state.controller()
    ).model_dump(mode="json")
    hosts = run.tools.playbook(
        "clean_up.yml",
        limit=names,
        extravars={"fleetbuild_clean_ups": dict.fromkeys(names, job)},
        on_event=lambda _: None,
    )
    run.state.mark_ended(name for name in names if hosts[name].state == "ok")
