"""Rollback: switch every node back to its previous release."""

from __future__ import annotations

from collections.abc import Iterable

from fleetbuild.ansible.role_results import RoleResult
from fleetbuild.apply.fleet_task import FleetTask
from fleetbuild.models import Manifest, NodeResult
from fleetbuild.models.role_parameters import RollbackSpec


def rollback_task(
    install_path: str, release: str, controller: str, revoked: Iterable[str] = ()
) -> FleetTask:
    """Return the task that switches each node to its previous release without revoked wheels.

    `controller` names this controller to others, and to itself in the next run.
    """
    recalled = tuple(revoked)

    def job(_: str, __: Manifest) -> RollbackSpec:
        return RollbackSpec(
            path=install_path, release=release, revoked=recalled, controller=controller
        )

    return FleetTask("rollback.yml", "fleetbuild_rollbacks", "activate", job, _result, changes=True)


def _result(name: str, manifest: Manifest, reply: RoleResult) -> NodeResult:
    about = {"node": name, "group": manifest.group, "release_id": reply.release_id or manifest.id}
    if reply.ok:
        return NodeResult(
            state="rolled_back", reason=f"from release {manifest.id} to {reply.release_id}", **about
        )
    return NodeResult(
        state="install_failed",
        reason=reply.reason or "No previous release on this node.",
        fix=reply.fix or "Plan and apply the release that you want there.",
        **about,
    )
