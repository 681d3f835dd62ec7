"""Turn a draft wheel into a planned wheel: with its key, and built, reused or taken as published.

In: a `DraftWheel`, locks, the contents of the store. Out: a `PlannedWheel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, Floors, LockedFile, PlannedWheel, Requires, Target
from fleetbuild.models.plan import toolkit_origin
from fleetbuild.plan.decide.requests import locked_archives, toolkit_request
from fleetbuild.plan.decide.resolution import Locks, Resolution
from fleetbuild.plan.decide.wheels.builder_needs import (
    expected_minutes,
    is_measured,
    needed_disk,
    requires_of,
)
from fleetbuild.plan.decide.wheels.draft import DraftWheel
from fleetbuild.plan.decide.wheels.ids import artifact_key, key_without_revoked, published_key
from fleetbuild.recipes import (
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_libraries,
    render_settings,
)
from fleetbuild.text import version_key
from fleetbuild.toolchains.compilers import CompilerNeed, flags_for

StoreView = Mapping[str, Sequence[Floors]]  # artifact key -> floors of its stored wheels


def plan_wheel(
    wheel: DraftWheel,
    facts: Mapping[str, Facts],
    locks: Locks,
    store: StoreView,
    *,
    blocked: str | None,
    against: Sequence[PlannedWheel] = (),
    image: str | None = None,
    revoked: Mapping[str, Sequence[str]] = {},
) -> PlannedWheel:
    """Return the wheel with its key, builder and action.

    `blocked` says why it is not built; `against` are the wheels that it is built against; `image`
    is the image in which a pod builds it; `revoked` has the hashes of recalled wheels, by key.
    """
    if wheel.taken:
        return _taken_wheel(wheel, wheel.taken, blocked)
    recipe, target, builders = wheel.package.recipe, wheel.target, wheel.builders
    source = locks.source(wheel.package.name)
    answer = locks.builds.get(wheel.id, Resolution())
    # Published wheels of this release are in the environment already.
    bases_taken = {base.package.name: base.taken for base in wheel.against if base.taken}
    requirements = None
    if source and not answer.problem:
        requirements = tuple(file for file in answer.wheels if file.name not in bases_taken)
    toolkit = locks.toolkits.get(wheel.id, Resolution())
    toolkit_files = () if toolkit.problem else toolkit.wheels
    if image is None:  # a pod has the toolkit of its image
        toolkit_files = toolkit_files or locked_archives(wheel)
    toolkit_from = toolkit_origin(toolkit_files)
    # An index that is not reached does not say that the toolkit has to be installed.
    if toolkit.offline and not toolkit_from and image is None and toolkit_request(wheel, facts):
        toolkit_from = "NVIDIA's wheels"
    key, bases = None, tuple(base.artifact_key for base in against if base.artifact_key)
    known = len(bases) == len(against)
    if source and source.sha256 and requirements is not None and known:
        key = artifact_key(
            recipe=recipe,
            package=wheel.package.name,
            version=wheel.package.version,
            target=target,
            cuda=wheel.toolkit.version if wheel.toolkit else None,
            source_sha256=source.sha256,
            build_lock=requirements,
            built_against=bases,
        )
        key = key_without_revoked(key, revoked)
    if blocked:
        action, reason = "blocked", blocked
    else:
        action, reason = _action(key, target, wheel.libstdcxx, store)
        if wheel.published:
            reason = f"{reason} {wheel.published.why}"
    first, names = builders.first, builders.names
    need = CompilerNeed(RUNGS[target.isa], wheel.gcc)
    flags = flags_for(need, [facts[name].for_builds for name in names])
    given = wheel.recipe_input.model_copy(update={"flags": flags})
    return PlannedWheel(
        package=wheel.package.name,
        version=wheel.package.version,
        wheel_version=given.wheel_version,
        recipe=recipe.name,
        target=target,
        libstdcxx=wheel.libstdcxx,
        artifact_key=key,
        action=action,
        reason=reason,
        built_on=first.node,
        why_there=builders.why,
        fallbacks=names[1:],
        build_pythons={builder.node: builder.python for builder in builders.order},
        build_gccs={builder.node: builder.gcc for builder in builders.order if builder.gcc},
        build_images={builder.node: builder.image for builder in builders.order if builder.image},
        evidence=wheel.toolkit.evidence if wheel.toolkit else None,
        jobs=first.jobs,
        build_jobs={builder.node: builder.jobs for builder in builders.order},
        minutes=expected_minutes(recipe, target, first.jobs),
        measured=is_measured(recipe, target),
        cuda=given.cuda,
        environment=render_environment(recipe, given),
        config_settings=render_settings(recipe, given),
        files=render_files(recipe, given),
        patches={patch.file: patch.text for patch in patches_for(recipe, given)},
        libraries=recipe.libraries,
        built_against=bases,
        cuda_why=wheel.toolkit.why if wheel.toolkit else None,
        requires=requires_of(
            recipe,
            first.node,
            facts[first.node],
            target,
            disk_gb=needed_disk(
                recipe, (*bases_taken.values(), *(requirements or ()), *toolkit_files)
            ),
            toolkit=wheel.toolkit,
            toolkit_from=toolkit_from,
            gcc=wheel.gcc,
            libraries=render_libraries(recipe, given),
            image=image,
        ),
        source=source.file if source else None,
        source_path=source.path if source else None,
        build_dependencies=requirements or (),
        toolkit_wheels=toolkit_files,
        checks=render_checks(recipe, given),
        import_names=recipe.import_names,
        top_level=recipe.top_level,
        allow_files=recipe.allow_files,
    )


def _taken_wheel(wheel: DraftWheel, file: LockedFile, blocked: str | None) -> PlannedWheel:
    recipe, why = wheel.package.recipe, wheel.published.why if wheel.published else ""
    given = wheel.recipe_input.model_copy(update={"wheel_version": file.version})
    return PlannedWheel(
        package=wheel.package.name,
        version=given.version,
        wheel_version=file.version,
        recipe=recipe.name,
        target=wheel.target,
        libstdcxx=wheel.libstdcxx,
        artifact_key=published_key(file.sha256),
        action="blocked" if blocked else "published",
        reason=blocked or why,
        environment={},
        requires=Requires(compiler="none", disk_gb=0, memory_gb=0),
        published=file,
        checks=render_checks(recipe, given),
        import_names=recipe.import_names,
        top_level=recipe.top_level,
        allow_files=recipe.allow_files,
    )


def _action(
    key: str | None, target: Target, libstdcxx: str | None, store: StoreView
) -> tuple[str, str]:
    if key is None:
        return "build", "The lock is missing, so the store cannot be searched."
    stored = store.get(key)
    if not stored:
        return "build", "The store had no such wheel when this was planned."
    family, wanted = target.libc.family, Floors(target.libc.floor, libstdcxx)
    serving = [floors.libc for floors in stored if floors.satisfies(wanted)]
    if serving:
        return "reuse", f"In the store, built for {family} {min(serving, key=version_key)}."
    lowest = min((floors.libc for floors in stored), key=version_key)
    if version_key(lowest) > version_key(wanted.libc):
        return "build", (
            f"The stored wheel needs {family} {lowest}, but this one must run on "
            f"{family} {wanted.libc}."
        )
    return "build", (
        f"The stored wheel was not checked with a libstdc++ as old as GLIBCXX_{libstdcxx}, but "
        "this one must run there."
    )
