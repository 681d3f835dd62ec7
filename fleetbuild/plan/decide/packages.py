"""The requested packages of a release: pinned to a version, or from a local source.

In: the texts of --package, fleetbuild.yml or the inventory. Out: `PackageSpec`s; `Package`s have
their recipe as well. First step of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Inventory
from fleetbuild.models._base import Frozen
from fleetbuild.recipes import Recipe

_ARCHIVE = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_FORMS = (
    "Write NAME==VERSION, a range such as NAME>=1.2, NAME[EXTRA], a path to an sdist or source "
    "tree, NAME @ PATH, NAME==VERSION @ PATH if the tree does not state its version, or the same "
    "with git+https://… in place of PATH."
)
_GIT = "git+"
_FILES = ("uv.lock", "pylock.toml")
_OPTION_OF = (
    "Name it with its option: -r requirements.txt, --lock uv.lock, or --group NAME for a group of "
    "pyproject.toml."
)
# A marker is decided once for a release: nodes are Linux, and Pythons of these versions.
_PYTHONS = tuple(f"3.{minor}.0" for minor in range(8, 16))


class PackageSpec(Frozen):
    """A package of the release: pinned to a version, or a local source. Its text is kept."""

    text: str
    name: str | None = None  # None: a path whose metadata is not read yet
    version: str | None = None  # None: a range, or a path
    path: str | None = None
    git: str | None = None  # the address of a repository, with @REF
    specifier: str = ""  # a range of versions, such as >=1.2,<2
    extras: tuple[str, ...] = ()


class Package(Frozen):
    """A package of the release, with the recipe that builds it."""

    name: str
    version: str
    recipe: Recipe
    requirement: str  # as a resolver takes it: name==version, name @ file:///path
    text: str  # as a user would write it, with the exact version or commit
    extras: tuple[str, ...] = ()
    specifier: str | None = None  # the range that is asked for, such as >=1.2; None: this version


def bracketed(extras: Sequence[str]) -> str:
    """Return extras as a requirement has them behind its name: [one,two]."""
    return f"[{','.join(extras)}]" if extras else ""


def below(name: str, version: str) -> str:
    """Return the bound below a minor version: name<1.2 for 1.2.3."""
    return f"{name}<{'.'.join(map(str, Version(version).release[:2]))}"


def versions_of(packages: Sequence[Package]) -> dict[str, str]:
    """Return package name -> version."""
    return {package.name: package.version for package in packages}


def cuda_floors(packages: Sequence[Package]) -> dict[str, str]:
    """Return package name -> oldest CUDA, for recipes that state one."""
    return {each.name: each.recipe.cuda_from for each in packages if each.recipe.cuda_from}


def parse_package(text: str) -> PackageSpec:
    """Parse `hnswlib==0.8.0`, `torch>=2.3,<3`, `uvicorn[standard]`, `./dir`, `x-1.0.tar.gz`,
    `name @ ./dir`, `name==1.0 @ ./dir`, `name @ git+https://host/name@v1`."""
    spec = text.strip()
    if Path(spec).name in _FILES or spec.endswith((".txt", "pyproject.toml")):
        raise ConfigError(f"{text!r} is a file that lists packages, not a package.", _OPTION_OF)
    name, at, path = (part.strip() for part in spec.partition("@"))
    if at and path and not _looks_like_path(name):
        name, equals, version = (part.strip() for part in name.partition("=="))
        name, extras = _with_extras(name, text)
        return PackageSpec(
            text=spec,
            name=_name(name, text),
            version=_version(version, text) if equals else None,
            extras=extras,
            **_source(path, text),
        )
    if _looks_like_path(spec):
        path, extras = _with_extras(spec, text)
        return PackageSpec(text=spec, extras=extras, **_source(path, text))
    return _pinned(spec, text)


def _source(source: str, text: str) -> dict[str, Any]:
    """Return the field for a source: the address of a repository, or a path."""
    if source.startswith(_GIT):
        address, _, fragment = source.removeprefix(_GIT).partition("#")
        if fragment and not fragment.startswith("egg="):
            raise ConfigError(
                f"{text!r} names a folder of a repository ({fragment}), which cannot be planned.",
                "Clone the repository, and name the folder's path.",
            )
        return {"git": address}
    if source.startswith(("https://", "http://")):
        raise ConfigError(
            f"{text!r} names an address, whose content may change after the plan.",
            "Download the file and name its path, or name NAME==VERSION and its index.",
        )
    return {"path": _plain_path(source)}


def _with_extras(name: str, text: str) -> tuple[str, tuple[str, ...]]:
    """Split `name[one,two]` into the name and its extras."""
    base, bracket, rest = name.partition("[")
    if not bracket:
        return name, ()
    if not rest.endswith("]"):
        raise ConfigError(f"{text!r} is not a package.", _FORMS)
    extras = (_name(extra.strip(), text) for extra in rest[:-1].split(","))
    return base.strip(), tuple(sorted({str(canonicalize_name(extra)) for extra in extras}))


def parse_packages(
    texts: Sequence[str], pythons: Sequence[str] = _PYTHONS
) -> tuple[PackageSpec, ...]:
    """Parse the packages of one release; refuse duplicates, leave out other systems'.

    `pythons` are the versions that nodes have, for markers.
    """
    meant = (plain for text in texts if (plain := _without_marker(text, pythons)) is not None)
    specs = tuple(parse_package(text) for text in meant)
    refuse_duplicates(specs)
    return specs


def refuse_duplicates(specs: Sequence[PackageSpec]) -> None:
    """Raise ConfigError if a package is named twice."""
    seen: dict[str, str] = {}
    for spec in specs:
        key = canonicalize_name(spec.name) if spec.name else str(spec.path or spec.git)
        if key in seen:
            what = spec.name or spec.path or spec.git
            raise ConfigError(
                f"{what} is listed twice: {seen[key]!r} and {spec.text!r}.",
                "Name each package of a release once. To build one that a file lists:"
                " build: {only: [NAME]} in fleetbuild.yml.",
            )
        seen[key] = spec.text


def packages_to_build(
    packages: Sequence[Package], listed: Sequence[PackageSpec], config: Config
) -> set[str]:
    """Return the packages that are built for each group even if a published wheel fits.

    A package that files list (`listed`) is to be installed, so it is taken as published.
    """
    names = {package.name for package in packages}
    if unknown := sorted(set(map(canonicalize_name, config.build.only or ())) - names):
        raise ConfigError(
            f"build.only names {', '.join(unknown)}, which is not in this release.",
            "Correct the name, or add it to packages: or to a requirements file.",
        )
    if config.build.policy != "targeted":
        return set()
    if config.build.only is not None:
        return {*map(str, map(canonicalize_name, config.build.only))}
    return names - {canonicalize_name(spec.name) for spec in listed if spec.name}


def choose_packages(
    command_line: Sequence[str], config: Config, inventory: Inventory
) -> tuple[str, ...]:
    """Return the packages of the command line, else of fleetbuild.yml, else of the inventory."""
    chosen = tuple(command_line) or named_packages(config, inventory)
    if not chosen:
        raise ConfigError(
            "No package is requested.",
            "Name one with --package NAME==VERSION or -r requirements.txt, in fleetbuild.yml under "
            "packages:, or in the inventory as fleetbuild_packages.",
        )
    return chosen


def named_packages(config: Config, inventory: Inventory) -> tuple[str, ...]:
    """Return the packages of fleetbuild.yml, else of the inventory."""
    return config.packages or _of_inventory(inventory)


def _of_inventory(inventory: Inventory) -> tuple[str, ...]:
    sets: dict[tuple[str, ...], str] = {}
    for node in sorted(inventory.nodes, key=lambda node: node.name):
        if not node.skip:
            sets.setdefault(node.packages, node.name)
    if len(sets) > 1:
        (first, one), (second, two), *_ = sets.items()
        raise ConfigError(
            f"fleetbuild_packages differs between {one} ({_format(first)}) and {two} "
            f"({_format(second)}), but one run has one package set.",
            "Run once for each set: choose its hosts with --limit. If a host needs both sets, "
            "give each set its own name under release: in a fleetbuild.yml.",
        )
    return next(iter(sets), ())


def _format(packages: tuple[str, ...]) -> str:
    return ", ".join(packages) or "none"


def _without_marker(text: str, pythons: Sequence[str]) -> str | None:
    """Return a requirement without its marker; None if the marker excludes every node."""
    spec, semicolon, marker = text.partition(";")
    if not semicolon:
        return text
    try:
        condition = Marker(marker)
        answers = {
            condition.evaluate(linux_environment(arch, version))
            for arch in ("x86_64", "aarch64")
            for version in pythons
        }
    except ValueError:  # InvalidMarker, or a version of more digits than Python reads
        raise ConfigError(f"{text[:200]!r} has an invalid marker.", _FORMS) from None
    if answers == {True, False}:
        raise ConfigError(
            f"{text!r} is meant for some nodes only, but a release has the same packages on all.",
            "Set python: in fleetbuild.yml to one version, or remove the marker.",
        )
    return spec.strip() if answers == {True} else None


def linux_environment(arch: str, python: str) -> dict[str, str | Set[str]]:
    """Return what markers ask about, for a machine with this version of Python."""
    return {
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "platform_machine": arch, "platform_release": "", "platform_version": "",
        "platform_python_implementation": "CPython", "implementation_name": "cpython",
        "implementation_version": python, "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]), "extra": "",
    }  # fmt: skip


def _pinned(spec: str, text: str) -> PackageSpec:
    try:
        requirement = Requirement("==".join(map(str.strip, spec.split("=="))))
    except InvalidRequirement:
        single = re.fullmatch(r"[\w.,[\]-]+=[\w.+!]+", spec)
        fix = f"Write {spec.replace('=', '==')}." if single else _FORMS
        raise ConfigError(f"{text!r} is not a package.", fix) from None
    clauses = list(requirement.specifier)
    exact = len(clauses) == 1 and clauses[0].operator == "==" and "*" not in clauses[0].version
    return PackageSpec(
        text=spec,
        name=_name(requirement.name, text),
        version=_version(clauses[0].version, text) if exact else None,
        specifier="" if exact else str(requirement.specifier),
        extras=tuple(sorted(map(str, map(canonicalize_name, requirement.extras)))),
    )


def _name(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ConfigError(f"{name!r} in {text!r} is not a package name.", _FORMS)
    return name


def _version(version: str, text: str) -> str:
    try:
        return str(Version(version))
    except ValueError:  # InvalidVersion, or a number of more digits than Python reads
        raise ConfigError(
            f"{version[:200]!r} in {text[:200]!r} is not a version.", _FORMS
        ) from None


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "/", "~", "file://")) or text.endswith(_ARCHIVE) or "/" in text


def _plain_path(text: str) -> str:
    return text.removeprefix("file://")
