"""What to check: requirements from arguments and files, or the wheels of a lock.

In: arguments, requirements files, uv.lock and pylock.toml. Out: requirements, or the wheels that a
lock installs on a kind of machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from fleetbuild.errors import UsageError
from fleetbuild.models import LockedFile
from fleetbuild.plan.check.kinds import Kind
from fleetbuild.plan.decide.resolution import Resolution
from fleetbuild.plan.resolve import requirement_files
from fleetbuild.plan.resolve.locked_files import locked_wheel
from fleetbuild.plan.resolve.requirement_files import Lock, RequirementList


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


def locked_wheels(lock: Lock, kind: Kind) -> Resolution:
    """Return the wheels that this lock installs on a kind of machine."""
    wheels: list[LockedFile] = []
    for package in (_of_pylock if lock.is_pylock else _of_uv_lock)(lock.packages, kind):
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


def _environment(kind: Kind, extra: str = "") -> dict[str, str]:
    version = kind.python_version
    return {
        "implementation_name": "cpython",
        "implementation_version": version,
        "os_name": "posix",
        "platform_machine": kind.arch,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
        "sys_platform": "linux",
        "extra": extra,
    }


def _holds(text: object, kind: Kind, extras: Iterable[str] = ("",)) -> bool:
    if not isinstance(text, str):
        return True
    try:
        marker = Marker(text)
        return any(marker.evaluate(dict(_environment(kind, extra))) for extra in extras)
    except (InvalidMarker, UndefinedEnvironmentName):
        return True  # it is checked rather than left out


def _of_pylock(packages: list[dict[str, Any]], kind: Kind) -> list[dict[str, Any]]:
    return [
        package
        for package in packages
        if _holds(package.get("marker"), kind)
        if not {"directory", "vcs", "archive"} & package.keys() or package.get("wheels")
    ]


def _of_uv_lock(known: list[dict[str, Any]], kind: Kind) -> list[dict[str, Any]]:
    """Return the packages that the projects of a uv.lock need on this kind of machine."""
    local = ("virtual", "editable", "directory")
    roots = [package for package in known if set(local) & set(package.get("source", {}))]
    waiting = [(package, "") for package in roots or known]
    seen: set[tuple[str, str, str]] = set()
    needed: dict[tuple[str, str], dict[str, Any]] = {}
    while waiting:
        package, extra = waiting.pop()
        name, version = package["name"], str(package.get("version", ""))
        if (name, version, extra) in seen:
            continue
        seen.add((name, version, extra))
        if not any(package is root for root in roots):
            needed[name, version] = package
        optional = package.get("optional-dependencies", {}).get(extra, [])
        for wanted in [*package.get("dependencies", []), *optional]:
            if _holds(wanted.get("marker"), kind):
                found = [each for each in known if _is_meant(each, wanted, kind)]
                waiting += [(each, one) for each in found for one in ("", *wanted.get("extra", ()))]
    return list(needed.values())


def _is_meant(package: dict[str, Any], wanted: dict[str, Any], kind: Kind) -> bool:
    if package["name"] != wanted.get("name"):
        return False
    if "version" in wanted:
        return bool(package.get("version") == wanted["version"])
    forks = package.get("resolution-markers")
    return not forks or any(_holds(fork, kind) for fork in forks)
