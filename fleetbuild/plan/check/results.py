"""Keep results about files, by their hash: their needs, and how they ran under QEMU.

In: findings. Out: the same for the next check, and one file that others can import. The runs of
docs/baselines.md come with fleetbuild, as such a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.audit.models import WheelNeeds
from fleetbuild.audit.verdict import Verdict
from fleetbuild.errors import UsageError
from fleetbuild.files import write_atomically
from fleetbuild.models._base import Frozen

_FORMAT = "2.0"
READER = 3  # raised when read_needs finds more, so that files are read again
_MAX_BYTES = 256 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Run(Frozen):
    """How a file ran on a CPU that QEMU imitated, whatever was read from it."""

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
    runs: tuple[Run, ...] = ()

    def on_cpu(self, cpu: str, python: str) -> Verdict | None:
        """Return how it ran on this CPU, or None if that is not known."""
        for run in self.runs:
            if (run.cpu, run.python) == (cpu, python):
                return run.verdict
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
        """Return the results about a file, but no needs that an older reader found."""
        results = FileResults(sha256=sha256, file=file)
        if path := self._path(sha256):
            with suppress(OSError, ValidationError):
                kept = FileResults.model_validate_json(path.read_bytes())
                results = kept if kept.sha256 == sha256 else results
        if results.reader != READER:
            results = results.model_copy(update={"needs": None, "reader": READER})
        return _with_runs(results, shipped_runs().get(sha256, ()))

    def keep(self, results: FileResults) -> None:
        """Write the results about a file."""
        if path := self._path(results.sha256):
            write_atomically(path, results.model_dump_json() + "\n", mode=0o644)

    def export(self, files: Iterable[tuple[str, str]], to: Path) -> int:
        """Write the results about these files, by hash and name, into one file."""
        known = [self.of(sha256, name) for sha256, name in sorted(set(files))]
        shared = SharedResults(results=tuple(one for one in known if one.needs or one.runs))
        try:
            write_atomically(to, shared.model_dump_json(indent=1) + "\n", mode=0o644)
        except OSError as error:
            raise UsageError(
                f"{to} cannot be written: {error.strerror}.", "Name another file."
            ) from None
        return len(shared.results)

    def import_from(self, path: Path) -> int:
        """Add the results of an exported file; results that are here already stay."""
        shared = _read(path)
        for one in shared.results:
            here = self.of(one.sha256, one.file)
            needs = here.needs or (one.needs if one.reader == READER else None)
            self.keep(_with_runs(here.model_copy(update={"needs": needs}), one.runs))
        return len(shared.results)

    def _path(self, sha256: str) -> Path | None:
        return self._folder / f"{sha256}.json" if _SHA256.fullmatch(sha256) else None


@cache
def shipped_runs() -> dict[str, tuple[Run, ...]]:
    """Return the runs that come with fleetbuild, by the file's hash."""
    data = files("fleetbuild.plan.check").joinpath("data/baselines.json").read_bytes()
    return {one.sha256: one.runs for one in SharedResults.model_validate_json(data).results}


def _with_runs(results: FileResults, more: Iterable[Run]) -> FileResults:
    """Return the results with these runs, but for CPUs on which the file has run already."""
    known = {(run.cpu, run.python) for run in results.runs}
    new = tuple(run for run in more if (run.cpu, run.python) not in known)
    return results.model_copy(update={"runs": (*results.runs, *new)})


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
