"""Plan a fleet: decide on groups, ask the indexes, and draft the wheels once.

In: inventory, facts, configuration, packages. Out: a `Plan`. What `decide` imports does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from fleetbuild.ansible import Secrets, list_inventory
from fleetbuild.config import base_folder, with_absolute_playbooks
from fleetbuild.errors import BlockedError, ConfigError, InventoryError, UsageError
from fleetbuild.extension import Evidence, Members, PlanBasis, find_evidence, first_answer
from fleetbuild.models import Config, Event, Facts, Inventory, OnEvent, Plan, ignore, now
from fleetbuild.models.node import NO_SSH
from fleetbuild.models.plan import FactsSource
from fleetbuild.models.problem import Problem
from fleetbuild.models.revocation import TAKE_BACK, Revocations
from fleetbuild.plan.decide.group_fleet import GroupedFleet, group_fleet
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.left_out import (
    is_built,
    nodes_blocking_dependencies,
    nodes_without_build,
    nodes_without_space,
)
from fleetbuild.plan.decide.packages import (
    Package,
    choose_packages,
    packages_to_build,
    parse_packages,
)
from fleetbuild.plan.decide.requests import (
    build_request,
    dependency_request,
    plain,
    toolkit_request,
)
from fleetbuild.plan.decide.resolution import LockRequest, Locks, Resolution, WheelId
from fleetbuild.plan.decide.wheels.draft import DraftWheel, draft_plan
from fleetbuild.plan.decide.wheels.published import PublishedChoice, PublishedChoices
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.plan.resolve.known_deaths import (
    OLDER,
    bounds_below_deaths,
    nodes_with_known_deaths,
)
from fleetbuild.plan.resolve.published import find_published, find_pure, older_versions
from fleetbuild.plan.resolve.requested import as_pure, requested_packages
from fleetbuild.plan.resolve.requirement_files import RequirementList, listed_packages
from fleetbuild.plan.resolve.sources import Sources
from fleetbuild.plan.resolve.uv import resolve_all
from fleetbuild.recipes import known_recipes
from fleetbuild.state import StateDir
from fleetbuild.store.index_config import settings_of
from fleetbuild.store.wheels import Store
from fleetbuild.text import count, version_key
from fleetbuild.toolchains.pytorch import COMPANIONS

_Key = TypeVar("_Key")
_Choices = dict[tuple[str, str], PublishedChoice]


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
    captures: Path | str | None = None,
    timeout: float | None = None,
    config_file: str | None = None,
    requirements: RequirementList | None = None,
    secrets: Secrets | None = None,
    on_event: OnEvent = ignore,
) -> Plan:
    """Return the plan for these nodes, or for named targets that these nodes build for.

    `builders` are the hosts that build.builders names. `targets` replace the configuration's.
    `timeout` is the deadline that was chosen for the probe, and `config_file` where `config` is
    from if that was chosen: the plan's apply takes both too.
    `requirements` come from files: their packages are added to `packages`. `captures` is the folder
    that `facts` come from, if nodes were not asked.
    The plan names the files of `secrets`, and no password.
    """
    config = config or Config()
    folder = base_folder(config, inventory)
    config = with_absolute_playbooks(config, folder)
    recipes = known_recipes([folder / "recipes"])
    listed = (requirements or RequirementList()) + listed_packages(config, folder)
    config = config.model_copy(update={"index": (*config.index, *listed.indexes)})
    settings = settings_of(config, folder)
    store = Store(state_dir / "store", settings)
    revoked = store.revocations_of(
        (wheel.sha256, wheel.artifact_key)
        for known in facts.values()
        for manifest in known.release.values()
        for wheel in manifest.wheels
    )
    store.settings = replace(settings, excluded=revoked.exclusions)
    texts, from_files = packages, requirements.requirements if requirements else ()
    if not (texts or from_files):
        texts, from_files = config.packages, listed.requirements
    pythons = fleet_pythons(config, facts)
    wanted, local = requested_packages(
        parse_packages(choose_packages((*texts, *from_files), config, inventory), pythons),
        Path.cwd() if packages else folder,
        recipes,
        store,
        constraints=listed.constraints,
        pythons=pythons,
    )
    _refuse_revoked(wanted, revoked)
    names = targets or config.targets
    basis = PlanBasis(inventory, facts, config, builders)
    members = _members(names, basis) if names else None

    group = partial(
        group_fleet, inventory, facts, config=config, builders=builders, members=members
    )
    evidence = find_evidence(store.fetch) or Evidence()
    bounds = listed.constraints
    planner = _Planner(group, inventory, facts, config, store, evidence, on_event, bounds)
    fleet = group(wanted)
    pure, offline = find_pure(fleet.groups, wanted, local, store)
    if pure:
        wanted = tuple(as_pure(each) if each.name in pure else each for each in wanted)
        fleet = group(wanted)
    built_anyway = packages_to_build(wanted, parse_packages(from_files, pythons), config)
    takes = [each for each in wanted if each.name in pure or each.name not in built_anyway]
    look = partial(planner.find_published, packages=takes, local=local)
    published = look(fleet.groups)
    never_build = config.build.policy == "published"
    sources = Sources(
        local, recipes, store, never_build=never_build, places=listed.places, missing=offline
    )
    built = [each for each in wanted if is_built(each, fleet.groups, wanted, published)]
    sources.fetch(built, fleet.groups, planner.report)
    if (chosen := sources.with_recipes(wanted)) != wanted:
        wanted, fleet = chosen, group(chosen)
    fleet, published, dependencies = planner.lock_dependencies(
        fleet, wanted, sources, published, look
    )
    locks = Locks(sources=tuple(sources.by_package.values()), dependencies=dependencies)
    _refuse_other_hashes(locks, listed.hashes)
    drafted = draft_plan(fleet, facts, wanted, published)
    builds = planner.lock_builds(drafted.wheels, sources, dependencies, facts_source)
    locks = locks.model_copy(update=builds)
    return make_plan(
        inventory,
        facts,
        wanted,
        config,
        drafted=drafted,
        members=members,
        locks=locks,
        store=store.floors(),
        created=now("seconds"),
        facts_source=facts_source,
        timeout=timeout,
        config_file=config_file,
        options={
            "package": tuple(packages),
            "target": tuple(targets),
            "captures": (str(captures),) if captures else (),
            **(requirements.files if requirements else {}),
            **(secrets.options if secrets else {}),
        },
        revoked=revoked,
        expected=StateDir(state_dir).left_there(config.release),
    )


def fleet_pythons(config: Config, facts: Mapping[str, Facts]) -> tuple[str, ...]:
    """Return the Pythons that the release may run on, one of each 3.x, the oldest first."""
    if config.python and re.fullmatch(r"3\.\d+", config.python):
        return (f"{config.python}.0",)
    firsts = {plain(known.pythons[0].version) for known in facts.values() if known.pythons}
    oldest = {version_key(each)[:2]: each for each in sorted(firsts, key=version_key, reverse=True)}
    return tuple(oldest[minor] for minor in sorted(oldest)) or ("3.11.0",)


def _members(names: Sequence[str], basis: PlanBasis) -> Members:
    """Return what an extension plans for in place of the nodes."""
    members = first_answer(lambda each: each.members(names, basis))
    if members is None:
        raise UsageError(
            "No extension of this fleetbuild plans for named targets.",
            "Leave out --target and targets:, or install fleetbuild with its extensions.",
        )
    return members


def _refuse_revoked(packages: Sequence[Package], revoked: Revocations) -> None:
    for package in packages:
        if why := revoked.of(package.name, package.version):
            raise BlockedError(why, f"Plan with another version of {package.name}, or {TAKE_BACK}")


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
    try:
        named = list_inventory(inventory.source, limit=pattern, secrets=secrets).hosts
    except InventoryError as error:
        raise ConfigError(
            f"build.builders is {pattern!r}: {error.message}",
            "Name a host or group of the inventory, or remove build.builders.",
        ) from None
    # Hosts outside --limit are included: the plan warns that they were not probed.
    return tuple(sorted(named))


@dataclass(frozen=True)
class _Planner:
    """Decides in turn with the indexes: groups, then sources and dependencies, then wheels."""

    group: Callable[..., GroupedFleet]
    inventory: Inventory
    facts: Mapping[str, Facts]
    config: Config
    store: Store
    evidence: Evidence
    on_event: OnEvent
    bounds: tuple[str, ...]  # the user's constraints on installed packages
    answers: dict[LockRequest, Resolution] = field(default_factory=dict)

    def find_published(
        self, groups: Sequence[DraftGroup], packages: Sequence[Package], local: Collection[str]
    ) -> _Choices:
        """Return the published wheels that groups take of these packages, or why they do not."""
        if not (groups and packages):
            return {}
        named = ", ".join(f"{package.name}=={package.version}" for package in packages)
        self.report(f"Looking for wheels of {named}")
        return find_published(
            groups,
            packages,
            local,
            self.store,
            self.evidence,
            never_build=self.config.build.policy == "published",
        )

    def lock_dependencies(
        self,
        fleet: GroupedFleet,
        packages: Sequence[Package],
        sources: Sources,
        published: _Choices,
        look: Callable[..., _Choices],
    ) -> tuple[GroupedFleet, _Choices, dict[str, Resolution]]:
        """Lock the dependencies of each group; return them, and the groups that have them.

        A dependency that dies at import on a group's CPUs is locked in an older version, and a
        package of a range, of which a group can neither take nor build the newest, is taken so.
        Nodes are blocked, and the others grouped again, if a package cannot be built for them, if
        only their old libc rules dependencies out, if their disk is full, or if a dependency dies
        on their CPU in every version that was tried. Then `look` finds the published wheels of
        these groups.
        """
        blocked: dict[str, Problem] = {}
        dependencies: dict[str, Resolution] = {}
        while True:
            published |= self._older(fleet.groups, packages, sources, published, look)
            problems = nodes_without_build(
                self.inventory, fleet.groups, packages, sources.by_package, published
            )
            if problems.keys() <= blocked.keys():
                dependencies = sources.problems(fleet.groups, packages, published)
                requests = {
                    group.name: dependency_request(
                        group, packages, sources.metadata, published, self.bounds
                    )
                    for group in fleet.groups
                    if group.name not in dependencies
                }
                dependencies |= self._that_load(fleet.groups, requests)
                problems = nodes_blocking_dependencies(fleet.groups, dependencies)
                problems |= nodes_without_space(fleet.groups, dependencies, published, self.config)
                problems |= nodes_with_known_deaths(fleet.groups, dependencies, self.evidence)
            if problems.keys() <= blocked.keys():
                return fleet, published, dependencies
            blocked |= problems
            fleet = self.group(packages, blocked=blocked)
            published = look(fleet.groups)

    def _older(
        self,
        groups: Sequence[DraftGroup],
        packages: Sequence[Package],
        sources: Sources,
        published: PublishedChoices,
        look: Callable[..., _Choices],
    ) -> _Choices:
        """Return older wheels for groups that can neither take nor build the newest version."""
        found: _Choices = {}
        for group, package in product(groups, packages):
            key = package.name, group.name
            refused, missing = published.get(key), sources.missing.get(package.name)
            if package.specifier is None or refused is None or refused.file:
                continue
            if package.name in COMPANIONS:  # their version follows from torch's
                continue
            if missing.offline if missing else is_built(package, [group], packages, published):
                continue
            for older in older_versions(group, package, self.bounds, self.store.settings):
                choice = look([group], packages=[older])[key]
                if choice.file:
                    found[key] = choice.model_copy(update={"why": f"{choice.why} {refused.why}"})
                    break
        return found

    def _that_load(
        self,
        groups: Sequence[DraftGroup],
        requests: Mapping[str, LockRequest],
        tries: int = OLDER,
    ) -> dict[str, Resolution]:
        """Return the dependencies, older ones where the newest die at import on a group's CPUs."""
        locked = self._resolve(requests)
        lower = bounds_below_deaths(groups, locked, self.evidence) if tries else {}
        for name, texts in lower.items():
            self.report(f"Looking for {', '.join(texts)}: newer ones die on {name}")
        held = {
            name: requests[name].model_copy(
                update={"constraints": (*requests[name].constraints, *texts)}
            )
            for name, texts in lower.items()
        }
        older = self._that_load(groups, held, tries - 1) if held else {}
        dying = bounds_below_deaths(groups, older, self.evidence)
        # If none loads, the newest gives the reason why nodes are blocked.
        loading = (name for name in older.keys() - dying if not older[name].problem)
        return {**locked, **{name: older[name] for name in loading}}

    def lock_builds(
        self,
        wheels: Sequence[DraftWheel],
        sources: Sources,
        dependencies: Mapping[str, Resolution],
        facts_source: FactsSource,
    ) -> dict[str, dict[WheelId, Resolution]]:
        """Lock the build requirements of each wheel, and CUDA toolkits that come as wheels."""
        toolkits: dict[WheelId, LockRequest] = {}
        builds: dict[WheelId, LockRequest] = {}
        for wheel in wheels:
            # A pod has the toolkit of its image.
            if facts_source != "cluster" and (asked := toolkit_request(wheel, self.facts)):
                toolkits[wheel.id] = asked
            source = sources.by_package.get(wheel.package.name)
            if wheel.taken or source is None:
                continue
            request = build_request(wheel, source, self.facts, sources.metadata, dependencies)
            if request:
                builds[wheel.id] = request
        return {"builds": self._resolve(builds), "toolkits": self._resolve(toolkits)}

    def _resolve(self, requests: Mapping[_Key, LockRequest]) -> dict[_Key, Resolution]:
        """Resolve requests, each once."""
        fresh = [each for each in dict.fromkeys(requests.values()) if each not in self.answers]
        if fresh:
            self.report(f"Resolving for {count(len(fresh), 'kind')} of machine")
            self.answers.update(resolve_all(fresh, self.store.settings))
        return {key: self.answers[request] for key, request in requests.items()}

    def report(self, message: str) -> None:
        """Report progress."""
        self.on_event(Event(stage="plan", state="progress", message=message))


def _refuse_other_hashes(locks: Locks, hashes: Mapping[str, Sequence[str]]) -> None:
    """Refuse files whose hash is not allowed by a requirements or lock file."""
    sources = [source.file for source in locks.sources if source.file]
    locked = [file for answer in locks.dependencies.values() for file in answer.wheels]
    for file in (*sources, *locked):
        allowed = hashes.get(file.name)
        if allowed and file.sha256 and file.sha256 not in allowed:
            raise ConfigError(
                f"{file.file} has the sha256 {file.sha256}, which is not among the hashes that"
                f" the requirements or lock file allows for {file.name}.",
                "Find out why the index has another file, or lock again with the sdist and all"
                " wheels.",
            )
