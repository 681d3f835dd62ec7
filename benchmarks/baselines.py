"""What published wheels need, and on which CPUs they run.

`python -m benchmarks.baselines` reads and runs each stack of baselines.yml that has not run yet. It
writes docs/baselines.md and the guest's data/baselines.json; `--write` only writes them.
Each cell is predicted by reading, then run, so the page also shows how good the prediction is.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from fleetbuild.errors import FleetbuildError
from fleetbuild.extensions.check.emulate import (
    installed,
    qemu_cpu_of,
    qemu_version,
    require_emulation,
    run_emulated,
)
from fleetbuild.extensions.check.judge import judge
from fleetbuild.extensions.check.machine_kinds import MachineKind, named_kinds
from fleetbuild.extensions.check.needs import WheelNeeds, read_needs
from fleetbuild.extensions.check.results import (
    EmulatedRun,
    FileResults,
    Results,
    SharedResults,
    combine,
    use_of,
    uses_of,
)
from fleetbuild.files import write_atomically
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import LockedFile
from fleetbuild.models._base import Frozen
from fleetbuild.models.verdict import VERDICT_WORDS, Verdict
from fleetbuild.plan.resolve.sandbox import PYTHON_TAG, SandboxError
from fleetbuild.plan.resolve.uv import resolve
from fleetbuild.store.index_config import index_settings
from fleetbuild.store.wheels import Store

HERE = Path(__file__)
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "baselines.md"
DATA = ROOT / "fleetbuild/extensions/check/data/baselines.json"


class Entry(Frozen):
    """A file of the page: one that a stack installs."""

    name: str
    version: str
    file: str
    sha256: str
    arch: str


ENTRIES = TypeAdapter(list[Entry])


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Survey:
    """The files of the stacks, their needs and their runs, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        table = yaml.safe_load(HERE.with_suffix(".yml").read_text("utf-8"))
        self.stacks: list[str] = table["stacks"]
        self.kinds = named_kinds(table["kinds"])
        self.arm = named_kinds(table["arm"])
        self.results = Results(folder / "checks")
        self._store = Store(folder / "store", index_settings())
        self._done = folder / "done"
        self._done.mkdir(parents=True, exist_ok=True)

    def run_all(self) -> None:
        """Read and run every stack that has not run yet."""
        for stack in self.stacks:
            kept = self._done / f"{stack.replace(' ', '+')}.json"
            if kept.exists():
                continue
            try:
                entries = self._run(stack)
            except (FleetbuildError, SandboxError) as problem:
                say(f"{stack}: {problem}")
                continue
            kept.write_bytes(ENTRIES.dump_json(entries))

    def entries(self) -> list[Entry]:
        """Return the files of all stacks that have run, each once."""
        files = {
            entry.sha256: entry
            for path in self._done.glob("*.json")
            for entry in ENTRIES.validate_json(path.read_bytes())
        }
        return sorted(files.values(), key=lambda entry: (entry.name, entry.version))

    def needs(self, entry: Entry) -> WheelNeeds:
        """Return what a file needs."""
        file = LockedFile(url="", **entry.model_dump(exclude={"arch"}))  # it is in the store
        return self._read(file).needs or WheelNeeds(file=entry.file)

    def run(self, entry: Entry, kind: MachineKind) -> EmulatedRun | None:
        """Return how a file ran on the CPU of a kind."""
        return self.results.of(entry.sha256, entry.file).on_cpu(kind.features, kind.python)

    def _run(self, stack: str) -> list[Entry]:
        entries = []
        with ExitStack() as environments:
            folder: Path | None = None
            wheels = self._resolved(stack, self.kinds[0])
            for file in wheels:
                results = self._read(file)
                if not results.needs or not results.needs.files:
                    continue
                entries.append(_entry(file, "x86_64"))
                for kind in self.kinds:
                    if results.on_cpu(kind.features, kind.python):
                        continue
                    folder = folder or environments.enter_context(
                        installed([self._store.fetch(wheel) for wheel in wheels])
                    )
                    verdict = run_emulated(kind, file.name, self._store.fetch(file), folder)
                    run = EmulatedRun(
                        cpu=qemu_cpu_of(kind),
                        qemu=qemu_version(),
                        python=kind.python,
                        uses=uses_of(results.needs),
                        exercised=bool(use_of(file.name)),
                        verdict=verdict,
                    )
                    results = results.with_run(run)
                    self.results.keep(results)
                    say(f"{file.name} {file.version} on {kind.name}: {verdict.verdict}")
        try:
            named = [file for file in self._resolved(stack, self.arm[0]) if file.name in stack]
        except FleetbuildError as problem:
            say(f"{stack}, aarch64: {problem}")
            named = []
        entries += [_entry(file, "aarch64") for file in named if self._read(file).needs]
        return entries

    def _resolved(self, stack: str, kind: MachineKind) -> Sequence[LockedFile]:
        answer = resolve(kind.request(stack.split()), self._store.settings)
        if answer.problem:
            raise FleetbuildError(answer.problem, answer.fix or "")
        return answer.wheels

    def _read(self, file: LockedFile) -> FileResults:
        results = self.results.of(file.sha256, file.file)
        if results.needs is None:
            needs = read_needs(self._store.fetch(file))
            results = results.model_copy(update={"needs": needs})
            self.results.keep(results)
        return results


