"""Hooks: run `rollout.before` and `rollout.after` around the switch of nodes.

In: nodes whose new release is installed and verified, and a function that switches them. Out: a
result for each. The journal holds which nodes are between both hooks, so that the next apply runs
`rollout.after` for them if this run is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from fleetbuild.apply.context import Progress, Run
from fleetbuild.errors import BlockedError
from fleetbuild.models import NodeResult
from fleetbuild.models.config import Hook
from fleetbuild.models.hooks import HookCall, HookFailure, HookName, SwitchingNode

Switch = Callable[[Sequence[str]], Mapping[str, NodeResult]]
_AFTER_FIX = (
    "Run what rollout.after does by hand, or correct it and run the same apply again, which repeats"
    " it."
)


def has_hooks(run: Run) -> bool:
    """Return whether something runs around each switch."""
    return run.plan.rollout.before is not None or run.plan.rollout.after is not None


def check_hooks(run: Run) -> None:
    """Refuse a plan whose hooks name playbooks that do not exist."""
    rollout = run.plan.rollout
    for name, hook in (("before", rollout.before), ("after", rollout.after)):
        if hook and not run.tools.hook_exists(hook):
            raise BlockedError(
                f"rollout.{name} names the playbook {hook.playbook}, which does not exist.",
                "Put it there, or plan again: fleetbuild plan INVENTORY",
            )


def around_switch(run: Run, names: Sequence[str], switch: Switch) -> dict[str, NodeResult]:
    """Run `before` for the nodes, switch those where it went well, and run `after` for all.

    `after` also runs where `before` or the switch failed, so that no node stays drained.
    """
    rollout, results = run.plan.rollout, dict[str, NodeResult]()
    if not names:
        return results
    if rollout.before:
        for name in names:
            run.journal.note("drain started", node=name)
        failures = _call(run, rollout.before, "before", names)
        results |= {name: _not_switched(run, name, failure) for name, failure in failures.items()}
    results |= switch([name for name in names if name not in results])
    if rollout.after:
        failures = _call(run, rollout.after, "after", names)
        results |= {
            name: _left_drained(results[name], failure) for name, failure in failures.items()
        }
        names = [name for name in names if name not in failures]
    for name in names if rollout.before else ():
        run.journal.note("drain ended", node=name)
    return results


def finish_hooks(run: Run, progress: Progress, earlier: Collection[str]) -> Progress:
    """Run `after` for nodes that earlier runs left between both hooks, unless this run did so."""
    if not earlier:
        return progress
    hook, groups = run.plan.rollout.after, run.plan.groups_by_node
    left = [
        name
        for name in run.journal.left_drained()
        if name in earlier and name in groups and not progress.nodes[name].hook_failed
    ]
    for name in left if hook is None else ():
        message = "An earlier run ran rollout.before here, and this plan has no rollout.after."
        run.tell("activate", "warning", message, node=name, group=groups[name].name)
        run.journal.note("drain ended", node=name)
    if hook is None:
        return progress
    results = dict(progress.nodes)
    failures = _call(run, hook, "after", left)
    for name in left:
        if name in failures:
            results[name] = _left_drained(results[name], failures[name])
        else:
            run.journal.note("drain ended", node=name)
    return replace(progress, nodes=results, changed=progress.changed or bool(left))


def _call(run: Run, hook: Hook, name: HookName, nodes: Sequence[str]) -> Mapping[str, HookFailure]:
    """Run a hook for these nodes of all groups; return the failures by node."""
    if not nodes:
        return {}
    groups = run.plan.groups_by_node
    for node in nodes:
        message = f"running rollout.{name}: {hook}"
        run.tell("activate", "progress", message, node=node, group=groups[node].name)
    about = {
        node: SwitchingNode(
            group=groups[node].name,
            release_id=str(groups[node].release_id),
            kubernetes_node=run.plan.nodes[node].kubernetes_node or node,
        )
        for node in nodes
    }
    return run.tools.hook(HookCall(name=name, hook=hook, release=run.plan.release, nodes=about))


def _not_switched(run: Run, name: str, failure: HookFailure) -> NodeResult:
    return NodeResult(
        node=name,
        group=run.plan.nodes[name].group,
        state="install_failed",
        reason=f"Not switched, because rollout.before failed: {failure.reason}",
        fix="Correct what it does, or its time limit, then run the same apply again.",
        log=failure.log,
    )


def _left_drained(result: NodeResult, failure: HookFailure) -> NodeResult:
    before = f"{result.reason} " if result.reason else ""
    reason = f"{before}rollout.after failed: {failure.reason}"
    return result.model_copy(
        update={"reason": reason, "fix": _AFTER_FIX, "log": failure.log, "hook_failed": True}
    )
