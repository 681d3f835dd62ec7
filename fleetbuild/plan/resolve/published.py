"""Find published wheels, and read the machine code of wheels whose requirements are not stated.

In: groups, packages, the store. Out: a `PublishedChoice` for each package and group; and which
packages are of pure Python.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from packaging.version import Version

from fleetbuild.audit import ElfAudit, audit_wheel
from fleetbuild.extension import Evidence
from fleetbuild.models import LockedFile, Target, TargetLibc
from fleetbuild.models.verdict import Code
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package, below, versions_of
from fleetbuild.plan.decide.requests import source_request
from fleetbuild.plan.decide.resolution import LockRequest, Resolution
from fleetbuild.plan.decide.wheels.published import (
    PublishedChoice,
    choose_published,
    must_be_read,
)
from fleetbuild.plan.resolve.known_deaths import OLDER
from fleetbuild.plan.resolve.uv import find_wheels, locate, machine_of
from fleetbuild.recipes import GENERIC
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.wheels import Store

_NEWEST = TargetLibc(family="glibc", floor="2.40")


def find_pure(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    local: Collection[str],
    store: Store,
) -> tuple[set[str], dict[str, Resolution]]:
    """Return the packages of pure Python: published as a wheel for every platform, and no other.

    A package with machine code has a wheel for the newest x86-64 at least, which is preferred
    there. A package with a recipe of its own is built. The second part has the packages whose
    index cannot be reached.
    """
    asked = {
        package.name: [
            _request(group, package).model_copy(update={"arch": "x86_64", "libc": _NEWEST})
            for group in groups
        ]
        for package in packages
        if package.recipe.name == GENERIC and package.name not in local
    }
    answers = find_wheels((each for some in asked.values() for each in some), store.settings)
    pure: set[str] = set()
    offline: dict[str, Resolution] = {}
    for name, some in asked.items():
        files = [file for each in some for file in answers[each].wheels]
        if files and all(file.file.endswith("-none-any.whl") for file in files):
            pure.add(name)
        offline.update((name, answers[each]) for each in some if answers[each].offline)
    return pure, offline


def find_published(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    local: Collection[str],
    store: Store,
    evidence: Evidence,
    *,
    never_build: bool,
) -> dict[tuple[str, str], PublishedChoice]:
    """Return the published wheel for each package and group; local sources are always built.

    Raises if no index has a package that can come from nowhere else.
    """
    choices: dict[tuple[str, str], PublishedChoice] = {}
    by_name = {group.name: group for group in groups}
    # Companions must match the variant of torch, so torch is chosen first.
    for package in sorted(packages, key=lambda package: package.name != "torch"):
        if package.name in local:
            continue
        requests = {name: _request(group, package) for name, group in by_name.items()}
        must_exist = never_build or not package.recipe.source
        while requests:
            answers = find_wheels(requests.values(), store.settings)
            if must_exist and not any(answer.wheels for answer in answers.values()):
                find_wheels(requests.values(), store.settings, must_exist=True)
            must_exist = False  # the next requests exclude variants of this version
            found = {name: answers[request].wheels for name, request in requests.items()}
            for name, wheels in found.items():
                published_torch = choices.get(("torch", name))
                target = by_name[name].wheel_targets[package.name]
                why = _no_wheel(requests[name], answers[requests[name]], store.settings)
                choice = PublishedChoice(version=package.version, why=why)
                if wheels:
                    choice = choose_published(
                        package,
                        target,
                        [*by_name[name].members.values()],
                        wheels[0],
                        versions=versions_of(packages),
                        code=_code(wheels[0], target, store, evidence)
                        if must_be_read(package, target, wheels[0])
                        else None,
                        published_torch=published_torch.file if published_torch else None,
                    )
                if choice.file or (package.name, name) not in choices:
                    choices[package.name, name] = choice
            requests = {
                name: _without(request, package, found[name][0])
                for name, request in requests.items()
                if not choices[package.name, name].file and _is_variant(found[name])
            }
    return choices


def older_versions(
    group: DraftGroup, package: Package, bounds: Sequence[str], settings: IndexSettings
) -> Iterator[Package]:
    """Yield a package in older versions of its range that have a wheel for a group."""
    wanted = f"{package.name}{package.specifier}"
    for _ in range(OLDER):
        bounds = (*bounds, below(package.name, package.version))
        update = {"requirements": (wanted,), "constraints": bounds}
        wheels = locate(_request(group, package).model_copy(update=update), settings).wheels
        if not wheels:
            return
        package = package.model_copy(update={"version": Version(wheels[0].version).public})
        yield package


def _no_wheel(request: LockRequest, answer: Resolution, settings: IndexSettings) -> str:
    known = answer.problem if answer.offline else None
    return known or f"No wheel is published for {machine_of(request)} in {settings.asked}."


def _is_variant(wheels: Sequence[LockedFile]) -> bool:
    """Return whether other variants of this version may exist: local versions sort first."""
    return bool(wheels) and "+" in wheels[0].version


def _without(request: LockRequest, package: Package, file: LockedFile) -> LockRequest:
    others = (*request.constraints, f"{package.name}!={file.version}")
    return request.model_copy(update={"constraints": others})


def _request(group: DraftGroup, package: Package) -> LockRequest:
    request = source_request(group, [package])
    return request.model_copy(
        update={"requirements": (f"{package.name}=={package.version}",), "sources": ()}
    )


def _code(file: LockedFile, target: Target, store: Store, evidence: Evidence) -> Code:
    return evidence.code(file, target) or _audited_code(store.fetch(file))


@cache
def _audited_code(path: Path) -> Code:
    """Return what an audit finds. Wheels of a store never change, so each is read once."""
    audit = audit_wheel(path)
    return code_of(audit.elfs, audit.problems)


def code_of(elfs: Sequence[ElfAudit], problems: Sequence[str] = ()) -> Code:
    """Return what code needs; what only runs behind a check of the CPU does not count."""
    unread = [
        f"{elf.path} has {what}, which is not read"
        for elf in elfs
        for what in (*elf.unread, *elf.unknown)
    ]
    if defects := (*problems, *unread):
        return Code(problem=defects[0])  # unknown is not fine
    uses = (use for elf in elfs for use in elf.features if use.when != "guarded")
    return Code(
        features=tuple(sorted({use.feature for use in uses})),
        sms=tuple(sorted({sm for elf in elfs for sm in elf.sms})),
        ptx=tuple(sorted({sm for elf in elfs for sm in elf.ptx})),
    )