def _entry(file: LockedFile, arch: str) -> Entry:
    return Entry(
        name=file.name, version=file.version, file=file.file, sha256=file.sha256, arch=arch
    )


def write(survey: Survey) -> None:
    """Write the page, and the runs that come with fleetbuild."""
    entries = survey.entries()
    results = [survey.results.of(entry.sha256, entry.file) for entry in entries]
    shipped = SharedResults(
        results=tuple(
            FileResults(sha256=one.sha256, file=one.file, runs=tuple(filter(one.counts, one.runs)))
            for one in sorted(results, key=lambda one: one.sha256)
            if one.runs
        )
    )
    text = shipped.model_dump_json(indent=1, exclude_defaults=True)
    write_atomically(DATA, text + "\n", mode=0o644)
    write_atomically(PAGE, page(survey, entries), mode=0o644)


def page(survey: Survey, entries: Sequence[Entry]) -> str:
    """Return docs/baselines.md."""
    x86 = [entry for entry in entries if entry.arch == "x86_64"]
    arm = [entry for entry in entries if entry.arch == "aarch64" and survey.needs(entry).files]
    counts: Counter[str] = Counter()
    rows = []
    for entry in x86:
        cells = []
        for kind in survey.kinds:
            predicted, run = predict(survey, entry, kind), survey.run(entry, kind)
            if run is None:
                cells.append("-")
                continue
            counts[compare(predicted, run.verdict)] += 1
            final = combine(run, predicted, kind.features)
            cells.append(f"{VERDICT_WORDS[predicted.verdict]} / {VERDICT_WORDS[final.verdict]}")
        rows.append([f"{entry.name} {entry.version}", loads(survey, entry), *map(short, cells)])
    arm_rows = [
        [
            f"{entry.name} {entry.version}",
            loads(survey, entry),
            *(VERDICT_WORDS[predict(survey, entry, kind).verdict] for kind in survey.arm),
        ]
        for entry in arm
    ]
    text = HERE.with_suffix(".md").read_text("utf-8")
    outcomes = [[outcome, str(number)] for outcome, number in counts.most_common()]
    return (
        text.replace("@FILES@", str(len(x86)))
        .replace("@CELLS@", str(sum(counts.values())))
        .replace("@QEMU@", qemu_version())
        .replace("@PYTHON@", PYTHON_TAG)
        .replace("@COUNTS@", table(["outcome", "cells"], outcomes))
        .replace("@X86@", table(["wheel", "to load", *(k.name for k in survey.kinds)], rows))
        .replace("@ARM@", table(["wheel", "to load", *(k.name for k in survey.arm)], arm_rows))
    )  # fmt: skip


def short(cell: str) -> str:
    """Return one word where reading and the run agree."""
    read, _, ran = cell.partition(" / ")
    return read if read == ran else cell


def predict(survey: Survey, entry: Entry, kind: MachineKind) -> Verdict:
    """Return the verdict from reading alone."""
    return judge(survey.needs(entry), package=entry.name, arch=kind.arch, features=kind.features)


def loads(survey: Survey, entry: Entry) -> str:
    """Return the rung that loading needs."""
    files = [elf for elf in survey.needs(entry).files if elf.arch == entry.arch]
    features = frozenset[str]().union(*(elf.load for elf in files))
    rungs = named_kinds(name for name, rung in RUNGS.items() if rung.arch == entry.arch)
    fitting = (rung.name for rung in rungs if features <= rung.features)
    return next(fitting, ", ".join(sorted(features)))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def compare(predicted: Verdict, run: Verdict) -> str:
    """Return how a prediction and a run go together."""
    if run.verdict == "undecided":
        return "the run decided nothing (it fails without QEMU, too, or in another package)"
    if predicted.verdict == "undecided":
        return "not decided by reading; it " + ("died" if run.dies else "ran")
    if predicted.dies == run.dies:
        return "reading and run agree"
    return "a death predicted as fine" if run.dies else "a predicted death that ran"


def main() -> None:
    """Run what has not run, and write the page and the data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=ROOT / ".fleetbuild")
    parser.add_argument("--write", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    survey = Survey(arguments.state)
    if not arguments.write:
        require_emulation()
        survey.run_all()
    write(survey)


if __name__ == "__main__":
    main()
