"""Run one playbook on every reachable node that has a release. Verify and rollback use it.

In: a `FleetTask` and an inventory. Out: a `Result`. Followers are notified, the state is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic

from fleetbuild.ansible import RunPlaybook
from fleetbuild.ansible.role_results import AnyReply, Reply, more_severe, reply_in
from fleetbuild.ansible.silent_nodes import AGAIN, result_without_reply, tell_waiting
from fleetbuild.apply.followers import blocked_nodes, report, verified_releases
from fleetbuild.apply.serving import note_reply
from fleetbuild.extension import Follower
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
from fleetbuild.models.result import LabelResult
from fleetbuild.models.role_parameters import ReleaseSpec
from fleetbuild.probe.facts import Prober
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir

if TYPE_CHECKING:
    from fleetbuild.ansible import TaskEvent

_EVENT_STATES = {
    "unreachable": "unreachable",
    "install_failed": "failed",
    "verify_failed": "failed",
}


@dataclass(frozen=True)
class FleetTask(Generic[AnyReply]):
    """A playbook, its variables for each node, and how to turn a node's reply into a result."""

    playbook: str
    variable: str  # the playbook's extra variable
    stage: Stage
    job: Callable[[str, Manifest], ReleaseSpec | NodeResult]
    reply: type[AnyReply]
    result: Callable[[str, Manifest, AnyReply], NodeResult]
    changes: bool = False  # whether it changes which release serves


# What to do about a node whose release is damaged or lost.
REPAIR = "Install it again: fleetbuild verify INVENTORY --repair"


def run_fleet_task(
    task: FleetTask[AnyReply],
    inventory: Inventory,
    *,
    release: str,
    expected: Mapping[str, str],
    state: StateDir,
    probe: Prober,
    run_playbook: RunPlaybook,
    on_event: OnEvent,
    follower: Follower,
) -> Result:
    """Probe the nodes, run the playbook where a release serves, and return the results.

    `expected` maps nodes to the release that the last apply left there; a node that lost it fails.
    """
    began, started = monotonic(), now()
    with hold_run_lock(state.create().lock_file):
        facts = probe(inventory.nodes, on_event)
        nodes = _without_release(facts, release, expected)
        current = {name: facts[name].release[release] for name in facts if name not in nodes}
        jobs, refused = _jobs(task, current)
        nodes |= refused
        groups = {name: manifest.group for name, manifest in current.items()}
        followed: dict[str, LabelResult] = {}
        if jobs and (sentence := follower.prepare()):
            on_event(Event(stage="label", state="warning", message=sentence))
        if task.changes:
            followed = follower.before(jobs, serves=True)
            report(on_event, followed, groups, {})
            nodes |= blocked_nodes(followed, groups)
            jobs = {name: job for name, job in jobs.items() if name not in nodes}
            state.mark_changing(jobs)
        if jobs:
            results = {name: partial(task.result, name, current[name]) for name in jobs}
            variables = {
                name: job.model_dump(mode="json", exclude_unset=True) for name, job in jobs.items()
            }
            ended = run_on_nodes(
                task.playbook,
                {task.variable: variables},
                stage=task.stage,
                groups=groups,
                reply=task.reply,
                results=results,
                run_playbook=run_playbook,
                on_event=on_event,
            )
            nodes |= ended
            if task.changes:
                state.mark_ended(n for n, each in ended.items() if each.state == "rolled_back")
        served: dict[str, Manifest | None] = {}
        if not task.changes:
            served = _keep_verdicts(state, nodes, current)
        elif jobs:
            facts_now = probe([node for node in inventory.nodes if node.name in jobs], ignore)
            nodes = _with_current_group(nodes, facts_now, release)
            done = {name: each for name, each in nodes.items() if each.state == "rolled_back"}
            state.amend_result(done, started=started, release=release)
            served = {**verified_releases(facts_now, release)}
        again = follower.after(served) if served else {}
        report(on_event, again, groups, served)
    return Result(
        plan_digest="",
        nodes=tuple(nodes[node.name] for node in inventory.nodes),
        labels=tuple((followed | again).values()),
        changed=any(result.state == "rolled_back" for result in nodes.values()),
        seconds=round(monotonic() - began, 3),
    )


