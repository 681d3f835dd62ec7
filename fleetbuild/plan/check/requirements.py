"""Read what to check: requirements, requirements files, uv.lock and pylock.toml.

In: arguments and files. Out: requirement texts, or the locked wheels for a kind of machine.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetbuild.audit.wheel_tags import best_wheel
from fleetbuild.errors import UsageError
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile
from fleetbuild.plan.check.kinds import Kind
from fleetbuild.plan.decide.resolution import Resolution

_MAX_BYTES = 64 << 20
_NESTED = 10
_FIX_LINE = (
    "Write NAME, NAME==VERSION or another requirement; indexes belong into uv's or pip's settings."
)
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


def read_requirements(texts: Iterable[str], files: Iterable[Path]) -> tuple[str, ...]:
    """Return the requirements of the arguments and of requirements files, each once."""
    found = [_checked(text, "the command line") for text in texts]
    for path in files:
        found += _of_file(path, 0)
    return tuple(dict.fromkeys(found))


def _of_file(path: Path, depth: int) -> Iterator[str]:
    if depth > _NESTED:
        raise UsageError(f"{path} includes itself.", "Remove one of the -r lines.")
    lines = _text(path, "requirements file").replace("\\\n", " ").splitlines()
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        text = re.sub(r"\s--hash[= ]\S+", "", text).strip()
        nested = re.fullmatch(r"(?:-r|--requirement)[ =]?\s*(\S+)", text)
        if nested:
            yield from _of_file(path.parent / nested[1], depth + 1)
        elif text:
            yield _checked(text, f"{path}, line {number}")


def _checked(text: str, where: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise UsageError(f"{text[:200]!r} ({where}) is not a requirement.", _FIX_LINE) from None
    if requirement.url:
        raise UsageError(f"{text[:200]!r} ({where}) names an address.", _FIX_LINE)
    return text


def read_lock(path: Path) -> dict[str, Any]:
    """Return a uv.lock or pylock.toml, parsed."""
    try:
        lock = tomllib.loads(_text(path, "lock"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not a lock: {error}.", _FIX_LOCK) from None
    if not isinstance(lock.get("packages", lock.get("package")), list):
        raise UsageError(f"{path} is not a lock: it lists no packages.", _FIX_LOCK)
    return lock


_FIX_LOCK = "Name a uv.lock (uv lock writes it) or a pylock.toml (uv export --format pylock.toml)."


def locked_wheels(lock: dict[str, Any], kind: Kind, path: Path) -> Resolution:
    """Return the wheels that this lock installs on a kind of machine."""
    packages = _of_pylock(lock, kind) if "packages" in lock else _of_uv_lock(lock, kind)
    wheels: list[LockedFile] = []
    for package in packages:
        files = {_file_name(wheel): wheel for wheel in package.get("wheels", ())}
        best = best_wheel(files, kind.python, kind.arch, kind.libc)
        locked = _locked(package, files[best], best, path) if best else None
        if locked is None:
            name = str(package.get("name"))
            return Resolution(
                wheels=tuple(wheels),
                problem=f"{path.name} has no wheel of {name} {package.get('version', '')} with a"
                f" sha256 for {kind.name}.",
                fix="Lock a version that has one, or have it built: add it to packages: in"
                " fleetbuild.yml.",
                without_wheel=name,
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


def _of_pylock(lock: dict[str, Any], kind: Kind) -> list[dict[str, Any]]:
    return [
        package
        for package in lock["packages"]
        if isinstance(package, dict) and _holds(package.get("marker"), kind)
        if not {"directory", "vcs", "archive"} & package.keys() or package.get("wheels")
    ]


def _of_uv_lock(lock: dict[str, Any], kind: Kind) -> list[dict[str, Any]]:
    """Return the packages that the projects of a uv.lock need on this kind of machine."""
    known = [package for package in lock["package"] if isinstance(package, dict)]
    local = ("virtual", "editable", "directory")
    roots = [package for package in known if set(local) & set(package.get("source", {}))]
    waiting = [(package, "") for package in roots or known]
    seen: set[tuple[str, str, str]] = set()
    needed: dict[tuple[str, str], dict[str, Any]] = {}
    while waiting:
        package, extra = waiting.pop()
        name, version = str(package.get("name")), str(package.get("version", ""))
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
    if package.get("name") != wanted.get("name"):
        return False
    if "version" in wanted:
        return bool(package.get("version") == wanted["version"])
    forks = package.get("resolution-markers")
    return not forks or any(_holds(fork, kind) for fork in forks)


def _locked(
    package: dict[str, Any], wheel: dict[str, Any], name: str, lock: Path
) -> LockedFile | None:
    own_path = wheel.get("path")
    url = str(wheel.get("url") or (lock.parent / str(own_path)).resolve().as_uri())
    hashes = wheel.get("hashes", {})
    match = _SHA256.fullmatch(str(wheel.get("hash", "")))
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
    sha256 = sha256 or (match[1] if match else None)
    if sha256 is None and own_path and (lock.parent / str(own_path)).is_file():
        sha256 = sha256_of(lock.parent / str(own_path))
    if not sha256:
        return None
    size = wheel.get("size")
    return LockedFile(
        name=canonicalize_name(str(package["name"])),
        version=str(package.get("version", "")),
        file=name,
        sha256=sha256,
        url=url.split("#", maxsplit=1)[0],
        size=size if isinstance(size, int) and size >= 0 else None,
    )


def _file_name(wheel: dict[str, Any]) -> str:
    named = wheel.get("name") or wheel.get("filename")
    address = str(wheel.get("url") or wheel.get("path") or "")
    return str(named or unquote(urlsplit(address).path).rsplit("/", 1)[-1])


def _text(path: Path, what: str) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB.", f"Name a {what}.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", f"Name a {what}.") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{path} cannot be read: it is not UTF-8 text.", f"Name a {what}."
        ) from None
