"""`fleetbuild status`: compare the release on each node with the one that the last apply left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleetbuild.models import Facts, Manifest, NodeResult, NodeStatus
from fleetbuild.models.result import Drift
from fleetbuild.models.revocation import NOTHING_REVOKED, Revocations


def compare_releases(
    names: Iterable[str],
    facts: Mapping[str, Facts],
    *,
    release: str,
    expected: Mapping[str, NodeResult],
    probed: Mapping[str, str],
    revoked: Revocations = NOTHING_REVOKED,
) -> dict[str, NodeStatus]:
    """Return the status of each node.

    `expected` maps nodes to what an apply or rollback left there, `probed` to the time of their
    facts.
    """
    statuses = {
        name: _one(name, node_facts, release, expected.get(name), probed.get(name))
        if (node_facts := facts.get(name))
        else _unknown(name)
        for name in names
    }
    for name, status in statuses.items():
        current = facts[name].release.get(release) if status.state == "ok" else None
        if current and (why := revoked.of_manifest(current)):
            recalled = {"drift": "revoked", "sentence": why}
            statuses[name] = status.model_copy(update=recalled)
    return statuses


def _unknown(name: str) -> NodeStatus:
    return NodeStatus(
        node=name,
        state="unknown",
        reason="This state directory has no answer of this node.",
        fix="Ask it: fleetbuild status INVENTORY",
    )


def _one(
    name: str, facts: Facts, release: str, expected: NodeResult | None, probed: str | None
) -> NodeStatus:
    if facts.state != "ok":
        return NodeStatus(
            node=name, state=facts.state, reason=facts.reason, fix=facts.fix, probed=probed
        )
    current = facts.release.get(release)
    drift, sentence = _drift(current, expected)
    if release in facts.damaged:
        drift, sentence = "damaged", f"Its release is damaged: {facts.damaged[release]}."
    return NodeStatus(
        node=name,
        state="ok",
        group=current.group if current else None,
        release_id=current.id if current else None,
        previous=facts.previous.get(release),
        verified=current.verified if current else False,
        signed_by=facts.signed_by.get(release),
        packages=_packages(current),
        drift=drift,
        sentence=sentence,
        probed=probed,
    )


def _packages(current: Manifest | None) -> tuple[str, ...]:
    return tuple(f"{wheel.package}=={wheel.version}" for wheel in current.wheels) if current else ()


def _drift(current: Manifest | None, expected: NodeResult | None) -> tuple[Drift | None, str]:
    if expected is None:
        found = (
            "It serves a release that no finished apply with this state directory installed."
            if current
            else ""
        )
        return None, found
    if current is None:
        return (
            "missing",
            f"{_by(expected)} left release {expected.release_id}, but no release is there now.",
        )
    if current.id != expected.release_id:
        return (
            "different",
            (
                f"It serves release {current.id},"
                f" but {_by(expected).lower()} left {expected.release_id}."
            ),
        )
    if not current.verified:
        return "changed", "The release is not marked as verified: its last verification failed."
    if current.group != expected.group:
        return "changed", f"Its manifest names group {current.group} instead of {expected.group}."
    return "none", "It was rolled back to this release." if expected.state == "rolled_back" else ""


def _by(expected: NodeResult) -> str:
    return "A rollback" if expected.state == "rolled_back" else "The last apply"
