"""Fifth stage, rollout: install the release on the canaries of each group, then batch by batch.

In: the plan and the wheels in the store. Out: a result for every node. Groups run in parallel, so a
group that waits for a silent node or stops after failures does not block the others. If asked to, a
group that stops goes back to what it served before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

from fleetbuild.ansible import SharedPlaybooks
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.hooks import finish_hooks
from fleetbuild.apply.pending import pending_groups, pending_nodes
from fleetbuild.apply.rollback import roll_back
from fleetbuild.apply.wave import (
    installed_wheels,
    kept_space,
    needed_space,
    sign_release,
    wave,
)
from fleetbuild.audit.ownership import owners
from fleetbuild.errors import ConfigError
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Event, Facts, NodeResult, OnEvent, PlannedGroup
from fleetbuild.models.role_parameters import ChangedRelease
from fleetbuild.text import fold, version_key

GROUPS_AT_ONCE = 8  # out of step, each has an ansible-playbook, which takes 100 MB
_CODE_FEATURES = frozenset().union(*(rung.features for rung in RUNGS.values()))
_GOOD_STATES = ("installed", "up_to_date")
_FAILED_STATES = ("install_failed", "verify_failed")
Reason = tuple[str, str | None]  # why a group stops, and what to do


def rollout(run: Run, progress: Progress) -> Progress:
    """Install, verify and activate the release: canaries first, then batch by batch."""
    clean_up(run, progress)
    groups = [group for group in pending_groups(run.plan, progress.nodes) if group.nodes]
    drained = run.journal.left_drained()
    nodes, labels, changed = {**progress.nodes}, {**progress.labels}, progress.changed
    for group, group_progress in zip(groups, _roll_out_all(run, progress, groups), strict=True):
        nodes |= {name: group_progress.nodes[name] for name in group.nodes}
        labels |= {
            name: group_progress.labels[name]
            for name in group.nodes
            if name in group_progress.labels
        }
        changed |= group_progress.changed
    progress = replace(progress, nodes=nodes, labels=labels, changed=changed)
    return finish_hooks(run, progress, drained)


def _roll_out_all(
    run: Run, progress: Progress, groups: Sequence[PlannedGroup]
) -> Sequence[Progress]:
    """Roll out all groups in parallel; their waves share playbooks."""
    at_once = min(len(groups), GROUPS_AT_ONCE)
    if at_once <= 1:
        return [_roll_out(run, progress, group) for group in groups]
    with SharedPlaybooks(
        run.tools.run_playbook,
        groups=len(groups),
        at_once=at_once,
        forks=run.tools.forks,
        bandwidth=run.plan.bandwidth is not None,
    ) as shared:
        tools = replace(run.tools, run_playbook=shared.run)
        run = replace(run, tools=tools, on_event=one_by_one(run.on_event))
        jobs = [partial(shared.work, partial(_roll_out, run, progress, each)) for each in groups]
        return run_in_parallel(jobs, at_once, run.tools.stop)


def _roll_out(run: Run, progress: Progress, group: PlannedGroup) -> Progress:
    before = frozenset(progress.nodes)
    progress = _check_release(run, progress, group)
    progress = _refuse_small_disks(run, progress, group)
    problem = _over_limit(run, progress, group, before)
    if not problem:
        progress, problem = _try_canaries(run, progress, group)
    sizes = run.plan.rollout.batches(len(group.nodes))
    while not problem and (batch := pending_nodes(group, progress.nodes)[: next(sizes)]):
        progress = wave(run, progress, group, batch, "node")
        problem = _over_limit(run, progress, group, before)
    if problem is None:
        return progress
    progress = _hold_back(run, progress, group, problem)
    return roll_back(run, progress, group, problem[0]) if run.rollback_on_failure else progress


def _refuse_small_disks(run: Run, progress: Progress, group: PlannedGroup) -> Progress:
    """Fail the nodes whose disk the release does not fit on, before the first node changes.

    Each node compares again at its turn. A release that a rollback left there needs no space.
    """
    names = pending_nodes(group, progress.nodes)
    needed = needed_space(installed_wheels(progress, group)) if names else 0
    results = dict(progress.nodes)
    for name in names:
        facts = progress.facts[name]
        kept = facts.previous.get(run.plan.release) == group.release_id
        if kept or not facts.lacks_space(needed):
            continue
        linked = kept_space(progress, group, facts.release.get(run.plan.release))
        lack = facts.lacks_space(needed - linked)
        if not lack:
            continue
        path = run.plan.install_path
        reason = f"The disk of {path} {lack}. Nothing was changed there."
        fix = f"Free space there (df -h {path}) or set another install path; then run again."
        about = {"node": name, "group": group.name, "fix": fix}
        results[name] = NodeResult(state="install_failed", reason=reason, **about)
        run.tell("install", "failed", reason, **about)
    return replace(progress, nodes=results)


def _check_release(run: Run, progress: Progress, group: PlannedGroup) -> Progress:
    """Fail the group if its release cannot be signed, or if two wheels bring the same name."""
    names = pending_nodes(group, progress.nodes)
    if not names:
        return progress
    wheels = installed_wheels(progress, group)
    try:
        sign_release(run, progress, group, wheels)
    except ConfigError as error:
        return _fail(run, progress, group, error.message, error.fix or "")
    paths = [Path(wheel.path) for wheel in wheels]
    built = {wheel.package: wheel.allow_files for wheel in group.wheels}
    problems, warnings = owners(paths, {**run.tools.allow_files, **built})
    if not problems:
        for warning in warnings:
            run.tell("install", "warning", f"{warning}.", group=group.name)
        return progress
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    reason = f"Wheels of this release take each other's names: {'; '.join(problems[:3])}{more}."
    fix = (
        "Leave out one of these packages, or take other versions. If a package's files belong in"
        " the other's folder, allow them in fleetbuild.yml: allow_files: {NAME: [PATTERN]}."
    )
    return _fail(run, progress, group, reason, fix)


def _fail(run: Run, progress: Progress, group: PlannedGroup, reason: str, fix: str) -> Progress:
    names = pending_nodes(group, progress.nodes)
    run.tell("install", "failed", reason, group=group.name, fix=fix)
    failed = {
        name: NodeResult(
            node=name, group=group.name, state="install_failed", reason=reason, fix=fix
        )
        for name in names
    }
    return replace(progress, nodes={**progress.nodes, **failed})


def _try_canaries(
    run: Run, progress: Progress, group: PlannedGroup
) -> tuple[Progress, Reason | None]:
    """Install the release on the weakest nodes; return a reason to stop, if there is one.

    A canary that stops answering proves nothing, so the next weakest node replaces it. If that one
    stops answering too, the release may be the cause, and the group stops.
    """
    before = frozenset(progress.nodes)
    ordered = _weakest_first(group, progress.facts)
    first, rest = ordered[: run.plan.rollout.canary], ordered[run.plan.rollout.canary :]
    progress = wave(run, progress, group, _pending(first, progress), "canary")
    unreachable = _unreachable(progress, set(first) - before)
    problem = _canary_failed(progress, first) or _over_limit(run, progress, group, before)
    if unreachable and not problem:
        second = _pending(rest, progress)[: len(unreachable)]
        progress = wave(run, progress, group, second, "canary")
        problem = (
            _canary_failed(progress, second)
            or _canaries_unreachable(progress, [*unreachable, *second])
            or _over_limit(run, progress, group, before)
        )
    return progress, problem


def _pending(names: Iterable[str], progress: Progress) -> list[str]:
    return [name for name in names if name not in progress.nodes]


def _unreachable(progress: Progress, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if progress.nodes[name].state == "unreachable")


def _hold_back(run: Run, progress: Progress, group: PlannedGroup, why: Reason) -> Progress:
    """Mark the pending nodes of a stopped group as not reached, with the reason and a fix."""
    names = pending_nodes(group, progress.nodes)
    if not names:
        return progress
    run.tell("install", "skipped", why[0], group=group.name, nodes=names, fix=why[1] or "")
    held = {
        name: NodeResult(
            node=name, group=group.name, state="not_reached", reason=why[0], fix=why[1]
        )
        for name in names
    }
    return replace(progress, nodes={**progress.nodes, **held})


def _weakest_first(group: PlannedGroup, facts: Mapping[str, Facts]) -> list[str]:
    """Return the reachable nodes of a group: the canaries are the first of them."""
    reachable = [name for name in group.nodes if facts[name].state == "ok"]
    if len(reachable) <= 1:
        return []
    return sorted(reachable, key=lambda name: (*_strength(facts[name]), name))


def _strength(facts: Facts) -> tuple[int, tuple[int, ...], float]:
    # The most likely cause of failure first: missing instructions, an old libc, too little memory.
    libc = version_key(facts.libc.version) if facts.libc else ()
    return len(_CODE_FEATURES & set(facts.features)), libc, facts.memory_gb or 0.0


def _canary_failed(progress: Progress, names: Iterable[str]) -> Reason | None:
    good = (*_GOOD_STATES, "unreachable")
    results = [progress.nodes[name] for name in names]
    failed = next(
        (result for result in results if result.state not in good or result.hook_failed), None
    )
    if failed is None:
        return None
    return f"{failed.node}, a canary of this group, failed.", _fix_of(failed)


def _fix_of(failed: NodeResult) -> str | None:
    """Return a node's fix as other nodes repeat it: it may say "there"."""
    return failed.fix and f"For {failed.node}: {failed.fix}"


