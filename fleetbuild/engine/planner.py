"""Plans a fleet: asks indexes and the store what planning itself may not, then lets it think."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError, FleetbuildError
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    LockedFile,
    OnEvent,
    Plan,
    ignore,
)
from fleetbuild.planning import (
    Draft,
    LockRequest,
    Locks,
    Package,
    PackageSpec,
    Resolution,
    Source,
    build_request,
    choose_packages,
    draft,
    hindering,
    lock_request,
    make_plan,
    parse_packages,
)
from fleetbuild.planning.groups import numbers
from fleetbuild.planning.packages import refuse_twice
from fleetbuild.recipes import GENERIC, Recipe, choose_recipe, known_recipes
from fleetbuild.store import IndexSettings, Store, index_settings
from fleetbuild.store.resolve import locate, newest_version, resolve_all
from fleetbuild.store.sources import pack_tree, read_source


def plan_fleet(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    config: Config | None = None,
    packages: Sequence[str] = (),
    *,
    state_dir: Path = Path(".fleetbuild"),
    builders: Sequence[str] = (),
    facts_source: str = "probe",
    on_event: OnEvent = ignore,
) -> Plan:
    """The plan for these nodes. `builders` are the hosts that build.builders names."""
    config = config or Config()
    folder = _folder(config, inventory)
    recipes = known_recipes([folder / "recipes"])
    settings = index_settings(config.index, folder)
    store = Store(state_dir / "store", settings)
    texts = choose_packages(packages, config, inventory)
    base = Path.cwd() if packages else folder
    wanted, local = _packages(parse_packages(texts), base, recipes, store)
    locking = _Locking(wanted, local, recipes, store, on_event)

    drafted = draft(inventory, facts, wanted, config, builders=builders)
    if drafted.groups and locking.found_sources(drafted):
        wanted = tuple(locking.packages)
        drafted = locking.closures(drafted, inventory, facts, config, builders)
        locking.builds(drafted, facts)
    return make_plan(
        inventory,
        facts,
        wanted,
        config,
        drafted=drafted,
        locks=locking.locks(),
        store=store.floors(),
        created=_now(),
        facts_source=facts_source,
    )


class _Locking:
    """The questions of one plan, and the answers so far."""

    def __init__(
        self,
        packages: Sequence[Package],
        local: Mapping[str, Source],
        recipes: Mapping[str, Recipe],
        store: Store,
        on_event: OnEvent,
    ) -> None:
        self.packages, self.recipes, self.store = packages, recipes, store
        self.answers: dict[LockRequest, Resolution] = {}
        self.sources: dict[str, Source] = dict(local)
        self.unfetched: Resolution | None = None
        self.on_event = on_event

    def locks(self) -> Locks:
        """What is known now."""
        return Locks(
            resolutions=self.answers,
            sources=tuple(self.sources.values()),
            unfetched=self.unfetched,
        )

    def found_sources(self, drafted: Draft) -> bool:
        """Bring the sdists here and read what their builds ask for. False: no index answers.

        From then on a package is a file here: its metadata, where it is not static, is asked of
        its backend once and kept by uv, however many kinds of machine there are.
        """
        pinned = [package for package in self.packages if package.name not in self.sources]
        if not pinned:
            return True
        self._tell(f"Looking for the source of {', '.join(package.text for package in pinned)}")
        questions = [lock_request(group, pinned, drafted.fates) for group in drafted.groups]
        # An sdist serves every Python that its package serves; the newest is among them.
        newest = max(questions, key=lambda question: numbers(question.python_version))
        answer = locate(newest, self.store.settings)
        if answer.offline:
            self.unfetched = answer
            return False
        # Another problem, such as a Python too old for the package, is each group's own.
        packages = {package.name: package for package in pinned}
        for file in answer.sources:
            if source := self._source(packages[file.name], file):
                self.sources[file.name] = source
        self.packages = [self._at_hand(package) for package in self.packages]
        return self.unfetched is None

    def _at_hand(self, package: Package) -> Package:
        source = self.sources.get(package.name)
        if source is None or source.file is None:
            return package
        path = self.store.file_path(source.file.sha256, source.file.file)
        uri = path.absolute().as_uri()
        return package.model_copy(update={"requirement": f"{package.name} @ {uri}"})

    def closures(
        self,
        drafted: Draft,
        inventory: Inventory,
        facts: Mapping[str, Facts],
        config: Config,
        builders: Sequence[str],
    ) -> Draft:
        """Lock what each group installs. Members that alone keep their group from it are blocked,
        and the rest is grouped and locked again."""
        blocked: dict[str, tuple[str, str]] = {}
        while True:
            self._ask(
                [lock_request(group, self.packages, drafted.fates) for group in drafted.groups]
            )
            culprits = hindering(drafted, self.packages, facts, self.locks())
            if not culprits:
                return drafted
            blocked |= culprits
            drafted = draft(
                inventory, facts, self.packages, config, builders=builders, blocked=blocked
            )

    def builds(self, drafted: Draft, facts: Mapping[str, Facts]) -> None:
        """Lock what each build needs."""
        requests = [
            build_request(wheel, source, facts)
            for wheel in drafted.wheels
            if (source := self.sources.get(wheel.package.name))
        ]
        self._ask([request for request in requests if request])

    def _ask(self, requests: Sequence[LockRequest]) -> None:
        fresh = [request for request in dict.fromkeys(requests) if request not in self.answers]
        if fresh:
            self._tell(f"Resolving for {len(fresh)} kinds of machine")
            self.answers |= resolve_all(fresh, self.store.settings)

    def _source(self, package: Package, file: LockedFile) -> Source | None:
        try:
            path = self.store.fetch(file)
        except FleetbuildError as problem:
            # Planned and shown all the same; without its source a package has no lock.
            self.unfetched = Resolution(problem=problem.message, fix=problem.fix, offline=True)
            return None
        return Source(
            package=package.name,
            version=package.version,
            file=file,
            build_requirements=_build_requirements(path, package.recipe, self.recipes),
        )

    def _tell(self, message: str) -> None:
        self.on_event(Event(time=_now(), stage="plan", state="progress", message=message))


def _packages(
    specs: Sequence[PackageSpec], base: Path, recipes: Mapping[str, Recipe], store: Store
) -> tuple[tuple[Package, ...], dict[str, Source]]:
    """The packages of the release, and the sources of those that lie here."""
    packages: list[Package] = []
    local: dict[str, Source] = {}
    for spec in specs:
        if spec.path is not None:
            package, source = _local(spec, base, recipes, store)
            local[package.name] = source
        else:
            package = _pinned(spec, recipes, store.settings)
        packages.append(package)
    refuse_twice([PackageSpec(text=package.text, name=package.name) for package in packages])
    return tuple(packages), local


def _pinned(spec: PackageSpec, recipes: Mapping[str, Recipe], settings: IndexSettings) -> Package:
    name = canonicalize_name(spec.name or "")
    if spec.version is None:
        newest = newest_version(name, settings)
        raise ConfigError(
            f"{spec.name} names no version, and a plan must be exact.",
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
            f"{spec.text!r} names a source, and there is nothing at {path}.",
            "Name an sdist, an archive or a source tree that is there.",
        )
    metadata = read_source(path)
    name = canonicalize_name(spec.name or metadata.name or "")
    if not name:
        raise ConfigError(
            f"{path} does not say which package it is.", f"Name it: NAME @ {spec.path}"
        )
    if metadata.name and canonicalize_name(metadata.name) != name:
        raise ConfigError(f"{path} is {metadata.name}, not {name}.", "Name the package it holds.")
    if metadata.version is None:
        raise ConfigError(
            f"The version of {name} in {path} is only known once its build runs.",
            f"Make an sdist first (uv build --sdist {path}) and name that.",
        )
    recipe = choose_recipe(name, dict(recipes))
    kind = "tree" if path.is_dir() else "sdist"
    if kind not in recipe.sources:
        raise ConfigError(
            f"The recipe {recipe.name} builds from {' or '.join(recipe.sources)}, "
            f"and {path} is a {kind}.",
            f"Name {name}==VERSION to build from the index.",
        )
    archive = _archive(path, name, metadata.version, store)
    package = Package(
        name=name,
        version=metadata.version,
        recipe=recipe,
        requirement=f"{name} @ {archive.url}",
        text=spec.text,
    )
    source = Source(
        package=name,
        version=metadata.version,
        file=archive,
        path=str(path),
        build_requirements=_build_requirements(path, recipe, recipes),
    )
    return package, source


def _archive(path: Path, name: str, version: str, store: Store) -> LockedFile:
    """A local source as one file in the store: what is planned now is what gets built."""
    if path.is_dir():
        content, file = pack_tree(path, name, version), f"{name}-{version}.tar.gz"
    else:
        content, file = path.read_bytes(), path.name
    sha256 = hashlib.sha256(content).hexdigest()
    stored = store.file_path(sha256, file)
    if not stored.is_file():
        stored = store.add_file(content, sha256, file)
    return LockedFile(
        name=name, version=version, file=file, sha256=sha256, url=stored.absolute().as_uri()
    )


def _build_requirements(
    source: Path, recipe: Recipe, recipes: Mapping[str, Recipe]
) -> tuple[str, ...]:
    """What the source declares, what its backend would ask for, what the recipe adds."""
    metadata = read_source(source)
    of_backends = {**recipes[GENERIC].backend_requirements, **recipe.backend_requirements}
    return tuple(
        sorted(
            {
                *metadata.build_requirements,
                *of_backends.get(metadata.backend, ()),
                *recipe.build_requirements,
            }
        )
    )


def _folder(config: Config, inventory: Inventory) -> Path:
    """Where relative paths start: beside fleetbuild.yml, else beside the inventory."""
    if config.folder:
        return Path(config.folder)
    source = Path(inventory.source).absolute()
    return source if source.is_dir() else source.parent


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
