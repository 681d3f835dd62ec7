"""Silent nodes: events while a run waits for one, and its result once it counts as unreachable.

In: how a playbook ended on a host. Out: events, and results that name the node and the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import RoleResult
from fleetbuild.models import Event, NodeResult, OnEvent, Stage

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent

AGAIN = "Once it answers, run the same command again; finished work is kept."
_SILENT_AFTER = 5  # seconds; below that the connection was refused or cut
# Ending of a task's name -> its stage, and what the node was doing.
_STEPS: dict[str, tuple[Stage, str]] = {
    "Copy wheels": ("distribute", "copying wheels"),
    "Make the release": ("install", "installing"),
    "Verify the release": ("verify", "verifying"),
    "Mark the release as verified": ("verify", "verifying"),
    "Switch to the release": ("activate", "switching to the new release"),
    "Switch to the previous release": ("activate", "switching to the previous release"),
    "Copy the source and the build requirements": ("build", "copying the source"),
    "Wait for the build": ("build", "building"),
    "Fetch the wheel and the log": ("build", "fetching the wheel"),
    "Install packages": ("toolchain", "installing the toolchain"),
}


def stage_of(task: str, otherwise: Stage) -> Stage:
    """Return the stage that a task belongs to."""
    return next((step[0] for end, step in _STEPS.items() if task.endswith(end)), otherwise)


def describe_loss(host: HostRun) -> str:
    """Return what happened to an unreachable host, and during which step."""
    steps = (step[1] for end, step in _STEPS.items() if host.task.endswith(end))
    doing = next(steps, f"at the step {host.task.rpartition(' : ')[2]!r}" if host.task else "")
    step = f" {doing}" if doing.startswith("at ") or not doing else f" while {doing}"
    if host.silent >= _SILENT_AFTER:
        return f"No answer for {host.silent:.0f} s{step}"
    return f"The connection was lost{step}: {host.message or 'no reason given'}".rstrip(".")


def tell_waiting(on_event: OnEvent, event: TaskEvent, group: str | None, stage: Stage) -> None:
    """Report the node that a run waits for."""
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
    """Return the result of a node that became unreachable or on which a task failed.

    `serving` is the release that served before, "" if none did, None if unknown.
    """
    if host and host.state == "unreachable":
        return NodeResult(
            node=name,
            group=group,
            state="unreachable",
            reason=f"{describe_loss(host)}{_release_after_loss(host, serving)}.",
            fix=AGAIN,
        )
    said = (failure.reason if failure else "") or (host.message if host else "")
    return NodeResult(
        node=name,
        group=group,
        state="install_failed",
        reason=said or "Ansible stopped there without giving a reason.",
        fix=(failure.fix if failure else "")
        or "Fix the error above, then run the same command again.",
    )


def _release_after_loss(host: HostRun, serving: str | None) -> str:
    """Return what an unreachable node serves now, as the end of a sentence."""
    if stage_of(host.task, "install") == "activate":
        return "; it serves the release from before the switch or the one from after it"
    if serving is None:
        return ""
    return "; its previous release still serves" if serving else "; nothing serves there yet"
