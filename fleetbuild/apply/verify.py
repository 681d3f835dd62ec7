"""Verify: run the checks of the current release again on every node, and repair damaged ones.

In: the plan that installed the release, and recipes. Out: a result for each node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fleetbuild.ansible.role_results import VerifyReply
from fleetbuild.apply.fleet_task import REPAIR, FleetTask
from fleetbuild.models import Installs, Manifest, NodeResult, Plan, Result
from fleetbuild.models._base import Frozen
from fleetbuild.models.revocation import NOTHING_REVOKED, Revocations
from fleetbuild.models.role_parameters import VerifySpec
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.state import SavedResult, StateDir


class Checks(Frozen):
    """The imports and snippets that must run on a node for a release to count as verified."""

    imports: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()


def verify_task(
    install_path: str,
    release: str,
    checks_of: Callable[[Manifest], Checks],
    revoked: Revocations = NOTHING_REVOKED,
) -> FleetTask[VerifyReply]:
    """Return the task that verifies the release on every node that serves one."""

    def job(name: str, manifest: Manifest) -> VerifySpec | NodeResult:
        if why := revoked.of_manifest(manifest):
            return NodeResult(
                node=name,
                group=manifest.group,
                state="verify_failed",
                release_id=manifest.id,
                reason=why,
                fix="Replace it: fleetbuild plan INVENTORY, then fleetbuild apply",
            )
        checks = checks_of(manifest)
        if not (checks.imports or checks.snippets):
            return NodeResult(
                node=name,
                group=manifest.group,
                state="skipped",
                reason=f"No checks for {manifest.id}: neither the saved plan nor a recipe has any.",
                fix="Plan and apply again with this state directory.",
            )
        return VerifySpec(
            path=install_path, release=release, imports=checks.imports, checks=checks.snippets
        )

    return FleetTask("verify.yml", "fleetbuild_verifies", "verify", job, VerifyReply, _result)


def _result(name: str, manifest: Manifest, reply: VerifyReply) -> NodeResult:
    about = {"node": name, "group": manifest.group, "release_id": reply.release_id or manifest.id}
    if reply.ok:
        return NodeResult(state="verified", **about)
    go_back = f"Go back with: fleetbuild rollback INVENTORY --limit {name}"
    return NodeResult(
        state="verify_failed",
        damaged=reply.damaged,
        reason=reply.why,
        fix=REPAIR if reply.damaged else reply.fix or go_back,
        **about,
    )


def repair_damaged(
    verified: Result, plan: Plan | None, state: StateDir, carry_out: Callable[[Plan], Result]
) -> Result:
    """Apply the plan to the nodes whose release is damaged, and return both results in one."""
    last = state.last_result()
    names = _repairable(verified, plan, last)
    verified = _with(verified, [_other_way(node) for node in verified.nodes if node.damaged])
    if plan is None or not names:
        return verified
    repaired = carry_out(_part_of_plan(plan, names))
    if last is not None:  # `status` compares with the last apply, which was about more nodes
        result = _with(last.result, repaired.nodes)
        state.save_result(result, started=last.started, release=plan.release)
    labels = {label.node: label for label in (*verified.labels, *repaired.labels)}
    return _with(verified, repaired.nodes).model_copy(
        update={
            "wheels": repaired.wheels,
            "labels": tuple(labels.values()),
            "changed": repaired.changed,
            "seconds": round(verified.seconds + repaired.seconds, 3),
        }
    )


def _other_way(node: NodeResult) -> NodeResult:
    fix = "Plan and apply: the saved plan does not hold the release that this node served."
    return node.model_copy(update={"fix": fix})


def _repairable(verified: Result, plan: Plan | None, last: SavedResult | None) -> list[str]:
    """Return the nodes whose damaged release this plan holds.

    A plan that was saved since would install another release: that is for `apply`.
    """
    if plan is None:
        return []
    left = last.left_there(plan.release) if last else {}
    planned = {name: group.release_id for name, group in plan.groups_by_node.items()}
    return [
        node.node
        for node in verified.nodes
        if node.damaged
        and node.node in planned
        and planned[node.node]
        == (node.release_id or (left[node.node].release_id if node.node in left else None))
    ]


def _part_of_plan(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan for only these nodes."""
    groups = (
        group.model_copy(update={"nodes": members, "installs": Installs(install=members)})
        for group in plan.groups
        if (members := tuple(name for name in group.nodes if name in names))
    )
    return with_digest(
        plan.model_copy(
            update={
                "nodes": {name: node for name, node in plan.nodes.items() if name in names},
                "fingerprint": {
                    name: facts for name, facts in plan.fingerprint.items() if name in names
                },
                "groups": tuple(groups),
            }
        )
    )


def _with(result: Result, nodes: Collection[NodeResult]) -> Result:
    by_node = {node.node: node for node in result.nodes} | {node.node: node for node in nodes}
    return result.model_copy(update={"nodes": tuple(by_node.values())})
