"""Turn the requested packages into packages with recipes.

In: `PackageSpec`s. Out: `Package`s, and a `Source` for each local one, packed into the store.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError, ResolutionError
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.packages import Package, PackageSpec, bracketed, refuse_duplicates
from fleetbuild.plan.decide.resolution import Source
from fleetbuild.plan.resolve.survey import SourceSurvey, survey_source
from fleetbuild.plan.resolve.uv import pick_versions
from fleetbuild.recipes import GENERIC, Recipe, choose_recipe
from fleetbuild.store.address_secrets import without_login
from fleetbuild.store.git import find_commit, read_file
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.pack import pack_tree
from fleetbuild.store.sources import SourceMetadata, read_pyproject, read_source
from fleetbuild.store.wheels import Store

_BASELINE = ("x86-64", "armv8")
_EXTENSION, _RUST = "torch-extension", "rust-extension"


def requested_packages(
    specs: Sequence[PackageSpec],
    base: Path,
    recipes: Mapping[str, Recipe],
    store: Store,
    *,
    constraints: Sequence[str] = (),
    pythons: Sequence[str] = ("3.11",),
) -> tuple[tuple[Package, ...], dict[str, Source]]:
    """Return the packages of a release, and the sources of local packages.

    A range becomes its newest version that the constraints allow, for the oldest of these Pythons
    that has such a version of every package.
    """
    packages: list[Package] = []
    local: dict[str, Source] = {}
    ranges = {
        str(canonicalize_name(spec.name or "")): spec.specifier
        for spec in specs
        if spec.version is None and spec.path is None and spec.git is None
    }
    versions = _versions(ranges, constraints, pythons, store.settings) if ranges else {}
    for spec in specs:
        if spec.path is not None or spec.git is not None:
            of = _local if spec.git is None else _of_git
            package, source = of(spec, base, recipes, store)
            local[package.name] = source
        else:
            package = _pinned(spec, versions, recipes)
        packages.append(package.model_copy(update={"extras": spec.extras}))
    _refuse_outside(packages, constraints)
    refuse_duplicates([PackageSpec(text=package.text, name=package.name) for package in packages])
    return tuple(packages), local


def _versions(
    ranges: Mapping[str, str],
    constraints: Sequence[str],
    pythons: Sequence[str],
    settings: IndexSettings,
) -> dict[str, str]:
    """Return the version of each package. Nodes with an older Python are blocked later, alone."""
    first, *others = pythons
    try:
        return pick_versions(ranges, constraints, first, settings)
    except ResolutionError:
        if not others:
            raise
    return _versions(ranges, constraints, others, settings)


def _pinned(
    spec: PackageSpec, versions: Mapping[str, str], recipes: Mapping[str, Recipe]
) -> Package:
    name = canonicalize_name(spec.name or "")
    version = spec.version or versions[name]
    return Package(
        name=name,
        version=version,
        recipe=choose_recipe(name, dict(recipes)),
        requirement=f"{name}=={version}",
        text=spec.text if spec.version else f"{spec.name}{bracketed(spec.extras)}=={version}",
        specifier=None if spec.version else spec.specifier,
    )


def _refuse_outside(packages: Sequence[Package], constraints: Sequence[str]) -> None:
    """Refuse a version that a constraint excludes. Constraints with markers are left to uv."""
    versions = {package.name: package for package in packages}
    for bound in map(Requirement, constraints):
        package = versions.get(canonicalize_name(bound.name))
        if package and not bound.marker and not _allows(bound, package.version):
            raise ConfigError(
                f"{package.text} is asked for, and a constraint says {bound}.",
                "Change one of them.",
            )


def _allows(bound: Requirement, version: str) -> bool:
    return bound.specifier.contains(version, prereleases=True)


def _of_git(
    spec: PackageSpec, base: Path, recipes: Mapping[str, Recipe], store: Store
) -> tuple[Package, Source]:
    """Return a package whose source is a commit; a tag or branch is looked up now."""
    del base
    address, ref = _address_and_ref(spec.git or "")
    if urlsplit(address).username is not None and not address.startswith("ssh://"):
        raise ConfigError(
            f"{without_login(spec.text)!r} has a user or password in its address, but plans show "
            "addresses.",
            "Remove it, and log in with git's credential helpers or ~/.netrc.",
        )
    mirrors = store.settings.mirrors
    commit = find_commit(address, ref, mirrors)
    text = read_file(address, commit, "pyproject.toml", mirrors)
    metadata = read_pyproject(text, address)
    name, version = _identity(spec, metadata, address)
    recipe = choose_recipe(name, dict(recipes))
    file = LockedFile(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}.tar.gz",
        sha256="",
        url=f"git+{address}@{commit}",
    )
    path = store.fetch(file)
    source = Source(package=name, version=version, file=file)
    recipe, source = recipe_by_source(recipe, source, path, recipes)
    package = Package(
        name=name,
        version=version,
        recipe=recipe,
        requirement=f"{name}=={version}",
        text=f"{name}{bracketed(spec.extras)}=={version} @ {file.url}",
    )
    return package, source


def _address_and_ref(git: str) -> tuple[str, str]:
    """Split https://host/name@v1 into the address and the ref; HEAD if it names none."""
    head, slash, last = git.rpartition("/")
    name, _, ref = last.partition("@")
    return f"{head}{slash}{name}", ref or "HEAD"


