"""`fleetbuild provenance`: show where a wheel comes from, and check it.

In: a wheel file, or the name of a wheel in the store. Out: its statement, and the result of each
check: the hash, the bill of materials, the source, revocations.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Literal

from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.errors import UsageError
from fleetbuild.extensions.supply.sbom import NAME as SBOM
from fleetbuild.extensions.supply.statement import PREDICATE, STATEMENT, SUFFIX
from fleetbuild.files import sha256_of
from fleetbuild.models._base import Frozen
from fleetbuild.store.wheels import Store

_LARGEST = 16 * 1024 * 1024


class Check(Frozen):
    """One check of a wheel: "unknown" says that there is nothing to check."""

    name: Literal["hash", "sbom", "source", "revocation"]
    state: Literal["ok", "failed", "unknown"]
    message: str


class ProvenanceReport(Frozen):
    """Where a wheel comes from, and whether that holds."""

    wheel: str  # the file
    sha256: str
    statement: dict[str, Any]
    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        """Return whether a check failed."""
        return any(check.state == "failed" for check in self.checks)


def provenance_of(wheel: Path | str, store: Store) -> ProvenanceReport:
    """Return the statement about a wheel, checked. Raise UsageError if it has none.

    The statement lies beside the wheel, as in the store and in exports, or in the store.
    """
    path = _find(str(wheel), store)
    sha256 = sha256_of(path)
    document = _read(_statement_file(path, sha256, store))
    checks = (
        _hash(sha256, document),
        _bill(path, document),
        _source(document, store),
        _revocation(document, sha256, store),
    )
    return ProvenanceReport(wheel=str(path), sha256=sha256, statement=document, checks=checks)


def _find(wheel: str, store: Store) -> Path:
    if Path(wheel).is_file():
        return Path(wheel)
    matches = store.named(wheel)
    if len(matches) == 1:
        return matches[0].path
    if matches:
        hashes = ", ".join(file.sha256[:12] for file in matches[:5])
        raise UsageError(
            f"The store has {len(matches)} wheels {wheel}.", f"Name one by its sha256: {hashes}"
        )
    raise UsageError(
        f"{wheel} is neither a file nor a wheel in the store.",
        "See the names and hashes with: fleetbuild store list --json",
    )


def _statement_file(path: Path, sha256: str, store: Store) -> Path:
    places = [path.with_name(path.name + SUFFIX)]
    places += [
        stored.path.with_name(stored.path.name + SUFFIX)
        for stored in store.list()
        if stored.sha256 == sha256
    ]
    for place in places:
        if place.is_file():
            return place
    raise UsageError(
        f"No provenance of {path.name} is known: neither {places[0].name} beside it nor a wheel in"
        f" the store with sha256 {sha256[:12]}.",
        "Copy the statement beside the wheel, or name the state directory of the run that built it:"
        " --state-dir DIR.",
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        document = json.loads(file.read_bytes())
        definition = document["predicate"]["buildDefinition"]
        described = document["_type"] == STATEMENT and document["predicateType"] == PREDICATE
        if not described or not isinstance(definition["externalParameters"], dict):
            raise ValueError("it is of another kind")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{file} is not a provenance statement: {error}.", "Copy it again from the store."
        ) from None
    return dict(document)


def _hash(sha256: str, document: dict[str, Any]) -> Check:
    subjects = document.get("subject")
    hashes = [
        subject.get("digest", {}).get("sha256")
        for subject in (subjects if isinstance(subjects, list) else ())
        if isinstance(subject, dict) and isinstance(subject.get("digest"), dict)
    ]
    if sha256 in hashes:
        return Check(name="hash", state="ok", message=f"sha256 {sha256} is the statement's.")
    reason = f"the statement is about another file: this one has sha256 {sha256}."
    return Check(name="hash", state="failed", message=reason)


def _bill(path: Path, document: dict[str, Any]) -> Check:
    try:
        with zipfile.ZipFile(path) as opened:
            archive = Archive(opened)
            names = [name for name in archive.names if name.endswith(f".dist-info/{SBOM}")]
            text = archive.text(names[0]) if names and not archive.problems else None
        bill = json.loads(text) if text else None
        purl = bill["metadata"]["component"]["purl"] if bill else ""
        count = len(bill["components"]) if bill else 0
    except (*BROKEN, KeyError, TypeError, RecursionError) as error:
        return Check(name="sbom", state="failed", message=f"it cannot be read: {error}.")
    if not bill:
        return Check(name="sbom", state="unknown", message="the wheel has no bill of materials.")
    wanted = document["predicate"]["buildDefinition"]["externalParameters"].get("wheelVersion", "")
    if not str(purl).endswith(f"@{str(wanted).replace('+', '%2B')}"):
        return Check(name="sbom", state="failed", message=f"it is about {purl}.")
    return Check(name="sbom", state="ok", message=f"{SBOM} in the wheel lists {count} components.")


def _source(document: dict[str, Any], store: Store) -> Check:
    """Hash the source again, if the store still has it."""
    resources = document["predicate"]["buildDefinition"].get("resolvedDependencies")
    for resource in resources if isinstance(resources, list) else ():
        role = resource.get("annotations", {}).get("role") if isinstance(resource, dict) else None
        if role not in ("source", "published"):
            continue
        digest, name = resource.get("digest", {}).get("sha256"), str(resource.get("name"))
        path = store.root / "files" / str(digest) / Path(name).name
        if not digest or len(str(digest)) != 64 or not path.is_file():
            break
        if sha256_of(path) == digest:
            return Check(name="source", state="ok", message=f"{name} in the store has its hash.")
        return Check(name="source", state="failed", message=f"{path} has another hash.")
    return Check(name="source", state="unknown", message="the store does not have the source.")


def _revocation(document: dict[str, Any], sha256: str, store: Store) -> Check:
    parameters = document["predicate"]["buildDefinition"]["externalParameters"]
    version = str(parameters.get("wheelVersion", ""))
    if why := store.revocations.of(str(parameters.get("package", "")), version, sha256):
        return Check(name="revocation", state="failed", message=why)
    return Check(name="revocation", state="ok", message="it is not revoked here.")
