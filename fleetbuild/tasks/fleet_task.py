"""One playbook on every node that answers and has a release: verify and rollback are errands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from fleetbuild.ansible.fleet_playbooks import Playbooks
from fleetbuild.ansible.role_results import RoleResult, more_severe, role_result_of
from fleetbuild.ansible.silent_nodes import AGAIN, result_without_reply, tell_waiting
from fleetbuild.labelling.labeller import (
    OFF,
    Labeller,
    Results,
    report_labels,
    results_of_kept_labels,
    verified_releases,
)
from fleetbuild.labelling.serving import note_reply
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
    Manifest,
    NodeResult,
    OnEvent,
    Result,
    Stage,
    ignore,
    now,
)
from fleetbuild.models.role_parameters import ReleaseSpec
from fleetbuild.planner.facts import Prober
from fleetbuild.state.directory import StateDir
from fleetbuild.state.run_lock import hold_run_lock

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

Jobs = Mapping[str, ReleaseSpec]  # by node


@dataclass(frozen=True)
class FleetTask:
    """What is done, to whom, and how an answer reads as a result."""

    playbook: str
    variable: str  # the playbook's extra variable
    stage: Stage
    job: Callable[[str, Manifest], ReleaseSpec | NodeResult]
    result: Callable[[str, Manifest, RoleResult], NodeResult]
    changes: bool = False  # does it change what serves?


def run_fleet_task(
    errand: FleetTask,
    inventory: Inventory,
    *,
    release: str,
    left: Mapping[str, str],
    state: StateDir,
    probe: Prober,
    playbook: Playbooks,
    on_event: OnEvent,
    labels: Labeller,
) -> Result:
    """Probe, run the playbook where there is something to run it on, and tell what came of it.

    `left` tells which release the last apply left on which node: one that is gone is no success.
    """
    began, started = monotonic(), now()
    with hold_run_lock(state.create().lock_file):
        facts = probe(inventory.nodes, on_event)
        nodes = _without_release(facts, release, left)
        current = {name: facts[name].release[release] for name in facts if name not in nodes}
        jobs, refused = _jobs(errand, current)
        nodes |= refused
        groups = {name: manifest.group for name, manifest in current.items()}
        told: Results = {}
        if jobs and (sentence := labels.prepare()):
            on_event(Event(stage="label", state="warning", message=sentence))
        if errand.changes:
            told = labels.withdraw(list(jobs))
            report_labels(on_event, told, groups, OFF)
            nodes |= results_of_kept_labels(told, groups)
            jobs = {name: job for name, job in jobs.items() if name not in nodes}
        if errand.changes:
            state.mark_changing(jobs)
        if jobs:
            nodes |= _run(errand, jobs, current, playbook, on_event)
        if not errand.changes:
            _keep_verdicts(state, nodes, current)
            told = _confirmed(labels, nodes, current)
            report_labels(on_event, told, groups)
        elif jobs:
            now_there = probe([node for node in inventory.nodes if node.name in jobs], ignore)
            nodes = _as_found(nodes, now_there, release)
            done = {name: each for name, each in nodes.items() if each.state == "rolled_back"}
            state.amend_result(done, started=started)
            if told:
                again = labels.publish(verified_releases(now_there, release))
                report_labels(on_event, again, groups)
                told |= again
    return Result(
        plan_digest="",
        nodes=tuple(nodes[node.name] for node in inventory.nodes),
        labels=tuple(told.values()),
        changed=any(result.state == "rolled_back" for result in nodes.values()),
        seconds=round(monotonic() - began, 3),
    )


def _confirmed(
    labels: Labeller, nodes: Mapping[str, NodeResult], current: Mapping[str, Manifest]
) -> Results:
    """What was seen to work has its labels; what was seen not to has none."""
    good = {name: current[name] for name in current if nodes[name].state == "verified"}
    bad = [name for name in nodes if nodes[name].state == "verify_failed"]
    return {**labels.publish(good), **labels.withdraw(bad)}


def _keep_verdicts(
    state: StateDir, nodes: Mapping[str, NodeResult], current: Mapping[str, Manifest]
) -> None:
    """Keep which releases were seen to work, and which not."""
    for name, manifest in current.items():
        verdict = nodes[name].state
        if verdict in ("verified", "verify_failed"):
            works = verdict == "verified"
            note_reply(state, name, manifest.model_copy(update={"verified": works}))


def _as_found(
    nodes: Mapping[str, NodeResult], facts: Mapping[str, Facts], release: str
) -> dict[str, NodeResult]:
    """The results, with the group of the release that serves after it was switched back to."""
    found = dict(nodes)
    for name, known in facts.items():
        there = known.release.get(release)
        if there and there.id == found[name].release_id and found[name].state == "rolled_back":
            found[name] = found[name].model_copy(update={"group": there.group})
    return found


def _without_release(
    facts: Mapping[str, Facts], release: str, left: Mapping[str, str]
) -> dict[str, NodeResult]:
    results = {}
    for name, known in facts.items():
        if known.state == "unreachable":
            results[name] = NodeResult(
                node=name, state="unreachable", reason=known.reason, fix=known.fix or AGAIN
            )
        elif known.state == "ok" and release not in known.release and name in left:
            results[name] = NodeResult(
                node=name,
                state="verify_failed",
                reason=f"The last apply left release {left[name]}, and none serves there now.",
                fix="Plan and apply again.",
            )
        elif known.state != "ok" or release not in known.release:
            results[name] = NodeResult(
                node=name,
                state="skipped",
                reason=known.reason or f"It serves no release {release}.",
            )
    return results


def _jobs(
    errand: FleetTask, current: Mapping[str, Manifest]
) -> tuple[dict[str, ReleaseSpec], dict[str, NodeResult]]:
    jobs: dict[str, ReleaseSpec] = {}
    refused: dict[str, NodeResult] = {}
    for name, manifest in current.items():
        job = errand.job(name, manifest)
        if isinstance(job, NodeResult):
            refused[name] = job
        else:
            jobs[name] = job
    return jobs, refused


def _run(
    errand: FleetTask,
    jobs: Jobs,
    current: Mapping[str, Manifest],
    playbook: Playbooks,
    on_event: OnEvent,
) -> dict[str, NodeResult]:
    replies: dict[str, RoleResult] = {}

    def listen(event: TaskEvent) -> None:
        if event.state == "waiting":
            tell_waiting(on_event, event, current[event.host].group, errand.stage)
        elif reply := role_result_of(event):
            replies[event.host] = more_severe(replies.get(event.host), reply)
            if reply.of != "failure":
                _tell(on_event, errand, errand.result(event.host, current[event.host], reply))

    given = {name: job.model_dump(mode="json", exclude_unset=True) for name, job in jobs.items()}
    hosts = playbook(
        errand.playbook, limit=sorted(jobs), extravars={errand.variable: given}, on_event=listen
    )
    results = {}
    for name in jobs:
        reply, host = replies.get(name), hosts.get(name)
        if reply and reply.of != "failure":
            results[name] = errand.result(name, current[name], reply)
        else:
            results[name] = result_without_reply(name, current[name].group, host, reply)
            _tell(on_event, errand, results[name])
    return results


def _tell(on_event: OnEvent, errand: FleetTask, result: NodeResult) -> None:
    states = {"unreachable": "unreachable", "install_failed": "failed", "verify_failed": "failed"}
    on_event(
        Event.model_validate(
            {
                "stage": errand.stage,
                "state": states.get(result.state, "ok"),
                "node": result.node,
                "group": result.group,
                "message": result.reason or "",
                "fix": result.fix or "",
            }
        )
    )
