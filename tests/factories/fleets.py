"""Fleets in words, for the tests of planning."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Config,
    Facts,
    Inventory,
    Libc,
    LockedFile,
    Login,
    Manifest,
    Node,
    NodeResult,
    Os,
    Plan,
    Python,
)
from fleetbuild.models.revocation import NOTHING_REVOKED, Revocations
from fleetbuild.plan.decide.group_fleet import group_fleet
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.requests import build_request
from fleetbuild.plan.decide.resolution import Locks, Resolution, Source
from fleetbuild.plan.decide.wheels.draft import PlanDraft, draft_plan
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.recipes import Recipe, find_recipe, parse_recipe

GCC = {"gcc": ("12.2.0",), "g++": ("12.2.0",)}


def locked(name: str, version: str = "1.0", sha: str = "") -> LockedFile:
    """A file of a lock; its hash is of its name, or this letter 64 times."""
    return LockedFile(
        name=name,
        version=version,
        file=f"{name}-{version}-py3-none-any.whl",
        sha256=sha * 64 or hashlib.sha256(name.encode()).hexdigest(),
        url=f"https://example.org/{name}.whl",
    )


def python(version: str = "3.11.2", path: str = "/usr/bin/python3", **more: Any) -> Python:
    """An interpreter."""
    minor = "".join(version.split(".")[:2])
    known = {"soabi": f"cpython-{minor}-x86_64-linux-gnu", **more}
    return Python(path=path, version=version, **known)


def facts(rung: str = "avx2", libc: str | Libc | None = "2.36", **more: Any) -> Facts:
    """A node of this rung."""
    known = RUNGS[rung]
    values: dict[str, Any] = {
        "arch": known.arch,
        "isa": rung,
        # Every CPU shows flags that no rung asks about.
        "features": tuple(sorted({*known.features, "fpu", "tsc"})),
        "os": Os(id="debian", version="12"),
        "libc": Libc(family="glibc", version=libc) if isinstance(libc, str) else libc,
        "pythons": (python(),),
        "cpus": 8,
        "memory_gb": 16.0,
        "disk_gb": 100.0,
        "toolchain": GCC,
    }
    return Facts(**{**values, **more})


def node(name: str, **more: Any) -> Node:
    """A host of the inventory."""
    return Node(name=name, login=Login(host=f"{name}.example.org"), **more)


_plain_node = cache(node)


def inventory(nodes: Any) -> Inventory:
    """An inventory of these nodes, or of nodes with these names."""
    made = tuple(_plain_node(each) if isinstance(each, str) else each for each in nodes)
    return Inventory(source="fleet.yml", nodes=made)


def package(name: str = "hnswlib", version: str = "0.8.0", recipe: Recipe | None = None) -> Package:
    """A pinned package with its recipe."""
    text = f"{name}=={version}"
    found = recipe or find_recipe(name)
    return Package(name=name, version=version, recipe=found, requirement=text, text=text)


def recipe_of(name: str, *rungs: str, more: str = "") -> Recipe:
    """A small recipe."""
    return parse_recipe(
        f"name: {name}\npackages: [{name}]\nrungs: [{', '.join(rungs)}]\n{more}", name
    )


HNSWLIB = package()
SOURCE = Source(
    package="hnswlib",
    version="0.8.0",
    file=locked("hnswlib", "0.8.0", "5"),
    build_requirements=("numpy", "setuptools"),
)
NUMPY = Resolution(wheels=(locked("numpy", "2.0", "b"),))
BUILD = Resolution(wheels=(locked("numpy", "2.0", "b"), locked("setuptools", "80", "c")))


def drafted(fleet: dict[str, Facts], packages: Any = (HNSWLIB,), nodes: Any = None, **more: Any):
    """The draft of this fleet."""
    published = more.pop("published", {})
    config = more.pop("config", None) or Config()
    grouped = group_fleet(inventory(nodes or fleet), fleet, packages, config, **more)
    return draft_plan(grouped, fleet, packages, published)


def answers(
    made: PlanDraft,
    fleet: dict[str, Facts],
    *,
    sources: Any = (SOURCE,),
    closure: Resolution = NUMPY,
    build: Resolution = BUILD,
) -> Locks:
    """The same answers to all that this draft asks."""
    by_package = {source.package: source for source in sources}
    return Locks(
        sources=tuple(sources),
        dependencies={group.name: closure for group in made.groups},
        builds={
            wheel.id: build if build_request(wheel, source, fleet) else Resolution()
            for wheel in made.wheels
            if (source := by_package.get(wheel.package.name))
        },
    )


def planned(
    fleet: dict[str, Facts],
    *,
    packages: Any = (HNSWLIB,),
    nodes: Any = None,
    config: Config | None = None,
    locks: Locks | None = None,
    store: Any = None,
    builders: Any = (),
    facts_source: Any = "probe",
    revoked: Revocations = NOTHING_REVOKED,
    expected: Mapping[str, NodeResult] = MappingProxyType({}),
    **more: Any,
) -> Plan:
    """The plan of this fleet, with everything locked unless said otherwise."""
    config = config or Config()
    made = drafted(fleet, packages, nodes, config=config, builders=builders)
    return make_plan(
        inventory(nodes or fleet),
        fleet,
        packages,
        config,
        drafted=made,
        locks=answers(made, fleet, **more) if locks is None else locks,
        store=store or {},
        created="2026-01-01T00:00:00+00:00",
        facts_source=facts_source,
        revoked=revoked,
        expected=expected,
    )


def manifest(release_id: str, *, verified: bool = True) -> Manifest:
    """The manifest of a node's current release."""
    return Manifest(
        release="default",
        id=release_id,
        group="g",
        python="/usr/bin/python3",
        wheels=(),
        verified=verified,
    )
