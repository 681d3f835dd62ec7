"""Who builds a wheel, in which order, and with which compiler's flags."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from fleetbuild.hardware.cuda import Gcc, is_jetson
from fleetbuild.hardware.rungs import ARCHITECTURES, RUNGS
from fleetbuild.models import Facts, Python, Requires, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.compilers import (
    Need,
    compiler_for,
    compiler_in_image,
    compiler_to_supply,
    gcc_beside,
    lacks_compiler,
    required_compiler,
)
from fleetbuild.planning.compatibility.toolkits import Toolkit
from fleetbuild.planning.eligibility.assess import Eligibility
from fleetbuild.planning.groups import DraftGroup, builder_rank, libc_of
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key

_ARCHS = tuple(f" is {arch}" for arch in ARCHITECTURES)
_ENOUGH = 5  # builders named for a wheel: who fails on five machines fails on the sixth


class Builders(Frozen):
    """The node that builds, then those who do where it cannot."""

    order: tuple[str, ...]
    able: tuple[str, ...]  # all whose libc will do, in the same order
    pythons: dict[str, str]  # node -> its interpreter of the target's ABI
    version: str  # of the first one's interpreter
    gccs: dict[str, str] = {}  # node -> major version of a gcc beside its default one
    warnings: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Who builds."""
        return self.order[0]


def choose_builders(
    target: Target,
    serving: Sequence[DraftGroup],
    fates: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    strong: Collection[str] = (),
    *,
    toolkit: Toolkit | None = None,
    gcc: Gcc | None = None,
) -> Builders:
    """Those who can build for this target: strong machines that were named, then members; of
    them, first those who have the toolkit."""
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
    if fit:  # that one of another architecture builds elsewhere needs no word
        refusals = [said for said in refusals if not said.endswith(_ARCHS)]
    order = tuple(dict.fromkeys((*fit, *members)))
    need, oldest = Need(RUNGS[target.isa], gcc), members[0]
    floor, named = libc_of(facts[oldest]), set(fit)
    able = tuple(
        sorted(
            (name for name in order if name in named or libc_of(facts[name]) == floor),
            key=lambda name: (
                lacks_compiler(need, facts[name]),
                toolkit is not None and name not in toolkit.installed_on,
            ),
        )
    )
    order = tuple(dict.fromkeys((*able, *order)))[:_ENOUGH]
    return Builders(
        order=order,
        able=able,
        pythons={name: pythons[name].path for name in order},
        version=pythons[order[0]].version,
        gccs={name: major for name in order if (major := gcc_beside(need, facts[name]))},
        warnings=_refused(target, refusals, "" if fit else f" {oldest} builds it."),
    )


def outsiders(
    target: Target, serving: Sequence[DraftGroup], facts: Mapping[str, Facts]
) -> tuple[str, ...]:
    """Where taints keep pods from every member: nodes of other groups that can build for it."""
    if not all(facts[name].taints for group in serving for name in group.nodes):
        return ()
    open_to_pods = (name for name in sorted(facts) if not facts[name].taints)
    return tuple(name for name in open_to_pods if isinstance(_fits(name, target, facts), Python))


def _strength(name: str, facts: Mapping[str, Facts]) -> tuple[object, ...]:
    known = facts.get(name, Facts(state="unreachable"))
    return (-(known.cpus or 0), -(known.memory_gb or 0), name)


def _fits(name: str, target: Target, facts: Mapping[str, Facts]) -> Python | str:
    """Its interpreter for the target, or why it cannot build for it."""
    known = facts.get(name)
    if known is None or known.state != "ok" or known.libc is None:
        return f"{name} {_absent(known)}"
    if known.arch != target.arch:
        return f"{name} is {known.arch}"
    if not set(target.features) <= set(known.features):
        return f"{name} lacks {', '.join(sorted(set(target.features) - set(known.features)))}"
    if known.libc.family != target.libc.family:
        return f"{name} has {known.libc.family}"
    if version_key(known.libc.version) > version_key(target.libc.floor):
        return f"{name} has {known.libc.family} {known.libc.version}, newer than the group's"
    matching = [p for p in known.pythons if p.tag == target.python and p.venv is not False]
    return matching[0] if matching else f"{name} has no interpreter for {target.python}"


def _absent(facts: Facts | None) -> str:
    if facts is None:
        return "was not probed, for it is not among the nodes of this run"
    return "has fleetbuild_skip" if facts.state == "skipped" else "was not reached"


