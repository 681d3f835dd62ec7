"""Code cut into pieces, one for each function, and read in chunks that keep memory small."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fleetbuild.audit.models import FeatureUse, When

_CHUNK = 8 * 2**20
_NEAR = 4096  # pieces closer than this are read together


Kind = tuple[When, bool]
Found = tuple[FeatureUse, bool]  # and whether it is in a local function


class Piece(NamedTuple):
    """A function, or bytes between functions: where in the file, and when its code runs."""

    start: int
    end: int
    shift: int  # from the place in the file to the address
    when: When
    known: bool  # a function; else bytes that may be data
    local: bool = False  # no other file can call it, and the linker merged nothing into it

    @property
    def kind(self) -> Kind:
        """Return the key that tells uses apart."""
        return self.when, self.local


@dataclass(frozen=True)
class Chunk:
    """Bytes of a file, and the pieces in them; a piece may begin before and end after them."""

    start: int
    data: bytes
    pieces: list[Piece]


def chunks(data: bytes, pieces: Iterable[Piece], margin: int) -> Iterator[Chunk]:
    """Yield the bytes of pieces, which are in order; each chunk has a margin before and after.

    Pages are given back after reading: a mapped file would fill the memory otherwise.
    """
    together: list[Piece] = []
    for piece in pieces:
        first = together[0].start if together else piece.start
        if together and (
            piece.end - first > _CHUNK or not 0 <= piece.start - together[-1].end < _NEAR
        ):
            yield from _parts(data, together, margin)
            together = []
        together.append(piece)
    if together:
        yield from _parts(data, together, margin)


def _parts(data: bytes, pieces: list[Piece], margin: int) -> Iterator[Chunk]:
    start, end = pieces[0].start, pieces[-1].end
    for at in range(start, end, _CHUNK):
        stop = min(end, at + _CHUNK)
        first = max(at - margin, 0)
        inside = [piece for piece in pieces if piece.start < stop and piece.end > at]
        yield Chunk(first, data[first : stop + margin], inside)
        forget(data, at, stop)


def find(data: bytes, text: bytes, start: int, end: int) -> int:
    """Return where a short text begins next, or -1, as bytes.find; pages are given back.

    Python 3.11 reads the byte behind the searched ones, and behind a mapped file may be no memory:
    the end is compared by itself.
    """
    end = min(end, len(data))
    last, place = end - len(text), start
    while place < last:
        stop = min(last, place + _CHUNK)
        found = data.find(text, place, stop + len(text) - 1)
        if found >= 0:
            return found
        forget(data, place, stop)
        place = stop
    return last if last >= start and data[last:end] == text else -1


def forget(data: bytes, start: int, end: int) -> None:
    """Let the system take back the memory of a part of a mapped file."""
    if isinstance(data, mmap.mmap):
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, start, end - start)
