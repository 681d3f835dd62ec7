"""Who labels nodes while an apply changes them: nobody, Node Feature Discovery, or we ourselves.

A node's release labels come off before anything on it is changed, and come back when it is
verified; what the hardware alone decides stays on it all the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from fleetbuild.kubernetes.labels.classes import hardware_of_hosts
from fleetbuild.kubernetes.labels.node_labels import check_domain, kubernetes_name
from fleetbuild.kubernetes.labels.release_labels import DEFAULT
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    Manifest,
    NodeResult,
    OnEvent,
    Plan,
)
from fleetbuild.models.result import LabelResult
from fleetbuild.planning.eligibility.assess import kubernetes_node

Results = dict[str, LabelResult]  # by the inventory's name
Labels = Mapping[str, str]

OFF = "its release labels are off"
_STATES = {"unreachable": "unreachable", "no_node": "skipped", "unchanged": "ok", "labelled": "ok"}


@dataclass(frozen=True)
class LabelTargets:
    """What is labelled, and how it is called."""

    domain: str
    release: str = DEFAULT
    nodes: Mapping[str, str] = field(default_factory=dict)  # inventory -> cluster
    hardware: Mapping[str, Labels] = field(default_factory=dict)  # of those that are known

    def in_cluster(self, name: str) -> str:
        """The Node of a host."""
        return self.nodes.get(name, name)

    def claimants(self, node: str) -> tuple[str, ...]:
        """The hosts that are called like this Node; more than one is one too many."""
        return tuple(sorted(self._called.get(node, ())))

    @cached_property
    def _called(self) -> Mapping[str, Sequence[str]]:
        called: dict[str, list[str]] = {}
        for host, node in self.nodes.items():
            called.setdefault(node, []).append(host)
        return called


def targets_of_plan(plan: Plan) -> LabelTargets:
    """As a plan has them."""
    check_domain(plan.label_domain)
    return LabelTargets(
        domain=plan.label_domain,
        release=plan.release,
        nodes={name: kubernetes_name(plan, name) for name in plan.nodes},
        hardware=hardware_of_hosts(plan),
    )


def label_targets(inventory: Inventory, config: Config, made: Plan | None) -> LabelTargets:
    """As the last plan has them; hosts that it does not know, as the configuration calls them."""
    kubernetes = config.kubernetes
    known = LabelTargets(kubernetes.label_domain, config.release)
    if made and made.release == config.release:
        known = targets_of_plan(made)
    called = {
        node.name: (kubernetes_node(node, kubernetes.node_name) or node.name).lower()
        for node in inventory.nodes
    }
    return replace(known, nodes={**called, **known.nodes})


def matched(names: LabelTargets, there: Collection[str]) -> dict[str, str]:
    """The hosts that are Nodes under a shorter or longer name: one is the first label of the other,
    and no other host or Node could be meant."""
    exact = {called for called in names.nodes.values() if called in there}
    nodes, hosts = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for node in set(there) - exact:
        nodes[_first(node)].append(node)
    for host, called in names.nodes.items():
        if called not in exact:
            hosts[_first(called)].append(host)
    pairs = (
        (mine[0], nodes[first][0])
        for first, mine in hosts.items()
        if len(mine) == 1 and len(nodes[first]) == 1
    )
    return {host: node for host, node in pairs if _first(node) in (node, names.in_cluster(host))}


def _first(name: str) -> str:
    return name.partition(".")[0]


class Labeller(Protocol):
    """Gives nodes their labels and takes them; says how that ended for each that it touched."""

    def prepare(self) -> str:
        """Raise where it can be seen, before anything is done, that no label will be set, and take
        away what labelled before; what is to be said of that, in a sentence."""
        ...

    def withdraw(self, names: Iterable[str]) -> Results:
        """Take the release's labels off these nodes; those of the hardware stay."""
        ...

    def publish(self, served: Mapping[str, Manifest]) -> Results:
        """Label these nodes as what they serve says."""
        ...


class FeatureFiles(Protocol):
    """What the other way of labelling has left on nodes."""

    def clear(self) -> str:
        """Remove the feature files that an earlier run wrote; which, in a sentence."""
        ...


class ManualLabels:
    """The user labels, with the files that are written at the end."""

    def __init__(self, former: FeatureFiles | None = None) -> None:
        self._former = former

    def prepare(self) -> str:
        """See Labeller."""
        return self._former.clear() if self._former else ""

    def withdraw(self, names: Iterable[str]) -> Results:  # noqa: ARG002 see Labeller
        """See Labeller."""
        return {}

    def publish(self, served: Mapping[str, Manifest]) -> Results:  # noqa: ARG002 see Labeller
        """See Labeller."""
        return {}


def verified_releases(facts: Mapping[str, Facts], release: str) -> dict[str, Manifest]:
    """What serves on these nodes now, where it was verified."""
    current = {name: known.release.get(release) for name, known in facts.items()}
    return {name: found for name, found in current.items() if found and found.verified}


def results_of_kept_labels(
    results: Results, groups: Mapping[str, str | None]
) -> dict[str, NodeResult]:
    """The results of nodes that are not to be changed, since their labels would not come off:
    pods would still be sent there."""
    return {
        name: NodeResult(
            node=name,
            group=groups.get(name),
            state="blocked",
            reason="Its release labels could not be taken off, so nothing on it was changed: "
            + (result.reason or "no reason given."),
            fix=result.fix,
        )
        for name, result in results.items()
        if not result.well
    }


def report_labels(
    on_event: OnEvent, results: Results, groups: Mapping[str, str | None], done: str = ""
) -> None:
    """An event for each node whose labels were seen to."""
    for result in results.values():
        on_event(
            Event.model_validate(
                {
                    "stage": "label",
                    "state": _STATES.get(result.state, "failed"),
                    "node": result.node,
                    "group": groups.get(result.node),
                    "message": result.reason or done or result.state,
                    "fix": result.fix or "",
                }
            )
        )
