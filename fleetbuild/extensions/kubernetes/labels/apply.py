"""Set labels on Nodes by server-side apply; labels of other owners are left alone.

In: Nodes and wanted labels. Out: an `Outcome` for each. Each release has its own field manager, so
that an apply removes labels of that release only. Each request carries the uid of its Node: without
it, an apply to a deleted Node would create a new one. It also carries the version that was read, so
that labels which another run has removed since do not come back: a Node that changed meanwhile is
read again, it alone, and decided again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from fleetbuild.extensions.kubernetes.api.client import Client, path_of
from fleetbuild.extensions.kubernetes.api.errors import (
    NoResponse,
    Refusal,
    as_error,
    expired,
    forbidden,
)
from fleetbuild.extensions.kubernetes.api.nodes import NODES, ClusterNode, is_nfd, owned_by, read
from fleetbuild.extensions.kubernetes.labels.feature_files import feature_path
from fleetbuild.extensions.kubernetes.labels.node_labels import field_manager, state_annotation
from fleetbuild.extensions.kubernetes.labels.release_labels import (
    DEFAULT,
    is_label_of,
    is_release_label,
)
from fleetbuild.workers import Workers

AT_ONCE = 8
_READINGS = 5  # of a Node; a heartbeat between reading and patching is rare, five in a row are not
_AGAIN = "Run the same command again; labels already set are kept."


@dataclass(frozen=True)
class WantedLabels:
    """All of fleetbuild's labels that a node should have."""

    release: Mapping[str, str] | None = field(default_factory=dict)  # None: all present ones stay
    hardware: Mapping[str, str] | None = None  # None: unknown, so present labels stay
    kept: tuple[str, ...] = ()  # release labels that stay where they are present


@dataclass(frozen=True)
class Outcome:
    """The outcome of labelling one node."""

    state: Literal[
        "labelled", "unchanged", "gone", "conflict", "kept",
        "forbidden", "unauthorized", "refused", "unreachable",
    ]  # fmt: skip
    reason: str | None = None
    fix: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # all labels of the node now
    node: ClusterNode | None = None  # as it is now, if known


@dataclass(frozen=True)
class Labelling:
    """Label domain, release, and whether to take over conflicting labels of other owners."""

    domain: str
    release: str = DEFAULT
    force: bool = False
    state: str = ""  # the state directory in whose name release labels are set
    asked: bool = False  # the nodes said in this run what they serve: whose state it was is past

    @property
    def manager(self) -> str:
        """The field manager: fleetbuild, or fleetbuild-staging for the release of that name."""
        return field_manager(self.release, self.domain)

    @property
    def annotation(self) -> str:
        """The key of the annotation that names the state directory."""
        return state_annotation(self.domain, self.release)


def is_settled(node: ClusterNode, wanted: WantedLabels, labelling: Labelling) -> bool:
    """Return whether a Node has exactly the wanted labels, owned by this manager."""
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
    """Set the wanted labels of each Node; a failure does not stop the others."""
    health = _ServerHealth()
    one = partial(_label, client, labelling, health)
    with Workers(AT_ONCE) as pool:
        outcomes = pool.map(one, (nodes[name] for name in wanted), wanted.values())
        return dict(zip(wanted, outcomes, strict=True))


def may_label(client: Client, node: ClusterNode, labelling: Labelling) -> None:
    """Try a dry run, and raise if every node would be refused."""
    body = _body(node, node.owned(labelling.manager), labelling)
    del body["metadata"]["resourceVersion"]  # the right is tried, and not the version
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
    """Counts failed requests, so that a run does not wait for an absent server once per node."""

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
    if health.is_silent:
        return _silent(client, "it stopped answering earlier")
    try:
        outcome = _decided(client, labelling, node, wanted)
    except NoResponse as problem:
        health.note(answered=False)
        return _silent(client, f"{problem.reason}, {problem.times} attempts")
    except Refusal as problem:
        outcome = _refused(client, problem)
    health.note(answered=True)
    return outcome


def _decided(
    client: Client, labelling: Labelling, node: ClusterNode, wanted: WantedLabels
) -> Outcome:
    """Label a Node; one that has changed since it was read is read again and decided again."""
    for last in (False,) * (_READINGS - 1) + (True,):
        if outcome := _by_nfd(node, labelling):
            return outcome
        try:
            return _applied(client, labelling, node, wanted)
        except Refusal as problem:
            if last or not _is_outdated(problem):
                raise
        # By a list: the login of `emit rbac` may not get a Node.
        found = client.all(path_of(*NODES), fieldSelector=f"metadata.name={node.name}")
        now = next(map(read, found), None)
        if now is None or now.uid != node.uid:
            break
        node = now
    raise Refusal(404, {})


def _is_outdated(problem: Refusal) -> bool:
    return problem.code == 409 and not _other_owners(problem) and not _is_replaced(problem)


def _other_owners(problem: Refusal) -> list[Mapping[str, object]]:
    return [cause for cause in problem.causes if cause.get("reason") == "FieldManagerConflict"]


def _is_replaced(problem: Refusal) -> bool:
    """Return whether this is a conflict about the uid; a Node's name may hold these letters."""
    message = problem.message.lower()
    return "uid mismatch" in message or "uid in precondition" in message


