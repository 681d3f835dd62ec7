"""Who builds a wheel, in which order, and with which compiler's flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS, flags
from fleetbuild.models import Facts, Python, Requires, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.fates import Fate
from fleetbuild.planning.groups import DraftGroup, builder_rank, numbers
from fleetbuild.recipes import Recipe

_ENOUGH = 5  # builders named for a wheel: who fails on five machines fails on the sixth


class Builders(Frozen):
    """The node that builds, then those who do where it cannot."""

    order: tuple[str, ...]
    pythons: dict[str, str]  # node -> its interpreter of the target's ABI
    version: str  # of the first one's interpreter
    warnings: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Who builds."""
        return self.order[0]


def choose_builders(
    target: Target,
    serving: Sequence[DraftGroup],
    fates: Mapping[str, Fate],
    facts: Mapping[str, Facts],
    strong: Collection[str] = (),
) -> Builders:
    """Those who can build for this target: strong machines that were named, then members."""
    members = sorted(
        (name for group in serving for name in group.nodes),
        key=lambda name: builder_rank(name, facts[name]),
    )
    pythons = {name: python for name in members if (python := fates[name].python)}
    refusals: list[str] = []
    fit: list[str] = []
    for name in sorted(strong, key=lambda name: _strength(name, facts)):
        answer = _fits(name, target, facts)
        if isinstance(answer, Python):
            fit.append(name)
            pythons[name] = answer
        else:
            refusals.append(answer)
    order = (*fit, *(name for name in members if name not in fit))[:_ENOUGH]
    return Builders(
        order=order,
        pythons={name: pythons[name].path for name in order},
        version=pythons[order[0]].version,
        warnings=_refused(target, members[0], refusals) if strong and not fit else (),
    )


def _strength(name: str, facts: Mapping[str, Facts]) -> tuple[object, ...]:
    known = facts.get(name, Facts(state="unreachable"))
    return (-(known.cpus or 0), -(known.memory_gb or 0), name)


def _fits(name: str, target: Target, facts: Mapping[str, Facts]) -> Python | str:
    """Its interpreter for the target, or why it cannot build for it."""
    known = facts.get(name)
    if known is None or known.state != "ok" or known.libc is None:
        return f"{name} was not reached"
    if known.arch != target.arch:
        return f"{name} is {known.arch}"
    if not set(target.features) <= set(known.features):
        return f"{name} lacks {', '.join(sorted(set(target.features) - set(known.features)))}"
    if known.libc.family != target.libc.family:
        return f"{name} has {known.libc.family}"
    if numbers(known.libc.version) > numbers(target.libc.floor):
        return f"{name} has {known.libc.family} {known.libc.version}, newer than the group's"
    matching = [p for p in known.pythons if p.tag == target.python and p.venv is not False]
    return matching[0] if matching else f"{name} has no interpreter for {target.python}"


def _refused(target: Target, instead: str, refusals: Sequence[str]) -> tuple[str, ...]:
    sentence = (
        f"No named builder can build {target.name} (libc floor {target.libc.floor}): "
        f"{'; '.join(refusals)}. {instead} builds it."
    )
    return (sentence,)


class Compiler(Frozen):
    """A compiler as it stands on a node."""

    kind: str  # gcc or clang
    version: str | None


def compiler_of(facts: Facts) -> Compiler | None:
    """The compiler that a build there takes: gcc rather than clang; None where there is none."""
    if {"gcc", "g++"} <= facts.toolchain.keys():
        return Compiler(kind="gcc", version=_newest(facts.toolchain["gcc"]))
    if "clang" in facts.toolchain:
        return Compiler(kind="clang", version=_newest(facts.toolchain["clang"]))
    return None


def flags_for(target: Target, order: Sequence[str], facts: Mapping[str, Facts]) -> str:
    """Flags that every one of these builders understands, whoever it will be."""
    found = [compiler_of(facts[name]) for name in order]
    known = [compiler for compiler in found if compiler and compiler.version]
    first = found[0]
    same = len(known) == len(found) and all(first and each.kind == first.kind for each in known)
    oldest = min((each.version or "" for each in known), key=numbers) if same else None
    return flags(RUNGS[target.isa], first.kind if first else "gcc", oldest)


def requires_of(recipe: Recipe, builder: str, facts: Facts) -> Requires:
    """What the builder must have, and whether it has."""
    compiler = compiler_of(facts)
    present = compiler and f"{compiler.kind} {compiler.version or 'of unknown version'} (present)"
    return Requires(
        compiler=present or "gcc (to be installed by the toolchain role)",
        disk_gb=recipe.disk_gb,
        memory_gb=recipe.job_memory_gb,
        to_supply=_short_of_disk(recipe, builder, facts),
    )


def _short_of_disk(recipe: Recipe, builder: str, facts: Facts) -> tuple[str, ...]:
    if facts.disk_gb is None or facts.disk_gb >= recipe.disk_gb:
        return ()
    sentence = (
        f"{builder} has {facts.disk_gb:g} GB free where it builds, and the recipe {recipe.name} "
        f"needs {recipe.disk_gb:g} GB: make room there."
    )
    return (sentence,)


def jobs_on(recipe: Recipe, facts: Facts) -> int:
    """How many compilers may run at once: as many as there are cores and memory for."""
    by_memory = int((facts.memory_gb or recipe.job_memory_gb) / recipe.job_memory_gb)
    return max(1, min(facts.cpus or 1, by_memory))


def _newest(versions: Sequence[str]) -> str | None:
    return max(versions, key=numbers, default=None)
