"""Decide which wheels are built on which nodes: eligibility, groups, representatives, merging.

In: inventory, facts, packages, configuration, locks and the store's contents. Out: drafts of
wheels and groups. Pure functions, without I/O. Read `draft.py` first.
"""

from fleetbuild.plan.decide.draft import (
    GroupedFleet,
    PlanDraft,
    draft_plan,
    group_fleet,
)
from fleetbuild.plan.decide.explain import explain_group, explain_node
from fleetbuild.plan.decide.named_targets import name_targets
from fleetbuild.plan.decide.packages import (
    Package,
    PackageSpec,
    choose_packages,
    parse_package,
    parse_packages,
)
from fleetbuild.plan.decide.requests import build_request, dependency_request, toolkit_request
from fleetbuild.plan.decide.resolution import LockRequest, Locks, Resolution, Source
from fleetbuild.plan.decide.wheels.plan_wheel import StoreView

__all__ = [
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
    "choose_packages",
    "dependency_request",
    "draft_plan",
    "explain_group",
    "explain_node",
    "group_fleet",
    "name_targets",
    "parse_package",
    "parse_packages",
    "toolkit_request",
]
