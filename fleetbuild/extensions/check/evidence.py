"""Evidence for plans, `explain` and `audit --for`: how wheels ran, and the needs of their code.

In: files and targets. Out: verdicts, and the needs of a published wheel's code. A reading is kept
by hash. Dependencies are read only for CPUs below x86-64-v2, where many new wheels die.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit import audit_wheel
from fleetbuild.audit.check import implied_features
from fleetbuild.errors import AuditError, InstallError
from fleetbuild.extension import Evidence
from fleetbuild.extensions.check.check_stack import judge_wheel
from fleetbuild.extensions.check.machine_kinds import MachineKind
from fleetbuild.extensions.check.needs import read_needs
from fleetbuild.extensions.check.qemu_cpus import is_imitated
from fleetbuild.extensions.check.results import FileResults, Results, shipped_runs, verdict_from
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import LockedFile, Target
from fleetbuild.models.verdict import VERDICT_WORDS, Code, Verdict
from fleetbuild.plan.resolve.published import code_of
from fleetbuild.plan.resolve.sandbox import PYTHON_TAG
from fleetbuild.text import version_key
from fleetbuild.toolchains.pytorch import python_of


@cache  # most targets are asked about many files
def _kind_of(target: Target) -> MachineKind:
    return MachineKind(
        name=target.name,
        arch=target.arch,
        features=implied_features(target.arch, target.features),
        sms=target.sms,
        python=target.python,
        python_version=python_of(target.python),
        libc=target.libc,
    )


class KnownFiles(Evidence):
    """Answers from the results of this user and of fleetbuild's authors; looks each up once."""

    judge = staticmethod(judge_wheel)

    def __init__(self, fetch: Callable[[LockedFile], Path] | None) -> None:
        self._fetch = fetch
        self._results = Results()
        self._known: dict[str, FileResults] = {}  # by hash
        self._tried: set[str] = set()  # hashes of dependencies that were read, or could not be

    def verdict(
        self, file: LockedFile, target: Target, beside: Iterable[LockedFile]
    ) -> Verdict | None:
        if RUNGS[target.isa] < RUNGS["x86-64-v2"]:
            self._read(file)
        known = self._of(file)
        kind, hashes = _kind_of(target), [other.sha256 for other in beside]
        run = known.on_cpu(kind.features, kind.python, hashes)
        if known.needs is None and not (run and run.verdict.dies):
            return None
        found = verdict_from(known, kind, package=file.name, beside=hashes)
        if not found.dies:
            return found
        instead = sorted(_running(file.name, kind), key=version_key)
        return found.model_copy(update={"instead": tuple(instead)})

    def code(self, file: LockedFile, target: Target) -> Code | None:
        """Return what the code needs; what only runs behind a check of the CPU does not count.

        If it is known how the file ran on such a CPU, that decides about its code for the CPU. A
        run that ended well counts whatever else was installed: the instructions are the same.
        """
        if self._fetch is None:
            return None
        known = self._of(file)
        if known.needs is None or not known.sound:
            path = self._fetch(file)
            needs = known.needs or read_needs(path)
            defects = (*needs.problems, *audit_wheel(path, read_code=False).problems)
            if problem := code_of(needs.files, defects).problem:
                return Code(problem=problem)
            known = self._keep(known, needs=needs, sound=True)
        kind = _kind_of(target).model_copy(update={"sms": ()})
        hashes = [one for run in known.runs if not run.verdict.dies for one in run.beside]
        found = verdict_from(known, kind, package=file.name, beside=hashes)
        code = code_of(known.needs.files if known.needs else ())
        if found.evidence == "static":
            decides = found.checks and target.python == PYTHON_TAG
            undecided = decides and is_imitated(kind.arch, kind.features)
            return code.model_copy(update={"undecided": undecided})
        if found.dies:
            died = f"it {VERDICT_WORDS[found.verdict]} there: {found.where}"
            return code.model_copy(update={"problem": died})
        ran = found.verdict == "runs"
        return code.model_copy(update={"features": (), "ran": True}) if ran else code

    def _of(self, file: LockedFile) -> FileResults:
        if file.sha256 not in self._known:
            self._known[file.sha256] = self._results.of(file.sha256, file.file)
        return self._known[file.sha256]

    def _read(self, file: LockedFile) -> None:
        known = self._of(file)
        if known.needs or not self._fetch or file.sha256 in self._tried:
            return
        self._tried.add(file.sha256)
        if not file.file.endswith("-any.whl"):
            with suppress(AuditError, InstallError):  # whoever installs it says so
                self._keep(known, needs=read_needs(self._fetch(file)))

    def _keep(self, known: FileResults, **changes: object) -> FileResults:
        known = known.model_copy(update=changes)
        self._results.keep(known)
        self._known[known.sha256] = known
        return known


def _running(name: str, kind: MachineKind) -> Iterator[str]:
    """Yield the versions that ran on such a CPU, by the runs that come with fleetbuild."""
    for results in shipped_runs().values():
        try:
            package, version, *_ = parse_wheel_filename(results.file)
        except InvalidWheelFilename:
            continue
        run = results.on_cpu(kind.features, kind.python) if package == name else None
        if run and run.verdict.verdict == "runs":
            yield str(version)
