"""Host keys from known_hosts files, read once and looked up for each node.

Plain and hashed names are supported. Patterns, negations and markers are left to OpenSSH, which is
used if no key is found here.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paramiko import PKey


@dataclass(frozen=True, order=True)
class _Line:
    """A line: its position, and its key."""

    number: int
    kind: str
    key: str


class KnownHosts:
    """Host keys by name; each line is read once, since fleets and files may be large."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.beyond = False  # contains @cert-authority, @revoked or a negation
        self._plain: dict[str, list[_Line]] = {}
        self._hashed: list[tuple[bytes, bytes, _Line]] = []  # salt, hash of the name
        for number, line in enumerate(lines):
            words = line.split()
            if words and words[0].startswith("@"):
                self.beyond = True
            elif len(words) >= 3 and not words[0].startswith("#"):
                self._take(words[0].split(","), _Line(number, words[1], words[2]))

    def keys_of(self, name: str) -> dict[str, PKey]:
        """Return the first key of each kind for exactly this name."""
        keys: dict[str, PKey] = {}
        for line in sorted(self._lines_of(name)):
            key = _read(line)
            if key is not None:
                keys.setdefault(key.get_name(), key)
        return keys

    def _take(self, names: list[str], line: _Line) -> None:
        for name in names:
            if name.startswith("!"):  # it may negate a name on the same line
                self.beyond = True
            elif name.startswith("|1|"):
                self._hashed += ((*hashed, line) for hashed in _salt_and_hash(name))
            else:
                self._plain.setdefault(name.lower(), []).append(line)

    def _lines_of(self, name: str) -> Iterator[_Line]:
        yield from self._plain.get(name, ())
        called = name.encode()
        for salt, digest, line in self._hashed:
            if hmac.digest(salt, called, "sha1") == digest:
                yield line


def _salt_and_hash(name: str) -> Iterator[tuple[bytes, bytes]]:
    try:
        _, _, salt, digest = name.split("|")
        yield b64decode(salt, validate=True), b64decode(digest, validate=True)
    except ValueError:
        return  # damaged: it matches no name


def _read(line: _Line) -> PKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from paramiko import PKey, SSHException  # noqa: PLC0415
    from paramiko.pkey import UnknownKeyType  # noqa: PLC0415

    try:
        return PKey.from_type_string(line.kind, b64decode(line.key))
    except (SSHException, UnknownKeyType, UnsupportedAlgorithm, ValueError):
        return None  # damaged, or of a kind that paramiko does not know
