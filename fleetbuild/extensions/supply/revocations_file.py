"""The revocations of a store: revoked.json beside the wheels.

In: a store's folder. Out: `Revocations`, which every reader of the store honours.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.errors import UsageError
from fleetbuild.files import write_atomically
from fleetbuild.models.revocation import Revocations

_FILE = "revoked.json"
_LARGEST = 64 * 1024 * 1024


def read_revocations(store: Path, seen: Iterable[tuple[str, str]] = ()) -> Revocations:
    """Return the revocations, and keep the artifact keys of recalled wheels that were seen."""
    revocations = _read(store / _FILE)
    known = revocations.with_keys(seen)
    if known != revocations:
        write_revocations(store, known)
    return known


def _read(path: Path) -> Revocations:
    """Read the file. A damaged one is an error: recalled wheels would be used again."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        return Revocations.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Revocations()
    except (OSError, ValueError) as error:
        why = "it is damaged" if isinstance(error, ValidationError) else str(error)
        raise UsageError(
            f"The list of revoked wheels {path} cannot be read: {why}.",
            "Restore it from a backup. Without a backup, remove it and revoke the wheels again"
            " (journal/revocations.jsonl beside the store names them).",
        ) from None


def write_revocations(store: Path, revocations: Revocations) -> None:
    """Replace the list, in one atomic step."""
    write_atomically(store / _FILE, revocations.model_dump_json(indent=2) + "\n")
