"""The requested packages of a release: pinned to a version, or from a local source.

In: the texts of --package, fleetbuild.yml or the inventory. Out: `PackageSpec`s; `Package`s have
their recipe as well. First step of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Inventory
from fleetbuild.models._base import Frozen
from fleetbuild.planning.resolution import StaticMetadata
from fleetbuild.recipes import Recipe

_ARCHIVE = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_FORMS = (
    "Write NAME==VERSION, a path to an sdist or source tree, NAME @ PATH, or NAME==VERSION @ PATH "
    "if the tree does not state its version."
)


class PackageSpec(Frozen):
    """A package of the release: pinned to a version, or a local source. Its text is kept."""

    text: str
    name: str | None = None  # None: a path whose metadata is not read yet
    version: str | None = None  # None: not pinned, or a path
    path: str | None = None


class Package(Frozen):
    """A package of the release, with the recipe that builds it."""

    name: str
    version: str
    recipe: Recipe
    requirement: str  # as a resolver takes it: name==version, name @ file:///path
    text: str  # as the user wrote it
    # Its run-time requirements; None if its recipe states them, or before they are read.
    metadata: StaticMetadata | None = None


def versions_of(packages: Sequence[Package]) -> dict[str, str]:
    """Return package name -> version."""
    return {package.name: package.version for package in packages}


def cuda_floors(packages: Sequence[Package]) -> dict[str, str]:
    """Return package name -> oldest CUDA, for recipes that state one."""
    return {each.name: each.recipe.cuda_from for each in packages if each.recipe.cuda_from}


def parse_package(text: str) -> PackageSpec:
    """Parse `hnswlib==0.8.0`, `./dir`, `x-1.0.tar.gz`, `name @ ./dir`, `name==1.0 @ ./dir`."""
    spec = text.strip()
    name, at, path = (part.strip() for part in spec.partition("@"))
    if at and path and not _looks_like_path(name):
        name, equals, version = (part.strip() for part in name.partition("=="))
        return PackageSpec(
            text=spec,
            name=_name(name, text),
            version=_version(version, text) if equals else None,
            path=_plain_path(path),
        )
    if _looks_like_path(spec):
        return PackageSpec(text=spec, path=_plain_path(spec))
    return _pinned(spec, text)


def parse_packages(texts: Sequence[str]) -> tuple[PackageSpec, ...]:
    """Parse the packages of one release; refuse duplicates."""
    specs = tuple(parse_package(text) for text in texts)
    refuse_duplicates(specs)
    return specs


def refuse_duplicates(specs: Sequence[PackageSpec]) -> None:
    """Raise ConfigError if a package is named twice."""
    seen: dict[str, str] = {}
    for spec in specs:
        key = canonicalize_name(spec.name) if spec.name else str(spec.path)
        if key in seen:
            raise ConfigError(
                f"{spec.name or spec.path} is listed twice: {seen[key]!r} and {spec.text!r}.",
                "Name each package of a release once; another version goes into another release.",
            )
        seen[key] = spec.text


def choose_packages(
    command_line: Sequence[str], config: Config, inventory: Inventory
) -> tuple[str, ...]:
    """Return the packages of the command line, else of fleetbuild.yml, else of the inventory."""
    chosen = tuple(command_line) or named_packages(config, inventory)
    if not chosen:
        raise ConfigError(
            "No package is requested.",
            "Name one with --package NAME==VERSION, in fleetbuild.yml under packages:, "
            "or in the inventory as fleetbuild_packages.",
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


def _pinned(spec: str, text: str) -> PackageSpec:
    name, equals, version = (part.strip() for part in spec.partition("=="))
    if equals:
        return PackageSpec(text=spec, name=_name(name, text), version=_version(version, text))
    try:
        requirement = Requirement(spec)
    except InvalidRequirement:
        raise ConfigError(f"{text!r} is not a package.", _FORMS) from None
    if requirement.specifier or requirement.extras or requirement.marker:
        raise ConfigError(f"{text!r} does not name exactly one version.", _FORMS)
    return PackageSpec(text=spec, name=requirement.name)


def _name(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ConfigError(f"{name!r} in {text!r} is not a package name.", _FORMS)
    return name


def _version(version: str, text: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        raise ConfigError(f"{version!r} in {text!r} is not a version.", _FORMS) from None


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "/", "~", "file://")) or text.endswith(_ARCHIVE) or "/" in text


def _plain_path(text: str) -> str:
    return text.removeprefix("file://")
