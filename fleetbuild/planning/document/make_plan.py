"""The plan, made of what is known: inventory, facts, locks and the store. No I/O here.

A caller asks twice before it can plan: `draft` says which groups there are, `lock_request` and
`build_request` what has to be resolved for them. `make_plan` then puts all of it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import (
    Config,
    Facts,
    Installs,
    Inventory,
    Node,
    NodeHardware,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    Summary,
)
from fleetbuild.models.plan import FactsSource
from fleetbuild.planning.compatibility.beyond_target import sm_problem
from fleetbuild.planning.document.fingerprint import fingerprint
from fleetbuild.planning.document.serialize import with_digest
from fleetbuild.planning.document.warnings import plan_warnings, unasked, without_recipe
from fleetbuild.planning.draft import PlanDraft, lock_request
from fleetbuild.planning.eligibility.assess import kubernetes_node
from fleetbuild.planning.groups import DraftGroup
from fleetbuild.planning.packages import Package
from fleetbuild.planning.resolution import Locks, Resolution
from fleetbuild.planning.wheels.build_requirements import build_problem
from fleetbuild.planning.wheels.draft import DraftWheel
from fleetbuild.planning.wheels.keys import release_id
from fleetbuild.planning.wheels.plan_wheel import StoreView, plan_wheel

_FALLBACKS = 4

_ASKED = frozenset(feature for rung in RUNGS.values() for feature in rung.features)


@dataclass(frozen=True)
class _Known:
    """All that a plan is made of, and the answers to the questions asked of it."""

    inventory: Inventory
    facts: Mapping[str, Facts]
    packages: Sequence[Package]
    config: Config
    drafted: PlanDraft
    locks: Locks
    store: StoreView

    def closure(self, group: DraftGroup) -> Resolution:
        """What the group installs beside its wheels."""
        return self.locks[lock_request(group, self.packages, self.drafted.fates)]

    def problems(self) -> dict[str, tuple[str, str]]:
        """Groups that cannot be served at all: their name, the reason and the fix."""
        found: dict[str, tuple[str, str]] = {}
        for group in self.drafted.groups:
            answer = self.closure(group)
            if answer.problem and not answer.offline:
                found[group.name] = (answer.problem, answer.fix or "")
        for wheel in self.drafted.wheels:
            if self.config.build.policy == "published" and not wheel.taken:
                found |= dict.fromkeys(wheel.groups, _unpublished(wheel))
            if problem := sm_problem(wheel) or build_problem(wheel, self.facts, self.locks):
                for name in wheel.groups:
                    found.setdefault(name, (problem[0], problem[1] or ""))
        return found

    def missing_lock(self) -> Resolution | None:
        """A question that nobody could be asked, if there is one."""
        if self.locks.unfetched:
            return self.locks.unfetched
        answers = [self.closure(group) for group in self.drafted.groups]
        answers += self.locks.resolutions.values()
        return next((answer for answer in answers if answer.offline), None)


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
) -> Plan:
    """The plan for this draft, with these locks and this store."""
    known = _Known(inventory, facts, packages, config, drafted, locks, store)
    problems = known.problems()
    wheels: dict[tuple[str, str], PlannedWheel] = {}  # by package and group
    for wheel in drafted.wheels:
        planned = plan_wheel(
            wheel,
            facts,
            locks,
            store,
            blocked=_of_all(wheel, problems),
            against=[wheels[base.package.name, wheel.groups[0]] for base in wheel.against],
            image=config.build.image if facts_source == "cluster" else None,
        )
        wheels |= {(wheel.package.name, name): planned for name in wheel.groups}
    groups = _spare_the_installed(
        [_group(known, group, wheels, problems) for group in drafted.groups]
    )
    nodes = _nodes(known, groups, problems)
    missing = known.missing_lock()
    plan = Plan(
        created=created,
        inventory=inventory.source,
        limit=inventory.limit,
        facts_source=facts_source,
        lock="missing" if missing else "complete",
        lock_problem=missing.problem if missing else None,
        release=config.release,
        install_path=config.install.path,
        keep=config.install.keep,
        packages=tuple(package.text for package in packages),
        label_domain=config.kubernetes.label_domain,
        labels=config.kubernetes.labels,
        build_image=config.build.image,
        cache=config.build.cache,
        fingerprint={
            name: fingerprint(facts[name], lot.python)
            for name, lot in drafted.fates.items()
            if lot.state == "ok"
        },
        nodes=nodes,
        groups=groups,
        tradeoffs=drafted.merged.tradeoffs,
        rollout=config.rollout,
        warnings=(
            *plan_warnings(drafted.wheels, groups, facts, packages, config),
            *unasked(locks.sources),
            *without_recipe(packages, locks.sources),
        ),
        summary=_summary(nodes, groups),
    )
    return with_digest(plan)


def _unpublished(wheel: DraftWheel) -> tuple[str, str]:
    why = wheel.published.why if wheel.published else "Its source is named, and not its version."
    return (
        f"No published wheel of {wheel.package.text} fits: {why}",
        "Set build.policy to auto, and it is built for these nodes.",
    )


def _of_all(wheel: DraftWheel, problems: Mapping[str, tuple[str, str]]) -> str | None:
    """Why nobody needs this wheel: all the groups that it serves are blocked."""
    if all(name in problems for name in wheel.groups):
        return problems[wheel.groups[0]][0]
    return None


def _group(
    known: _Known,
    group: DraftGroup,
    wheels: Mapping[tuple[str, str], PlannedWheel],
    problems: Mapping[str, tuple[str, str]],
) -> PlannedGroup:
    mine = tuple(wheels[package.name, group.name] for package in known.packages)
    if group.name in problems:
        reason = problems[group.name][0]
        blocked = {"action": "blocked", "reason": reason}
        mine = tuple(wheel.model_copy(update=blocked) for wheel in mine)
    answer = known.closure(group)
    taken = {wheel.package for wheel in mine if wheel.published}
    dependencies = None
    if not answer.problem:
        dependencies = tuple(file for file in answer.wheels if file.name not in taken)
    keys = [wheel.artifact_key for wheel in mine if wheel.artifact_key]
    release = None
    if dependencies is not None and len(keys) == len(mine):
        release = release_id(
            name=known.config.release,
            python=group.target.python,
            artifact_keys=keys,
            dependencies=dependencies,
        )
    return PlannedGroup(
        name=group.name,
        nodes=group.nodes,
        representative=group.builders[0],
        fallbacks=group.builders[1 : 1 + _FALLBACKS],
        target=group.target,
        wheels=mine,
        release_id=release,
        dependencies=dependencies,
        installs=Installs()
        if group.name in problems
        else _installs(group.nodes, known.facts, known.config.release, release),
    )


def _installs(
    names: Sequence[str], facts: Mapping[str, Facts], release: str, wanted: str | None
) -> Installs:
    lots: dict[str, list[str]] = {"install": [], "up_to_date": [], "upgrade": []}
    for name in names:
        current = facts[name].release.get(release)
        if current is None or (current.id == wanted and not current.verified):
            lots["install"].append(name)
        elif current.id == wanted:
            lots["up_to_date"].append(name)
        else:
            lots["upgrade"].append(name)
    return Installs(**{lot: tuple(members) for lot, members in lots.items()})


def _spare_the_installed(groups: Sequence[PlannedGroup]) -> tuple[PlannedGroup, ...]:
    """What every node has already is not built again only because the store was cleared."""
    needed = {
        wheel.artifact_key
        for group in groups
        for wheel in group.wheels
        if group.installs.install or group.installs.upgrade
    }

    def spared(wheel: PlannedWheel) -> PlannedWheel:
        if wheel.action != "build" or wheel.artifact_key in needed:
            return wheel
        return wheel.model_copy(update={"action": "reuse", "reason": "Every node has it already."})

    return tuple(
        group.model_copy(update={"wheels": tuple(spared(wheel) for wheel in group.wheels)})
        for group in groups
    )


def _nodes(
    known: _Known, groups: Sequence[PlannedGroup], problems: Mapping[str, tuple[str, str]]
) -> dict[str, PlannedNode]:
    facts, config = known.facts, known.config
    group_of = {name: group.name for group in groups for name in group.nodes}
    nodes = {}
    for node in sorted(known.inventory.nodes, key=lambda node: node.name):
        lot, group = known.drafted.fates[node.name], group_of.get(node.name)
        current = facts[node.name].release.get(config.release) if node.name in facts else None
        problem = problems.get(group or "")
        state = "blocked" if problem else lot.state
        nodes[node.name] = PlannedNode(
            state=state,
            group=group,
            merged_from=known.drafted.merged.merged_from.get(node.name),
            reason=problem[0] if problem else lot.reason,
            fix=problem[1] if problem else lot.fix,
            warnings=lot.warnings,
            isa=node.isa,
            python=lot.python.path if lot.python and group else None,
            kubernetes_node=kubernetes_node(node, config.kubernetes.node_name),
            taints=facts[node.name].taints if node.name in facts else (),
            current=current.id if current else None,
            hardware=_hardware(node, facts.get(node.name)) if state == "blocked" else None,
        )
    return nodes


def _hardware(node: Node, facts: Facts | None) -> NodeHardware | None:
    """What decides a node's class, as the inventory says it or the probe found it."""
    if facts is None or facts.arch is None:
        return None
    features = frozenset(facts.features) & _ASKED
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
