"""A plan for the Nodes of the fake cluster, and the labels that fleetbuild set on one of them."""

from __future__ import annotations

from typing import Any

from fleetbuild.models import Plan
from fleetbuild.planning.document.serialize import with_digest
from tests.factories.cluster_api import FakeApi
from tests.factories.plans import make_group, make_plan, make_wheel

RELEASE = "0123456789abcdef"


def plan_of(*names: str, called: dict[str, str] | None = None, **changes: Any) -> Plan:
    wheel = make_wheel("p", "1+cpu.avx2", action="reuse")
    group = make_group(names, wheels=(wheel,), release_id=RELEASE)
    return with_digest(make_plan((group,), called, inventory="i.yml", **changes))


def ours(api: FakeApi, name: str) -> dict[str, str]:
    labels = api.nodes[name].labels
    return {
        key.split("/")[1]: labels[key] for key in sorted(labels) if key.startswith("fleetbuild.dev")
    }
