"""`fleetbuild provenance`: show where a wheel comes from, and check it.

In: a wheel file, or the name of a wheel in the store. Out: its statement, and the result of each
check: the hash of the wheel, and the signature of the statement by signing.key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from fleetbuild.errors import UsageError
from fleetbuild.extensions.supply.signing import Signing, verify
from fleetbuild.extensions.supply.statement import PREDICATE, PURPOSE, STATEMENT, SUFFIX
from fleetbuild.files import read_input, sha256_of
from fleetbuild.models import Config
from fleetbuild.models._base import Frozen
from fleetbuild.store.wheels import Store

_LARGEST = 16 * 1024 * 1024


class Check(Frozen):
    """One check of a wheel: "unknown" says that there is nothing to check."""

    name: Literal["hash", "signature"]
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


def provenance_of(
    wheel: Path | str, store: Store, config: Config | None = None, folder: Path = Path()
) -> ProvenanceReport:
    """Return the statement about a wheel, checked. Raise UsageError if it has none.

    The statement lies beside the wheel, as in the store and in exports, or in the store. Relative
    paths in the configuration begin at `folder`.
    """
    path = _find(str(wheel), store)
    sha256 = sha256_of(path)
    file = _statement_file(path, sha256, store)
    text = _text(file)
    document = _read(text, file)
    checks = (
        _hash(sha256, document),
        _signature(text, file, config or Config(), folder),
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


def _text(file: Path) -> bytes:
    try:
        return read_input(file, _LARGEST)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.", "Copy it again from the store."
        ) from None


def _read(text: bytes, file: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
        definition = document["predicate"]["buildDefinition"]
        described = document["_type"] == STATEMENT and document["predicateType"] == PREDICATE
        if not described or not isinstance(definition["externalParameters"], dict):
            raise ValueError("it is of another kind")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
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


def _signature(text: bytes, file: Path, config: Config, folder: Path) -> Check:
    """Return whether the key of signing.key made the statement's signature."""
    signature, key = file.with_name(f"{file.name}.sig"), config.section(Signing).key
    if key is None or not signature.is_file():
        why = "signing.key is not set" if key is None else f"{signature.name} is missing"
        return Check(name="signature", state="unknown", message=f"it was not compared: {why}.")
    problem = verify(text, signature, folder / Path(key).expanduser(), PURPOSE)
    if problem:
        return Check(name="signature", state="failed", message=f"ssh-keygen says: {problem}")
    return Check(name="signature", state="ok", message=f"{key} signed the statement.")
