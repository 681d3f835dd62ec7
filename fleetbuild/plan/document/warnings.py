"""Warnings of a plan that can be applied.

In: draft wheels, planned groups, facts, packages. Out: sentences. Called when a plan is assembled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetbuild.models import Config, Facts, NodeResult, PlannedGroup, PlannedWheel
from fleetbuild.models.plan import version_skew
from fleetbuild.plan.decide.beyond_target import beyond_target
from fleetbuild.plan.decide.left_out import least_space
from fleetbuild.plan.decide.packages import Package, versions_of
from fleetbuild.plan.decide.resolution import Source
from fleetbuild.plan.decide.wheels.draft import DraftWheel
from fleetbuild.plan.decide.wheels.isolation import isolation_warnings
from fleetbuild.recipes.model import GENERIC
from fleetbuild.text import fold
from fleetbuild.toolchains.constraints import joined
from fleetbuild.toolchains.pytorch import NEWEST, find_torch, python_of
from fleetbuild.toolchains.rocm import rocm_of


def rolled_back(
    groups: Sequence[PlannedGroup],
    facts: Mapping[str, Facts],
    release: str,
    expected: Mapping[str, NodeResult],
) -> Iterator[str]:
    """Yield the nodes that this plan changes though a rollback left what they serve."""
    names = [
        name
        for group in groups
        for name in group.installs.upgrade
        if name in expected
        and expected[name].state == "rolled_back"
        and expected[name].release_id == facts[name].release[release].id
    ]
    if names:
        yield f"{fold(names)}: rolled back to the release that serves now. This plan changes it."


def plan_warnings(
    wheels: Sequence[DraftWheel],
    groups: Sequence[PlannedGroup],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> tuple[str, ...]:
    """Return the warnings about builders, memory, flags, libraries and unknown versions."""
    warnings = [warning for wheel in wheels for warning in wheel.builders.warnings]
    warnings += _undecided(wheels)
    warnings += [
        f"{wheel.package.name} for {joined(wheel.groups)}: {wheel.recipe_input.version} in place of"
        f" {wheel.package.version}, which neither runs there nor can be built."
        for wheel in wheels
        if wheel.recipe_input.version != wheel.package.version
    ]
    warnings += filter(
        None, (_memory_warning(wheel, facts) for group in groups for wheel in group.wheels)
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
        None, (_cudnn_warning(wheel, group, facts) for group in groups for wheel in group.wheels)
    )
    warnings += [each for group in groups for each in _small_disks(group, facts, config)]
    warnings += _without_root(groups, facts, config)
    warnings += _unanswered(facts)
    warnings += version_skew(groups)
    if any(package.recipe.cuda for package in packages):
        warnings += _gpus_of_others(groups, facts)
    if config.build.isolation == "preferred":
        own = (wheel for group in groups for wheel in group.wheels)
        warnings += isolation_warnings(own, facts)
    torch = find_torch(versions_of(packages).get("torch", ""))
    if torch and not torch.known:
        warnings.append(
            f"torch {torch.name} is newer than the newest known version, {NEWEST.name}: "
            "fleetbuild assumes the same minimum Python, CUDA and compiler."
        )
    if torch:
        warnings += [
            f"PyTorch calls torch {torch.name} for Python {version} experimental: {group.name} "
            "may not build. Choose an older Python with python: or fleetbuild_python."
            for group in groups
            if (version := python_of(group.target.python)) in torch.python.experimental
        ]
    if config.cuda and not any(wheel.package.recipe.cuda for wheel in wheels):
        warnings.append(f"cuda: {config.cuda} has no effect: no package of this release uses CUDA.")
    if config.build.blas:
        warnings += _blas_warnings(config.build.blas, wheels)
    return tuple(dict.fromkeys(warnings))


def _undecided(wheels: Sequence[DraftWheel]) -> Iterator[str]:
    """Yield the builds that a run of the published wheel on an imitated CPU may spare."""
    groups: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        if wheel.published and wheel.published.undecided:
            package = wheel.package.name, wheel.package.version
            groups.setdefault(package, []).extend(wheel.groups)
    for (name, version), names in groups.items():
        kinds = " ".join(f"--for {group}" for group in sorted(names))
        yield (
            f"The published {name} {version} is undecided for {joined(sorted(names))}, so it is"
            f" built: `fleetbuild check --emulate {name}=={version} {kinds}` decides in seconds;"
            " then plan again."
        )


def _gpus_of_others(groups: Sequence[PlannedGroup], facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the GPUs of AMD and Intel that no wheel uses, with their nodes."""
    nodes: dict[tuple[str, bool], list[str]] = {}
    for group in groups:
        if group.target.sms or any(rocm_of(wheel.wheel_version) for wheel in group.wheels):
            continue
        for name in group.nodes:
            for gpu in dict.fromkeys(facts[name].gpus):
                if gpu.vendor != "nvidia":
                    kind = f"{gpu.name}, {gpu.gfx}" if gpu.gfx else gpu.name
                    nodes.setdefault((kind, gpu.vendor == "amd"), []).append(name)
    for (kind, amd), names in nodes.items():
        hint = (
            " With build: {policy: auto} and an index of ROCm wheels, a plan for nodes that all "
            "have GPUs of AMD (--limit) takes a published one."
        )
        yield (
            f"The GPUs of {joined(sorted(names))} ({kind}) are not used: fleetbuild builds GPU "
            f"code for NVIDIA only, so these are planned as CPU nodes.{hint if amd else ''}"
        )


