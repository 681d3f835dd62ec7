"""Remove the releases of one name from nodes: playbooks/remove.yml on each node that answers.

In: an inventory, the install path and the release's name. Out: a `Result`; followers are notified
before the releases are removed, and the saved state knows that nothing serves there.
"""

from __future__ import annotations

from functools import partial
from time import monotonic

from fleetbuild.ansible import RunPlaybook
from fleetbuild.ansible.role_results import ReleaseReply
from fleetbuild.ansible.silent_nodes import AGAIN, result_without_reply
from fleetbuild.apply.fleet_task import no_release, run_on_nodes
from fleetbuild.apply.followers import blocked_nodes, report, verified_releases
from fleetbuild.extension import Follower
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
    NodeResult,
    OnEvent,
    Result,
    ignore,
    now,
    release_root,
)
from fleetbuild.models.problem import Problem
from fleetbuild.models.role_parameters import RemoveSpec
from fleetbuild.models.serving import InUse
from fleetbuild.probe.facts import Prober
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from fleetbuild.text import count

_GONE = ("removed", "skipped")


def remove_releases(
    inventory: Inventory,
    spec: RemoveSpec,
    *,
    state: StateDir,
    probe: Prober,
    run_playbook: RunPlaybook,
    follower: Follower,
    on_event: OnEvent,
) -> Result:
    """Remove all releases of this name below the path that nothing uses."""
    began, started = monotonic(), now()
    root = release_root(spec.path, spec.release)
    with hold_run_lock(state.create().lock_file):
        facts = probe(inventory.nodes, on_event)
        nodes = {
            name: _left_out(name, each)
            for name, each in facts.items()
            if each.state != "ok" or not each.pythons
        }
        done = {name: nodes[name] for name in nodes if facts[name].state == "ok"}
        nodes |= _uncertain(follower.in_use([n for n in facts if n not in nodes], root))
        names = [name for name in facts if name not in nodes]
        if names and (sentence := follower.prepare()):
            on_event(Event(stage="label", state="warning", message=sentence))
        off = follower.before(names)
        report(on_event, off, {}, {})
        nodes |= blocked_nodes(off, {})
        changing = [name for name in names if name not in nodes]
        mounted = follower.in_use(changing, root)  # pods came until the labels went
        nodes |= _uncertain(mounted)
        if names := [name for name in changing if name not in nodes]:
            state.mark_changing(names)
            jobs = {
                name: spec.model_copy(update={"in_use": mounted.get(name, {})}).model_dump(
                    mode="json"
                )
                for name in names
            }
            ended = run_on_nodes(
                "remove.yml",
                {"fleetbuild_removals": jobs},
                stage="activate",
                groups={},
                reply=ReleaseReply,
                results={name: partial(_removed, name, spec) for name in names},
                run_playbook=run_playbook,
                on_event=on_event,
            )
            nodes |= ended
            done |= {name: each for name, each in ended.items() if each.state in _GONE}
        if changing:
            facts = probe([node for node in inventory.nodes if node.name in changing], ignore)
            served = verified_releases(facts, spec.release)
            again = follower.after(served)
            report(on_event, again, {}, served)
            off |= again
        state.mark_ended(done)
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


def _uncertain(mounted: InUse) -> dict[str, NodeResult]:
    """Return results for nodes whose pods are not known, so nothing is removed there."""
    return {
        name: NodeResult(
            node=name,
            state="blocked",
            reason="Its pods may mount a release, and they are not known, so nothing was removed"
            f" there: {problem.reason}",
            fix=problem.fix,
        )
        for name, problem in mounted.items()
        if isinstance(problem, Problem)
    }


def _removed(name: str, spec: RemoveSpec, reply: ReleaseReply) -> NodeResult:
    if not reply.ok:
        return result_without_reply(name, None, None, reply)
    gone = len(reply.pruned)
    if not gone:
        reason = no_release(spec.release)
        if reply.kept:
            reason = (
                f"Nothing was removed from {spec.path}: {count(len(reply.kept), 'release')} in use."
            )
        return NodeResult(node=name, state="skipped", reason=reason, kept=reply.kept)
    reason = f"{count(gone, 'release')} removed from {spec.path}."
    return NodeResult(node=name, state="removed", reason=reason, kept=reply.kept)
