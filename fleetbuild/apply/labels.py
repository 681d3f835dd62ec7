"""The two moments of a rollout at which labels change, and the last one, for nodes left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetbuild.apply.context import Progress, Run
from fleetbuild.labelling.labeller import (
    OFF,
    report_labels,
    results_of_kept_labels,
    verified_releases,
)
from fleetbuild.labelling.serving import note_reply
from fleetbuild.models import Manifest, ignore


def withdraw_labels(run: Run, progress: Progress, names: Sequence[str]) -> Progress:
    """Take the release's labels off nodes that are about to change. One that keeps them is not
    changed: pods would still be sent there."""
    results = run.tools.labels.withdraw(names) if names else {}
    if not results:
        return progress
    groups = _groups(run)
    report_labels(run.on_event, results, groups, OFF)
    left = results_of_kept_labels(results, groups)
    run.journal.note("labels off", nodes=sorted(results.keys() - left.keys()))
    return replace(
        progress, nodes={**progress.nodes, **left}, labels={**progress.labels, **results}
    )


def publish_labels(run: Run, progress: Progress, installed: Mapping[str, Manifest]) -> Progress:
    """Keep and label what was installed; ask the other nodes whether the last release serves."""
    states = {name: progress.nodes[name].state for name in installed}
    served = {
        name: made.model_copy(update={"verified": True})
        for name, made in installed.items()
        if states[name] == "installed"
    }
    for name, made in served.items():
        note_reply(run.state, name, made)
    asked = [
        name
        for name in installed
        if name not in served and (name in progress.labels or states[name] != "unreachable")
    ]
    still = run.tools.probe([run.inventory[name] for name in asked], ignore) if asked else {}
    return _publish(run, progress, served | verified_releases(still, run.plan.release))


def label_up_to_date(run: Run, progress: Progress) -> Progress:
    """Label the nodes that were up to date: an earlier run may not have come to that."""
    names = [name for name, result in progress.nodes.items() if result.state == "up_to_date"]
    facts = {name: progress.facts[name] for name in names}
    return _publish(run, progress, verified_releases(facts, run.plan.release))


def _publish(run: Run, progress: Progress, served: Mapping[str, Manifest]) -> Progress:
    results = run.tools.labels.publish(served) if served else {}
    if not results:
        return progress
    report_labels(run.on_event, results, _groups(run))
    run.journal.note("labels on", nodes=sorted(name for name in results if results[name].well))
    relabelled = any(result.state == "labelled" for result in results.values())
    return replace(
        progress,
        labels={**progress.labels, **results},
        changed=progress.changed or relabelled,
    )


def _groups(run: Run) -> dict[str, str | None]:
    return {name: node.group for name, node in run.plan.nodes.items()}
