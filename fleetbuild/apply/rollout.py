"""Fifth stage, rollout: install the release on the canaries of each group, then batch by batch.

In: the plan and the wheels in the store. Out: a result for every node. All groups advance step by
step: a step installs the next batch of each group, by one run of each playbook. A silent node holds
a step up until its deadline. A group that stops after failures takes part in no further step, and
goes back to what it served before if asked to; the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.hooks import finish_hooks
from fleetbuild.apply.pending import pending_groups, pending_nodes
from fleetbuild.apply.rollback import roll_back
from fleetbuild.apply.wave import (
    Batch,
    installed_wheels,
    kept_space,
    needed_space,
    sign_release,
    wave,
)
from fleetbuild.audit.ownership import owners
from fleetbuild.errors import ConfigError
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, NodeResult, PlannedGroup
from fleetbuild.models.role_parameters import ChangedRelease
from fleetbuild.text import fold, version_key

_CODE_FEATURES = frozenset().union(*(rung.features for rung in RUNGS.values()))
_GOOD_STATES = ("installed", "up_to_date")
_FAILED_STATES = ("install_failed", "verify_failed")
Reason = tuple[str, str | None]  # why a group stops, and what to do
# Yields batches, gets the progress after each, and returns why the group stops, if it does.
Batches = Generator[Batch, Progress, Reason | None]


def rollout(run: Run, progress: Progress) -> Progress:
    """Install, verify and activate the release: canaries first, then batch by batch."""
    clean_up(run, progress)
    groups = [group for group in pending_groups(run.plan, progress.nodes) if group.nodes]
    drained = run.journal.left_drained()
    for group in groups:
        progress = _refuse_small_disks(run, _check_release(run, progress, group), group)
    batches = {group.name: _batches(run, progress, group) for group in groups}
    after: Progress | None = None  # the last step; None before the first one
    while groups:
        step, stopped = dict[str, Batch](), dict[str, Reason]()
        for group in groups:
            try:
                step[group.name] = batches[group.name].send(after)  # type: ignore[arg-type]
            except StopIteration as end:
                if end.value:
                    stopped[group.name] = end.value
        progress = _stop(run, progress, stopped)
        after = progress = wave(run, progress, tuple(step.values()))
        groups = [group for group in groups if group.name in step]
    return finish_hooks(run, progress, drained)


def _batches(run: Run, progress: Progress, group: PlannedGroup) -> Batches:
    """Yield the nodes of a group that get the release together, the canaries first."""
    before = frozenset(progress.nodes)
    problem = _over_limit(run, progress, group, before)
    if not problem:
        progress, problem = yield from _try_canaries(run, progress, group)
    sizes = run.plan.rollout.batches(len(group.nodes))
    while not problem and (names := pending_nodes(group, progress.nodes)[: next(sizes)]):
        progress = yield Batch(group, names, "node")
        problem = _over_limit(run, progress, group, before)
    return problem


def _stop(run: Run, progress: Progress, stopped: Mapping[str, Reason]) -> Progress:
    """Hold back the pending nodes of these groups; if asked to, roll their other nodes back."""
    for group in run.plan.groups:
        if group.name in stopped:
            progress = _hold_back(run, progress, group, stopped[group.name])
    if not run.rollback_on_failure:
        return progress
    return roll_back(run, progress, {name: why for name, (why, _) in stopped.items()})


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
        fix = "Free space there (df -h shows where) or set another install path; then run again."
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
) -> Generator[Batch, Progress, tuple[Progress, Reason | None]]:
    """Yield the weakest nodes; return the progress and a reason to stop, if there is one.

    A canary that stops answering, or that another controller holds, proves nothing, so the next
    weakest node replaces it. If that one is lost too, the group stops: the release may be why.
    """
    before = frozenset(progress.nodes)
    ordered = _weakest_first(group, progress.facts)
    first, rest = ordered[: run.plan.rollout.canary], ordered[run.plan.rollout.canary :]
    if names := _pending(first, progress):
        progress = yield Batch(group, names, "canary")
    lost = _lost(progress, set(first) - before)
    problem = _canary_failed(progress, first) or _over_limit(run, progress, group, before)
    if lost and not problem:
        second = _pending(rest, progress)[: len(lost)]
        if second:
            progress = yield Batch(group, second, "canary")
        problem = (
            _canary_failed(progress, second)
            or _canaries_lost(progress, [*lost, *second])
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
        (each for each in results if each.hook_failed or not (each.state in good or each.held)),
        None,
    )
    if failed is None:
        return None
    return f"{failed.node}, a canary of this group, failed.", None  # its result has the fix


def _lost(progress: Progress, names: Iterable[str]) -> list[str]:
    """Return the nodes that stopped answering or that another controller holds."""
    results = (progress.nodes[name] for name in names)
    return sorted(each.node for each in results if each.state == "unreachable" or each.held)


def _canaries_lost(progress: Progress, names: Collection[str]) -> Reason | None:
    """Return a reason to stop if no canary has tried the release."""
    if len(_lost(progress, names)) < len(names):
        return None
    if held := [name for name in names if progress.nodes[name].held]:
        reason = f"Another controller is changing {fold(held)}, so no canary has tried the release."
        return reason, progress.nodes[held[0]].fix
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
    failed = [
        result
        for result in results
        if (result.state in _FAILED_STATES and not result.held) or result.hook_failed
    ]
    if len(failed) > limits.failures(total):
        names = fold(result.node for result in failed)
        return f"{names} failed, and rollout.max_fail is {limits.max_fail}.", None
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
