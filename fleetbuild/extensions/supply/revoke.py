"""Revoke a wheel: no plan, store, index, manifest or rollback uses it any more.

In: a sha256 or NAME==VERSION, the store, the last facts of the nodes. Out: the revocation, and the
nodes that serve the wheel by their last answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fleetbuild.errors import UsageError
from fleetbuild.extensions.supply.revocations_file import write_revocations
from fleetbuild.journal import Journal
from fleetbuild.models import Facts, now
from fleetbuild.models._base import Frozen
from fleetbuild.models.revocation import Revocation, Revocations
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.state import StateDir
from fleetbuild.store.garbage import probed_facts
from fleetbuild.store.wheels import Store

_SHA256 = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_LONGEST = 1000


class Revoked(Frozen):
    """A revocation, with the stored wheels and the nodes that it concerns now."""

    revocation: Revocation
    wheels: tuple[str, ...] = ()  # files in the store
    nodes: tuple[str, ...] = ()  # that serve it, by their last answer


def revoke(what: str, reason: str, state: StateDir) -> Revoked:
    """Revoke a wheel by sha256, or all wheels of a version; revoking again changes the reason."""
    reason = " ".join(reason.split())
    if not reason:
        raise UsageError("A revocation needs a reason.", "Say why: --reason TEXT")
    store = Store(state.create().store)
    with hold_run_lock(state.root / "revoke.lock"):
        facts = probed_facts(state)
        wheels = _known_wheels(store, facts)
        named, entries = _normal(what, store, wheels), store.revocations.entries
        before = next((entry for entry in entries if entry.what == named), None)
        entry = Revocation(
            what=named,
            reason=reason[:_LONGEST],
            time=now(),
            artifact_key=before.artifact_key if before else None,
            delivered=_delivered(store, named) or (before.delivered if before else None),
        )
        kept = tuple(entry for entry in entries if entry.what != named)
        revocations = Revocations(entries=(*kept, entry)).with_keys(wheels.items())
        write_revocations(store.root, revocations)
        _journal(state).note("revoked", revoked=entry.what, reason=entry.reason)
    return concerned(revocations.entries[-1], store, facts)


def take_back(what: str, state: StateDir) -> Revocation:
    """Take a revocation back; the wheels may be used again."""
    store = Store(state.create().store)
    with hold_run_lock(state.root / "revoke.lock"):
        entries = store.revocations.entries
        name, given, version = what.partition("==")
        wanted = f"{canonicalize_name(name)}=={version}" if given else what.lower()
        short = not given and _SHA256.fullmatch(wanted)
        matches = [
            entry
            for entry in entries
            if entry.what == wanted or (short and entry.what.startswith(wanted))
        ]
        if len(matches) != 1:
            how = "the start of several hashes that are" if matches else "not"
            raise UsageError(
                f"{what} is {how} revoked.",
                "List the revoked wheels: fleetbuild revoke --list",
            )
        rest = tuple(entry for entry in entries if entry is not matches[0])
        write_revocations(store.root, Revocations(entries=rest))
        _journal(state).note("revocation taken back", revoked=matches[0].what)
    return matches[0]


def revoked_wheels(state: StateDir) -> tuple[Revoked, ...]:
    """Return all revocations, the newest last."""
    store, facts = Store(state.store), probed_facts(state)
    return tuple(concerned(entry, store, facts) for entry in store.revocations.entries)


def concerned(entry: Revocation, store: Store, facts: Mapping[str, Facts]) -> Revoked:
    """Return a revocation with the wheels in the store and the nodes that it concerns."""
    only = Revocations(entries=(entry,))
    return Revoked(
        revocation=entry,
        wheels=tuple(
            wheel.path.name
            for wheel in store.list()
            if entry.covers(wheel.provenance.package, wheel.provenance.wheel_version, wheel.sha256)
        ),
        nodes=tuple(
            name
            for name, known in sorted(facts.items())
            if any(only.of_manifest(manifest) for manifest in known.release.values())
        ),
    )


def _delivered(store: Store, sha256: str) -> str | None:
    """Return the hash of a stored wheel as its builder delivered it."""
    records = (stored.provenance for stored in store.list() if stored.sha256 == sha256)
    return next((each.delivered_sha256 for each in records), None)


def _journal(state: StateDir) -> Journal:
    return Journal(state.revocations_journal)


def _known_wheels(store: Store, facts: Mapping[str, Facts]) -> dict[str, str]:
    """Return the artifact keys of the wheels in the store and on nodes, by hash."""
    on_nodes = {
        wheel.sha256: wheel.artifact_key
        for known in facts.values()
        for manifest in known.release.values()
        for wheel in manifest.wheels
    }
    return on_nodes | {stored.sha256: stored.provenance.artifact_key for stored in store.list()}


def _normal(what: str, store: Store, known: Mapping[str, str]) -> str:
    """Return a whole sha256, or name==version with a normalised name."""
    name, given, version = what.partition("==")
    if given:
        if not _NAME.fullmatch(name) or not _is_version(version):
            raise UsageError(
                f"{what} is not NAME==VERSION.", "Write it like hnswlib==0.8.0, or give a sha256."
            )
        return f"{canonicalize_name(name)}=={version}"
    digits = what.lower().removeprefix("sha256:")
    if not _SHA256.fullmatch(digits):
        raise UsageError(
            f"{what} is neither a sha256 nor NAME==VERSION.",
            "Name a version, like hnswlib==0.8.0; for hashes: fleetbuild store list --json",
        )
    if name_and_version := store.download_of(digits):
        raise UsageError(
            f"{what[:12]} is a file of {name_and_version}, which was downloaded.",
            f"Releases name such packages by version: fleetbuild revoke {name_and_version}",
        )
    matching = sorted(sha256 for sha256 in known if sha256.startswith(digits))
    if len(matching) == 1:
        return matching[0]
    if len(digits) == 64:
        return digits
    why = "the start of several hashes" if matching else "neither in the store nor on a node"
    raise UsageError(f"{what} is {why}.", "Give all 64 digits of the sha256.")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
