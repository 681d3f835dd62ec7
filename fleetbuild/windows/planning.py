"""Groups of Windows nodes, and how their wheels are built there by hand. Pure.

In: eligibility, facts, packages, configuration. Out: `WindowsGroup`s, which `emit windows` writes
as build scripts. Windows nodes are in no other group, so no step of an apply touches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Config,
    Facts,
    WindowsGroup,
    WindowsSource,
    WindowsTarget,
    WindowsWheel,
)
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.compatibility.toolkits import Toolkit, choose_toolkit
from fleetbuild.plan.decide.eligibility import Eligibility, is_windows, wheel_rung
from fleetbuild.plan.decide.packages import Package, cuda_floors, versions_of
from fleetbuild.plan.decide.wheels.draft import building_order
from fleetbuild.plan.decide.wheels.keys import wheel_version
from fleetbuild.recipes import (
    RecipeInput,
    patches_for,
    render_checks,
    render_requirements,
    render_source,
    render_windows,
)
from fleetbuild.windows.hardware import arch_option, fits_toolset, refused_toolset

_Choice = Toolkit | Problem | None


def group_windows(
    eligibility: Mapping[str, Eligibility],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> tuple[WindowsGroup, ...]:
    """Return the groups of the Windows nodes that have everything a target is made of."""
    members: dict[WindowsTarget, list[str]] = {}
    for name in sorted(eligibility):
        assessed = eligibility[name]
        if assessed.rung and assessed.python and name in facts and is_windows(facts[name]):
            members.setdefault(_target_of(assessed), []).append(name)
    groups = (
        _group(target, {name: facts[name] for name in names}, packages, config)
        for target, names in members.items()
    )
    return tuple(sorted(groups, key=lambda group: group.name))


def _target_of(assessed: Eligibility) -> WindowsTarget:
    assert assessed.rung and assessed.python  # see group_windows  # noqa: S101, PT018
    rung = RUNGS[assessed.rung]
    return WindowsTarget(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=assessed.sms,
        python=assessed.python.tag,
    )


def _group(
    target: WindowsTarget,
    members: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> WindowsGroup:
    toolkit: _Choice = None
    if target.sms:
        toolkit = choose_toolkit(
            versions_of(packages),
            target.sms,
            target.python,
            list(members.values()),
            members,
            pin=config.cuda,
            floors=cuda_floors(packages),
        )
    by_name = {package.name: package for package in packages}
    system: dict[str, str] = {}
    wheels = tuple(
        _wheel(by_name[name], target, toolkit, config, system) for name in building_order(packages)
    )
    used = next((wheel.cuda for wheel in wheels if wheel.cuda), None)
    return WindowsGroup(
        name=target.name,
        nodes=tuple(members),
        target=target,
        python=".".join((target.python[2:3], target.python[3:].removesuffix("t"))),
        toolset_below=refused_toolset(used),
        wheels=wheels,
        to_supply=tuple(_to_supply(members, used, system)),
    )


def _wheel(
    package: Package,
    group: WindowsTarget,
    toolkit: _Choice,
    config: Config,
    system: dict[str, str],
) -> WindowsWheel:
    """Return one wheel; what it needs installed is added to `system`."""
    recipe = package.recipe
    rung = wheel_rung(recipe, RUNGS[group.isa], config) or RUNGS[group.isa]
    sms = recipe.sms_of(group.sms)
    target = group.model_copy(
        update={
            "isa": rung.name,
            "features": tuple(sorted(rung.features)),
            "sms": sms,
            "ptx": sms[-1] if sms and config.cuda_ptx else None,
            "blas": config.build.blas if recipe.offers(config.build.blas, group.arch) else None,
        }
    )
    chosen = toolkit if sms and isinstance(toolkit, Toolkit) else None
    cuda = chosen.version if chosen else None
    wheel = WindowsWheel(
        package=package.name,
        version=package.version,
        wheel_version=wheel_version(package.version, target, cuda),
        recipe=recipe.name,
        target=target,
        cuda=cuda,
        cuda_why=chosen.why if chosen else None,
        evidence=chosen.evidence if chosen else None,
    )
    if sms and isinstance(toolkit, Problem):
        return wheel.model_copy(update={"problem": f"{toolkit.reason} {toolkit.fix}"})
    if recipe.windows is None:
        problem = f"The recipe {recipe.name} does not say how {package.name} is built on Windows."
        return wheel.model_copy(update={"problem": problem})
    if "@" in package.requirement:
        problem = f"The source of {package.name} is a local one, which a script cannot fetch."
        return wheel.model_copy(update={"problem": problem})
    given = RecipeInput(
        package=package.name,
        version=package.version,
        wheel_version=wheel.wheel_version,
        target=target,
        cuda=cuda,
        flags=arch_option(rung),
    )
    values = render_windows(recipe, recipe.windows, given)
    system |= values.system
    return wheel.model_copy(
        update={
            "source": _source(package),
            "environment": values.environment,
            "config_settings": values.config_settings,
            "build_requirements": render_requirements(recipe, given),
            "files": values.files,
            "patches": {patch.file: patch.text for patch in patches_for(recipe, given)},
            "bundled": values.bundled,
            "checks": render_checks(recipe, given),
            "import_names": recipe.import_names,
            "disk_gb": recipe.disk_gb,
            "job_memory_gb": recipe.job_memory_gb + recipe.sm_job_memory_gb * len(sms),
        }
    )


def _source(package: Package) -> WindowsSource:
    found = render_source(package.recipe, package.name, package.version)
    if found and found.git:
        return WindowsSource(git=found.git, ref=found.ref, submodules=found.submodules)
    return WindowsSource(requirement=f"{package.name}=={package.version}")


def _to_supply(
    members: Mapping[str, Facts], cuda: str | None, system: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each thing that a build needs and a member lacks."""
    first = refused_toolset(cuda)
    wanted, such = "MSVC", ""
    if first:
        wanted = f"MSVC older than {first}, and CUDA {cuda} refuses newer ones"
        such = ", with such a toolset"
    for name, known in members.items():
        tools = known.toolchain
        if not any(fits_toolset(version, cuda) for version in tools.get("msvc", ())):
            has = f" It has {', '.join(tools['msvc'])}." if "msvc" in tools else ""
            yield (
                f"{name} has no {wanted}: install Visual Studio 2019 or newer, or its Build Tools"
                f"{such}.{has}"
            )
        nvcc = [".".join(version.split(".")[:2]) for version in tools.get("nvcc", ())]
        if cuda and cuda not in nvcc:
            yield f"{name} has no CUDA toolkit {cuda}."
        if "git" not in tools:
            yield f"{name} has no git, which fetches sources and applies patches."
        yield from (f"{name}: {said}" for tool, said in system.items() if tool not in tools)