def _canaries_unreachable(progress: Progress, names: Collection[str]) -> Reason | None:
    """Return a reason to stop if every canary stopped answering."""
    if len(_unreachable(progress, names)) < len(names):
        return None
    reason = f"{' and '.join(names)}, the canaries of this group, stopped answering."
    return reason, "Find out why before you run the same apply again: the release may be the cause."


def _over_limit(
    run: Run, progress: Progress, group: PlannedGroup, before: Collection[str]
) -> Reason | None:
    """Return a reason to stop if too many nodes failed or became unreachable.

    Nodes in `before` had a result before the rollout started; their silence does not count.
    """
    limits, total = run.plan.rollout, len(group.nodes)
    results = [progress.nodes[name] for name in group.nodes if name in progress.nodes]
    failed = [result for result in results if result.state in _FAILED_STATES or result.hook_failed]
    if len(failed) > limits.failures(total):
        names = fold(result.node for result in failed)
        return f"{names} failed, and rollout.max_fail is {limits.max_fail}.", _fix_of(failed[0])
    unreachable = _unreachable(
        progress, (result.node for result in results if result.node not in before)
    )
    if len(unreachable) > limits.losses(total):
        limit = f"rollout.max_unreachable is {limits.max_unreachable}"
        fix = "Once they answer, run the same apply again; finished work is kept."
        return f"{fold(unreachable)} stopped answering, and {limit}.", fix
    return None


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
    hosts = run.tools.run_playbook(
        "clean_up.yml",
        limit=names,
        extravars={"fleetbuild_clean_ups": dict.fromkeys(names, job)},
        on_event=lambda _: None,
    )
    run.state.mark_ended(name for name in names if hosts[name].state == "ok")
    for name in names:
        if hosts[name].state != "ok":
            reason = hosts[name].message.rstrip(".")
            message = f"What a stopped run left here could not be removed: {reason}. "
            run.tell("install", "warning", message + "The next apply tries again.", node=name)


T = TypeVar("T")


def run_in_parallel(
    jobs: Sequence[Callable[[], T]], most: int, stop: Callable[[], None]
) -> list[T]:
    """Run the jobs, at most `most` at a time; return their results in order.

    An exception is raised after the other jobs have ended. Ctrl-C calls `stop`, which must end the
    running jobs.
    """
    if min(len(jobs), most) <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(most, thread_name_prefix="fleetbuild-group") as pool:
        futures: list[Future[T]] = []
        try:
            futures += map(pool.submit, jobs)
            errors = [future.exception() for future in futures]
            if error := next(filter(None, errors), None):
                raise error
        except KeyboardInterrupt:
            stop()
            for future in futures:
                future.cancel()
            raise
    return [future.result() for future in futures]


def one_by_one(on_event: OnEvent) -> OnEvent:
    """Wrap a callback so that several threads can call it, one event at a time."""
    lock = Lock()

    def tell(event: Event) -> None:
        with lock:
            on_event(event)

    return tell
