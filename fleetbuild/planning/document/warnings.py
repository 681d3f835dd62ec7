"""What a plan warns of though it can be carried out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from fleetbuild.hardware.pytorch import NEWEST, find_torch, python_of
from fleetbuild.models import Config, Facts, PlannedGroup, PlannedWheel
from fleetbuild.planning.compatibility.beyond_target import beyond_target
from fleetbuild.planning.compatibility.constraints import joined
from fleetbuild.planning.packages import Package, versions_of
from fleetbuild.planning.resolution import Source
from fleetbuild.planning.wheels.draft import DraftWheel
from fleetbuild.recipes.model import GENERIC

# Build requirements of code for GPUs.
_FOR_GPUS = re.compile(r"(torch|cupy|nvidia|cuda|triton|pycuda)\b", re.IGNORECASE)


def plan_warnings(
    wheels: Sequence[DraftWheel],
    groups: Sequence[PlannedGroup],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> tuple[str, ...]:
    """What a plan warns of, a sentence each: builders, memory, flags, and what is not known."""
    warnings = [warning for wheel in wheels for warning in wheel.builders.warnings]
    warnings += filter(
        None, (_short_of_memory(wheel, facts) for group in groups for wheel in group.wheels)
    )
    warnings += [
        each for group in groups for wheel in group.wheels for each in beyond_target(wheel)
    ]
    warnings += [
        f"{wheel.package} for {group.name}: every node needs {words}, which no wheel brings."
        for group in groups
        for wheel in group.wheels
        for words in wheel.requires.libraries.values()
    ]
    warnings += filter(
        None, (_without_cudnn(wheel, group, facts) for group in groups for wheel in group.wheels)
    )
    torch = find_torch(versions_of(packages).get("torch", ""))
    if torch and not torch.known:
        warnings.append(
            f"torch {torch.name} is newer than all that is known, which ends with {NEWEST.name}: "
            "it is taken to ask for no older Python, CUDA or compiler than that does."
        )
    if torch:
        warnings += [
            f"PyTorch calls torch {torch.name} for Python {version} an experiment: {group.name} "
            "may not build, and python: or fleetbuild_python can name an older one."
            for group in groups
            if (version := python_of(group.target.python)) in torch.python.experimental
        ]
    if config.cuda and not any(wheel.package.recipe.cuda for wheel in wheels):
        warnings.append(f"cuda: {config.cuda} has no effect: no package of this release uses CUDA.")
    return tuple(dict.fromkeys(warnings))


def unasked(sources: Sequence[Source]) -> tuple[str, ...]:
    """A warning for each source that did not say what its build needs."""
    return tuple(
        f"The source of {source.package} {source.version} was not asked what its build needs. "
        f"{source.unasked} The recipe's own build requirements stand alone."
        for source in sources
        if source.unasked
    )


def without_recipe(packages: Sequence[Package], sources: Sequence[Source]) -> Iterator[str]:
    """A warning for each package whose build asks for torch or CUDA, and that has no recipe."""
    generic = {package.name for package in packages if package.recipe.name == GENERIC}
    for source in sources:
        asks = [text for text in source.build_requirements if _FOR_GPUS.match(text)]
        if source.package in generic and asks:
            told = f"{source.package} has no recipe, and its build asks for {joined(sorted(asks))}"
            yield (
                f"{told}: it is built as code for the CPU alone, whatever GPUs the nodes have. If "
                "it has CUDA code, write a recipe that says extends: torch-extension and "
                f"packages: [{source.package}] (docs/recipes.md)."
            )


def _without_cudnn(
    wheel: PlannedWheel, group: PlannedGroup, facts: Mapping[str, Facts]
) -> str | None:
    """What a torch without cuDNN lacks: it comes as a wheel, and there is not one for all."""
    if wheel.action == "blocked" or wheel.environment.get("USE_CUDNN") != "0":
        return None
    having = [name for name in group.nodes if facts[name].toolchain.get("cudnn")]
    there = f" The cuDNN of {joined(having)} is not used." if having else ""
    return (
        f"{wheel.package} for {group.name} is built without cuDNN, of which there is no wheel for "
        f"CUDA {wheel.cuda} on {group.target.arch} and SM {', '.join(wheel.target.sms)}: "
        f"convolutions and recurrent networks are slower on these GPUs.{there}"
    )


def _short_of_memory(wheel: PlannedWheel, facts: Mapping[str, Facts]) -> str | None:
    """Fewer jobs than one there cannot be: what is left is to say so."""
    builder = facts.get(wheel.built_on or "")
    if wheel.action != "build" or not builder or not builder.memory_gb:
        return None
    if builder.memory_gb >= wheel.requires.memory_gb:
        return None
    return (
        f"{wheel.built_on} has {builder.memory_gb:g} GB of memory, and one compiler of "
        f"{wheel.package} may need {wheel.requires.memory_gb:g} GB: name a stronger machine under "
        "build.builders, or give it swap."
    )
