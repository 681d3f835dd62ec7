"""The fifth stage: releases go to the nodes, the weakest of each group first.

In: the plan and the wheels in the store. Out: a result for every node. Groups go side by side: one
that waits for a silent node, or stops after failures, keeps no other from going on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.parallel import one_by_one, run_in_parallel
from fleetbuild.apply.pending import canaries, pending_groups, pending_nodes
from fleetbuild.apply.wave import wave
from fleetbuild.models import NodeResult, PlannedGroup
from fleetbuild.text import fold

GROUPS_AT_ONCE = 8  # each has an ansible-playbook of its own, which takes 100 MB
_CLEARED = ("installed", "up_to_date")
_FAILED = ("install_failed", "verify_failed")
Reason = tuple[str, str | None]  # why a group stops, and what to do


def rollout(run: Run, progress: Progress) -> Progress:
    """Install, verify and switch on each group's canaries, then on one batch after the other."""
    groups = list(pending_groups(run.plan, progress.nodes))
    at_once = min(len(groups), GROUPS_AT_ONCE)
    tools = replace(run.tools, playbook=partial(run.tools.playbook, at_once=at_once))
    run = replace(run, tools=tools, on_event=one_by_one(run.on_event))
    jobs = [partial(_roll_out, run, progress, group) for group in groups]
    nodes, labels, changed = {**progress.nodes}, {**progress.labels}, progress.changed
    for group, ended in zip(groups, run_in_parallel(jobs, at_once, run.tools.stop), strict=True):
        nodes |= {name: ended.nodes[name] for name in group.nodes}
        labels |= {name: ended.labels[name] for name in group.nodes if name in ended.labels}
        changed |= ended.changed
    return replace(progress, nodes=nodes, labels=labels, changed=changed)


def _roll_out(run: Run, progress: Progress, group: PlannedGroup) -> Progress:
    before = frozenset(progress.nodes)
    progress = _try_canaries(run, progress, group)
    size = run.plan.rollout.batch(len(group.nodes))
    while batch := pending_nodes(group, progress.nodes)[:size]:
        progress = wave(run, progress, group, batch, "node")
        progress = _hold_back(progress, group, _over_limit(run, progress, group, before))
    return progress


def _try_canaries(run: Run, progress: Progress, group: PlannedGroup) -> Progress:
    """Try the release on the weakest nodes. One that stops answering tells nothing about the
    release, so the next weakest takes its place; if that is lost too, the release may be why."""
    before = frozenset(progress.nodes)
    in_turn = canaries(group, progress.facts, len(group.nodes))
    first, rest = in_turn[: run.plan.rollout.canary], in_turn[run.plan.rollout.canary :]
    progress = wave(run, progress, group, _open(first, progress), "canary")
    lost = _lost(progress, set(first) - before)
    problem = _canary_failed(progress, first) or _over_limit(run, progress, group, before)
    if lost and not problem:
        second = _open(rest, progress)[: len(lost)]
        progress = wave(run, progress, group, second, "canary")
        problem = (
            _canary_failed(progress, second)
            or _canaries_lost(progress, [*lost, *second])
            or _over_limit(run, progress, group, before)
        )
    return _hold_back(progress, group, problem)


def _open(names: Iterable[str], progress: Progress) -> list[str]:
    return [name for name in names if name not in progress.nodes]


def _lost(progress: Progress, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if progress.nodes[name].state == "unreachable")


def _hold_back(progress: Progress, group: PlannedGroup, why: Reason | None) -> Progress:
    """The rest of a group that stops keeps what it has, with a reason and a fix."""
    if why is None:
        return progress
    held = {
        name: NodeResult(
            node=name, group=group.name, state="not_reached", reason=why[0], fix=why[1]
        )
        for name in pending_nodes(group, progress.nodes)
    }
    return replace(progress, nodes={**progress.nodes, **held})


def _canary_failed(progress: Progress, names: Iterable[str]) -> Reason | None:
    good = (*_CLEARED, "unreachable")
    results = [progress.nodes[name] for name in names]
    failed = next((result for result in results if result.state not in good), None)
    if failed is None:
        return None
    return f"{failed.node}, which goes first in its group, failed.", failed.fix


def _canaries_lost(progress: Progress, names: Collection[str]) -> Reason | None:
    """Where all that went first stopped answering, none of which shows that the release works."""
    if len(_lost(progress, names)) < len(names):
        return None
    reason = f"{' and '.join(names)}, which go first in their group, stopped answering."
    return reason, "Find out why before you run the same apply again: the release may be the cause."


def _over_limit(
    run: Run, progress: Progress, group: PlannedGroup, before: Collection[str]
) -> Reason | None:
    """Why too many nodes failed or, since `before`, stopped answering."""
    limits, total = run.plan.rollout, len(group.nodes)
    results = [progress.nodes[name] for name in group.nodes if name in progress.nodes]
    failed = [result for result in results if result.state in _FAILED]
    if len(failed) > limits.failures(total):
        names = fold(result.node for result in failed)
        return f"{names} failed, and rollout.max_fail is {limits.max_fail}.", failed[0].fix
    lost = _lost(progress, (result.node for result in results if result.node not in before))
    if len(lost) > limits.losses(total):
        limit = f"rollout.max_unreachable is {limits.max_unreachable}"
        fix = "Once they answer, run the same apply again; what is done stays done."
        return f"{fold(lost)} stopped answering, and {limit}.", fix
    return None
