"""Assemble the plan from a draft, its locks and the contents of the store. No I/O here.

In: inventory, facts, packages, configuration, `PlanDraft`, `Locks`, `StoreView`. Out: a `Plan` with
its digest. Last step of planning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fleetbuild.extension import Members, node_fields, plan_fields
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Config,
    Facts,
    Installs,
    Inventory,
    LockedFile,
    Node,
    NodeHardware,
    NodeResult,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    Summary,
)
from fleetbuild.models.plan import FactsSource, VersionChange
from fleetbuild.models.problem import Problem
from fleetbuild.models.revocation import NOTHING_REVOKED, TAKE_BACK, Revocations
from fleetbuild.plan.decide.beyond_target import sm_problem
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.resolution import MISSING, Locks, Resolution
from fleetbuild.plan.decide.wheels.draft import DraftWheel, PlanDraft
from fleetbuild.plan.decide.wheels.ids import release_id
from fleetbuild.plan.decide.wheels.isolation import groups_without_isolation
from fleetbuild.plan.decide.wheels.plan_wheel import StoreView, plan_wheel
from fleetbuild.plan.document.fingerprint import RUNG_FEATURES, fingerprint
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.plan.document.warnings import (
    packages_without_recipe,
    plan_warnings,
    rolled_back,
    unread_sources,
)

_FALLBACKS = 4


@dataclass(frozen=True)
class _PlanInputs:
    """The inputs of a plan, and the values that each group gets from them."""

    inventory: Inventory
    facts: Mapping[str, Facts]
    packages: Sequence[Package]
    config: Config
    drafted: PlanDraft
    locks: Locks
    store: StoreView

    def closure(self, group: DraftGroup) -> Resolution:
        """Return the dependencies that the group installs with its wheels."""
        return self.locks.dependencies.get(group.name, MISSING)

    def problems(self) -> tuple[dict[str, Problem], str | None]:
        """Return the problem of each blocked group by name, and why the plan has no lock at all.

        A group that does not reach an index or source is blocked. If no group reaches all that it
        needs, none is blocked for this: then the plan has no lock.
        """
        problems: dict[str, Problem] = {}
        unreached: dict[str, Problem] = {}
        for wheel in self.drafted.wheels:
            if problem := sm_problem(wheel):
                problems |= dict.fromkeys(wheel.groups, problem)
        for name, what, answer in self._answers():
            if answer.problem:
                found = unreached if answer.offline else problems
                found.setdefault(name, answer.blocking(name, what))
        left = {group.name for group in self.drafted.groups} - problems.keys()
        if left and left <= unreached.keys():
            return problems, next(each.problem for *_, each in self._answers() if each.offline)
        return unreached | problems, None

    def _answers(self) -> Iterator[tuple[str, str, Resolution]]:
        """Yield each answer with its group, and the words that begin its problem."""
        for group in self.drafted.groups:
            yield group.name, "", self.closure(group)
        for wheel in self.drafted.wheels:
            toolkit = self.locks.toolkits.get(wheel.id)
            for name in wheel.groups:
                what = f"The build of {wheel.package.name}: "
                yield name, what, self.locks.builds.get(wheel.id, Resolution())
                if toolkit and toolkit.offline:  # else it is to be supplied
                    yield name, what, toolkit


def make_plan(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
    *,
    drafted: PlanDraft,
    locks: Locks,
    store: StoreView,
    created: str,
    facts_source: FactsSource = "probe",
    timeout: float | None = None,
    config_file: str | None = None,
    options: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    members: Members | None = None,
    revoked: Revocations = NOTHING_REVOKED,
    expected: Mapping[str, NodeResult] = MappingProxyType({}),
) -> Plan:
    """Return the plan for this draft, with these locks, this store and these revocations.

    With `members`, groups have no nodes, and the nodes only build. `expected` maps nodes to
    what an apply or a rollback left there.
    """
    inputs = _PlanInputs(inventory, facts, packages, config, drafted, locks, store)
    problems, missing = inputs.problems()
    wheels: dict[tuple[str, str], PlannedWheel] = {}  # by package and group
    for wheel in drafted.wheels:
        planned = plan_wheel(
            wheel,
            facts,
            locks,
            store,
            blocked=_blocked_everywhere(wheel, problems),
            against=[wheels[base.package.name, wheel.groups[0]] for base in wheel.against],
            image=config.build.image if facts_source == "cluster" else None,
            revoked=revoked.by_key,
        )
        wheels |= {(wheel.package.name, name): planned for name in wheel.groups}
    if config.build.isolation == "required":
        problems = {**groups_without_isolation(wheels, facts), **problems}
    problems |= _revoked_groups(inputs, wheels, revoked)
    groups = tuple(_group(inputs, group, wheels, problems) for group in drafted.groups)
    if members:
        fields = _of_members(members, drafted, problems)
    else:
        groups = _reuse_installed_wheels(groups)
        fields = {
            "nodes": _nodes(inputs, groups, problems),
            "fingerprint": _fingerprints(inputs),
        }
    plan = Plan(
        created=created,
        inventory=inventory.source,
        limit=inventory.limit,
        timeout=timeout,
        config=config_file,
        options={name: values for name, values in options.items() if values},
        facts_source=facts_source,
        lock="missing" if missing else "complete",
        lock_problem=missing,
        release=config.release,
        install_path=config.install.path,
        keep=config.install.keep,
        packages=tuple(package.text for package in packages),
        **plan_fields(config),
        build_image=config.build.image,
        build_container=config.build.container
        if any(w.build_images for w in wheels.values())
        else None,
        cache=config.build.cache,
        isolation=config.build.isolation,
        **fields,
        groups=groups,
        tradeoffs=drafted.merged.tradeoffs,
        rollout=config.rollout,
        warnings=(
            *plan_warnings(drafted.wheels, groups, facts, packages, config),
            *rolled_back(groups, facts, config.release, expected),
            *unread_sources(locks.sources),
            *packages_without_recipe(packages, locks.sources),
        ),
        summary=_summary(fields["nodes"], groups),
    )
    return with_digest(plan)


def _of_members(
    members: Members, drafted: PlanDraft, problems: Mapping[str, Problem]
) -> Mapping[str, Any]:
    """Return the fields of a plan whose groups have these members."""
    groups = {name: group.name for group in drafted.groups for name in group.members}
    blocked = {
        name: Problem(each.reason or "", each.fix or "")
        for name, each in drafted.eligibility.items()
        if each.state != "ok"
    }
    blocked |= {name: problems[group] for name, group in groups.items() if group in problems}
    return members.plan_fields(groups, blocked)


def _fingerprints(inputs: _PlanInputs) -> dict[str, dict[str, Any]]:
    """Return the fingerprint of each node that is planned for."""
    return {
        name: fingerprint(inputs.facts[name], assessed.python)
        for name, assessed in inputs.drafted.eligibility.items()
        if assessed.state == "ok"
    }


def _revoked_groups(
    inputs: _PlanInputs, wheels: Mapping[tuple[str, str], PlannedWheel], revoked: Revocations
) -> dict[str, Problem]:
    """Return the problem of each group that needs a recalled wheel or file."""
    problems = {}
    for group in inputs.drafted.groups if revoked.entries else ():
        own = tuple(wheels[package.name, group.name] for package in inputs.packages)
        why = revoked.of_files(own, inputs.closure(group).wheels)
        if why:
            problems[group.name] = Problem(
                why,
                "Plan with another version (packages: in fleetbuild.yml, or --package), or"
                f" {TAKE_BACK}",
            )
    return problems


def _blocked_everywhere(wheel: DraftWheel, problems: Mapping[str, Problem]) -> str | None:
    """Return the first problem if all groups of this wheel are blocked, else None."""
    if all(name in problems for name in wheel.groups):
        return problems[wheel.groups[0]].reason
    return None


def _group(
    inputs: _PlanInputs,
    group: DraftGroup,
    wheels: Mapping[tuple[str, str], PlannedWheel],
    problems: Mapping[str, Problem],
) -> PlannedGroup:
    own_wheels = tuple(wheels[package.name, group.name] for package in inputs.packages)
    if group.name in problems:
        reason = problems[group.name].reason
        blocked = {"action": "blocked", "reason": reason}
        own_wheels = tuple(wheel.model_copy(update=blocked) for wheel in own_wheels)
    answer = inputs.closure(group)
    taken = {wheel.package for wheel in own_wheels if wheel.published}
    dependencies = None
    if not answer.problem:
        dependencies = tuple(file for file in answer.wheels if file.name not in taken)
    keys = [wheel.artifact_key for wheel in own_wheels if wheel.artifact_key]
    release = None
    if dependencies is not None and len(keys) == len(own_wheels):
        release = release_id(
            name=inputs.config.release,
            python=group.target.python,
            artifact_keys=keys,
            dependencies=dependencies,
        )
    installs = Installs()
    if group.name not in problems:
        installs = _installs(group.nodes, inputs.facts, inputs.config.release, release)
    builders = group.builders
    if not group.nodes and (built := next((w for w in own_wheels if w.built_on), None)):
        builders = (built.built_on or "", *built.fallbacks)
    return PlannedGroup(
        name=group.name,
        nodes=group.nodes,
        representative=builders[0],
        fallbacks=builders[1 : 1 + _FALLBACKS],
        target=group.target,
        wheels=own_wheels,
        release_id=release,
        dependencies=dependencies,
        installs=installs,
        changes=tuple(_version_changes(inputs, installs.upgrade, own_wheels, dependencies or ())),
    )


def _installs(
    names: Sequence[str], facts: Mapping[str, Facts], release: str, wanted: str | None
) -> Installs:
    by_action: dict[str, list[str]] = {"install": [], "up_to_date": [], "upgrade": []}
    for name in names:
        current = facts[name].release.get(release)
        if facts[name].serves(release, wanted):
            by_action["up_to_date"].append(name)
        elif current is None or current.id == wanted:
            by_action["install"].append(name)
        else:
            by_action["upgrade"].append(name)
    return Installs(**{assessed: tuple(members) for assessed, members in by_action.items()})


def _version_changes(
    inputs: _PlanInputs,
    upgraded: Sequence[str],
    wheels: Sequence[PlannedWheel],
    dependencies: Sequence[LockedFile],
) -> Iterator[VersionChange]:
    """Yield what an apply changes in these nodes' releases; new dependencies come last."""
    manifests = [inputs.facts[name].release[inputs.config.release] for name in upgraded]
    keys = {wheel.artifact_key for manifest in manifests for wheel in manifest.wheels}
    installed: dict[str, set[str]] = {}
    for manifest in manifests:
        known = [(wheel.package, wheel.version) for wheel in manifest.wheels]
        texts = (text.partition("==") for text in manifest.dependencies)
        known += [(name, version) for name, _, version in texts]
        for name, there in known:
            installed.setdefault(name, set()).add(there)
    own = {wheel.package: wheel.wheel_version for wheel in wheels}
    planned = own | {file.name: file.version for file in dependencies}
    rebuilt = {wheel.package for wheel in wheels if wheel.artifact_key not in keys}
    order = dict.fromkeys((*own, *sorted(installed.keys() - planned), *planned))
    for name in order if manifests else ():
        versions, wanted = installed.get(name, set()), planned.get(name)
        if versions != {wanted} or name in rebuilt:
            yield VersionChange(package=name, installed=tuple(sorted(versions)), planned=wanted)


