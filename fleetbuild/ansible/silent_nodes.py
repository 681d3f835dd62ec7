"""Nodes that do not answer: what is told while one is awaited, and its result once it is given up.

In: Ansible's account of a host. Out: events, and results that name the node and the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import RoleResult
from fleetbuild.ansible.steps import step_of
from fleetbuild.models import Event, NodeResult, OnEvent, Stage

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent

AGAIN = "Once it answers, run the same command again; what is done stays done."
_SLOW = 5  # seconds below which a connection was refused or cut, rather than silent


def stage_of(task: str, otherwise: Stage) -> Stage:
    """The stage that a task belongs to."""
    step = step_of(task)
    return step.stage if step else otherwise


def loss(host: HostRun) -> str:
    """What happened to a host that was lost, and at which step."""
    where = f" at the step {host.task.rpartition(' : ')[2]!r}" if host.task else ""
    if step := step_of(host.task):
        where = f" while {step.doing}"
    if host.silent >= _SLOW:
        return f"No answer for {host.silent:.0f} s{where}"
    why = host.message or "Ansible gives no reason"
    return f"The connection was lost{where}: {why}".rstrip(".")


def tell_waiting(on_event: OnEvent, event: TaskEvent, group: str | None, stage: Stage) -> None:
    """Name the node that a run waits for."""
    seconds = event.result.get("seconds", 0)
    on_event(
        Event(
            stage=stage_of(event.task, stage),
            state="waiting",
            node=event.host,
            group=group,
            message=f"waiting for {event.host} ({seconds} s)",
            seconds=seconds,
        )
    )


def result_without_reply(
    name: str,
    group: str | None,
    host: HostRun | None,
    failure: RoleResult | None,
    serving: str | None = None,
) -> NodeResult:
    """The result of a node that was lost, or on which a task failed.

    `serving` is the release that served before, "" where none did, None where nobody asked.
    """
    if host and host.state == "unreachable":
        return NodeResult(
            node=name,
            group=group,
            state="unreachable",
            reason=f"{loss(host)}{_left(host, serving)}.",
            fix=AGAIN,
        )
    said = (failure.reason if failure else "") or (host.message if host else "")
    return NodeResult(
        node=name,
        group=group,
        state="install_failed",
        reason=said or "Ansible stopped there without a reason.",
        fix=(failure.fix if failure else "") or "Mend it and run the same command again.",
    )


def _left(host: HostRun, serving: str | None) -> str:
    """What a lost node serves now."""
    if stage_of(host.task, "install") == "activate":
        return "; it serves the release from before the switch or the one from after it"
    if serving is None:
        return ""
    return "; its previous release still serves" if serving else "; nothing serves there yet"
