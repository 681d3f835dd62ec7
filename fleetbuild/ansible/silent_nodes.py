"""Silent nodes: events while a run waits for one, and its result once it counts as unreachable.

In: how a playbook ended on a host. Out: events, and results that name the node and the step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import FULL_FIX, Failure, Reply, is_disk_full
from fleetbuild.ansible.steps import step_of
from fleetbuild.models import Event, NodeResult, OnEvent, Stage

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent

_NO_FOLDER_FIX = "Give the login user a home that it can write, or set ansible_remote_tmp."
_BECOME = re.compile(r"become (?:success|password)|\bsudo\b")
_BECOME_FIX = (
    "Root is needed there, because the login user may not write to install.path or to a folder in"
    " it: give the become password (--ask-become-pass), or set install.path to a folder that this"
    " user can write."
)
AGAIN = "Once it answers, run the same command again; finished work is kept."
_SILENT_AFTER = 5  # seconds; below that the connection was refused or cut


def stage_of(task: str, otherwise: Stage) -> Stage:
    """Return the stage that a task belongs to."""
    step = step_of(task)
    return step.stage if step else otherwise


def is_lost(host: HostRun) -> bool:
    """Whether no answer came: Ansible also calls a node unreachable where it can make no folder."""
    return host.state == "unreachable" and fix_of(host.message) not in (FULL_FIX, _NO_FOLDER_FIX)


def fix_of(message: str) -> str:
    """Return what to do about what Ansible said of a node; nothing if that is not known."""
    if is_disk_full(message):
        return FULL_FIX
    if "create temporary directory" in message:
        return _NO_FOLDER_FIX
    return _BECOME_FIX if _BECOME.search(message) else ""


def describe_loss(host: HostRun) -> str:
    """Return what happened to an unreachable host, and during which step."""
    where = f" at the step {host.task.rpartition(' : ')[2]!r}" if host.task else ""
    if step := step_of(host.task):
        where = f" while {step.doing}"
    if host.silent >= _SILENT_AFTER:
        return f"No answer for {host.silent:.0f} s{where}"
    why = host.message or "no reason given"
    return f"The connection was lost{where}: {why}".rstrip(".")


def tell_waiting(on_event: OnEvent, event: TaskEvent, group: str | None, stage: Stage) -> None:
    """Report the node that a run waits for. Only its connection knows whether it is silent."""
    seconds, step = event.result.get("seconds", 0), step_of(event.task)
    doing = step.doing if step else f"at the step {event.task.rpartition(' : ')[2]!r}"
    on_event(
        Event(
            stage=stage_of(event.task, stage),
            state="waiting",
            node=event.host,
            group=group,
            message=f"{event.host} is still {doing} ({seconds} s)",
            seconds=seconds,
        )
    )


def result_without_reply(
    name: str,
    group: str | None,
    host: HostRun | None,
    failure: Reply | None,
    serving: str | None = None,
) -> NodeResult:
    """Return the result of a node that became unreachable or on which a task failed.

    `serving` is the release that served before, "" if none did, None if unknown.
    """
    if host and is_lost(host):
        return NodeResult(
            node=name,
            group=group,
            state="unreachable",
            reason=f"{describe_loss(host)}{_release_after_loss(host, serving)}.",
            fix=AGAIN,
            log=host.log or None,
        )
    message = (failure.reason if failure else "") or (host.message if host else "")
    if host and host.state == "unreachable":  # no folder can be made there
        full = "The disk is full: " if is_disk_full(message) else ""
        message = f"{full}{message.rstrip('.')}{_release_after_loss(host, serving)}."
    return NodeResult(
        node=name,
        group=group,
        state="install_failed",
        reason=message or "Ansible stopped there without giving a reason.",
        fix=(failure.fix if failure else "")
        or fix_of(message)
        or "Fix the error above, then run the same command again.",
        held=is_held(failure),
        log=(host.log if host else "") or None,
    )


def is_held(reply: Reply | None) -> bool:
    """Return whether another controller changes the releases of a node."""
    return isinstance(reply, Failure) and reply.advice == "wait-for-run"


def _release_after_loss(host: HostRun, serving: str | None) -> str:
    """Return which release an unreachable node serves, as the end of a sentence."""
    if stage_of(host.task, "install") == "activate":
        return "; it serves the release from before the switch or the one from after it"
    if serving is None:
        return ""
    return "; its previous release still serves" if serving else "; nothing serves there yet"