def _without_root(
    groups: Sequence[PlannedGroup], facts: Mapping[str, Facts], config: Config
) -> Iterator[str]:
    """Yield the nodes of a first install whose user can neither write the path nor become root."""
    new = (name for group in groups for name in group.installs.install)
    names = [name for name in new if facts[name].no_sudo and "default" in facts[name].needs_root]
    if names:
        yield (
            f"The login user of {fold(names)} may not write to {config.install.path}, and sudo is"
            " not there: apply fails, unless ansible_become_method names another way to become"
            " root. Let that user write there, install sudo, or set install.path."
        )


def _unanswered(facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the sections of the probe that gave no answer, with their nodes."""
    nodes: dict[str, list[str]] = {}
    for name, known in facts.items():
        for section in known.unanswered:
            nodes.setdefault(section, []).append(name)
    for section, names in nodes.items():
        yield (
            f"The section {section} of the probe gave no answer in time on {joined(names)}: what "
            "it tells is unknown there. Plan again with a longer --timeout, or find out what "
            "blocks it."
        )


def _small_disks(group: PlannedGroup, facts: Mapping[str, Facts], config: Config) -> Iterator[str]:
    """Yield the nodes without space for the files of known size; unpacked, these are larger.

    A node that has no other release to fall back to was blocked before.
    """
    published = [wheel.published for wheel in group.wheels if wheel.published]
    files = (*published, *(group.dependencies or ()))
    for name in group.nodes:
        node = facts[name]
        known = (node.release.get(config.release), node.previous.get(config.release))
        there = group.release_id in (known[0].id if known[0] else None, known[1])
        needed = least_space(files)
        if served := known[0]:  # the node keeps the wheels of this release
            kept = (file for file in files if served.names(file.name, file.version, file.sha256))
            needed -= sum(file.size or 0 for file in kept)
        if not there and (lack := node.lacks_space(needed)):
            yield (
                f"The disk of {config.install.path} on {name} {lack} or more: apply fails there"
                " unless you free space."
            )


def _blas_warnings(blas: str, wheels: Sequence[DraftWheel]) -> Iterator[str]:
    """Yield where build.blas changes nothing."""
    choosing = [wheel for wheel in wheels if wheel.package.recipe.blas]
    if not choosing:
        yield f"build.blas: {blas} has no effect: no package of this release chooses its BLAS."
    for wheel in choosing:
        if not wheel.taken and wheel.target.blas != blas:
            yield (
                f"build.blas: {blas} has no effect on {wheel.package.name} for "
                f"{joined(wheel.groups)}: the recipe {wheel.package.recipe.name} does not build "
                f"with {blas} on {wheel.target.arch}."
            )


def unread_sources(sources: Sequence[Source]) -> tuple[str, ...]:
    """Return a warning for each source whose build requirements could not be read."""
    return tuple(
        f"The build requirements of {source.package} {source.version} could not be read. "
        f"{source.metadata_problem} Only the recipe's own build requirements are used."
        for source in sources
        if source.metadata_problem
    )


def packages_without_recipe(
    packages: Sequence[Package], sources: Sequence[Source]
) -> Iterator[str]:
    """Yield a warning for each package without a recipe whose source may have GPU code."""
    recipes = {package.name: package.recipe for package in packages}
    for source in sources:
        signs = [*source.gpu_code]
        signs += [f"it requires {text}" for text in source.gpu_requirements]
        if not signs:
            continue
        recipe = recipes[source.package]
        if recipe.name != GENERIC:
            gpus = "for CPUs and GPUs" if recipe.cuda else "for the CPU only"
            how = f"It is planned with the recipe {recipe.name}: built against torch, {gpus}."
        elif not source.gpu_code:
            how = "It is built for the CPU only, whatever GPUs the nodes have."
        else:
            how = "It is built for the CPU only, and nodes with GPUs are blocked."
        yield (
            f"{source.package} has no recipe ({'; '.join(signs)}). {how} Write one to decide this:"
            f" recipes/{source.package}.yml beside fleetbuild.yml (docs/recipes.md)."
        )


def _cudnn_warning(
    wheel: PlannedWheel, group: PlannedGroup, facts: Mapping[str, Facts]
) -> str | None:
    """Return a warning if torch is built without cuDNN because no cuDNN wheel fits."""
    if wheel.action == "blocked" or wheel.environment.get("USE_CUDNN") != "0":
        return None
    having = [name for name in group.nodes if facts[name].toolchain.get("cudnn")]
    there = f" The cuDNN of {joined(having)} is not used." if having else ""
    return (
        f"{wheel.package} for {group.name} is built without cuDNN: no cuDNN wheel exists for "
        f"CUDA {wheel.cuda} on {group.target.arch} and SM {', '.join(wheel.target.sms)}: "
        f"convolutions and recurrent networks are slower on these GPUs.{there}"
    )


def _memory_warning(wheel: PlannedWheel, facts: Mapping[str, Facts]) -> str | None:
    """Return a warning if one compiler process may need more memory than the builder has."""
    builder = facts.get(wheel.built_on or "")
    if wheel.action != "build" or not builder or not builder.memory_gb:
        return None
    if builder.memory_gb >= wheel.requires.memory_gb:
        return None
    return (
        f"{wheel.built_on} has {builder.memory_gb:g} GB of memory, but one compiler process of "
        f"{wheel.package} may need {wheel.requires.memory_gb:g} GB: name a machine with more "
        "memory under build.builders, or add swap."
    )
