"""Turn the requested packages into packages with recipes.

In: `PackageSpec`s. Out: `Package`s, and a `Source` for each local one, packed into the store.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError
from fleetbuild.models import LockedFile
from fleetbuild.planner.without_recipe import planned_recipe
from fleetbuild.planning import Package, PackageSpec, Source
from fleetbuild.planning.packages import refuse_duplicates
from fleetbuild.recipes import GENERIC, Recipe, choose_recipe
from fleetbuild.store import IndexSettings, Store
from fleetbuild.store.pack import pack_tree
from fleetbuild.store.resolve import newest_version
from fleetbuild.store.sources import SourceMetadata, read_source
from fleetbuild.store.survey import survey_source


def requested_packages(
    specs: Sequence[PackageSpec], base: Path, recipes: Mapping[str, Recipe], store: Store
) -> tuple[tuple[Package, ...], dict[str, Source]]:
    """Return the packages of a release, and the sources of local packages."""
    packages: list[Package] = []
    local: dict[str, Source] = {}
    for spec in specs:
        if spec.path is not None:
            package, source = _local(spec, base, recipes, store)
            local[package.name] = source
        else:
            package = _pinned(spec, recipes, store.settings)
        packages.append(package)
    refuse_duplicates([PackageSpec(text=package.text, name=package.name) for package in packages])
    return tuple(packages), local


def _pinned(spec: PackageSpec, recipes: Mapping[str, Recipe], settings: IndexSettings) -> Package:
    name = canonicalize_name(spec.name or "")
    if spec.version is None:
        newest = newest_version(name, settings)
        raise ConfigError(
            f"{spec.name} has no version, but a plan needs exact versions.",
            f"Ask for {spec.name}=={newest or 'VERSION'}"
            + (", the newest." if newest else ", one that the index has."),
        )
    return Package(
        name=name,
        version=spec.version,
        recipe=choose_recipe(name, dict(recipes)),
        requirement=f"{name}=={spec.version}",
        text=spec.text,
    )


def _local(
    spec: PackageSpec, base: Path, recipes: Mapping[str, Recipe], store: Store
) -> tuple[Package, Source]:
    path = (base / Path(spec.path or "").expanduser()).resolve()
    if not path.exists():
        raise ConfigError(
            f"{spec.text!r} names a source, but {path} does not exist.",
            "Name an existing sdist, archive or source tree.",
        )
    metadata = read_source(path)
    name = canonicalize_name(spec.name or metadata.name or "")
    if not name:
        raise ConfigError(
            f"{path} does not say which package it is.", f"Name it: NAME @ {spec.path}"
        )
    if metadata.name and canonicalize_name(metadata.name) != name:
        raise ConfigError(f"{path} is {metadata.name}, not {name}.", "Name the package it holds.")
    version = spec.version or metadata.version
    if version is None:
        raise ConfigError(
            f"The version of {name} in {path} is only known once its build runs.",
            f"State the version: {name}==VERSION @ {spec.path}.",
        )
    if metadata.version and version != metadata.version:
        raise ConfigError(
            f"{path} is {name} {metadata.version}, not {version}.", "Name the version it holds."
        )
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
    needed = build_requirements(metadata, recipe, recipes)
    return package, source.model_copy(update={"file": archive, "build_requirements": needed})


def recipe_by_source(
    recipe: Recipe, source: Source, path: Path, recipes: Mapping[str, Recipe]
) -> tuple[Recipe, Source]:
    """Return the recipe for a source, and the source with its signs of GPU code.

    A recipe knows what its package is; only whether the crates of a Rust package are there is read.
    """
    if recipe.name != GENERIC and "cargo" not in recipe.tools:
        return recipe, source
    survey = survey_source(path)
    chosen = planned_recipe(source.package, recipe, survey, recipes)
    found: dict[str, object] = {"crates_missing": survey.crates_missing and "cargo" in chosen.tools}
    if recipe.name == GENERIC:
        found |= {"gpu_code": survey.gpu_code, "gpu_requirements": survey.gpu_requirements}
    return chosen, source.model_copy(update=found)


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