def _refused(target: Target, refusals: Sequence[str], instead: str) -> tuple[str, ...]:
    """Why named builders are passed over, all of them or some."""
    if not refusals:
        return ()
    which = "No named builder" if instead else "Not every named builder"
    sentence = (
        f"{which} can build {target.name} (libc floor {target.libc.floor}): "
        f"{'; '.join(refusals)}.{instead}"
    )
    return (sentence,)


def requires_of(
    recipe: Recipe,
    builder: str,
    facts: Facts,
    target: Target,
    *,
    toolkit: Toolkit | None = None,
    gcc: Gcc | None = None,
    libraries: Mapping[str, str] = MappingProxyType({}),
    image: str | None = None,
) -> Requires:
    """What the builder must have, and whether it has. With an image, in which a pod builds, the
    tools are the image's, and of the node only room is asked."""
    need = Need(RUNGS[target.isa], gcc)
    if image is not None:
        return Requires(
            compiler=f"{compiler_for(need, facts) or 'gcc'} (in {image})",
            cuda=f"{toolkit.version} (in {image})" if toolkit else None,
            disk_gb=recipe.disk_gb,
            memory_gb=job_memory(recipe, target),
            libraries=dict(libraries),
            to_supply=_short_of_disk(recipe, builder, facts),
            in_image=tuple(_in_image(image, need, facts, toolkit)),
        )
    return Requires(
        compiler=required_compiler(need, facts),
        cuda=_cuda(builder, toolkit),
        disk_gb=recipe.disk_gb,
        memory_gb=job_memory(recipe, target),
        libraries=dict(libraries),
        to_supply=(
            *compiler_to_supply(need, builder, facts, toolkit.instead if toolkit else ()),
            *_toolkit_to_supply(builder, toolkit, target),
            *_short_of_disk(recipe, builder, facts),
        ),
    )


def _cuda(builder: str, toolkit: Toolkit | None) -> str | None:
    if toolkit is None:
        return None
    there = builder in toolkit.installed_on
    return f"{toolkit.version} ({'present' if there else 'to be supplied'})"


def _toolkit_to_supply(builder: str, toolkit: Toolkit | None, target: Target) -> Iterator[str]:
    if toolkit is None or builder in toolkit.installed_on:
        return
    if any(map(is_jetson, target.sms)):
        yield (
            f"{builder} has no CUDA: install what its JetPack brings (apt install nvidia-jetpack), "
            "and plan again, for a Jetson runs no other."
        )
        return
    package = "cuda-toolkit-" + toolkit.version.replace(".", "-")
    yield (
        f"{builder} has no CUDA toolkit {toolkit.version}: install it there ({package} of NVIDIA's "
        "repository)."
    )


def _in_image(image: str, need: Need, facts: Facts, toolkit: Toolkit | None) -> Iterator[str]:
    """What the image has to hold, beside what is known to be in it."""
    if problem := compiler_in_image(need, facts):
        yield f"{image} has to hold {problem}."
    if toolkit:
        yield (
            f"{image} has to hold the CUDA toolkit {toolkit.version}, with nvcc: base build.image"
            f" on an image of NVIDIA's that has it (nvidia/cuda, a tag {toolkit.version}…-devel),"
            " or install it there."
        )


def _short_of_disk(recipe: Recipe, builder: str, facts: Facts) -> tuple[str, ...]:
    if facts.disk_gb is None or facts.disk_gb >= recipe.disk_gb:
        return ()
    sentence = (
        f"{builder} has {facts.disk_gb:g} GB free where it builds, and the recipe {recipe.name} "
        f"needs {recipe.disk_gb:g} GB: make room there."
    )
    return (sentence,)


def job_memory(recipe: Recipe, target: Target) -> float:
    """What one compiler may need, in GB: more for each SM."""
    return recipe.job_memory_gb + recipe.sm_job_memory_gb * len(target.sms)


def expected_minutes(recipe: Recipe, target: Target, jobs: int) -> float:
    """How long a build may take: the recipe's estimates are for 8 jobs."""
    cost = recipe.cost
    pace = 1 if cost.serial else 8 / jobs
    return round((cost.minutes + cost.per_sm_minutes * len(target.sms)) * pace, 1)


def is_measured(recipe: Recipe, target: Target) -> bool:
    """Whether the estimate rests on builds that were timed. None with GPU code has been."""
    return recipe.cost.measured and not target.sms


def jobs_on(recipe: Recipe, facts: Facts, target: Target) -> int:
    """How many compilers may run at once: as many as there are cores and memory for."""
    each = job_memory(recipe, target)
    by_memory = int((facts.memory_gb or each) / each)
    return max(1, min(facts.cpus or 1, by_memory))
