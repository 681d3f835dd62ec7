"""Mixed fleets, one targeted wheel for each kind of node.

    from fleetbuild import Fleet

    fleet = Fleet("inventory.yml", on_event=print)
    plan = fleet.plan(["hnswlib==0.8.0"])
    result = fleet.apply(plan)

Nothing here prints or exits; an error is a FleetbuildError with a message and a fix. Each name is
loaded on first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetbuild.ansible import Secrets
    from fleetbuild.audit import WheelAudit, audit_wheel
    from fleetbuild.cluster import Cluster
    from fleetbuild.config import load_config
    from fleetbuild.errors import (
        BlockedError,
        CaptureError,
        ClusterError,
        ConfigError,
        FleetbuildError,
        ForbiddenError,
        InstallError,
        Interrupted,
        InventoryError,
        KubeconfigError,
        LockedError,
        PlanFileError,
        RecipeError,
        ResolutionError,
        StalePlanError,
        UsageError,
    )
    from fleetbuild.fleet import Fleet
    from fleetbuild.inventory import read_inventory
    from fleetbuild.kubernetes import Delivery
    from fleetbuild.models import (
        Config,
        Event,
        Facts,
        Inventory,
        Labelled,
        LabelResult,
        Node,
        NodeResult,
        NodeStatus,
        OnEvent,
        Plan,
        Result,
        WheelResult,
    )
    from fleetbuild.planner.plan_files import read_plan, save_plan
    from fleetbuild.tasks.doctor import Finding
    from fleetbuild.tasks.emit import EmittedFiles
    from fleetbuild.tasks.explain import Explanation
    from fleetbuild.tasks.recipe_draft import init_recipe
    from fleetbuild.tasks.starter_files import init
    from fleetbuild.tasks.wheels.fleet_store import FleetStore

    __version__: str

_ERRORS = (
    "BlockedError", "CaptureError", "ClusterError", "ConfigError", "FleetbuildError",
    "ForbiddenError", "InstallError", "Interrupted", "InventoryError", "KubeconfigError",
    "LockedError", "PlanFileError", "RecipeError", "ResolutionError", "StalePlanError",
    "UsageError",
)  # fmt: skip
_MODELS = (
    "Config", "Event", "Facts", "Inventory", "LabelResult", "Labelled", "Node", "NodeResult",
    "NodeStatus", "OnEvent", "Plan", "Result", "WheelResult",
)  # fmt: skip
_MODULES = {
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(_MODELS, "models"),
    "Cluster": "cluster",
    "Delivery": "kubernetes",
    "EmittedFiles": "tasks.emit",
    "Explanation": "tasks.explain",
    "Finding": "tasks.doctor",
    "Fleet": "fleet",
    "FleetStore": "tasks.wheels.fleet_store",
    "Secrets": "ansible",
    "WheelAudit": "audit",
    "audit_wheel": "audit",
    "init": "tasks.starter_files",
    "init_recipe": "tasks.recipe_draft",
    "load_config": "config",
    "read_inventory": "inventory",
    "read_plan": "planner.plan_files",
    "save_plan": "planner.plan_files",
}

__all__ = [
    "BlockedError",
    "CaptureError",
    "Cluster",
    "ClusterError",
    "Config",
    "ConfigError",
    "Delivery",
    "EmittedFiles",
    "Event",
    "Explanation",
    "Facts",
    "Finding",
    "Fleet",
    "FleetStore",
    "FleetbuildError",
    "ForbiddenError",
    "InstallError",
    "Interrupted",
    "Inventory",
    "InventoryError",
    "KubeconfigError",
    "LabelResult",
    "Labelled",
    "LockedError",
    "Node",
    "NodeResult",
    "NodeStatus",
    "OnEvent",
    "Plan",
    "PlanFileError",
    "RecipeError",
    "ResolutionError",
    "Result",
    "Secrets",
    "StalePlanError",
    "UsageError",
    "WheelAudit",
    "WheelResult",
    "__version__",
    "audit_wheel",
    "init",
    "init_recipe",
    "load_config",
    "read_inventory",
    "read_plan",
    "save_plan",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("fleetbuild")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fleetbuild.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
