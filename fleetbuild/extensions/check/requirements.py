"""What to check: requirements from arguments and files, or the wheels of a lock.

In: arguments, requirements files, uv.lock and pylock.toml. Out: requirements, or the wheels that a
lock installs on a kind of machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement

from fleetbuild.errors import UsageError
from fleetbuild.extensions.check.machine_kinds import MachineKind
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.packages import linux_environment
from fleetbuild.plan.decide.resolution import Resolution
from fleetbuild.plan.resolve import requirement_files
from fleetbuild.plan.resolve.locked_files import Lock, locked_wheel
from fleetbuild.plan.resolve.requirement_files import RequirementList


def read_requirements(texts: Iterable[str], files: Iterable[Path]) -> RequirementList:
    """Return the requirements of the arguments and of requirements files, each once."""
    found = RequirementList(requirements=tuple(dict.fromkeys(texts)))
    for path in files:
        found += requirement_files.read_requirements(path)
    for text in found.requirements:
        _refuse_other_than_index(text)
    return found


def _refuse_other_than_index(text: str) -> None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url:
        what = "is not a requirement" if requirement is None else "names an address"
        raise UsageError(
            f"{text[:200]!r} {what}: a check reads the wheels of an index.",
            "Write NAME, NAME==VERSION or a range such as NAME>=1.2.",
        )


def locked_wheels(lock: Lock, kind: MachineKind) -> Resolution:
    """Return the wheels that this lock installs on a kind of machine."""
    wheels: list[LockedFile] = []
    environment = linux_environment(kind.arch, kind.python_version)
    for package in lock.packages:
        marker = package.get("marker")
        if marker and not Marker(marker).evaluate(environment, context="lock_file"):
            continue
        if {"directory", "vcs", "archive"} & package.keys():
            continue  # a source
        locked = locked_wheel(package, kind.python, kind.arch, kind.libc, lock.path.parent)
        if locked is None:
            name = package["name"]
            return Resolution(
                wheels=tuple(wheels),
                problem=f"{lock.path.name} has no wheel of {name} {package.get('version', '')} with"
                f" a sha256 for {kind.name}.",
                fix="Lock a version that has one, or have it built: add it to packages: in"
                " fleetbuild.yml.",
            )
        wheels.append(locked)
    return Resolution(wheels=tuple(sorted(wheels, key=lambda file: file.name)))
