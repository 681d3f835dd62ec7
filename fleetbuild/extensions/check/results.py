"""Results about files, by hash: what the code needs, and how it ran under QEMU.

In: needs and runs. Out: a verdict from both, the same for the next check. The runs of
docs/baselines.md come with fleetbuild.
"""

from __future__ import annotations

import lzma
import re
import tempfile
from collections.abc import Iterable, Set
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import ValidationError

from fleetbuild.extensions.check.judge import judge
from fleetbuild.extensions.check.machine_kinds import MachineKind
from fleetbuild.extensions.check.needs import WheelNeeds
from fleetbuild.extensions.check.qemu_cpus import emulated_features, not_emulated
from fleetbuild.files import make_cache, own_cache, raise_if_full, write_atomically
from fleetbuild.hardware.data import load
from fleetbuild.models._base import Frozen
from fleetbuild.models.verdict import Verdict

READER = 12  # raised when read_needs finds more, so that files are read again
_FILE = re.compile(rb'"file":"([^"]+\.whl)"', re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class EmulatedRun(Frozen):
    """How a file ran on a CPU that QEMU imitated, whatever was read from it."""

    cpu: str  # QEMU's -cpu
    qemu: str  # its version
    python: str  # cp311
    uses: tuple[str, ...]  # the features that the file's code uses anywhere
    beside: tuple[str, ...] = ()  # the sha256 of each other wheel that was installed
    exercised: bool = False  # whether the package was used after its imports
    use: str = ""  # the sha256 of a given use (--use) that ran, too
    verdict: Verdict


class FileResults(Frozen):
    """All results about one file."""

    sha256: str
    file: str
    reader: int = READER
    needs: WheelNeeds | None = None
    sound: bool = False  # whether the audit of the whole wheel found no defect here
    runs: tuple[EmulatedRun, ...] = ()

    def with_run(self, run: EmulatedRun) -> FileResults:
        """Return the results with one more run."""
        return self.model_copy(update={"runs": (*self.runs, run)})

    def counts(self, run: EmulatedRun) -> bool:
        """Return whether a run used the package if a use of it is known now, or died before."""
        return run.exercised or run.verdict.dies or not use_of(self.file.partition("-")[0])

    def on_cpu(
        self, features: Set[str], python: str, beside: Iterable[str] = (), use: str = ""
    ) -> EmulatedRun | None:
        """Return a run on a CPU that has and lacks the same features of those in the code.

        `beside` are the hashes of the wheels that are installed with this one. A run with another
        wheel says nothing about these: its code may have decided how the run ended. `use` is the
        hash of a given use.
        """
        there = {self.sha256, *beside}
        read = uses_of(self.needs) if self.needs else ()
        for run in self.runs:
            differing = emulated_features(run.cpu) ^ features
            if run.verdict.verdict != "undecided":  # else another package's code may be the cause
                differing &= {*run.uses, *read}
            same = (run.python, run.use) == (python, use) and there.issuperset(run.beside)
            if same and self.counts(run) and not differing:
                return run
        return None


def verdict_from(
    results: FileResults,
    kind: MachineKind,
    *,
    package: str,
    beside: Iterable[str] = (),
    use: str = "",
) -> Verdict:
    """Return the verdict from reading and, if a run on such a CPU is known, from the run.

    `beside` are the hashes of the wheels that are installed with it; `use` is a given use's hash.
    """
    run = results.on_cpu(kind.features, kind.python, beside, use)
    if run and run.verdict.dies:
        return run.verdict
    if results.needs is None:
        return undecided("it was not read")
    static = judge(
        results.needs, package=package, arch=kind.arch, features=kind.features, sms=kind.sms
    )
    if run is None or static.verdict == "no-kernel" or not (results.needs.files or run.use):
        return static
    return combine(run, static, kind.features)


def combine(run: EmulatedRun, static: Verdict, features: Set[str]) -> Verdict:
    """Return what follows from a run and from reading. Code that did not run stays undecided."""
    ran = run.verdict
    if ran.verdict != "runs":
        return _worse(ran, static)
    did = "its imports and a small use run" if run.exercised else "its imports run"
    did = "its imports and the given use run" if run.use else did
    if static.dies:  # in code that was not reached, or in a file that nothing loaded
        return undecided(f"{did}; but {static.where}")
    if static.verdict == "undecided" and not static.checks:
        return static
    if static.checks and not run.exercised:
        return undecided(f"its imports run, and no use of it is known; {static.where}")
    note = f"{static.where}; " if static.where else ""
    if hidden := sorted(features & not_emulated()):
        note += f"QEMU has no {', '.join(hidden[:4])}, so code for them was read and not run"
        return static.model_copy(update={"where": note})
    if static.checks:  # the dispatchers that reading could not follow chose well
        note = f"{did}; not reached: {static.where}"
    chosen = static.features if static.checks else static.guarded
    return ran.model_copy(update={"where": note or None, "guarded": chosen})


def _worse(ran: Verdict, static: Verdict) -> Verdict:
    """Return the death of either, else the open questions of both."""
    if ran.dies or static.dies:
        return ran if ran.dies else static
    return undecided(f"{ran.where}; {static.where}") if static.where else ran


def uses_of(needs: WheelNeeds) -> tuple[str, ...]:
    """Return the features that the code of a wheel uses anywhere."""
    return tuple(sorted({use.feature for elf in needs.files for use in elf.features}))


@cache
def _of_this_run() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fleetbuild-")


def undecided(why: str) -> Verdict:
    """Return the verdict of a run that decides nothing."""
    return Verdict(verdict="undecided", where=why, evidence="emulated")


def use_of(package: str) -> str:
    """Return Python code that uses a package a little; empty if none is known."""
    return _uses().get(canonicalize_name(package), "")


@cache
def _uses() -> dict[str, str]:
    return dict(load("uses.yml", "fleetbuild.extensions.check")["uses"])


class SharedResults(Frozen):
    """The runs that come with fleetbuild."""

    results: tuple[FileResults, ...] = ()


class Results:
    """The user's results, one file for each hash, whatever the project.

    They decide what serves, so a folder that another user can replace is not used: then results
    are kept for this run alone, as with a HOME that cannot be written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or own_cache("evidence")
        try:
            make_cache(self._folder)
        except OSError as error:
            raise_if_full(error)
            self._folder = Path(_of_this_run().name)

    def of(self, sha256: str, file: str) -> FileResults:
        """Return the results about a file, but no needs that an older reader found.

        What comes with fleetbuild counts where this folder has nothing.
        """
        results = FileResults(sha256=sha256, file=file)
        if path := self._path(sha256):
            with suppress(OSError, ValidationError):
                kept = FileResults.model_validate_json(path.read_bytes())
                results = kept if kept.sha256 == sha256 else results
        if results.reader != READER:
            results = results.model_copy(update={"needs": None, "sound": False, "reader": READER})
        if results.needs is None and (line := _shipped_readings().get(sha256)):
            needs = WheelNeeds.model_validate_json(line)
            results = results.model_copy(update={"needs": needs})
        shipped = shipped_runs().get(sha256)
        return _with_runs(results, shipped.runs) if shipped else results

    def known_files(self, package: str) -> tuple[tuple[Version, FileResults], ...]:
        """Return the wheels of a package whose needs are known, newest version first."""
        heads = {path.stem: _head(path) for path in self._folder.glob("*.json")}
        heads = {sha256: text[:500] for sha256, text in _shipped_readings().items()} | heads
        found = []
        for sha256, head in heads.items():
            name = _FILE.search(head)
            with suppress(InvalidWheelFilename):
                file = name[1].decode() if name else ""
                distribution, version, *_ = parse_wheel_filename(file)
                if distribution == canonicalize_name(package):
                    found.append((version, self.of(sha256, file)))
        return tuple(sorted(found, key=lambda pair: pair[0], reverse=True))

    def keep(self, results: FileResults) -> None:
        """Write the results about a file; the next check tries again what decided nothing."""
        shipped = shipped_runs().get(results.sha256)
        runs = [
            run
            for run in results.runs
            if run.verdict.verdict != "undecided" and not (shipped and run in shipped.runs)
        ]
        results = results.model_copy(update={"runs": tuple(runs)})
        if path := self._path(results.sha256):
            write_atomically(path, results.model_dump_json() + "\n", mode=0o644)

    def _path(self, sha256: str) -> Path | None:
        return self._folder / f"{sha256}.json" if _SHA256.fullmatch(sha256) else None


@cache
def shipped_runs() -> dict[str, FileResults]:
    """Return the runs that come with fleetbuild, by the file's hash."""
    data = files("fleetbuild.extensions.check").joinpath("data/baselines.json").read_bytes()
    return {one.sha256: one for one in SharedResults.model_validate_json(data).results}


def _head(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(500)
    return b""


@cache
def _shipped_readings() -> dict[str, bytes]:
    """Return what this version's reader found in files before it was released, by their hashes."""
    return unpack_readings(
        files("fleetbuild.extensions.check").joinpath("data/readings.xz").read_bytes()
    )


def unpack_readings(packed: bytes) -> dict[str, bytes]:
    """Return hash -> needs as JSON. Those of a file without machine code suit every reader."""
    reader, *lines = lzma.decompress(packed).splitlines()
    known = (line.split(b" ", 1) for line in lines)
    same = int(reader) == READER
    return {sha256.decode(): text for sha256, text in known if same or b'"files"' not in text}


def _with_runs(results: FileResults, more: Iterable[EmulatedRun]) -> FileResults:
    """Return the results with these runs, but for CPUs on which the file ran so already."""
    known = {(run.cpu, run.python, run.beside, run.use) for run in results.runs}
    new = tuple(run for run in more if (run.cpu, run.python, run.beside, run.use) not in known)
    return results.model_copy(update={"runs": (*results.runs, *new)})
