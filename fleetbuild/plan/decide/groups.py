"""Sort nodes into groups, and order each group's members as builders.

In: eligibility and facts of nodes, recipes. Out: `DraftGroup`s. Follows eligibility; merging may
change the targets in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log2
from typing import Literal

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Target, TargetLibc
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.eligibility import Eligibility, wheel_rung
from fleetbuild.plan.decide.packages import Package
from fleetbuild.text import version_key
from fleetbuild.toolchains.toolkits import Toolkit


class DraftGroup(Frozen):
    """A group before anything is locked."""

    target: Target
    members: dict[str, Facts]  # by node; a group without nodes has its named targets instead
    nodes: tuple[str, ...]  # sorted
    builders: tuple[str, ...]  # the members, the representative first
    python_version: str  # the oldest among the members
    wheel_targets: dict[str, Target]  # by package
    toolkit: Toolkit | None = None  # set if GPU code is built
    pytorch: str | None = None  # cpu, cu130: PyTorch's own index, if index: names pytorch

    @property
    def name(self) -> str:
        """The name of its target, such as sm86-avx-cp311."""
        return self.target.name

    def toolkit_for(self, package: str) -> Toolkit | None:
        """Return the toolkit that builds a package; None if its wheel has no GPU code."""
        return self.toolkit if self.wheel_targets[package].sms else None


def node_targets(
    eligibility: Mapping[str, Eligibility], facts: Mapping[str, Facts]
) -> dict[str, Target]:
    """Return the target that each eligible node would have on its own."""
    return {
        name: _target_of(eligibility[name], facts[name])
        for name in sorted(eligibility)
        if eligibility[name].state == "ok"
    }


def group_members(
    targets: Mapping[str, Target],
    eligibility: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> tuple[DraftGroup, ...]:
    """Return the groups of members with the same target, sorted by name."""
    members: dict[Target, list[str]] = {}
    for name in sorted(targets):
        members.setdefault(targets[name], []).append(name)
    floors = {
        target: lowest_libc(facts[name] for name in names) for target, names in members.items()
    }
    wheels = {target: _wheel_targets(target, packages, config) for target in members}
    shared = _wheel_floors(wheels, floors)
    versions = {name: python.version for name in targets if (python := eligibility[name].python)}
    groups = [
        DraftGroup(
            target=target.with_floor(floors[target]),
            members={name: facts[name] for name in names},
            nodes=tuple(names),
            builders=tuple(sorted(names, key=lambda name: builder_rank(name, facts[name]))),
            python_version=min((versions[name] for name in names), key=version_key),
            wheel_targets={
                package: wheel.with_floor(shared[package, wheel])
                for package, wheel in wheels[target].items()
            },
        )
        for target, names in members.items()
    ]
    return tuple(sorted(groups, key=lambda group: group.name))


def builder_rank(name: str, facts: Facts) -> tuple[object, ...]:
    """Return a sort key, best builder first; BUILDER_RANK says what each value prefers.

    Sizes are compared as powers of two first: among nodes of about one size, a wheel comes faster
    from a node without a bastion, and from a free one.
    """
    memory, cpus = facts.memory_gb or 0, facts.cpus or 0
    return (
        version_key(libc_of(facts)),
        bool(facts.taints),
        not has_compiler(facts),
        -round(log2(memory + 1)),
        -round(log2(cpus + 1)),
        facts.behind_bastion,
        facts.is_busy,
        -memory,
        -cpus,
        name,
    )


BUILDER_RANK = (
    "oldest libc", "open to pods", "has a compiler", "most memory", "most cores",
    "reached directly", "less busy", "most memory", "most cores", "first by name",
)  # fmt: skip


def libc_of(facts: Facts) -> str:
    """Return the version of the node's C library; "" if unknown."""
    return facts.libc.version if facts.libc else ""


def has_compiler(facts: Facts) -> bool:
    """Return whether a C and C++ compiler is installed."""
    return {"gcc", "g++"} <= facts.toolchain.keys() or "clang" in facts.toolchain


def lowest_libc(facts: Iterable[Facts]) -> str:
    """Return the version of the oldest C library among these nodes."""
    return min((each.libc.version for each in facts if each.libc), key=version_key)


def _target_of(eligibility: Eligibility, facts: Facts) -> Target:
    assert eligibility.python and facts.libc  # set for every eligible node  # noqa: S101, PT018
    return _target(
        eligibility.rung or "", eligibility.sms, eligibility.python.tag, facts.libc.family
    )


@lru_cache(maxsize=1000)  # thousands of nodes have few targets, and the same object is equal sooner
def _target(
    rung_name: str, sms: tuple[str, ...], python: str, libc: Literal["glibc", "musl"]
) -> Target:
    rung = RUNGS[rung_name]
    return Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=sms,
        python=python,
        libc=TargetLibc(family=libc, floor=""),
    )


def _wheel_targets(
    target: Target, packages: Sequence[Package], config: Config
) -> dict[str, Target]:
    found = {}
    for package in packages:
        recipe = package.recipe
        rung = wheel_rung(recipe, RUNGS[target.isa], config)
        assert rung  # assess_nodes() has blocked members without one  # noqa: S101
        sms = recipe.sms_of(target.sms)
        blas = config.build.blas
        found[package.name] = target.model_copy(
            update={
                "isa": rung.name,
                "features": tuple(sorted(rung.features)),
                "sms": sms,
                "blas": blas if recipe.offers(blas, target.arch) else None,
                "ptx": sms[-1] if sms and config.cuda_ptx else None,
            }
        )
    return found


def _wheel_floors(
    wheels: Mapping[Target, Mapping[str, Target]], floors: Mapping[Target, str]
) -> dict[tuple[str, Target], str]:
    """Return the libc floor of each wheel: the oldest among the groups that it serves."""
    lowest: dict[tuple[str, Target], str] = {}
    for group, targets in wheels.items():
        for key in targets.items():
            lowest[key] = min(floors[group], lowest.get(key, floors[group]), key=version_key)
    return lowest
