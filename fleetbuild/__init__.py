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
    from fleetbuild.config import find_config, load_config
    from fleetbuild.doctor import Finding
    from fleetbuild.emit.emission import Emission, EmittedFiles
    from fleetbuild.emit.kinds import emit_kinds
    from fleetbuild.errors import (
        BlockedError,
        CaptureError,
        ClusterError,
        ConfigAsInventoryError,
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
    from fleetbuild.extension import EmitKind
    from fleetbuild.fleet import Fleet
    from fleetbuild.fleet_store import FleetStore
    from fleetbuild.models import (
        Cluster,
        Config,
        Event,
        Facts,
        Inventory,
        LabelResult,
        Node,
        NodeResult,
        NodeStatus,
        OnEvent,
        Plan,
        Result,
        WheelResult,
    )
    from fleetbuild.models.verdict import Verdict
    from fleetbuild.plan.document.files import read_plan, save_plan
    from fleetbuild.plan.explain import Explanation
    from fleetbuild.plan.resolve.requirement_files import RequirementList, read_requirement_files
    from fleetbuild.probe.inventory import read_inventory
    from fleetbuild.starter_files import init
    from fleetbuild.this_machine import (
        THIS_MACHINE,
        InstalledRelease,
        default_inventory,
        installed_release,
    )

    __version__: str

_ERRORS = (
    "BlockedError", "CaptureError", "ClusterError", "ConfigAsInventoryError", "ConfigError",
    "FleetbuildError", "ForbiddenError", "InstallError", "Interrupted", "InventoryError",
    "KubeconfigError", "LockedError", "PlanFileError", "RecipeError", "ResolutionError",
    "StalePlanError", "UsageError",
)  # fmt: skip
_MODELS = (
    "Cluster", "Config", "Event", "Facts", "Inventory", "LabelResult", "Node", "NodeResult",
    "NodeStatus", "OnEvent", "Plan", "Result", "WheelResult",
)  # fmt: skip
_MODULES = {
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(_MODELS, "models"),
    "EmitKind": "extension",
    "Emission": "emit.emission",
    "EmittedFiles": "emit.emission",
    "Explanation": "plan.explain",
    "Finding": "doctor",
    "Fleet": "fleet",
    "FleetStore": "fleet_store",
    "InstalledRelease": "this_machine",
    "RequirementList": "plan.resolve.requirement_files",
    "Secrets": "ansible",
    "THIS_MACHINE": "this_machine",
    "Verdict": "models.verdict",
    "WheelAudit": "audit",
    "audit_wheel": "audit",
    "default_inventory": "this_machine",
    "emit_kinds": "emit.kinds",
    "find_config": "config",
    "init": "starter_files",
    "installed_release": "this_machine",
    "load_config": "config",
    "read_inventory": "probe.inventory",
    "read_plan": "plan.document.files",
    "read_requirement_files": "plan.resolve.requirement_files",
    "save_plan": "plan.document.files",
}

__all__ = [
    "THIS_MACHINE",
    "BlockedError",
    "CaptureError",
    "Cluster",
    "ClusterError",
    "Config",
    "ConfigAsInventoryError",
    "ConfigError",
    "Emission",
    "EmitKind",
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
    "InstalledRelease",
    "Interrupted",
    "Inventory",
    "InventoryError",
    "KubeconfigError",
    "LabelResult",
    "LockedError",
    "Node",
    "NodeResult",
    "NodeStatus",
    "OnEvent",
    "Plan",
    "PlanFileError",
    "RecipeError",
    "RequirementList",
    "ResolutionError",
    "Result",
    "Secrets",
    "StalePlanError",
    "UsageError",
    "Verdict",
    "WheelAudit",
    "WheelResult",
    "__version__",
    "audit_wheel",
    "default_inventory",
    "emit_kinds",
    "find_config",
    "init",
    "installed_release",
    "load_config",
    "read_inventory",
    "read_plan",
    "read_requirement_files",
    "save_plan",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("fleetbuild")
    if name == "Config":  # with the sections of extensions
        return import_module("fleetbuild.config").config_model()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fleetbuild.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
