"""Sign the statement about a release, for nodes that accept only signed releases.

In: the statement (root, manifest, wheels, hardware, plan). Out: the same with a counter, and its
signature.
The nodes check it: plugins/module_utils/release_signature.py.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fleetbuild.store.provenance.sign import Signer

RELEASE_NAMESPACE = "release{}@fleetbuild.dev"  # of a fleet: release.NAME@fleetbuild.dev

_DAY = 24 * 3600  # seconds


class SignedRelease(NamedTuple):
    """A statement about a release, and its signature."""

    statement: dict[str, Any]
    signature: str


class ReleaseSigner:
    """Signs each release once in a run, so that a key on a token is touched once.

    The counter is the time in seconds, because several controllers may sign for a node, and a node
    refuses a counter below the highest that it has seen. A statement for a `fleet` counts only on
    nodes whose file of signers allows it for this fleet. After `valid_days` a node makes no
    release of it.
    """

    def __init__(
        self,
        signer: Signer,
        clock: Callable[[], float] = time.time,
        fleet: str | None = None,
        valid_days: int | None = None,
    ) -> None:
        self._signer, self._clock, self._fleet = signer, clock, fleet
        self._valid_days = valid_days
        self._lock = threading.Lock()  # groups of an apply sign side by side
        self._signed: dict[str, SignedRelease] = {}

    def __call__(self, about: Mapping[str, Any]) -> SignedRelease:
        """Return the signed statement; raise ConfigError if nothing can be signed."""
        key = text_of(about)
        with self._lock:
            if key not in self._signed:
                statement = {**about, "counter": int(self._clock())}
                if self._fleet:
                    statement["fleet"] = self._fleet
                if self._valid_days:
                    statement["valid_until"] = statement["counter"] + self._valid_days * _DAY
                self._signed[key] = self._sign(statement)
            return self._signed[key]

    def _sign(self, statement: dict[str, Any]) -> SignedRelease:
        with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
            file = Path(folder) / "release.json"
            file.write_text(text_of(statement), encoding="utf-8")
            fleet = f".{self._fleet}" if self._fleet else ""
            signature = self._signer.sign(file, RELEASE_NAMESPACE.format(fleet))
            return SignedRelease(statement, signature.read_text(encoding="utf-8"))


def text_of(statement: Mapping[str, Any]) -> str:
    """Return the text that is signed: JSON in its one canonical form."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"))
