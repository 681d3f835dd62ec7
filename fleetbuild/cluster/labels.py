"""Labels on Nodes by server-side apply: ours come, go and change; those of others stay.

A release has a field manager of its own, so that what the API server takes away with one release
are labels of that release and of no other. A Node is named together with its uid: an apply to a
Node that is gone would make a new one otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from fleetbuild.cluster.api_errors import NoResponse, Refusal, as_error, expired, forbidden
from fleetbuild.cluster.client import Client, path_of
from fleetbuild.cluster.nodes import NODES, ClusterNode, is_nfd, owned_by, read
from fleetbuild.kubernetes.labels.feature_files import feature_path
from fleetbuild.kubernetes.labels.node_labels import field_manager
from fleetbuild.kubernetes.labels.release_labels import DEFAULT, is_label_of, is_release_label

AT_ONCE = 8
_AGAIN = "Run the same command again; what is labelled stays so."


@dataclass(frozen=True)
class WantedLabels:
    """The labels of ours that a node should have, and no other."""

    release: Mapping[str, str] | None = field(default_factory=dict)
    hardware: Mapping[str, str] | None = None  # None of either: unknown, so what there is stays


@dataclass(frozen=True)
class Outcome:
    """How it went with one node."""

    state: Literal[
        "labelled", "unchanged", "gone", "conflict", "kept",
        "forbidden", "unauthorized", "refused", "unreachable",
    ]  # fmt: skip
    reason: str | None = None
    fix: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # all that it has now
    node: ClusterNode | None = None  # as it is now, where that is known


@dataclass(frozen=True)
class Labelling:
    """Whose labels, under which domain, and whether those of others may be taken over."""

    domain: str
    release: str = DEFAULT
    force: bool = False

    @property
    def manager(self) -> str:
        """The field manager: fleetbuild, or fleetbuild-staging for the release of that name."""
        return field_manager(self.release)


def is_settled(node: ClusterNode, wanted: WantedLabels, labelling: Labelling) -> bool:
    """Does this Node have the labels that are wanted of it, all of them owned by this manager?"""
    labels = _labels(node, wanted, labelling)
    return (
        _by_nfd(node, labelling) is None
        and node.owned(labelling.manager) == labels
        and not _left(node, labels, labelling)
        and not (labelling.force and _shared(node, labels, labelling))
    )


def label_nodes(
    client: Client,
    nodes: Mapping[str, ClusterNode],
    wanted: Mapping[str, WantedLabels],
    labelling: Labelling,
) -> dict[str, Outcome]:
    """Give each of these Nodes the labels that are wanted of it; a trouble stops no other."""
    health = _ServerHealth()
    one = partial(_label, client, labelling, health)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(one, (nodes[name] for name in wanted), wanted.values())
        return dict(zip(wanted, outcomes, strict=True))


def may_label(client: Client, node: ClusterNode, labelling: Labelling) -> None:
    """Ask without changing anything, and raise where every node would be refused."""
    body = _body(node, node.owned(labelling.manager))
    try:
        client.apply(
            path_of(*NODES, node.name), body, manager=labelling.manager, force=True, dry_run=True
        )
    except NoResponse as problem:
        raise as_error(problem, client.access, "patch", "/nodes") from None
    except Refusal as problem:
        if problem.code in (401, 403):
            raise as_error(problem, client.access, "patch", "/nodes") from None


class _ServerHealth:
    """A server that is away is not waited for once a node."""

    def __init__(self) -> None:
        self._lock, self._silent = threading.Lock(), 0

    @property
    def is_silent(self) -> bool:
        return self._silent >= AT_ONCE

    def note(self, *, answered: bool) -> None:
        with self._lock:
            self._silent = 0 if answered else self._silent + 1


def _label(
    client: Client,
    labelling: Labelling,
    health: _ServerHealth,
    node: ClusterNode,
    wanted: WantedLabels,
) -> Outcome:
    if outcome := _by_nfd(node, labelling):
        return outcome
    if health.is_silent:
        return _silent(client, "it had stopped answering before")
    try:
        outcome = _applied(client, labelling, node, wanted)
    except NoResponse as problem:
        health.note(answered=False)
        return _silent(client, f"{problem.reason}, {problem.times} times asked")
    except Refusal as problem:
        outcome = _refused(client, problem)
    health.note(answered=True)
    return outcome


def _applied(
    client: Client, labelling: Labelling, node: ClusterNode, wanted: WantedLabels
) -> Outcome:
    labels = _labels(node, wanted, labelling)
    path = path_of(*NODES, node.name)
    made = read(
        client.apply(path, _body(node, labels), manager=labelling.manager, force=labelling.force)
    )
    left = _left(made, labels, labelling)
    if labelling.force and (left or _shared(made, labels, labelling)):
        made = _taken_over(client, made, left, labels, labelling)
        left = ()
    if left:
        return _kept(made, left)
    state: Literal["labelled", "unchanged"] = (
        "unchanged" if made.version == node.version else "labelled"
    )
    return Outcome(state, labels=made.labels, node=made)


def _taken_over(
    client: Client,
    node: ClusterNode,
    left: tuple[str, ...],
    labels: Mapping[str, str],
    labelling: Labelling,
) -> ClusterNode:
    """Take labels off that others keep, and make this manager the only owner of the rest: a label
    with two owners would outlive either. The labels themselves stay on all the while."""
    path = path_of(*NODES, node.name)
    if left:
        gone: dict[str, None] = dict.fromkeys(left)
        change = {"metadata": {"uid": node.uid, "labels": gone}}
        node = read(client.merge(path, change, manager=labelling.manager))
    if _shared(node, labels, labelling):
        owners = owned_by(node, labels, labelling.manager)
        # With the version, so that an owner that comes meanwhile is not forgotten.
        change = {"metadata": {"uid": node.uid, "resourceVersion": node.version, **owners}}
        node = read(client.merge(path, change, manager=labelling.manager))
    return node


def _shared(node: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> bool:
    """Has a label of ours an owner beside this manager? Those of Node Feature Discovery stay so:
    its rules say what the hardware is as well."""
    owners = {owner for key in labels for owner in node.owner(key)}
    return any(owner != labelling.manager and not is_nfd(owner) for owner in owners)


def _by_nfd(node: ClusterNode, labelling: Labelling) -> Outcome | None:
    """Why this Node is not labelled while Node Feature Discovery sets the labels of the release:
    it puts back what others take off, and takes off what others put there."""
    ours = (key for key in node.labels if is_label_of(key, labelling.release, labelling.domain))
    theirs = sorted(key for key in ours if any(map(is_nfd, node.owner(key))))
    if not theirs:
        return None
    return Outcome(
        "conflict",
        f"Node Feature Discovery sets {', '.join(theirs)} there, from a file on the node.",
        f"Remove {feature_path(labelling.release)} on the node, wait a minute, and run the same"
        " command again; or leave labels to it with kubernetes.labels: nfd.",
        node.labels,
        node,
    )


def _body(node: ClusterNode, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": node.name, "uid": node.uid, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _labels(node: ClusterNode, wanted: WantedLabels, labelling: Labelling) -> dict[str, str]:
    owned = node.owned(labelling.manager)
    release = {key for key in owned if is_release_label(key, labelling.domain)}
    kept_hardware = {key: owned[key] for key in owned if key not in release}
    kept_release = {key: owned[key] for key in release}
    return {
        **(kept_hardware if wanted.hardware is None else wanted.hardware),
        **(kept_release if wanted.release is None else wanted.release),
    }


def _left(made: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> tuple[str, ...]:
    """Labels of this release that others own too, and that therefore outlived our letting go."""
    return tuple(
        key
        for key in sorted(made.labels)
        if key not in labels and is_label_of(key, labelling.release, labelling.domain)
    )


def _kept(node: ClusterNode, left: tuple[str, ...]) -> Outcome:
    owners = sorted({owner for key in left for owner in node.owner(key)}) or ["nobody known"]
    return Outcome(
        "kept",
        f"It keeps {', '.join(left)}, set by {', '.join(owners)}.",
        "Let its owner take it off, or have it taken off with: fleetbuild emit labels --apply"
        " --force-conflicts",
        node.labels,
        node,
    )


def _refused(client: Client, problem: Refusal) -> Outcome:
    if problem.code == 401:
        return Outcome("unauthorized", *expired(client.access))
    if problem.code == 403:
        return Outcome("forbidden", *forbidden(client.access, "patch", "/nodes", problem.message))
    others = [cause for cause in problem.causes if cause.get("reason") == "FieldManagerConflict"]
    if problem.code == 409 and others:
        said = "; ".join(_conflict(cause) for cause in others)
        return Outcome(
            "conflict",
            f"Labels have other owners and other values: {said}.",
            "Find out who is right; take them over with: fleetbuild emit labels --apply"
            " --force-conflicts",
        )
    # A conflict about nothing but the uid: the Node went, or another of its name came.
    if problem.code in (404, 409) or "uid" in problem.message.lower():
        return Outcome(
            "gone",
            "It was deleted, or replaced by another of its name, while it was labelled.",
            "If it is to come back, label it then: fleetbuild emit labels --apply",
        )
    return Outcome("refused", f"The API server refused: {problem.message}", _AGAIN)


def _conflict(cause: Mapping[str, object]) -> str:
    field = str(cause.get("field", "")).removeprefix(".metadata.labels.")
    return f"{field}: {cause.get('message')}"


def _silent(client: Client, why: str) -> Outcome:
    return Outcome("unreachable", f"{client.access.where} did not answer: {why}.", _AGAIN)
