"""Followers of a run: notified before nodes change, and of the release that serves then.

In: the nodes and their results. Out: results that say what followers did. Waves, rollbacks, the
last stage, `FleetTask`s and removals call this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.serving import note_reply
from fleetbuild.extension import Follower
from fleetbuild.models import Event, Facts, Manifest, NodeResult, OnEvent, ignore
from fleetbuild.models.problem import Problem
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import InUse, Serving

OFF = "release labels removed"
_STATES = {"unreachable": "unreachable", "no_node": "skipped", "unchanged": "ok", "labelled": "ok"}


class Followers(Follower):
    """Several followers as one: all are notified, and a failure of one counts."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._all = followers

    def prepare(self, *, installs: bool = False) -> str:
        """See Follower."""
        return " ".join(filter(None, (each.prepare(installs=installs) for each in self._all)))

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        """See Follower."""
        names = list(names)
        return _joined(each.before(names, serves=serves) for each in self._all)

    def after(self, served: Serving) -> dict[str, LabelResult]:
        """See Follower."""
        return _joined(each.after(served) for each in self._all)

    def in_use(self, names: Collection[str], root: str) -> InUse:
        """See Follower."""
        found: dict[str, Mapping[str, str] | Problem] = {}
        for follower in self._all:
            for name, kept in follower.in_use(names, root).items():
                known = found.get(name, {})
                if not isinstance(known, Problem):
                    found[name] = kept if isinstance(kept, Problem) else {**known, **kept}
        return found


def _joined(answers: Iterable[Mapping[str, LabelResult]]) -> dict[str, LabelResult]:
    joined: dict[str, LabelResult] = {}
    for answer in answers:
        joined |= {n: result for n, result in answer.items() if n not in joined or not result.ok}
    return joined


def notify_before(run: Run, progress: Progress, names: Sequence[str]) -> Progress:
    """Notify followers that nodes are about to change; block nodes that they cannot let go."""
    results = run.tools.follower.before(names, serves=True) if names else {}
    if not results:
        return progress
    groups = _group_of_node(run)
    report(run.on_event, results, groups, {})
    blocked = blocked_nodes(results, groups)
    run.journal.note("notified before", nodes=sorted(results.keys() - blocked.keys()))
    return replace(
        progress, nodes={**progress.nodes, **blocked}, labels={**progress.labels, **results}
    )


def notify_after(run: Run, progress: Progress, installed: Mapping[str, Manifest]) -> Progress:
    """Notify followers of the release that serves: the installed one, else what a probe finds."""
    states = {name: progress.nodes[name].state for name in installed}
    served = {
        name: manifest.model_copy(update={"verified": True})
        for name, manifest in installed.items()
        if states[name] == "installed"
    }
    for name, manifest in served.items():
        note_reply(run.state, name, manifest)
    probed = [
        name
        for name in installed
        if name not in served and (name in progress.labels or states[name] != "unreachable")
    ]
    facts = run.tools.probe([run.inventory[name] for name in probed], ignore) if probed else {}
    empty = {name: None for name, node_facts in facts.items() if node_facts.state == "ok"}
    return _notify(run, progress, {**empty, **served, **verified_releases(facts, run.plan.release)})


def notify_up_to_date(run: Run, progress: Progress) -> Progress:
    """Notify followers of up-to-date nodes, in case an interrupted run did not."""
    names = [name for name, result in progress.nodes.items() if result.state == "up_to_date"]
    facts = {name: progress.facts[name] for name in names}
    return _notify(run, progress, verified_releases(facts, run.plan.release))


def _notify(run: Run, progress: Progress, served: Serving) -> Progress:
    results = run.tools.follower.after(served) if served else {}
    if not results:
        return progress
    report(run.on_event, results, _group_of_node(run), served)
    run.journal.note("notified after", nodes=sorted(name for name in results if results[name].ok))
    relabelled = any(result.state == "labelled" for result in results.values())
    return replace(
        progress,
        labels={**progress.labels, **results},
        changed=progress.changed or relabelled,
    )


def _group_of_node(run: Run) -> dict[str, str | None]:
    return {name: node.group for name, node in run.plan.nodes.items()}


def verified_releases(facts: Mapping[str, Facts], release: str) -> dict[str, Manifest]:
    """Return the verified releases that these nodes serve."""
    current = {name: node_facts.release.get(release) for name, node_facts in facts.items()}
    return {name: manifest for name, manifest in current.items() if manifest and manifest.verified}


def blocked_nodes(
    results: Mapping[str, LabelResult], groups: Mapping[str, str | None]
) -> dict[str, NodeResult]:
    """Return results for nodes whose labels could not be removed, so they are not changed.

    Pods would still be scheduled there.
    """
    return {
        name: NodeResult(
            node=name,
            group=groups.get(name),
            state="blocked",
            reason="Its release labels could not be removed, so nothing on it was changed: "
            + (result.reason or "no reason given."),
            fix=result.fix,
        )
        for name, result in results.items()
        if not result.ok
    }


def report(
    on_event: OnEvent,
    results: Mapping[str, LabelResult],
    groups: Mapping[str, str | None],
    served: Serving,
) -> None:
    """Send an event for each result of followers; `served` is what the nodes serve."""
    for result in results.values():
        on_event(
            Event(
                stage="label",
                state=_STATES.get(result.state, "failed"),
                node=result.node,
                group=groups.get(result.node),
                message=result.reason or (result.state if served.get(result.node) else OFF),
                fix=result.fix or "",
            )
        )