def _reuse_installed_wheels(groups: Sequence[PlannedGroup]) -> tuple[PlannedGroup, ...]:
    """Turn builds of wheels that every node has installed already into reuse."""
    needed = {
        wheel.artifact_key
        for group in groups
        for wheel in group.wheels
        if group.installs.install or group.installs.upgrade
    }

    def reused(wheel: PlannedWheel) -> PlannedWheel:
        if wheel.action != "build" or wheel.artifact_key in needed:
            return wheel
        return wheel.model_copy(update={"action": "reuse", "reason": "Every node has it already."})

    return tuple(
        group.model_copy(update={"wheels": tuple(reused(wheel) for wheel in group.wheels)})
        for group in groups
    )


def _nodes(
    inputs: _PlanInputs,
    groups: Sequence[PlannedGroup],
    problems: Mapping[str, Problem],
) -> dict[str, PlannedNode]:
    facts, config = inputs.facts, inputs.config
    group_of = {name: group.name for group in groups for name in group.nodes}
    nodes = {}
    for node in sorted(inputs.inventory.nodes, key=lambda node: node.name):
        assessed, group = inputs.drafted.eligibility[node.name], group_of.get(node.name)
        current = facts[node.name].release.get(config.release) if node.name in facts else None
        problem = problems.get(group or "")
        state = "blocked" if problem else assessed.state
        nodes[node.name] = PlannedNode(
            state=state,
            group=group,
            merged_from=inputs.drafted.merged.merged_from.get(node.name),
            reason=problem.reason if problem else assessed.reason,
            fix=problem.fix if problem else assessed.fix,
            warnings=assessed.warnings,
            isa=node.isa,
            python=assessed.python.path if assessed.python and group else None,
            **node_fields(node, config),
            taints=facts[node.name].taints if node.name in facts else (),
            instance_type=facts[node.name].instance_type if node.name in facts else None,
            current=current.id if current else None,
            hardware=_hardware(node, facts.get(node.name)) if state == "blocked" else None,
        )
    return nodes


