"""What each node serves, as a plan knows it, and what followers are asked about nodes.

In: a plan. Out: the manifest of each host's release.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fleetbuild.models.plan import Plan, PlannedGroup, PlannedNode
from fleetbuild.models.problem import Problem
from fleetbuild.models.release import Manifest, ManifestWheel

# The release that each host serves, None if it serves none. A missing host is unknown.
Serving = Mapping[str, Manifest | None]
# Host -> release id -> the reason to keep it; or why that is not known.
InUse = Mapping[str, Mapping[str, str] | Problem]


def as_planned(plan: Plan, works: Collection[str] | None = None) -> dict[str, Manifest | None]:
    """Return the release of each host by a plan alone; by default up-to-date nodes serve it.

    A node on which the plan saw another release is left out.
    """
    serving: dict[str, Manifest | None] = {}
    grouped = plan.groups_by_node
    for name in hosts(plan):
        group = grouped.get(name)
        verified = works if works is not None else group.installs.up_to_date if group else ()
        if group and group.release_id and name in verified:
            serving[name] = _planned_manifest(plan, group)
        elif _nothing_serves(plan.nodes[name], group):
            serving[name] = None
    return serving


def hosts(plan: Plan) -> list[str]:
    """Return the hosts of a plan, except skipped ones."""
    return [name for name, node in plan.nodes.items() if node.state != "skipped"]


def _nothing_serves(node: PlannedNode, group: PlannedGroup | None) -> bool:
    """Return whether no release was seen, or only the plan's own, unverified."""
    if group is None:
        return node.state == "blocked" and node.current is None
    return node.current in (None, group.release_id)


def _planned_manifest(plan: Plan, group: PlannedGroup) -> Manifest:
    """Return the manifest of a group's release, as far as labels need it.

    It is not validated: the plan is ours, and knows no hash of a wheel before its build.
    """
    return Manifest.model_construct(
        release=plan.release,
        id=group.release_id or "",
        group=group.name,
        python="",
        wheels=tuple(
            ManifestWheel.model_construct(
                package=wheel.package,
                version=wheel.wheel_version,
                artifact_key=wheel.artifact_key or "0" * 32,
                sha256="0" * 64,  # no label has it
            )
            for wheel in group.wheels
        ),
        verified=True,
    )
