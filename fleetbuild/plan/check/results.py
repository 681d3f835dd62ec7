"""Keep results about files, by their hash: their needs, and how they ran under QEMU.

In: findings. Out: the same for the next check, and one file that others can import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.audit.models import WheelNeeds
from fleetbuild.audit.verdict import Verdict
from fleetbuild.errors import UsageError
from fleetbuild.files import write_atomically
from fleetbuild.models._base import Frozen

_FORMAT = "1.0"
READER = 3  # raised when read_needs finds more, so that files are read again
_MAX_BYTES = 256 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Emulated(Frozen):
    """How a file ran on a CPU that QEMU imitated."""

    cpu: str  # QEMU's -cpu
    qemu: str  # its version
    python: str  # cp311
    verdict: Verdict


class FileResults(Frozen):
    """All results about one file."""

    sha256: str
    file: str
    reader: int = READER
    needs: WheelNeeds | None = None
    emulated: tuple[Emulated, ...] = ()

    def on_cpu(self, cpu: str, qemu: str, python: str) -> Verdict | None:
        """Return how it ran on this CPU under this QEMU, or None if that was not tried."""
        for one in self.emulated:
            if (one.cpu, one.qemu, one.python) == (cpu, qemu, python):
                return one.verdict
        return None


class SharedResults(Frozen):
    """The file of `check --export`."""

    format_version: str = _FORMAT
    results: tuple[FileResults, ...] = ()


class Results:
    """A folder of results, one file for each hash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, sha256: str, file: str) -> FileResults:
        """Return the results about a file, but none that an older reader made."""
        nothing = FileResults(sha256=sha256, file=file)
        path = self._path(sha256)
        if path is None:
            return nothing
        try:
            known = FileResults.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return nothing
        return known if (known.sha256, known.reader) == (sha256, READER) else nothing

    def keep(self, results: FileResults) -> None:
        """Write the results about a file."""
        if path := self._path(results.sha256):
            write_atomically(path, results.model_dump_json() + "\n", mode=0o644)

    def export(self, files: Iterable[tuple[str, str]], to: Path) -> int:
        """Write the results about these files, by hash and name, into one file."""
        known = [self.of(sha256, name) for sha256, name in sorted(set(files))]
        shared = SharedResults(results=tuple(one for one in known if one.needs or one.emulated))
        try:
            write_atomically(to, shared.model_dump_json(indent=1) + "\n", mode=0o644)
        except OSError as error:
            raise UsageError(
                f"{to} cannot be written: {error.strerror}.", "Name another file."
            ) from None
        return len(shared.results)

    def import_from(self, path: Path) -> int:
        """Add the results of an exported file; results that are here already stay."""
        for one in (shared := _read(path)).results:
            here = self.of(one.sha256, one.file)
            tried = {(each.cpu, each.qemu, each.python) for each in here.emulated}
            more = (e for e in one.emulated if (e.cpu, e.qemu, e.python) not in tried)
            if one.reader != READER:
                continue
            merged = {"needs": here.needs or one.needs, "emulated": (*here.emulated, *more)}
            self.keep(here.model_copy(update=merged))
        return len(shared.results)

    def _path(self, sha256: str) -> Path | None:
        return self._folder / f"{sha256}.json" if _SHA256.fullmatch(sha256) else None


def _read(path: Path) -> SharedResults:
    fix = "Name a file that fleetbuild check --export wrote."
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB.", fix)
        shared = SharedResults.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", fix) from None
    except ValidationError:
        raise UsageError(f"{path} does not hold results of checks.", fix) from None
    if shared.format_version != _FORMAT:
        raise UsageError(f"{path} has the format {shared.format_version}, not {_FORMAT}.", fix)
    if wrong := [one.sha256 for one in shared.results if not _SHA256.fullmatch(one.sha256)]:
        raise UsageError(f"{path} names {wrong[0][:80]!r}, which is not a sha256.", fix)
    return shared