def _keep_verdicts(
    state: StateDir, nodes: Mapping[str, NodeResult], current: Mapping[str, Manifest]
) -> dict[str, Manifest | None]:
    """Save which releases were verified and which failed; return what serves on these nodes."""
    served: dict[str, Manifest | None] = {}
    for name, result in nodes.items():
        if result.state in ("verified", "verify_failed"):
            works, manifest = result.state == "verified", current.get(name)
            served[name] = manifest if works else None
            if manifest:
                note_reply(state, name, manifest.model_copy(update={"verified": works}))
    return served


def _with_current_group(
    nodes: Mapping[str, NodeResult], facts: Mapping[str, Facts], release: str
) -> dict[str, NodeResult]:
    """Return the results; a node that was rolled back gets the group of the release it has now."""
    results = dict(nodes)
    for name, result in nodes.items():
        now = facts[name].release.get(release) if name in facts else None
        if now and now.id == result.release_id and result.state == "rolled_back":
            results[name] = result.model_copy(update={"group": now.group})
    return results


def _without_release(
    facts: Mapping[str, Facts], release: str, expected: Mapping[str, str]
) -> dict[str, NodeResult]:
    """Return the results of the nodes where the release does not serve."""
    results = {}
    for name, node in facts.items():
        if node.state == "ok" and release in node.release:
            continue
        about: dict[str, Any] = {"state": "skipped", "reason": node.reason or no_release(release)}
        if node.state == "unreachable":
            about = {"state": "unreachable", "reason": node.reason, "fix": node.fix or AGAIN}
        elif node.state == "ok" and (release in node.damaged or name in expected):
            lost = f"The last apply left release {expected.get(name)}, but none serves there now."
            damage = node.damaged.get(release)
            reason = f"Its release is damaged: {damage}." if damage else lost
            about = {"state": "verify_failed", "reason": reason, "fix": REPAIR, "damaged": True}
        results[name] = NodeResult(node=name, **about)
    return results


def no_release(name: str) -> str:
    """Return that a node has no release of this name, in a sentence."""
    return "No release is there." if name == "default" else f"No release {name} is there."


def _jobs(
    task: FleetTask[AnyReply], current: Mapping[str, Manifest]
) -> tuple[dict[str, ReleaseSpec], dict[str, NodeResult]]:
    jobs: dict[str, ReleaseSpec] = {}
    refused: dict[str, NodeResult] = {}
    for name, manifest in current.items():
        job = task.job(name, manifest)
        if isinstance(job, NodeResult):
            refused[name] = job
        else:
            jobs[name] = job
    return jobs, refused


def run_on_nodes(
    playbook: str,
    variables: Mapping[str, object],
    *,
    stage: Stage,
    groups: Mapping[str, str | None],
    reply: type[AnyReply],
    results: Mapping[str, Callable[[AnyReply], NodeResult]],
    run_playbook: RunPlaybook,
    on_event: OnEvent,
) -> dict[str, NodeResult]:
    """Run a playbook on the nodes of `results`, which turns each node's reply into its result."""
    replies: dict[str, Reply] = {}

    def report(result: NodeResult) -> None:
        on_event(
            Event.model_validate(
                {
                    "stage": stage,
                    "state": _EVENT_STATES.get(result.state, "ok"),
                    "node": result.node,
                    "group": result.group,
                    "message": result.reason or "",
                    "fix": result.fix or "",
                    "log": result.log,
                }
            )
        )

    def listen(event: TaskEvent) -> None:
        if event.state == "waiting":
            tell_waiting(on_event, event, groups.get(event.host), stage)
        elif said := reply_in(event):
            replies[event.host] = more_severe(replies.get(event.host), said)
            if isinstance(said, reply):
                report(results[event.host](said))

    for group in dict.fromkeys(groups[name] for name in results if name in groups):
        nodes = tuple(name for name in results if groups.get(name) == group)
        on_event(Event(stage=stage, state="started", group=group, nodes=nodes))
    hosts = run_playbook(playbook, limit=sorted(results), extravars=variables, on_event=listen)
    ended = {}
    for name, result in results.items():
        said, host = replies.get(name), hosts.get(name)
        if isinstance(said, reply):
            ended[name] = result(said)
            if host and host.log and ended[name].state in _EVENT_STATES:
                ended[name] = ended[name].model_copy(update={"log": host.log})
        else:
            ended[name] = result_without_reply(name, groups.get(name), host, said)
            report(ended[name])
    return ended