def _applied(
    client: Client, labelling: Labelling, node: ClusterNode, wanted: WantedLabels
) -> Outcome:
    labels = _labels(node, wanted, labelling)
    if outcome := _of_another_state(node, labels, labelling):
        return outcome
    path = path_of(*NODES, node.name)
    body = _body(node, labels, labelling)
    made = read(client.apply(path, body, manager=labelling.manager, force=labelling.force))
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
    """Remove stale labels of other owners, and make this manager the only owner of the rest.

    A label with two owners would remain after one of them drops it. The wanted labels stay set
    throughout.
    """
    path = path_of(*NODES, node.name)
    if left:
        gone: dict[str, None] = dict.fromkeys(left)
        change = {"metadata": {"uid": node.uid, "labels": gone}}
        node = read(client.merge(path, change, manager=labelling.manager))
    if _shared(node, labels, labelling):
        owners = owned_by(node, labels, labelling.manager)
        # With the resource version, so that an owner added meanwhile is not lost.
        change = {"metadata": {"uid": node.uid, "resourceVersion": node.version, **owners}}
        node = read(client.merge(path, change, manager=labelling.manager))
    return node


def _shared(node: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> bool:
    """Return whether a wanted label has another owner.

    Node Feature Discovery does not count: its rules set hardware labels as well.
    """
    owners = {owner for key in labels for owner in node.owner(key)}
    return any(owner != labelling.manager and not is_nfd(owner) for owner in owners)


def _by_nfd(node: ClusterNode, labelling: Labelling) -> Outcome | None:
    """Return the outcome for a Node whose release labels Node Feature Discovery sets, else None.

    NFD would undo every change of these labels.
    """
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


def _of_another_state(
    node: ClusterNode, labels: Mapping[str, str], labelling: Labelling
) -> Outcome | None:
    """Return the outcome for a Node whose release labels another state directory has set.

    What this one knows of the node may be older than that, unless the node was asked in this run.
    """
    owner = node.annotations.get(labelling.annotation, "")
    ours = not owner or _identity(owner) == _identity(labelling.state)
    if ours or labelling.asked or labelling.force or not _changes_release(node, labels, labelling):
        return None
    told = " ".join(owner.split())[:300]  # a kubelet can write it
    return Outcome(
        "conflict",
        f"Another state directory has set its release labels; the Node says: {told!r}.",
        "Label this node from there, or ask it what it serves and take its labels over: fleetbuild"
        " status INVENTORY, then fleetbuild emit labels --apply --force-conflicts",
        node.labels,
        node,
    )


def _identity(state: str) -> str:
    """Return the random part of a state directory's name: its path may change."""
    return state.rpartition(" ")[2]


def _changes_release(node: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> bool:
    before, after = (
        {key: each[key] for key in each if is_label_of(key, labelling.release, labelling.domain)}
        for each in (node.owned(labelling.manager), labels)
    )
    return before != after


def _body(node: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> dict[str, Any]:
    """Return the document to apply: the labels, and whose state set the release labels."""
    about = {"name": node.name, "uid": node.uid, "resourceVersion": node.version}
    metadata: dict[str, Any] = {**about, "labels": dict(labels)}
    whose = node.annotations.get(labelling.annotation)
    if labelling.force or whose is None or _changes_release(node, labels, labelling):
        whose = labelling.state
    if whose and any(is_label_of(key, labelling.release, labelling.domain) for key in labels):
        metadata["annotations"] = {labelling.annotation: whose}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _labels(node: ClusterNode, wanted: WantedLabels, labelling: Labelling) -> dict[str, str]:
    owned = node.owned(labelling.manager)
    release = {key for key in owned if is_release_label(key, labelling.domain)}
    kept_hardware = {key: owned[key] for key in owned if key not in release}
    kept_release = {key: owned[key] for key in release}
    return {
        **(kept_hardware if wanted.hardware is None else wanted.hardware),
        **{key: owned[key] for key in wanted.kept if key in owned},
        **(kept_release if wanted.release is None else wanted.release),
    }


def _left(made: ClusterNode, labels: Mapping[str, str], labelling: Labelling) -> tuple[str, ...]:
    """Return stale labels of this release that remain because they have other owners."""
    return tuple(
        key
        for key in sorted(made.labels)
        if key not in labels and is_label_of(key, labelling.release, labelling.domain)
    )


def _kept(node: ClusterNode, left: tuple[str, ...]) -> Outcome:
    owners = sorted({owner for key in left for owner in node.owner(key)}) or ["an unknown owner"]
    return Outcome(
        "kept",
        f"Stale labels remain: {', '.join(left)}, set by {', '.join(owners)}.",
        "Let the owner remove them, or run: fleetbuild emit labels --apply --force-conflicts",
        node.labels,
        node,
    )


def _refused(client: Client, problem: Refusal) -> Outcome:
    if problem.code == 401:
        return Outcome("unauthorized", *expired(client.access))
    if problem.code == 403:
        return Outcome("forbidden", *forbidden(client.access, "patch", "/nodes", problem.message))
    others = _other_owners(problem)
    if problem.code == 409 and others:
        conflicts = "; ".join(_conflict(cause) for cause in others)
        return Outcome(
            "conflict",
            f"Labels have other owners with other values: {conflicts}.",
            "Check which values are right; take them over with: fleetbuild emit labels --apply"
            " --force-conflicts",
        )
    if problem.code == 404 or _is_replaced(problem):
        return Outcome(
            "gone",
            "The Node was deleted, or replaced by one of the same name, while it was labelled.",
            "Once it is back, label it with: fleetbuild emit labels --apply",
        )
    if problem.code == 409:
        reason = f"The Node was changed by somebody else at the same time: {problem.message}"
        return Outcome("conflict", reason, _AGAIN)
    return Outcome("refused", f"The API server refused: {problem.message}", _AGAIN)


def _conflict(cause: Mapping[str, object]) -> str:
    field = str(cause.get("field", "")).removeprefix(".metadata.labels.")
    return f"{field}: {cause.get('message')}"


def _silent(client: Client, why: str) -> Outcome:
    return Outcome("unreachable", f"{client.access.where} did not answer: {why}.", _AGAIN)
