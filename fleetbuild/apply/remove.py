"""Remove the releases of one name from nodes: playbooks/remove.yml on each node that answers.

In: an inventory, the install path and the release's name. Out: a `Result`; labels are removed
before the releases are, and the saved state knows that nothing serves there.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING

from fleetbuild.ansible import RunPlaybook
from fleetbuild.ansible.role_results import RoleResult, more_severe, role_result_of
from fleetbuild.ansible.silent_nodes import AGAIN, result_without_reply, tell_waiting
from fleetbuild.kubernetes.labels.labeller import (
    OFF,
    Labeller,
    ManualLabels,
    report_labels,
    results_of_kept_labels,
    verified_releases,
)
from fleetbuild.models import Event, Facts, Inventory, NodeResult, OnEvent, Result, ignore, now
from fleetbuild.models.role_parameters import RemoveSpec
from fleetbuild.probe.facts import Prober
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

_EVENT_STATES = {"removed": "ok", "skipped": "ok", "unreachable": "unreachable"}


def remove_releases(
    inventory: Inventory,
    spec: RemoveSpec,
    *,
    state: StateDir,
    probe: Prober,
    run_playbook: RunPlaybook,
    labels: Labeller,
    former: bool,
    on_event: OnEvent,
) -> Result:
    """Remove all releases of this name below the path that nothing uses.

    `former` says that the path is not the one that releases serve from now: the saved state and
    the labels stay.
    """
    began, started = monotonic(), now()
    pods, labels = labels, ManualLabels() if former else labels
    with hold_run_lock(state.create().lock_file):
        facts = probe(inventory.nodes, on_event)
        nodes = {
            name: _left_out(name, each)
            for name, each in facts.items()
            if each.state != "ok" or not each.pythons
        }
        names = [name for name in facts if name not in nodes]
        if names and (sentence := labels.prepare(installs=True)):
            on_event(Event(stage="label", state="warning", message=sentence))
        off = labels.withdraw(names)
        report_labels(on_event, off, {}, OFF)
        nodes |= results_of_kept_labels(off, {})
        names = [name for name in names if name not in nodes]
        if names:
            state.mark_changing(names)
            ended = _run(spec, names, pods, run_playbook, on_event)
            nodes |= ended
            state.mark_ended(name for name, each in ended.items() if each.state == "removed")
            facts = probe([node for node in inventory.nodes if node.name in names], ignore)
            if again := labels.publish(verified_releases(facts, spec.release)):
                report_labels(on_event, again, {})
                off |= again
            done = {name: each for name, each in ended.items() if each.state == "removed"}
            if not former:
                state.amend_result(done, started=started, release=spec.release)
    return Result(
        plan_digest="",
        nodes=tuple(nodes[node.name] for node in inventory.nodes),
        labels=tuple(off.values()),
        changed=any(each.state == "removed" for each in nodes.values()),
        seconds=round(monotonic() - began, 3),
    )


def _left_out(name: str, facts: Facts) -> NodeResult:
    if facts.state == "unreachable":
        return NodeResult(
            node=name, state="unreachable", reason=facts.reason, fix=facts.fix or AGAIN
        )
    reason = facts.reason or "It has no Python, so no release was made there."
    return NodeResult(node=name, state="skipped", reason=reason)


def _run(
    spec: RemoveSpec,
    names: Collection[str],
    labels: Labeller,
    run_playbook: RunPlaybook,
    on_event: OnEvent,
) -> dict[str, NodeResult]:
    replies: dict[str, RoleResult] = {}

    def listen(event: TaskEvent) -> None:
        if event.state == "waiting":
            tell_waiting(on_event, event, None, "activate")
        elif reply := role_result_of(event):
            replies[event.host] = more_severe(replies.get(event.host), reply)

    mounted = labels.mounted_releases(names, spec.path)
    jobs = {name: spec.model_copy(update={"in_use": dict(mounted.get(name, {}))}) for name in names}
    variables = {name: job.model_dump(mode="json") for name, job in jobs.items()}
    hosts = run_playbook(
        "remove.yml",
        limit=sorted(names),
        extravars={"fleetbuild_removals": variables},
        on_event=listen,
    )
    results = {}
    for name in names:
        reply = replies.get(name)
        if reply and reply.of == "install" and reply.ok:
            results[name] = _removed(name, spec, reply)
        else:
            results[name] = result_without_reply(name, None, hosts.get(name), reply)
        on_event(
            Event.model_validate(
                {
                    "stage": "activate",
                    "state": _EVENT_STATES.get(results[name].state, "failed"),
                    "node": name,
                    "message": results[name].reason or "",
                    "fix": results[name].fix or "",
                    "log": results[name].log,
                }
            )
        )
    return results


def _removed(name: str, spec: RemoveSpec, reply: RoleResult) -> NodeResult:
    gone = len(reply.pruned)
    if not gone and not reply.kept:
        return NodeResult(
            node=name, state="skipped", reason=f"{spec.path} has no release {spec.release} there."
        )
    reason = f"{count(gone, 'release')} removed from {spec.path}."
    return NodeResult(node=name, state="removed", reason=reason, kept=reply.kept)
