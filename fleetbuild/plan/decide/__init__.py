"""Decide which wheels are built on which nodes: eligibility, groups, representatives, merging.

In: inventory, facts, packages, configuration, locks and the store's contents. Out: drafts of
wheels and groups. Pure functions, without I/O. Read `group_fleet.py` first, then `wheels/draft.py`.
"""

from fleetbuild.plan.decide.group_fleet import GroupedFleet, group_fleet
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
from fleetbuild.plan.decide.wheels.draft import PlanDraft, draft_plan

__all__ = [
    "GroupedFleet",
    "LockRequest",
    "Locks",
    "Package",
    "PackageSpec",
    "PlanDraft",
    "Resolution",
    "Source",
    "build_request",
    "choose_packages",
    "dependency_request",
    "draft_plan",
    "group_fleet",
    "name_targets",
    "parse_package",
    "parse_packages",
    "toolkit_request",
]
