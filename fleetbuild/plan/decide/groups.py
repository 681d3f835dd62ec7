"""Sort nodes into groups, and order each group's members as builders.

In: eligibility and facts of nodes, recipes. Out: `DraftGroup`s. Follows eligibility; merging may
change the targets in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Target, TargetLibc
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.compatibility.toolkits import Toolkit
from fleetbuild.plan.decide.eligibility import Eligibility, wheel_rung
from fleetbuild.plan.decide.resolution import StaticMetadata
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key


class DraftGroup(Frozen):
    """A group before anything is locked."""

    target: Target
    nodes: tuple[str, ...]  # sorted
    builders: tuple[str, ...]  # the members, the representative first
    wheel_targets: tuple[Target, ...]  # one for each package, in order
    published: tuple[str, ...] = ()  # packages installed from a published wheel: name==version
    toolkit: Toolkit | None = None  # set if GPU code is built
    pytorch: str | None = None  # cpu, cu130: PyTorch's own index, if index: names pytorch
    static_metadata: tuple[StaticMetadata, ...] = ()  # packages whose requirements are known

    @property
    def name(self) -> str:
        """The name of its target, such as sm86-avx-cp311."""
        return self.target.name


def node_targets(
    eligibility: Mapping[str, Eligibility], facts: Mapping[str, Facts]
) -> dict[str, Target]:
    """Return the target that each eligible node would have on its own."""
    return {
        name: _target_of(eligibility[name], facts[name])
        for name in sorted(eligibility)
        if eligibility[name].state == "ok"
    }


def group_nodes(
    targets: Mapping[str, Target],
    facts: Mapping[str, Facts],
    recipes: Sequence[Recipe],
    config: Config,
) -> tuple[DraftGroup, ...]:
    """Return the groups of nodes with the same target, sorted by name."""
    members: dict[Target, list[str]] = {}
    for name in sorted(targets):
        members.setdefault(targets[name], []).append(name)
    floors = {
        target: lowest_libc(facts[name] for name in names) for target, names in members.items()
    }
    wheels = {target: _wheel_targets(target, recipes, config) for target in members}
    shared = _wheel_floors(wheels, floors)
    groups = [
        DraftGroup(
            target=_with_floor(target, floors[target]),
            nodes=tuple(names),
            builders=tuple(sorted(names, key=lambda name: builder_rank(name, facts[name]))),
            wheel_targets=tuple(
                _with_floor(wheel, shared[index, wheel])
                for index, wheel in enumerate(wheels[target])
            ),
        )
        for target, names in members.items()
    ]
    return tuple(sorted(groups, key=lambda group: group.name))


def builder_rank(name: str, facts: Facts) -> tuple[object, ...]:
    """Return a sort key, best builder first: oldest libc, no taints, a compiler, memory, cores."""
    return (
        version_key(libc_of(facts)),
        bool(facts.taints),
        not has_compiler(facts),
        -(facts.memory_gb or 0),
        -(facts.cpus or 0),
        name,
    )


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
    rung = RUNGS[eligibility.rung or ""]
    assert eligibility.python and facts.libc  # set for every eligible node  # noqa: S101, PT018
    return Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=eligibility.sms,
        python=eligibility.python.tag,
        libc=TargetLibc(family=facts.libc.family, floor=""),
    )


def _wheel_targets(target: Target, recipes: Sequence[Recipe], config: Config) -> tuple[Target, ...]:
    rungs = [(recipe, wheel_rung(recipe, RUNGS[target.isa], config)) for recipe in recipes]
    return tuple(
        target.model_copy(
            update={
                "isa": rung.name,
                "features": tuple(sorted(rung.features)),
                "sms": (sms := recipe.sms_of(target.sms)),
                "blas": config.build.blas
                if recipe.offers(config.build.blas, target.arch)
                else None,
                "ptx": sms[-1] if sms and config.cuda_ptx else None,
            }
        )
        for recipe, rung in rungs
        if rung  # assess_nodes() has blocked nodes without one
    )


def _wheel_floors(
    wheels: Mapping[Target, Sequence[Target]], floors: Mapping[Target, str]
) -> dict[tuple[int, Target], str]:
    """Return the libc floor of each wheel: the oldest among the groups that it serves."""
    lowest: dict[tuple[int, Target], str] = {}
    for group, targets in wheels.items():
        for key in enumerate(targets):
            lowest[key] = min(floors[group], lowest.get(key, floors[group]), key=version_key)
    return lowest


def _with_floor(target: Target, floor: str) -> Target:
    return target.model_copy(update={"libc": TargetLibc(family=target.libc.family, floor=floor)})