def _hardware(node: Node, facts: Facts | None) -> NodeHardware | None:
    """Return the hardware that decides a node's class; the inventory overrides the probe."""
    if facts is None or facts.arch is None or facts.state == "unsupported":
        return None
    features = frozenset(facts.features) & RUNG_FEATURES
    if (own := RUNGS.get(node.isa or "")) and own.arch == facts.arch:
        features &= own.features
    sms = facts.sms if node.sms is None else node.sms
    return NodeHardware(arch=facts.arch, features=tuple(sorted(features)), sms=sms)


def _summary(nodes: Mapping[str, PlannedNode], groups: Sequence[PlannedGroup]) -> Summary:
    actions = {
        (wheel.package, wheel.target, wheel.cuda, wheel.built_against): wheel.action
        for group in groups
        for wheel in group.wheels
    }
    states = [node.state for node in nodes.values()]
    return Summary(
        wheels_to_build=list(actions.values()).count("build"),
        wheels_reused=list(actions.values()).count("reuse"),
        nodes_to_change=sum(
            len(group.installs.install) + len(group.installs.upgrade) for group in groups
        ),
        nodes_up_to_date=sum(len(group.installs.up_to_date) for group in groups),
        nodes_blocked=states.count("blocked"),
        nodes_unreachable=states.count("unreachable"),
    )
