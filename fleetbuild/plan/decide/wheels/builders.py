"""The nodes that build a wheel, in order.

In: a target, its groups, facts. Out: `Builders`. Runs once groups are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Container, Facts, Python, Target
from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import PlannedBuilder
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.eligibility import Eligibility
from fleetbuild.plan.decide.groups import BUILDER_RANK, DraftGroup, builder_rank, libc_of
from fleetbuild.plan.decide.wheels.builder_needs import jobs_on
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key
from fleetbuild.toolchains.compilers import (
    CompilerNeed,
    additional_gcc,
    lacks_compiler,
)
from fleetbuild.toolchains.cuda import Gcc
from fleetbuild.toolchains.pytorch import python_of
from fleetbuild.toolchains.toolkits import Toolkit, glibc_problem

_SHOWN = 5  # nodes whose refusal a reason gives in full
_MAX_BUILDERS = 5  # a build that fails on five machines fails on the sixth


class CannotBuild(NamedTuple):
    """Why a node cannot build for a target. Of another architecture, it serves other groups."""

    kind: Literal["unknown", "image", "architecture", "features", "software"]
    reason: str  # starts with the node, without a full stop


class Builders(Frozen):
    """The node that builds, then its fallbacks. Empty if builds need an image that no node has."""

    order: tuple[PlannedBuilder, ...] = ()
    able: tuple[str, ...] = ()  # nodes whose libc suits, in the same order
    python_version: str = ""  # of the interpreter on the first builder
    why: str = ""  # what the first has before the second, in words
    warnings: tuple[str, ...] = ()
    problem: Problem | None = None  # why no node can build

    @property
    def first(self) -> PlannedBuilder:
        """The node that builds."""
        return self.order[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in order."""
        return tuple(builder.node for builder in self.order)


def choose_builders(
    target: Target,
    groups_served: Sequence[DraftGroup],
    eligibility: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    preferred: Collection[str] = (),
    *,
    recipe: Recipe | None = None,
    toolkit: Toolkit | None = None,
    gcc: Gcc | None = None,
) -> Builders:
    """Return the nodes that can build for this target: named builders first, then members.

    Nodes with a suitable compiler and the CUDA toolkit come before the others; one whose glibc the
    toolkit does not compile with builds only if every node has such a glibc. For groups without
    nodes, only the `preferred` nodes build. In containers, members build only if the image suits,
    as other nodes do.
    """
    members = sorted(
        (name for group in groups_served for name in group.nodes),
        key=lambda name: builder_rank(name, facts[name]),
    )
    oldest = members[0] if members else None
    in_containers = oldest is not None and facts[oldest].container is not None
    candidates = sorted(preferred, key=lambda name: _size_rank(name, facts))
    if in_containers:
        candidates = list(dict.fromkeys((*candidates, *members)))
        members = []
    pythons = {name: python for name in members if (python := eligibility[name].python)}
    refusals: list[CannotBuild] = []
    fit: list[str] = []
    for name in candidates:
        answer = fit_to_build(name, target, facts)
        if isinstance(answer, Python):
            fit.append(name)
            pythons[name] = answer
        elif name in preferred or not preferred:
            refusals.append(answer)
    if in_containers and not fit:
        images = [facts[name].container for name in candidates if name in facts]
        reasons = [refusal.reason for refusal in refusals]
        problem = _no_image_suits(target, reasons, filter(None, images))
        return Builders(problem=problem)
    # The plan has the reasons with each target; members without the image were not asked for.
    if oldest is None or (in_containers and not preferred):
        refusals = []
    elif fit:  # a builder of another architecture serves other groups: no warning
        refusals = [refusal for refusal in refusals if refusal.kind != "architecture"]
    order = tuple(dict.fromkeys((*fit, *members)))
    need = CompilerNeed(RUNGS[target.isa], gcc)
    if toolkit:
        compiling = [n for n in order if not glibc_problem(toolkit.version, facts[n].for_builds)]
        order = tuple(compiling) or order
    floor, named = target.libc.floor, set(fit)

    def rank(name: str) -> tuple[bool, ...]:
        return (
            lacks_compiler(need, facts[name].for_builds),
            pythons[name].ensurepip is False,  # the role toolchain has to install it
            toolkit is not None and name not in toolkit.installed_on,
            facts[name].can_isolate is False,
        )

    able = tuple(
        sorted((name for name in order if name in named or libc_of(facts[name]) == floor), key=rank)
    )
    order = tuple(dict.fromkeys((*able, *order)))[:_MAX_BUILDERS]
    return Builders(
        order=tuple(
            PlannedBuilder(
                node=name,
                python=pythons[name].path,
                gcc=additional_gcc(need, facts[name].for_builds) or "",
                image=image.id if (image := facts[name].container) else "",
                jobs=jobs_on(recipe, facts[name], target) if recipe else 1,
            )
            for name in order
        ),
        able=able,
        why=_why_first(order, able, lambda name: (*rank(name), *builder_rank(name, facts[name]))),
        python_version=pythons[order[0]].version,
        warnings=_refusal_warnings(target, refusals, "" if fit else f" {oldest} builds it."),
    )


