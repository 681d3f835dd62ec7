"""Verify: run the checks of the installed release again on every node that serves it."""

from __future__ import annotations

from collections.abc import Callable

from fleetbuild.ansible.role_results import RoleResult, failure_reason
from fleetbuild.models import Manifest, NodeResult
from fleetbuild.models._base import Frozen
from fleetbuild.models.role_parameters import VerifySpec
from fleetbuild.tasks.fleet_task import FleetTask


class Checks(Frozen):
    """The imports and snippets that must run on a node for a release to count as verified."""

    imports: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()


def verify_task(
    install_path: str, release: str, checks_of: Callable[[Manifest], Checks]
) -> FleetTask:
    """Return the task that verifies the release on every node that serves one."""

    def job(name: str, manifest: Manifest) -> VerifySpec | NodeResult:
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

    return FleetTask("verify.yml", "fleetbuild_verifies", "verify", job, _result)


def _result(name: str, manifest: Manifest, reply: RoleResult) -> NodeResult:
    about = {"node": name, "group": manifest.group, "release_id": reply.release_id or manifest.id}
    if reply.ok:
        return NodeResult(state="verified", **about)
    return NodeResult(
        state="verify_failed",
        damaged=reply.damaged,
        reason=failure_reason(reply),
        fix=reply.fix or f"Go back with: fleetbuild rollback INVENTORY --limit {name}",
        **about,
    )
