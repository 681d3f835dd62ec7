"""Fetch the sources of the packages that are built, and read what they require.

In: packages, and the groups that build them. Out: `Sources`. A source comes from its recipe's git
commit or archive, else from the index; local sources are there already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from urllib.parse import urlsplit

from fleetbuild.errors import FleetbuildError, InstallError, RecipeError
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.requests import plain, source_request
from fleetbuild.plan.decide.resolution import LockRequest, Resolution, Source, StaticMetadata
from fleetbuild.plan.decide.wheels.published import PublishedChoices
from fleetbuild.plan.resolve.requested import build_requirements, recipe_by_source
from fleetbuild.plan.resolve.run_time_requirements import find_requirements
from fleetbuild.plan.resolve.uv import find_wheels, newest_version
from fleetbuild.recipes import Recipe, RecipeSource, render_source
from fleetbuild.store.git import find_commit
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.wheels import Store
from fleetbuild.text import version_key

_KEY = "--package, or packages: in fleetbuild.yml"  # of a package that no file names
_NEWEST = "the newest for this Python on the first index that has it"
_RANGE = " Or ask for another version or a range: the newest of it that runs there is taken."
_PUBLISHED = " To take a published wheel where it fits: build: {policy: auto}."
_HASH = re.compile(r"sha256=([0-9a-f]{64})")


class Sources:
    """The sources of a release, and what they say."""

    def __init__(
        self,
        local: Mapping[str, Source],
        recipes: Mapping[str, Recipe],
        store: Store,
        *,
        never_build: bool,
        places: Mapping[str, str],
        missing: Mapping[str, Resolution],
    ) -> None:
        self.by_package = dict(local)
        self.metadata: dict[str, StaticMetadata] = {}  # run-time requirements, by package
        self.missing = dict(missing)  # why nothing can be built, by package
        self._recipes, self._store, self._never_build = recipes, store, never_build
        self._places = places  # lines of files that name a package
        self._chosen: dict[str, Recipe] = {}  # for packages without a recipe of their own
        # Groups are made several times, and often of one Python.
        self._newest = cache(lambda name, python: newest_version(name, store.settings, python))

    def fetch(
        self,
        packages: Sequence[Package],
        groups: Sequence[DraftGroup],
        report: Callable[[str], None],
    ) -> None:
        """Fetch the sources of these packages; `missing` says why one is not there."""
        if self._never_build:
            self.missing = {**{package.name: _NOT_BUILT for package in packages}, **self.missing}
            return
        asked = [each for each in packages if each.name not in {**self.by_package, **self.missing}]
        for package in asked:
            if package.recipe.source:
                report(f"Looking for the source of {package.text}")
                self._fetch_of_recipe(package)
        pinned = [each for each in asked if each.name not in {**self.by_package, **self.missing}]
        if pinned:
            report(f"Looking for the source of {', '.join(package.text for package in pinned)}")
            self._fetch_of_index(pinned, groups)
        requests = [source_request(group, ()) for group in groups]
        for package in packages:
            self._read_requirements(package, requests)
            if (source := self.by_package.get(package.name)) and source.crates_missing:
                self.missing[package.name] = _without_crates(package, source)

    def with_recipes(self, packages: Iterable[Package]) -> tuple[Package, ...]:
        """Return the packages with the recipes that their sources chose."""
        return tuple(
            package.model_copy(update={"recipe": self._chosen.get(package.name, package.recipe)})
            for package in packages
        )

    def _fetch_of_recipe(self, package: Package) -> None:
        """Find the source that a recipe names; fetch it only to read its requirements."""
        name, version, recipe = package.name, package.version, package.recipe
        try:
            file = source_of_recipe(recipe, name, version, self._store.settings)
        except InstallError as problem:
            self.missing[name] = _unfetched(problem)
            return
        if file is None:
            return
        if recipe.requires is None:
            self._add_fetched(package, file)
            return
        # Only its build requirements are read; if that fails, the recipe's own are used.
        source = Source(package=name, version=version, file=file)
        try:
            needed = build_requirements(self._store.metadata_of(file), recipe, self._recipes)
            found: dict[str, object] = {"build_requirements": needed}
        except FleetbuildError as problem:
            found = {"metadata_problem": problem.message}
        self.by_package[name] = source.model_copy(update=found)

    def _fetch_of_index(self, pinned: Sequence[Package], groups: Sequence[DraftGroup]) -> None:
        # One sdist serves every supported Python, so ask for the newest Python of the fleet.
        newest = max(groups, key=lambda group: version_key(group.python_version))
        requests = {each.name: source_request(newest, [each]) for each in pinned}
        answers = find_wheels(requests.values(), self._store.settings)
        for package in pinned:
            answer = answers[requests[package.name]]
            if answer.problem:
                self.missing[package.name] = answer
            for file in answer.sources:
                self._add_fetched(package, file)

    def problems(
        self,
        groups: Sequence[DraftGroup],
        packages: Sequence[Package],
        published: PublishedChoices,
    ) -> dict[str, Resolution]:
        """Return the problem of each group that neither takes a published wheel nor has a source.

        Each such package is named, with a version that the index has for the group's Python.
        """
        return {
            group.name: self._problem(group, lacking, published)
            for group in groups
            if (
                lacking := [
                    package
                    for package in packages
                    if package.name in self.missing
                    and not ((choice := published.get((package.name, group.name))) and choice.file)
                ]
            )
        }

    def _problem(
        self, group: DraftGroup, lacking: Sequence[Package], published: PublishedChoices
    ) -> Resolution:
        names: dict[str, list[str]] = {}  # by the result of their search
        newer: list[str] = []
        for package in lacking:
            choice = published.get((package.name, group.name))
            searched = f" {choice.why}" if choice else ""
            names.setdefault(searched, []).append(f"{package.name} {package.version}")
            asks = choice and not self.missing[package.name].offline
            newest = self._newest(package.name, plain(group.python_version)) if asks else None
            if newest not in (None, package.version):  # it may have a wheel; an sdist, nobody knows
                newer.append(f"{package.name}=={newest} ({self._places.get(package.name, _KEY)})")
        texts = (f"{', '.join(each)} cannot be installed.{why}" for why, each in names.items())
        causes = [self.missing[package.name] for package in lacking]
        ask = f"Ask for {', '.join(newer)}: {_NEWEST}. Or: " if newer else ""
        offer = _RANGE if published else _PUBLISHED
        return Resolution(
            problem=" ".join((*texts, *dict.fromkeys(why.problem or "" for why in causes))),
            fix=f"{ask}{' '.join(dict.fromkeys(why.fix or '' for why in causes))}{offer}",
            offline=all(why.offline for why in causes),
        )

    def _add_fetched(self, package: Package, file: LockedFile) -> None:
        try:
            path = self._store.fetch(file)
        except FleetbuildError as problem:
            self.missing[package.name] = _unfetched(problem)
            return
        source = Source(package=package.name, version=package.version, file=file)
        recipe, source = recipe_by_source(package.recipe, source, path, self._recipes)
        if recipe != package.recipe:
            self._chosen[package.name] = recipe
        self.by_package[package.name] = source

    def _read_requirements(self, package: Package, requests: Iterable[LockRequest]) -> None:
        """Read a package's run-time requirements, as far as its recipe does not state them."""
        source = self.by_package.get(package.name)
        (package,) = self.with_recipes([package])
        stated = package.recipe.requires is not None
        if source is None or source.file is None or (stated and not package.extras):
            return
        found = find_requirements(package, source, requests, self._store)
        if isinstance(found, Resolution):
            self.missing[package.name] = found
            return
        requires = found.requires
        if stated:  # only its extras are missing there
            requires = tuple(text for text in requires if "extra" in text.partition(";")[2])
        changes = {"requires": requires, "extras": package.extras}
        self.metadata[package.name] = found.model_copy(update=changes)


