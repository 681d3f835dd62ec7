"""The digest of a document: equal content has the same one, in whatever order it was written."""

from __future__ import annotations

import hashlib
import json

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """Return the sha256 of a value's canonical JSON text, as 64 hex digits."""
    return hashlib.sha256(_ENCODER.encode(value).encode()).hexdigest()
