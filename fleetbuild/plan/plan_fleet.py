"""Plan a fleet: query the indexes and the store, then let `planning` decide.

In: inventory, facts, configuration, packages. Out: a `Plan`. `planning` itself does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleetbuild.ansible import Secrets, list_inventory
from fleetbuild.config import base_folder, with_absolute_playbooks
from fleetbuild.errors import BlockedError, ConfigError, FleetbuildError, InstallError
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    LockedFile,
    OnEvent,
    Plan,
    ignore,
    now,
)
from fleetbuild.models.node import NO_SSH
from fleetbuild.models.plan import FactsSource
from fleetbuild.models.problem import Problem
from fleetbuild.models.revocation import Revocations
from fleetbuild.plan.decide import (
    GroupedFleet,
    LockRequest,
    Locks,
    Package,
    PlanDraft,
    Resolution,
    Source,
    build_request,
    choose_packages,
    draft_plan,
    group_fleet,
    name_targets,
    nodes_blocking_dependencies,
    nodes_without_space,
    parse_packages,
    source_request,
    stand_in_inventory,
    toolkit_request,
    with_stand_ins,
)
from fleetbuild.plan.decide.named_targets import NamedTarget
from fleetbuild.plan.decide.wheels.build_requirements import plain
from fleetbuild.plan.decide.wheels.published import PublishedChoice
from fleetbuild.plan.document import make_plan
from fleetbuild.plan.resolve.published import find_published
from fleetbuild.plan.resolve.recipe_source import source_of_recipe
from fleetbuild.plan.resolve.requested import (
    build_requirements,
    recipe_by_source,
    requested_packages,
)
from fleetbuild.plan.resolve.requirement_files import RequirementList, listed_packages
from fleetbuild.plan.resolve.run_time_requirements import find_requirements
from fleetbuild.plan.resolve.uv import locate, resolve_all
from fleetbuild.plan.resolve.without_recipe import nodes_to_block, why_not_buildable
from fleetbuild.recipes import Recipe, known_recipes
from fleetbuild.store import Store
from fleetbuild.store.index_config import settings_of
from fleetbuild.store.sources import read_source
from fleetbuild.text import version_key


def plan_fleet(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    config: Config | None = None,
    packages: Sequence[str] = (),
    *,
    state_dir: Path = Path(".fleetbuild"),
    builders: Sequence[str] = (),
    targets: Sequence[str] = (),
    facts_source: FactsSource = "probe",
    timeout: float | None = None,
    requirements: RequirementList | None = None,
    on_event: OnEvent = ignore,
) -> Plan:
    """Return the plan for these nodes, or for named targets that these nodes build for.

    `builders` are the hosts that build.builders names. `targets` replace the configuration's.
    `timeout` is the deadline that was chosen for the probe: the plan's apply takes it too.
    `requirements` come from files: their packages are added to `packages`.
    """
    config = config or Config()
    if facts_source == "cluster" and config.build.confirm > 1:
        raise ConfigError(
            "build.confirm is 2, but Jobs in a cluster build each wheel once.",
            "Set build.confirm: 1 for this plan, or plan from an inventory.",
        )
    folder = base_folder(config, inventory)
    config = with_absolute_playbooks(config, folder)
    recipes = known_recipes([folder / "recipes"])
    listed = (requirements or RequirementList()) + listed_packages(config, folder)
    config = config.model_copy(update={"index": (*config.index, *listed.indexes)})
    settings = settings_of(config, folder)
    store = Store(state_dir / "store", settings)
    revoked = store.learn_revoked_keys(
        (wheel.sha256, wheel.artifact_key)
        for known in facts.values()
        for manifest in known.release.values()
        for wheel in manifest.wheels
    )
    store.settings = replace(settings, excluded=revoked.exclusions)
    named_here = (*packages, *(requirements.requirements if requirements else ()))
    texts = choose_packages(
        named_here or (*config.packages, *listed.requirements), config, inventory
    )
    base = Path.cwd() if packages else folder
    wanted, local = requested_packages(
        parse_packages(texts, config.python),
        base,
        recipes,
        store,
        constraints=listed.constraints,
        python=_oldest_python(config, facts),
    )
    _refuse_revoked(wanted, revoked)
    resolver = _PlanResolver(wanted, local, recipes, store, on_event)
    resolver.bounds, resolver.hashes = listed.constraints, listed.hashes

    fleet = inventory
    named: tuple[NamedTarget, ...] = ()
    if names := targets or config.targets:
        _refuse_in_cluster(facts_source)
        named = name_targets(names, inventory, facts, config, builders)
        inventory, facts = stand_in_inventory(fleet, named), with_stand_ins(facts, named)
        builders = sorted({name for target in named for name in target.builders})
    grouped = group_fleet(inventory, facts, wanted, config, builders=builders)
    if grouped.groups and config.build.policy != "targeted":
        resolver.find_published(grouped, facts)
    drafted = draft_plan(grouped, facts, wanted, resolver.published)
    if drafted.groups and resolver.fetch_sources(drafted, config):
        wanted = tuple(resolver.packages)
        group = partial(group_fleet, inventory, facts, wanted, config, builders=builders)
        resolver.targets = bool(named)
        drafted = resolver.lock_dependencies(drafted, inventory, facts, group, config)
        resolver.refuse_other_hashes()
        resolver.lock_builds(drafted, facts, facts_source)
    return make_plan(
        fleet,
        facts,
        wanted,
        config,
        drafted=drafted,
        named=named,
        locks=resolver.locks(),
        store=store.floors(),
        created=now("seconds"),
        facts_source=facts_source,
        timeout=timeout,
        revoked=revoked,
    )


def _oldest_python(config: Config, facts: Mapping[str, Facts]) -> str:
    """Return the oldest Python that the release may run on, to choose versions in ranges."""
    if config.python and re.fullmatch(r"3\.\d+", config.python):
        return config.python
    firsts = [known.pythons[0].version for known in facts.values() if known.pythons]
    usable = [plain(version) for version in firsts]
    return min(usable, key=version_key, default="3.11")


def _refuse_in_cluster(facts_source: FactsSource) -> None:
    if facts_source == "cluster":
        raise ConfigError(
            "Named targets need nodes that build, which fleetbuild reaches by SSH; the Nodes of a "
            "cluster build in Jobs, each for its own kind.",
            "Remove targets: from the configuration, or plan from an inventory.",
        )


def _refuse_revoked(packages: Sequence[Package], revoked: Revocations) -> None:
    for package in packages:
        if why := revoked.of(package.name, package.version):
            raise BlockedError(
                why,
                f"Plan with another version of {package.name}, or take the revocation back:"
                f" fleetbuild revoke --undo {package.name}=={package.version}",
            )


def named_builders(
    inventory: Inventory, config: Config, secrets: Secrets | None
) -> tuple[str, ...]:
    """Return the nodes that build.builders names, which is an Ansible host pattern."""
    pattern = config.build.builders
    if pattern == "representative":
        return ()
    if inventory.nodes and inventory.nodes[0].login.connection == NO_SSH:
        raise ConfigError(
            f"build.builders is {pattern!r}, but the Nodes of a cluster have no Ansible groups.",
            "Remove build.builders for this plan: each group's own Nodes build.",
        )
    named = list_inventory(inventory.source, limit=pattern, secrets=secrets).hosts
    if not named:
        raise ConfigError(
            f"build.builders is {pattern!r}, but no host of the inventory matches it.",
            "Name a host or group of the inventory, or remove build.builders.",
        )
    # Hosts outside --limit are included: the plan warns that they were not probed.
    return tuple(sorted(named))


class _PlanResolver:
    """Resolve everything for one plan: published wheels, sources, dependencies, requirements."""

    def __init__(
        self,
        packages: Sequence[Package],
        local: Mapping[str, Source],
        recipes: Mapping[str, Recipe],
        store: Store,
        on_event: OnEvent,
    ) -> None:
        self.packages, self.recipes, self.store = packages, recipes, store
        self.resolutions: dict[LockRequest, Resolution] = {}
        self.sources: dict[str, Source] = dict(local)
        self.chosen: dict[str, Recipe] = {}  # recipes chosen by what a source shows
        self.unfetched: Resolution | None = None
        self.unknown: dict[str, Resolution] = {}  # packages whose requirements are not known
        self.published: dict[tuple[str, str], PublishedChoice] = {}  # by package and group
        self.dependencies: dict[str, tuple[LockedFile, ...]] = {}  # group -> its dependencies
        self.on_event = on_event
        self.targets = False  # whether kinds of machines are planned for, not nodes
        self.bounds: tuple[str, ...] = ()  # constraints on the installed packages
        self.hashes: Mapping[str, Sequence[str]] = {}  # package -> the sha256 allowed by a file

    def refuse_other_hashes(self) -> None:
        """Refuse files whose hash is not allowed by a requirements or lock file."""
        sources = [source.file for source in self.sources.values() if source.file]
        closures = [file for files in self.dependencies.values() for file in files]
        for file in (*sources, *closures):
            allowed = self.hashes.get(file.name)
            if allowed and file.sha256 and file.sha256 not in allowed:
                raise ConfigError(
                    f"{file.file} has the sha256 {file.sha256}, which is not among the hashes that"
                    f" the requirements or lock file allows for {file.name}.",
                    "Find out why the index has another file, or lock again with the sdist and all"
                    " wheels.",
                )

    def locks(self) -> Locks:
        """Return everything resolved so far."""
        return Locks(
            resolutions=self.resolutions,
            sources=tuple(self.sources.values()),
            unfetched=self.unfetched,
            closures=self.dependencies,
        )

    def find_published(self, grouped: GroupedFleet, facts: Mapping[str, Facts]) -> None:
        """Find out which groups can take which packages from published wheels."""
        self._report(f"Looking for wheels of {', '.join(each.text for each in self.packages)}")
        self.published = find_published(grouped, self.packages, self.sources, facts, self.store)

    def _is_built(self, package: Package, drafted: PlanDraft) -> bool:
        return any(
            wheel.package.name == package.name and not wheel.taken and not why_not_buildable(wheel)
            for wheel in drafted.wheels
        )

    def fetch_sources(self, drafted: PlanDraft, config: Config) -> bool:
        """Fetch the sdists and read what they require; return False if no index answers."""
        built = [package for package in self.packages if self._is_built(package, drafted)]
        if (
            config.build.policy == "published"
        ):  # a package that is not published is blocked, not built
            built = []
        for package in built:
            if package.name not in self.sources and package.recipe.source:
                self._fetch_recipe_source(package)
        pinned = [package for package in built if package.name not in self.sources]
        if self.unfetched:
            return False
        if pinned and not self._fetch_index_sources(pinned, drafted):
            return False
        requests = [source_request(group, (), drafted.eligibility) for group in drafted.groups]
        names = {package.name for package in built}
        self.packages = [
            self._with_requirements(package, requests) if package.name in names else package
            for package in self.packages
        ]
        return self.unfetched is None

    def _fetch_recipe_source(self, package: Package) -> None:
        """Find the source that a recipe names; fetch it only to read its requirements."""
        name, version, recipe = package.name, package.version, package.recipe
        self._report(f"Looking for the source of {package.text}")
        try:
            file = source_of_recipe(recipe, name, version, self.store.settings)
        except InstallError as problem:
            self.unfetched = Resolution(problem=problem.message, fix=problem.fix, offline=True)
            return
        if file and recipe.requires is not None:
            self.sources[name] = self._source_with_declared_requirements(package, file)
        elif file and (source := self._source(package, file)):
            self.sources[name] = source

    def _fetch_index_sources(self, pinned: Sequence[Package], drafted: PlanDraft) -> bool:
        self._report(f"Looking for the source of {', '.join(package.text for package in pinned)}")
        requests = [source_request(group, pinned, drafted.eligibility) for group in drafted.groups]
        # One sdist serves every supported Python, so ask for the newest Python of the fleet.
        newest = max(requests, key=lambda request: version_key(request.python_version))
        answer = locate(newest, self.store.settings)
        if answer.offline:
            self.unfetched = answer
            return False
        if answer.problem:  # such as a Python too old for a package: the groups say so
            self.unknown |= {package.name: answer for package in pinned}
        packages = {package.name: package for package in pinned}
        for file in answer.sources:
            if source := self._source(packages[file.name], file):
                self.sources[file.name] = source
        return True

    def _with_requirements(self, package: Package, requests: Sequence[LockRequest]) -> Package:
        """Return the package with its run-time requirements, if its recipe does not state them."""
        source = self.sources.get(package.name)
        if source is None or source.file is None:
            return package
        recipe = self.chosen.get(package.name, package.recipe)
        package = package.model_copy(update={"recipe": recipe})
        if recipe.requires is not None and not package.extras:
            return package
        found = find_requirements(package, source, requests, self.store)
        if isinstance(found, Resolution):
            self.unknown[package.name] = found
            return package
        if recipe.requires is not None:  # only its extras are missing there
            of_extras = tuple(each for each in found.requires if "extra" in each.partition(";")[2])
            found = found.model_copy(update={"requires": of_extras})
        return package.model_copy(
            update={"metadata": found.model_copy(update={"extras": package.extras})}
        )

    def lock_dependencies(
        self,
        drafted: PlanDraft,
        inventory: Inventory,
        facts: Mapping[str, Facts],
        group: Callable[..., GroupedFleet],
        config: Config,
    ) -> PlanDraft:
        """Lock the dependencies of each group; return the draft with what the sources say.

        `group` groups the fleet again where a source changed a recipe, or where members are
        blocked because only their old libc rules dependencies out, or because their disk is full.
        """
        grouped: GroupedFleet = group() if self.chosen else drafted
        blocked: dict[str, Problem] = {}
        while True:
            drafted = draft_plan(grouped, facts, self.packages, self.published)
            found = nodes_to_block(inventory, facts, drafted, self.sources)
            if found.keys() <= blocked.keys():
                self._resolve(list(drafted.requests.values()), self.bounds)
                self.dependencies = {
                    name: self.resolutions[asked].wheels for name, asked in drafted.requests.items()
                }
                found = nodes_blocking_dependencies(drafted, facts, self.locks())
                if not self.targets:  # nothing is installed
                    found |= nodes_without_space(drafted, facts, self.locks(), config)
            if found.keys() <= blocked.keys():
                return drafted
            blocked |= found
            grouped = group(blocked=blocked)

    def lock_builds(
        self, drafted: PlanDraft, facts: Mapping[str, Facts], facts_source: FactsSource
    ) -> None:
        """Lock the build requirements of each wheel, and CUDA toolkits that come as wheels."""
        if facts_source != "cluster":  # a pod has the toolkit of its image
            toolkits = (toolkit_request(wheel, facts) for wheel in drafted.wheels)
            self._resolve(list(filter(None, toolkits)))
        requests = [
            build_request(wheel, source, facts, self.dependencies)
            for wheel in drafted.wheels
            if (source := self.sources.get(wheel.package.name))
        ]
        self._resolve([request for request in requests if request])

    def _resolve(self, requests: Sequence[LockRequest], bounds: Sequence[str] = ()) -> None:
        fresh = [request for request in dict.fromkeys(requests) if request not in self.resolutions]
        if fresh:
            self._report(f"Resolving for {len(fresh)} kinds of machine")
            refused = {
                request: self.unknown[name]
                for request in fresh
                for name in request.sources
                if name in self.unknown
            }
            asked = [request for request in fresh if request not in refused]
            settings = replace(self.store.settings, bounds=tuple(bounds))
            self.resolutions |= {**refused, **resolve_all(asked, settings)}

    def _source(self, package: Package, file: LockedFile) -> Source | None:
        try:
            path = self.store.fetch(file)
        except FleetbuildError as problem:
            # The plan is still shown; without a source the package has no lock.
            self.unfetched = Resolution(problem=problem.message, fix=problem.fix, offline=True)
            return None
        source = Source(package=package.name, version=package.version, file=file)
        recipe, source = recipe_by_source(package.recipe, source, path, self.recipes)
        if recipe != package.recipe:
            self.chosen[package.name] = recipe
        needed = build_requirements(read_source(path), recipe, self.recipes)
        return source.model_copy(update={"build_requirements": needed})

    def _source_with_declared_requirements(self, package: Package, file: LockedFile) -> Source:
        """Return the source of a package whose recipe states its run-time requirements.

        Only its build requirements are read; if that fails, the recipe's own are used.
        """
        source = Source(package=package.name, version=package.version, file=file)
        try:
            metadata = self.store.metadata_of(file)
        except FleetbuildError as problem:
            return source.model_copy(update={"metadata_problem": problem.message})
        needed = build_requirements(metadata, package.recipe, self.recipes)
        return source.model_copy(update={"build_requirements": needed})

    def _report(self, message: str) -> None:
        self.on_event(Event(stage="plan", state="progress", message=message))