_NOT_BUILT = Resolution(
    problem="Nothing is built, because build.policy is published.",
    fix="Check names and versions, or set build.policy to auto.",
)


def _without_crates(package: Package, source: Source) -> Resolution:
    """Return why nothing builds a Rust source without its crates, and the fix."""
    given = source.path or f"{package.name}-{package.version}"
    return Resolution(
        problem=f"The source of {package.name} {package.version} needs crates that it does not "
        "contain, and a build downloads nothing.",
        fix=f"Add them: unpack {source.file.file if source.file else given}, run cargo vendor in "
        "the folder of its Cargo.lock, write what that prints into .cargo/config.toml there, and "
        f"name the tree: {package.name}=={package.version} @ ./{package.name}-{package.version}.",
    )


def _unfetched(problem: FleetbuildError) -> Resolution:
    return Resolution(problem=problem.message, fix=problem.fix, offline=True)


def source_of_recipe(
    recipe: Recipe, package: str, version: str, settings: IndexSettings
) -> LockedFile | None:
    """Return the locked source that a recipe names; None if the source is on the index.

    Only the commit is looked up; nothing is fetched.
    """
    source = render_source(recipe, package, version)
    if source is None:
        return None
    address = source.git or source.archive or ""
    _refuse_login(recipe, address)
    if source.git is None:
        return _archive_of_recipe(recipe, source, package, version)
    commit = find_commit(source.git, source.ref, settings.mirrors)
    return LockedFile(
        name=package,
        version=version,
        file=f"{package.replace('-', '_')}-{version}.tar.gz",
        sha256="",
        url=f"git+{source.git}@{commit}" + ("" if source.submodules else "#flat"),
    )


def _archive_of_recipe(
    recipe: Recipe, source: RecipeSource, package: str, version: str
) -> LockedFile:
    url, _, fragment = (source.archive or "").partition("#")
    pinned = _HASH.fullmatch(fragment)
    sha256 = source.sha256.get(version) or (pinned and pinned[1])
    if not sha256:
        raise RecipeError(
            f"The recipe {recipe.name} has no sha256 for the archive of {package} {version}, so a "
            "changed archive would go unnoticed.",
            f"Add it, in a recipe of yours that says extends: {recipe.name}: source: {{sha256: "
            f'{{"{version}": …}}}}.',
        )
    return LockedFile(
        name=package, version=version, file=urlsplit(url).path.rsplit("/", 1)[-1], sha256=sha256,
        url=url,
    )  # fmt: skip


def _refuse_login(recipe: Recipe, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") and parts.username is not None:
        raise RecipeError(
            f"The recipe {recipe.name} has a user or password in the address of its source, but "
            "plans show addresses.",
            "Remove it, and log in with git's credential helpers, ~/.netrc or a mirror under "
            "mirrors: in fleetbuild.yml.",
        )
