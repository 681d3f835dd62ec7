"""Decide which wheels are built on which nodes: groups, representatives, the plan document.

In: inventory, facts, packages, configuration, locks and the store's contents. Out: a `Plan`. Pure
functions, without I/O; the package `planner` asks the nodes, the indexes and the store.
"""

from fleetbuild.planning.document.fingerprint import changes_since_plan, fingerprint
from fleetbuild.planning.document.make_plan import make_plan
from fleetbuild.planning.document.serialize import dump_plan, read_plan
from fleetbuild.planning.draft import (
    GroupedFleet,
    PlanDraft,
    draft_plan,
    group_fleet,
    nodes_blocking_dependencies,
    source_request,
)
from fleetbuild.planning.explain import explain_group, explain_node
from fleetbuild.planning.named_targets import name_targets, stand_in_inventory, with_stand_ins
from fleetbuild.planning.packages import (
    Package,
    PackageSpec,
    choose_packages,
    parse_package,
    parse_packages,
)
from fleetbuild.planning.resolution import LockRequest, Locks, Resolution, Source
from fleetbuild.planning.wheels.build_requirements import build_request, toolkit_request
from fleetbuild.planning.wheels.plan_wheel import Floors, StoreView

__all__ = [
    "Floors",
    "GroupedFleet",
    "LockRequest",
    "Locks",
    "Package",
    "PackageSpec",
    "PlanDraft",
    "Resolution",
    "Source",
    "StoreView",
    "build_request",
    "changes_since_plan",
    "choose_packages",
    "draft_plan",
    "dump_plan",
    "explain_group",
    "explain_node",
    "fingerprint",
    "group_fleet",
    "make_plan",
    "name_targets",
    "nodes_blocking_dependencies",
    "parse_package",
    "parse_packages",
    "read_plan",
    "source_request",
    "stand_in_inventory",
    "toolkit_request",
    "with_stand_ins",
]
