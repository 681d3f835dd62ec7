"""What the builder of a wheel must have: compiler, toolkit, programs, disk and memory.

In: a recipe, a builder's facts, a target. Out: `Requires`, with a sentence for each thing that
the node, or the image that it builds in, lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Container, Facts, LockedFile, Requires, Target
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key
from fleetbuild.toolchains.compilers import (
    CompilerNeed,
    compiler_for,
    compiler_in_image,
    missing_compiler,
    required_compiler,
)
from fleetbuild.toolchains.constraints import joined
from fleetbuild.toolchains.cuda import Gcc, is_jetson
from fleetbuild.toolchains.pytorch import python_of
from fleetbuild.toolchains.toolkits import (
    Toolkit,
    glibc_problem,
    lacking_libraries,
)


def requires_of(
    recipe: Recipe,
    builder: str,
    facts: Facts,
    target: Target,
    *,
    disk_gb: float,
    toolkit: Toolkit | None = None,
    toolkit_from: str = "",
    gcc: Gcc | None = None,
    libraries: Mapping[str, str] = MappingProxyType({}),
    image: str | None = None,
) -> Requires:
    """Return the builder's required tools, and the missing ones.

    With an `image`, in which a pod builds, the tools are the image's; the node needs only disk.
    With `toolkit_from`, the plan has locked the files of the CUDA toolkit.
    """
    need = CompilerNeed(RUNGS[target.isa], gcc)
    glibc = tuple(_new_glibc(builder, facts, toolkit))
    if image is not None:
        return Requires(
            compiler=f"{compiler_for(need, facts) or 'gcc'} (in {image})",
            cuda=f"{toolkit.version} (in {image})" if toolkit else None,
            disk_gb=disk_gb,
            memory_gb=job_memory(recipe, target),
            libraries=dict(libraries),
            to_supply=(*glibc, *_disk_shortage(disk_gb, builder, facts)),
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
            compiler=f"{compiler_for(need, software) or 'gcc'} ({where})",
            cuda=_cuda(
                builder, toolkit, toolkit_from=toolkit_from, present=f"in {container.image}"
            ),
            disk_gb=disk_gb,
            memory_gb=job_memory(recipe, target),
            libraries=dict(libraries),
            to_supply=(
                *glibc,
                *_missing_in_image(container, recipe, need, software, target.python),
                *(
                    (_missing_toolkit_in_image(container, lacking),)
                    if lacking and not toolkit_from
                    else ()
                ),
                *_disk_shortage(disk_gb, builder, facts),
            ),
        )
    return Requires(
        compiler=required_compiler(need, facts),
        tools=_tools(recipe, facts),
        cuda=_cuda(builder, toolkit, toolkit_from=toolkit_from),
        disk_gb=disk_gb,
        memory_gb=job_memory(recipe, target),
        libraries=dict(libraries),
        to_supply=(
            *glibc,
            *missing_compiler(need, builder, facts, toolkit.alternatives if toolkit else ()),
            *(() if toolkit_from else _missing_toolkit(recipe, builder, facts, toolkit, target)),
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
    builder: str, toolkit: Toolkit | None, *, toolkit_from: str, present: str = "present"
) -> str | None:
    if toolkit is None:
        return None
    there = present if builder in toolkit.installed_on else "to be supplied"
    return f"{toolkit.version} ({f'from {toolkit_from}' if toolkit_from else there})"


def _missing_toolkit(
    recipe: Recipe, builder: str, facts: Facts, toolkit: Toolkit | None, target: Target
) -> Iterator[str]:
    if toolkit is None or builder in toolkit.installed_on:
        return
    if any(map(is_jetson, target.sms)):
        yield (
            f"{builder} has no CUDA: install the CUDA of its JetPack (apt install nvidia-jetpack), "
            "the only one that a Jetson runs, and plan again."
        )
        return
    package = "cuda-toolkit-" + toolkit.version.replace(".", "-")
    lacking = lacking_libraries(facts, toolkit.version, recipe.toolkit_wheels)
    what = (
        f"the CUDA toolkit {toolkit.version} of {builder} lacks {joined(lacking, 'and')}"
        if lacking
        else f"{builder} has no CUDA toolkit {toolkit.version}"
    )
    yield f"{what}: install {package} there, from NVIDIA's repository."


def _new_glibc(builder: str, facts: Facts, toolkit: Toolkit | None) -> Iterator[str]:
    """Yield a sentence if the toolkit does not compile with the glibc that the build has."""
    problem = glibc_problem(toolkit.version, facts.for_builds) if toolkit else ""
    if toolkit and problem:
        where = facts.container.image if facts.container else builder
        others = ""
        if toolkit.alternatives:
            others = f", or take a CUDA that does (cuda: {joined(toolkit.alternatives, 'or')})"
        yield (
            f"{where} {problem}: build in an image with an older one (build.container), or let a"
            f" node that has one build (build.builders){others}."
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


def _missing_in_image(
    image: Container, recipe: Recipe, need: CompilerNeed, facts: Facts, python: str
) -> Iterator[str]:
    """Yield a sentence for each program that a build needs and that the image lacks.

    `facts` are the builder's with the image's software; `python` is the tag of the interpreter.
    """
    has = f"The image {image.image} has"
    compiler = compiler_for(need, facts)
    if compiler is None:
        yield f"{has} no gcc and g++: name an image with compilers in build.container."
    elif problem := need.problem(compiler):
        yield f"{has} {compiler}, which {problem}: name an image with {need} in build.container."
    pythons = [each for each in facts.pythons if each.tag == python]
    if pythons and all(each.ensurepip is False for each in pythons):
        yield (
            f"{has} no ensurepip of Python {python_of(python)}: install it in it (Debian, Ubuntu:"
            " python3-venv)."
        )
    if any(each.headers is False for each in pythons):
        yield f"{has} no headers of Python {python_of(python)} (Python.h): install them in it."
    for name, oldest in sorted(recipe.tools.items()):
        found = facts.toolchain.get(name, ())
        if not found:
            yield f"{has} no {name}, which the recipe {recipe.name} needs: install it in the image."
        elif oldest and version_key(found[0]) < version_key(oldest):
            yield (
                f"{has} {name} {found[0]}, but the recipe {recipe.name} needs {oldest} or newer:"
                " install that in the image."
            )


def _missing_toolkit_in_image(image: Container, toolkit: Toolkit) -> str:
    """Return the sentence about a CUDA toolkit that neither image nor wheels bring."""
    return (
        f"The image {image.image} has no CUDA toolkit {toolkit.version}: base it on an image of"
        f" NVIDIA's that has it (nvidia/cuda, a tag {toolkit.version}...-devel), or install it"
        " there."
    )
