"""Mixed fleets, one targeted wheel for each kind of node.

    from fleetbuild import apply, plan, probe, read_inventory

    inventory = read_inventory("inventory.yml")
    facts = probe(inventory)
    the_plan = plan(inventory, facts, packages=["hnswlib==0.8.0"])
    result = apply(the_plan, inventory, on_event=print)

What stands here prints nothing and never exits; what goes wrong is a FleetbuildError with a
message and a fix. It is loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetbuild.api import *

__all__ = [
    "Cluster",
    "Config",
    "Delivery",
    "Event",
    "Explanation",
    "Facts",
    "FleetbuildError",
    "Inventory",
    "LabelResult",
    "Labelled",
    "Node",
    "NodeResult",
    "NodeStatus",
    "Plan",
    "Result",
    "Secrets",
    "WheelAudit",
    "WheelResult",
    "add_wheels",
    "apply",
    "audit_wheel",
    "collect_garbage",
    "explain",
    "export_store",
    "label",
    "load_config",
    "plan",
    "probe",
    "read_cluster",
    "read_inventory",
    "read_plan",
    "render_manifests",
    "rollback",
    "save_plan",
    "status",
    "unlabel",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Ansible takes its time over an inventory, and the rest can be loaded meanwhile.
    module = "fleetbuild.inventory" if name == "read_inventory" else "fleetbuild.api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`probe` is a call here and also the name of a package below; the call is what one gets."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in ("apply", "probe") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
