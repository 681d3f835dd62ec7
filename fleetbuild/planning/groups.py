"""Nodes into groups, and the order in which members are asked to build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, Facts, Target, TargetLibc
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.toolkits import Toolkit
from fleetbuild.planning.eligibility.assess import Eligibility, wheel_rung
from fleetbuild.planning.resolution import StandIn
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key


class DraftGroup(Frozen):
    """A group before anything is locked: its nodes, the best builder first."""

    target: Target
    nodes: tuple[str, ...]  # sorted
    builders: tuple[str, ...]  # the members, the representative first
    wheel_targets: tuple[Target, ...]  # one for each package, in order
    published: tuple[str, ...] = ()  # packages that are taken as others built them: name==version
    toolkit: Toolkit | None = None  # where there is GPU code to be built
    stand_ins: tuple[StandIn, ...] = ()  # packages whose recipes say what they need

    @property
    def name(self) -> str:
        """As SPEC names groups."""
        return self.target.name


def node_targets(fates: Mapping[str, Eligibility], facts: Mapping[str, Facts]) -> dict[str, Target]:
    """The target of each node that can be planned for, were it for that node alone."""
    return {
        name: _target_of(fates[name], facts[name])
        for name in sorted(fates)
        if fates[name].state == "ok"
    }


def group_nodes(
    targets: Mapping[str, Target],
    facts: Mapping[str, Facts],
    recipes: Sequence[Recipe],
    config: Config,
) -> tuple[DraftGroup, ...]:
    """The groups of nodes with the same target, by name."""
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
    """Smaller is better: the oldest libc, then that pods may run there, then compilers at hand,
    then memory and cores."""
    return (
        version_key(libc_of(facts)),
        bool(facts.taints),
        not has_compiler(facts),
        -(facts.memory_gb or 0),
        -(facts.cpus or 0),
        name,
    )


def libc_of(facts: Facts) -> str:
    """The version of its C library, whichever family it is of."""
    return facts.libc.version if facts.libc else ""


def has_compiler(facts: Facts) -> bool:
    """Whether C and C++ can be compiled there as it is."""
    return {"gcc", "g++"} <= facts.toolchain.keys() or "clang" in facts.toolchain


def lowest_libc(facts: Iterable[Facts]) -> str:
    """The oldest C library among these nodes."""
    return min((each.libc.version for each in facts if each.libc), key=version_key)


def _target_of(fate: Eligibility, facts: Facts) -> Target:
    rung = RUNGS[fate.rung or ""]
    assert fate.python and facts.libc  # it is ok, so it has them  # noqa: S101, PT018
    return Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=fate.sms,
        python=fate.python.tag,
        libc=TargetLibc(family=facts.libc.family, floor=""),
    )


def _wheel_targets(target: Target, recipes: Sequence[Recipe], config: Config) -> tuple[Target, ...]:
    rungs = [(recipe, wheel_rung(recipe, RUNGS[target.isa], config)) for recipe in recipes]
    return tuple(
        target.model_copy(
            update={
                "isa": rung.name,
                "features": tuple(sorted(rung.features)),
                "sms": recipe.sms_of(target.sms),
            }
        )
        for recipe, rung in rungs
        if rung  # fates() has blocked the nodes without one
    )


def _wheel_floors(
    wheels: Mapping[Target, Sequence[Target]], floors: Mapping[Target, str]
) -> dict[tuple[int, Target], str]:
    """A wheel that serves several groups runs on the oldest libc of all."""
    lowest: dict[tuple[int, Target], str] = {}
    for group, targets in wheels.items():
        for key in enumerate(targets):
            lowest[key] = min(floors[group], lowest.get(key, floors[group]), key=version_key)
    return lowest


def _with_floor(target: Target, floor: str) -> Target:
    return target.model_copy(update={"libc": TargetLibc(family=target.libc.family, floor=floor)})
