"""What the user asks for: the packages of a release, pinned or from a local source."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Inventory
from fleetbuild.models._base import Frozen
from fleetbuild.recipes import Recipe

_ARCHIVE = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_FORMS = (
    "It is NAME==VERSION, a path to an sdist or source tree, NAME @ PATH, or NAME==VERSION @ PATH "
    "where the tree does not say its version."
)


class PackageSpec(Frozen):
    """A package of the release: pinned to a version, or a local source. Its text is kept."""

    text: str
    name: str | None = None  # None: a path whose metadata has yet to tell
    version: str | None = None  # None: not pinned, or a path
    path: str | None = None


class Package(Frozen):
    """A package of the release, with the recipe that it is built by."""

    name: str
    version: str
    recipe: Recipe
    requirement: str  # as a resolver takes it: name==version, name @ file:///path
    text: str  # as the user wrote it


def versions_of(packages: Sequence[Package]) -> dict[str, str]:
    """Name to version."""
    return {package.name: package.version for package in packages}


def cuda_floors(packages: Sequence[Package]) -> dict[str, str]:
    """Name to the oldest CUDA that its recipe builds with, where it says one."""
    return {each.name: each.recipe.cuda_from for each in packages if each.recipe.cuda_from}


def parse_package(text: str) -> PackageSpec:
    """`hnswlib==0.8.0`, `./dir`, `/path/x-1.0.tar.gz`, `name @ ./dir`, `name==1.0 @ ./dir`."""
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
    """The packages of one release; none twice."""
    specs = tuple(parse_package(text) for text in texts)
    refuse_twice(specs)
    return specs


def refuse_twice(specs: Sequence[PackageSpec]) -> None:
    """One release holds a package once."""
    seen: dict[str, str] = {}
    for spec in specs:
        key = canonicalize_name(spec.name) if spec.name else str(spec.path)
        if key in seen:
            raise ConfigError(
                f"{spec.name or spec.path} is asked for twice: {seen[key]!r} and {spec.text!r}.",
                "Name each package of a release once; another version goes into another release.",
            )
        seen[key] = spec.text


def choose_packages(
    command_line: Sequence[str], config: Config, inventory: Inventory
) -> tuple[str, ...]:
    """The packages of this run: of the command line, else fleetbuild.yml, else the inventory."""
    chosen = tuple(command_line) or named_packages(config, inventory)
    if not chosen:
        raise ConfigError(
            "No package is named.",
            "Name one with --package NAME==VERSION, in fleetbuild.yml under packages:, "
            "or in the inventory as fleetbuild_packages.",
        )
    return chosen


def named_packages(config: Config, inventory: Inventory) -> tuple[str, ...]:
    """Return the packages that fleetbuild.yml names, else those of the inventory."""
    return config.packages or _of_inventory(inventory)


def _of_inventory(inventory: Inventory) -> tuple[str, ...]:
    sets: dict[tuple[str, ...], str] = {}
    for node in sorted(inventory.nodes, key=lambda node: node.name):
        if not node.skip:
            sets.setdefault(node.packages, node.name)
    if len(sets) > 1:
        (first, one), (second, two), *_ = sets.items()
        raise ConfigError(
            f"fleetbuild_packages differs between {one} ({_said(first)}) and {two} "
            f"({_said(second)}), and one run has one package set.",
            "Run once for each set: choose its hosts with --limit, and where a host needs both, "
            "give each its own name under release: in a fleetbuild.yml.",
        )
    return next(iter(sets), ())


def _said(packages: tuple[str, ...]) -> str:
    return ", ".join(packages) or "none"


def _pinned(spec: str, text: str) -> PackageSpec:
    name, equals, version = (part.strip() for part in spec.partition("=="))
    if equals:
        return PackageSpec(text=spec, name=_name(name, text), version=_version(version, text))
    try:
        requirement = Requirement(spec)
    except InvalidRequirement:
        raise ConfigError(f"{text!r} is no package.", _FORMS) from None
    if requirement.specifier or requirement.extras or requirement.marker:
        raise ConfigError(f"{text!r} does not say exactly one version.", _FORMS)
    return PackageSpec(text=spec, name=requirement.name)


def _name(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ConfigError(f"{name!r} in {text!r} is no name of a package.", _FORMS)
    return name


def _version(version: str, text: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        raise ConfigError(f"{version!r} in {text!r} is no version.", _FORMS) from None


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "/", "~", "file://")) or text.endswith(_ARCHIVE) or "/" in text


def _plain_path(text: str) -> str:
    return text.removeprefix("file://")