_RANK = ("has the compiler", "has pip", "has the CUDA toolkit", "isolates builds", *BUILDER_RANK)


def _why_first(
    order: Sequence[str], able: Sequence[str], rank: Callable[[str], tuple[object, ...]]
) -> str:
    """Return what the first builder has before the second."""
    if len(order) < 2:
        return ""
    if order[1] not in able:
        return BUILDER_RANK[0]
    first, second = map(rank, order[:2])
    return next((words for words, a, b in zip(_RANK, first, second, strict=True) if a != b), "")


def builders_in_other_groups(
    target: Target, groups_served: Sequence[DraftGroup], facts: Mapping[str, Facts]
) -> tuple[str, ...]:
    """Return nodes of other groups that can build, if taints keep pods off every member."""
    if not all(facts[name].taints for group in groups_served for name in group.nodes):
        return ()
    open_to_pods = (name for name in sorted(facts) if not facts[name].taints)
    return tuple(
        name for name in open_to_pods if isinstance(fit_to_build(name, target, facts), Python)
    )


def _size_rank(name: str, facts: Mapping[str, Facts]) -> tuple[object, ...]:
    known = facts.get(name, Facts(state="unreachable"))
    return (-(known.cpus or 0), -(known.memory_gb or 0), name)


def _no_image_suits(
    target: Target, refusals: Sequence[str], images: Iterable[Container]
) -> Problem:
    """Return why no node can build for the target in its image."""
    said = "; ".join(refusals[:_SHOWN])
    if len(refusals) > _SHOWN:
        said += f"; and {len(refusals) - _SHOWN} more"
    fix = next((image.fix for image in images if image.fix), None)
    libc = target.libc
    return Problem(
        f"No node can build for {target.name} in the image of build.container: {said}.",
        fix
        or f"Name an image with Python {python_of(target.python)} and {libc.family} {libc.floor} or"
        " older in build.container, or remove it and build on the nodes themselves.",
    )


def fit_to_build(name: str, target: Target, facts: Mapping[str, Facts]) -> Python | CannotBuild:
    """Return the node's interpreter for the target, or why it cannot build."""
    known = facts.get(name)
    if known is None or known.state != "ok" or known.libc is None:
        return CannotBuild("unknown", f"{name} {_why_unknown(known)}")
    if known.container and known.container.problem:
        return CannotBuild("image", f"{name} {known.container.problem}")
    if known.arch != target.arch:
        return CannotBuild("architecture", f"{name} is {known.arch}")
    if missing := sorted(set(target.features) - set(known.features)):
        return CannotBuild("features", f"{name} lacks {', '.join(missing)}")
    where = f"{known.container.image} on {name}" if known.container else name
    answer = _software_fits(f"{where} has", target, known.for_builds)
    return answer if isinstance(answer, Python) else CannotBuild("software", answer)


def _software_fits(has: str, target: Target, software: Facts) -> Python | str:
    libc = software.libc
    if libc is None:
        return f"{has} an unknown C library"
    if libc.family != target.libc.family:
        return f"{has} {libc.family}"
    if version_key(libc.version) > version_key(target.libc.floor):
        return f"{has} {libc.family} {libc.version}, newer than the group's"
    matching = [python for python in software.pythons if python.tag == target.python]
    able = [python for python in matching if python.venv is not False]
    if matching and not able:
        return f"{has} {target.python} only without venv or zlib"
    able.sort(key=lambda python: python.ensurepip is False)
    return able[0] if able else f"{has} no interpreter for {target.python}"


def _why_unknown(facts: Facts | None) -> str:
    if facts is not None and facts.state == "unsupported":
        return f"is not supported: {facts.reason}"
    if facts is None:
        return "was not probed: it is not among the nodes of this run"
    return "has fleetbuild_skip" if facts.state == "skipped" else "was not reached"


def _refusal_warnings(
    target: Target, refusals: Sequence[CannotBuild], alternatives: str
) -> tuple[str, ...]:
    """Return a warning that says why named builders do not build."""
    if not refusals:
        return ()
    which = "No named builder" if alternatives else "Not every named builder"
    sentence = (
        f"{which} can build {target.name} (libc floor {target.libc.floor}): "
        f"{'; '.join(refusal.reason for refusal in refusals)}.{alternatives}"
    )
    return (sentence,)