def _local(
    spec: PackageSpec, base: Path, recipes: Mapping[str, Recipe], store: Store
) -> tuple[Package, Source]:
    path = (base / Path(spec.path or "").expanduser()).resolve()
    if not path.exists():
        raise ConfigError(
            f"{spec.text!r} names a source, but {path} does not exist.",
            "Name an existing sdist, archive or source tree.",
        )
    name, version = _identity(spec, read_source(path), str(path))
    recipe = choose_recipe(name, dict(recipes))
    kind = "tree" if path.is_dir() else "sdist"
    if kind not in recipe.sources:
        raise ConfigError(
            f"The recipe {recipe.name} builds from {' or '.join(recipe.sources)}, "
            f"and {path} is a {kind}.",
            f"Name {name}==VERSION to build from the index.",
        )
    source = Source(package=name, version=version, path=str(path))
    recipe, source = recipe_by_source(recipe, source, path, recipes)
    archive = _archive(path, name, version, store)
    package = Package(
        name=name,
        version=version,
        recipe=recipe,
        requirement=f"{name} @ {archive.url}",
        text=spec.text,
    )
    return package, source.model_copy(update={"file": archive})


def _identity(spec: PackageSpec, metadata: SourceMetadata, place: str) -> tuple[str, str]:
    """Return the name and version of a source; refuse an unknown or another one."""
    source = spec.path or f"git+{spec.git}"
    name = str(canonicalize_name(spec.name or metadata.name or ""))
    if not name:
        raise ConfigError(f"{place} does not say which package it is.", f"Name it: NAME @ {source}")
    if metadata.name and canonicalize_name(metadata.name) != name:
        raise ConfigError(f"{place} is {metadata.name}, not {name}.", "Name the package it holds.")
    version = spec.version or metadata.version
    if version is None:
        raise ConfigError(
            f"The version of {name} in {place} is only known once its build runs.",
            f"State the version: {name}==VERSION @ {source}.",
        )
    if metadata.version and version != metadata.version:
        raise ConfigError(
            f"{place} is {name} {metadata.version}, not {version}.", "Name the version it holds."
        )
    return name, version


def recipe_by_source(
    recipe: Recipe, source: Source, path: Path, recipes: Mapping[str, Recipe]
) -> tuple[Recipe, Source]:
    """Return the recipe for a source, and the source with what its files show.

    A recipe knows what its package is; only whether the crates of a Rust package are there is read.
    """
    chosen, found = recipe, dict[str, object]()
    if recipe.name == GENERIC or "cargo" in recipe.tools:
        survey = survey_source(path)
        chosen = _recipe_by_survey(source.package, recipe, survey, recipes)
        found["crates_missing"] = survey.crates_missing and "cargo" in chosen.tools
        if recipe.name == GENERIC:
            found |= {"gpu_code": survey.gpu_code, "gpu_requirements": survey.gpu_requirements}
    found["build_requirements"] = build_requirements(read_source(path), chosen, recipes)
    return chosen, source.model_copy(update=found)


def _recipe_by_survey(
    name: str, recipe: Recipe, survey: SourceSurvey, recipes: Mapping[str, Recipe]
) -> Recipe:
    """Return the recipe for this source: torch-extension if its build imports torch,
    rust-extension if it runs cargo."""
    if recipe.name != GENERIC:
        return recipe
    if survey.built_by_cargo and not survey.against_torch:
        return recipes[_RUST].model_copy(update={"packages": (name,)})
    if survey.pure:
        return _pure(recipe, name)
    if not survey.against_torch:
        return recipe
    changes = {
        "packages": (name,),
        "requires": survey.requires or (),
        "cuda": bool(survey.gpu_code),
    }
    return recipes[_EXTENSION].model_copy(update=changes)


def as_pure(package: Package) -> Package:
    """Return a package of pure Python: its wheel for an architecture and Python fits every CPU."""
    return package.model_copy(update={"recipe": _pure(package.recipe, package.name)})


def _pure(recipe: Recipe, name: str) -> Recipe:
    return recipe.model_copy(update={"packages": (name,), "rungs": _BASELINE})


def _archive(path: Path, name: str, version: str, store: Store) -> LockedFile:
    """Store a local source as one file, so that the build uses exactly the planned content."""
    if path.is_dir():
        root = f"{name.replace('-', '_')}-{version}"
        file = f"{name}-{version}.tar.gz"
        stored, sha256 = store.add_file(lambda dest: pack_tree(path, dest, root), file)
    else:
        file = path.name
        stored, sha256 = store.add_file(lambda dest: shutil.copyfile(path, dest), file)
    return LockedFile(
        name=name, version=version, file=file, sha256=sha256, url=stored.absolute().as_uri()
    )


def build_requirements(
    metadata: SourceMetadata, recipe: Recipe, recipes: Mapping[str, Recipe]
) -> tuple[str, ...]:
    """Return what the source declares, and what its build backend needs at build time."""
    of_backends = {**recipes[GENERIC].backend_requirements, **recipe.backend_requirements}
    return tuple(sorted({*metadata.build_requirements, *of_backends.get(metadata.backend, ())}))
