"""Plans put together by hand, without the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Installs,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    ReleaseFile,
    Requires,
    Target,
    TargetLibc,
)
from fleetbuild.plan.document.serialize import with_digest

RELEASE_ID = "0123456789abcdef"


def make_target(isa: str = "avx2", floor: str = "2.36", **changes: Any) -> Target:
    """A target of this rung, with exactly the rung's features."""
    rung = RUNGS[isa]
    values = {
        "arch": rung.arch,
        "isa": isa,
        "features": tuple(sorted(rung.features)),
        "python": "cp311",
        "libc": TargetLibc(family="glibc", floor=floor),
    }
    return Target(**{**values, **changes})


def make_wheel(
    package: str = "hnswlib",
    wheel_version: str = "0.8.0+cpu.avx2",
    target: Target | None = None,
    **changes: Any,
) -> PlannedWheel:
    """A wheel that is to be built."""
    values = {
        "package": package,
        "version": wheel_version.split("+", maxsplit=1)[0],
        "wheel_version": wheel_version,
        "recipe": "generic",
        "target": target or make_target(),
        "artifact_key": "0" * 32,
        "action": "build",
        "reason": "not in the store",
        "environment": {},
        "requires": Requires(compiler="gcc 12.2.0 (present)"),
        "import_names": (package.replace("-", "_"),),
    }
    return PlannedWheel(**{**values, **changes})


def make_group(
    nodes: Sequence[str] = ("a", "b"),
    target: Target | None = None,
    wheels: Sequence[PlannedWheel] | None = None,
    name: str | None = None,
    **changes: Any,
) -> PlannedGroup:
    """A group with one release, to be installed on every node."""
    target = target or make_target()
    values = {
        "name": name or target.name,
        "nodes": tuple(nodes),
        "representative": nodes[0],
        "target": target,
        "wheels": tuple(wheels or (make_wheel(target=target),)),
        "release_id": RELEASE_ID,
        "dependencies": (),
        "installs": Installs(install=tuple(nodes)),
    }
    return PlannedGroup(**{**values, **changes})


def make_plan(
    groups: Iterable[PlannedGroup] | None = None,
    names: Mapping[str, str] | None = None,
    **changes: Any,
) -> Plan:
    """A plan of these groups; `names` are the cluster's names of nodes."""
    groups = (make_group(),) if groups is None else tuple(groups)
    nodes = {
        node: PlannedNode(
            state="ok", group=group.name, kubernetes_node=(names or {}).get(node, node)
        )
        for group in groups
        for node in group.nodes
    }
    values = {
        "created": "2026-11-20T00:00:00Z",
        "inventory": "inventory.yml",
        "facts_source": "probe",
        "packages": ("hnswlib==0.8.0",),
        "fingerprint": {},
        "nodes": nodes,
        "groups": groups,
    }
    return Plan(**{**values, **changes})


def reused_plan(*nodes: str, called: Mapping[str, str] | None = None, **changes: Any) -> Plan:
    """A sealed plan of one group, with its wheel in the store; `called`: names in the cluster."""
    wheel = make_wheel("p", "1+cpu.avx2", action="reuse")
    group = make_group(nodes, wheels=(wheel,))
    return with_digest(make_plan((group,), called, inventory="i.yml", **changes))


def gpu_fleet() -> Plan:
    """A CPU group, a GPU group on Arm with musl, and a name that the cluster knows otherwise."""
    gpu = make_target(
        "armv8.2",
        sms=("8.0", "9.0"),
        python="cp312",
        libc=TargetLibc(family="musl", floor="1.2.4"),
    )
    return make_plan(
        (
            make_group(("gpu-1",), gpu, (make_wheel("torch", "2.13.0+cu130.sm80.sm90.armv8.2"),)),
            make_group(("cpu-1", "cpu-2")),
        ),
        names={"cpu-2": "cpu-2.cluster.local"},
    )


def six_nodes() -> Plan:
    """Three groups of two nodes: CPU, GPU, and Arm."""
    gpu = make_target("avx512", sms=("8.6",))
    arm = make_target("armv8.2")
    return make_plan(
        (
            make_group(("cpu-1", "cpu-2")),
            make_group(("gpu-1", "gpu-2"), gpu, (make_wheel("torch", "2.13.0+cu130.sm86.avx512"),)),
            make_group(("arm-1", "arm-2"), arm),
        )
    )


def wheels_of(plan: Plan) -> dict[str, tuple[ReleaseFile, ...]]:
    """The wheels of each group, as a store would tell them."""
    return {
        group.name: tuple(
            ReleaseFile(
                each.package, Path(f"{each.package}-{each.wheel_version}-cp311.whl"), "ab" * 32
            )
            for each in group.wheels
        )
        for group in plan.groups
    }
