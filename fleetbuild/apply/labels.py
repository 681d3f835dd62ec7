"""Labels during an apply: remove them before a node changes, set them once a release is verified.

In: the progress of a run. Out: the progress with label results. `rollout` and `emit` call this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetbuild.apply.context import Progress, Run
from fleetbuild.kubernetes.labels.labeller import (
    OFF,
    report_labels,
    results_of_kept_labels,
    verified_releases,
)
from fleetbuild.kubernetes.labels.serving import note_reply
from fleetbuild.models import Manifest, ignore
from fleetbuild.models.result import LabelResult


def withdraw_labels(run: Run, progress: Progress, names: Sequence[str]) -> Progress:
    """Remove the release's labels from nodes that are about to change.

    A node whose labels cannot be removed is not changed, because pods are still scheduled there.
    """
    results = run.tools.labels.withdraw(names, serves=True) if names else {}
    if not results:
        return progress
    groups = _group_of_node(run)
    report_labels(run.on_event, results, groups, OFF)
    kept = results_of_kept_labels(results, groups)
    run.journal.note("labels off", nodes=sorted(results.keys() - kept.keys()))
    return replace(
        progress, nodes={**progress.nodes, **kept}, labels={**progress.labels, **results}
    )


def publish_labels(run: Run, progress: Progress, installed: Mapping[str, Manifest]) -> Progress:
    """Label the installed nodes; probe the other nodes for the release that serves there."""
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
    verified = verified_releases(facts, run.plan.release)
    empty = [
        name
        for name, node_facts in facts.items()
        if node_facts.state == "ok" and name not in verified
    ]
    if empty:
        progress = _with_results(run, progress, run.tools.labels.withdraw(empty), OFF)
    return _publish(run, progress, served | verified)


def label_up_to_date(run: Run, progress: Progress) -> Progress:
    """Label the up-to-date nodes, in case an interrupted run did not label them."""
    names = [name for name, result in progress.nodes.items() if result.state == "up_to_date"]
    facts = {name: progress.facts[name] for name in names}
    return _publish(run, progress, verified_releases(facts, run.plan.release))


def _publish(run: Run, progress: Progress, served: Mapping[str, Manifest]) -> Progress:
    return _with_results(run, progress, run.tools.labels.publish(served) if served else {})


def _with_results(
    run: Run, progress: Progress, results: Mapping[str, LabelResult], done: str = ""
) -> Progress:
    if not results:
        return progress
    report_labels(run.on_event, dict(results), _group_of_node(run), done)
    run.journal.note(
        "labels off" if done else "labels on",
        nodes=sorted(name for name in results if results[name].ok),
    )
    relabelled = any(result.state == "labelled" for result in results.values())
    return replace(
        progress,
        labels={**progress.labels, **results},
        changed=progress.changed or relabelled,
    )


def _group_of_node(run: Run) -> dict[str, str | None]:
    return {name: node.group for name, node in run.plan.nodes.items()}
