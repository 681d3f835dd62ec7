"""Groups, representatives and the plan: pure functions from what is known to what will be done."""

from fleetbuild.planning.document import dump_plan, read_plan
from fleetbuild.planning.drafting import Draft, draft, hindering, lock_request, source_request
from fleetbuild.planning.explain import explain_group, explain_node
from fleetbuild.planning.fingerprint import fingerprint, stale
from fleetbuild.planning.inputs import build_request
from fleetbuild.planning.lock import LockRequest, Locks, Resolution, Source
from fleetbuild.planning.make import make_plan
from fleetbuild.planning.packages import (
    Package,
    PackageSpec,
    choose_packages,
    parse_package,
    parse_packages,
)
from fleetbuild.planning.planned import Floors, StoreView

__all__ = [
    "Draft",
    "Floors",
    "LockRequest",
    "Locks",
    "Package",
    "PackageSpec",
    "Resolution",
    "Source",
    "StoreView",
    "build_request",
    "choose_packages",
    "draft",
    "dump_plan",
    "explain_group",
    "explain_node",
    "fingerprint",
    "hindering",
    "lock_request",
    "make_plan",
    "parse_package",
    "parse_packages",
    "read_plan",
    "source_request",
    "stale",
]
