"""The nodes that build a wheel, in order, and what the builder must have.

In: a target, its groups, facts. Out: `Builders` and `Requires`. Runs once groups are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from fleetbuild.hardware.cuda import Gcc, is_jetson
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, LockedFile, Python, Requires, Target
from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import PlannedBuilder
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.compatibility.compilers import (
    CompilerNeed,
    additional_gcc,
    compiler_for,
    compiler_in_image,
    compiler_of,
    lacks_compiler,
    missing_compiler,
    required_compiler,
)
from fleetbuild.plan.decide.compatibility.toolkits import Toolkit
from fleetbuild.plan.decide.eligibility import Eligibility, is_windows
from fleetbuild.plan.decide.groups import DraftGroup, builder_rank, libc_of
from fleetbuild.plan.decide.wheels.containers import (
    missing_in_image,
    missing_toolkit_in_image,
    no_image_suits,
)
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key

FROM_WHEELS = "from NVIDIA's wheels"
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

    Nodes with a suitable compiler and the CUDA toolkit come before the others. For groups without
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
        problem = no_image_suits(target, reasons, filter(None, images))
        return Builders(problem=problem)
    # The plan has the reasons with each target; members without the image were not asked for.
    if oldest is None or (in_containers and not preferred):
        refusals = []
    elif fit:  # a builder of another architecture serves other groups: no warning
        refusals = [refusal for refusal in refusals if refusal.kind != "architecture"]
    order = tuple(dict.fromkeys((*fit, *members)))
    need = CompilerNeed(RUNGS[target.isa], gcc)
    floor, named = target.libc.floor, set(fit)
    able = tuple(
        sorted(
            (name for name in order if name in named or libc_of(facts[name]) == floor),
            key=lambda name: (
                lacks_compiler(need, facts[name].for_builds),
                toolkit is not None and name not in toolkit.installed_on,
                facts[name].can_isolate is False,
            ),
        )
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
        python_version=pythons[order[0]].version,
        warnings=_refusal_warnings(target, refusals, "" if fit else f" {oldest} builds it."),
    )


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
        return f"{has} {target.python} only without the venv module"
    return able[0] if able else f"{has} no interpreter for {target.python}"


def _why_unknown(facts: Facts | None) -> str:
    if facts is not None and is_windows(facts):
        return "is a Windows node, where fleetbuild does not build"
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


def requires_of(
    recipe: Recipe,
    builder: str,
    facts: Facts,
    target: Target,
    *,
    disk_gb: float,
    toolkit: Toolkit | None = None,
    from_wheels: bool = False,
    gcc: Gcc | None = None,
    libraries: Mapping[str, str] = MappingProxyType({}),
    image: str | None = None,
) -> Requires:
    """Return the builder's required tools, and the missing ones.

    With an `image`, in which a pod builds, the tools are the image's; the node needs only disk.
    With `from_wheels`, the plan has locked the CUDA toolkit as NVIDIA's wheels.
    """
    need = CompilerNeed(RUNGS[target.isa], gcc)
    if image is not None:
        return Requires(
            compiler=f"{compiler_for(need, facts) or 'gcc'} (in {image})",
            cuda=f"{toolkit.version} (in {image})" if toolkit else None,
            disk_gb=disk_gb,
            memory_gb=job_memory(recipe, target),
            libraries=dict(libraries),
            to_supply=_disk_shortage(disk_gb, builder, facts),
            in_image=(
                *_in_image(image, need, facts, toolkit),
                *(
                    f"{image} must contain {name} {oldest}".rstrip()
                    + (" or newer." if oldest else ".")
                    for name, oldest in sorted(recipe.tools.items())
                ),
            ),
        )
    if container := facts.container:
        software = facts.for_builds
        where = f"in {container.image}, image {container.id[:12]}"
        lacking = toolkit if toolkit and builder not in toolkit.installed_on else None
        return Requires(
            compiler=f"{compiler_of(software) or 'gcc'} ({where})",
            cuda=_cuda(builder, toolkit, from_wheels=from_wheels, present=f"in {container.image}"),
            disk_gb=disk_gb,
            memory_gb=job_memory(recipe, target),
            libraries=dict(libraries),
            to_supply=(
                *missing_in_image(container, recipe, need, software, target.python),
                *(
                    (missing_toolkit_in_image(container, lacking),)
                    if lacking and not from_wheels
                    else ()
                ),
                *_disk_shortage(disk_gb, builder, facts),
            ),
        )
    return Requires(
        compiler=required_compiler(need, facts),
        tools=_tools(recipe, facts),
        cuda=_cuda(builder, toolkit, from_wheels=from_wheels),
        disk_gb=disk_gb,
        memory_gb=job_memory(recipe, target),
        libraries=dict(libraries),
        to_supply=(
            *missing_compiler(need, builder, facts, toolkit.alternatives if toolkit else ()),
            *(() if from_wheels else _missing_toolkit(builder, toolkit, target)),
            *_old_tools(recipe, builder, facts),
            *_disk_shortage(disk_gb, builder, facts),
        ),
    )


def _tools(recipe: Recipe, facts: Facts) -> dict[str, str]:
    """Return the programs that a build calls, each with where it comes from."""
    return {
        f"{name}>={oldest}" if oldest else name: (
            f"{there[0]} (present)"
            if (there := facts.toolchain.get(name))
            else "to be installed by the toolchain role"
        )
        for name, oldest in sorted(recipe.tools.items())
    }


def _old_tools(recipe: Recipe, builder: str, facts: Facts) -> Iterator[str]:
    for name, oldest in sorted(recipe.tools.items()):
        for version in facts.toolchain.get(name, ())[:1]:
            if oldest and version_key(version) < version_key(oldest):
                yield (
                    f"{builder} has {name} {version}, but the recipe {recipe.name} needs {oldest} "
                    f"or newer: install that for all users there (in /usr/local/bin), or let "
                    "another node build (build.builders)."
                )


def _cuda(
    builder: str, toolkit: Toolkit | None, *, from_wheels: bool, present: str = "present"
) -> str | None:
    if toolkit is None:
        return None
    there = present if builder in toolkit.installed_on else "to be supplied"
    return f"{toolkit.version} ({FROM_WHEELS if from_wheels else there})"


def _missing_toolkit(builder: str, toolkit: Toolkit | None, target: Target) -> Iterator[str]:
    if toolkit is None or builder in toolkit.installed_on:
        return
    if any(map(is_jetson, target.sms)):
        yield (
            f"{builder} has no CUDA: install the CUDA of its JetPack (apt install nvidia-jetpack), "
            "the only one that a Jetson runs, and plan again."
        )
        return
    package = "cuda-toolkit-" + toolkit.version.replace(".", "-")
    yield (
        f"{builder} has no CUDA toolkit {toolkit.version}: install {package} there, from NVIDIA's "
        "repository."
    )


def _in_image(
    image: str, need: CompilerNeed, facts: Facts, toolkit: Toolkit | None
) -> Iterator[str]:
    """Return what the image must contain beside what it is known to contain."""
    if problem := compiler_in_image(need, facts):
        yield f"{image} must contain {problem}."
    if toolkit:
        yield (
            f"{image} must contain the CUDA toolkit {toolkit.version}, with nvcc: base build.image"
            f" on an image of NVIDIA's that has it (nvidia/cuda, a tag {toolkit.version}…-devel),"
            " or install it there."
        )


def needed_disk(recipe: Recipe, inputs: Iterable[LockedFile]) -> float:
    """Return the disk that a build needs, in GB: as the recipe says, and for its inputs.

    Wheels are copied to the builder, and unpacked to about twice their size: torch with CUDA and
    its libraries takes ten gigabytes before anything is compiled.
    """
    copied = sum(file.size or 0 for file in inputs) / 1e9
    return recipe.disk_gb + round(3 * copied)


def _disk_shortage(disk_gb: float, builder: str, facts: Facts) -> tuple[str, ...]:
    if facts.disk_gb is None or facts.disk_gb >= disk_gb:
        return ()
    sentence = (
        f"{builder} has {facts.disk_gb:g} GB free in its build folder, but the build needs"
        f" {disk_gb:g} GB: free some space there."
    )
    return (sentence,)


def job_memory(recipe: Recipe, target: Target) -> float:
    """Return the memory that one compiler process may need, in GB: more for each SM."""
    return recipe.job_memory_gb + recipe.sm_job_memory_gb * len(target.sms)


def expected_minutes(recipe: Recipe, target: Target, jobs: int) -> float:
    """Return the estimated build time; the recipe's estimates are for 8 jobs."""
    cost = recipe.cost
    pace = 1 if cost.serial else 8 / jobs
    return round((cost.minutes + cost.per_sm_minutes * len(target.sms)) * pace, 1)


def is_measured(recipe: Recipe, target: Target) -> bool:
    """Return whether the estimate comes from timed builds. Builds of GPU code were never timed."""
    return recipe.cost.measured and not target.sms


def jobs_on(recipe: Recipe, facts: Facts, target: Target) -> int:
    """Return how many compilers may run at once: limited by cores and memory."""
    each = job_memory(recipe, target)
    by_memory = int((facts.memory_gb or each) / each)
    return max(1, min(facts.cpus or 1, by_memory))
