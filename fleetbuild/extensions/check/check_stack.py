"""Check a stack: resolve it for each kind of machine, read each file once, judge it for each kind.

In: requirements or a lock, and kinds. Out: a `CheckReport`. What a file needs is read from its
code. With `emulate`, the files are run on the CPU of each kind as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from fleetbuild.audit.ownership import owners
from fleetbuild.errors import (
    AuditError,
    BlockedError,
    FleetbuildError,
    InstallError,
    ResolutionError,
    UsageError,
)
from fleetbuild.extensions.check.emulate import (
    installed,
    is_used,
    qemu_cpu_of,
    qemu_version,
    read_use,
    require_emulation,
    run_emulated,
    why_not_emulated,
)
from fleetbuild.extensions.check.environment import installed_packages, read_package
from fleetbuild.extensions.check.machine_kinds import (
    MachineKind,
    kinds_of_fleet,
    named_kinds,
    this_machine,
)
from fleetbuild.extensions.check.needs import read_needs
from fleetbuild.extensions.check.qemu_cpus import is_imitated
from fleetbuild.extensions.check.report import CheckReport, CheckRow
from fleetbuild.extensions.check.requirements import locked_wheels, read_requirements
from fleetbuild.extensions.check.results import (
    EmulatedRun,
    FileResults,
    Results,
    shipped_runs,
    undecided,
    use_of,
    uses_of,
    verdict_from,
)
from fleetbuild.files import sha256_of
from fleetbuild.foreign_settings import refuse_foreign_home
from fleetbuild.models import Config, Facts, LockedFile
from fleetbuild.models.verdict import VERDICT_WORDS, Verdict
from fleetbuild.plan.decide.resolution import Resolution
from fleetbuild.plan.resolve.locked_files import read_lock
from fleetbuild.plan.resolve.sandbox import SandboxError
from fleetbuild.plan.resolve.uv import find_wheels, pick_versions, resolve, resolve_all
from fleetbuild.recipes import GENERIC, find_recipe
from fleetbuild.state import StateDir
from fleetbuild.store.index_config import IndexSettings, index_settings, settings_of
from fleetbuild.store.wheels import Store
from fleetbuild.text import count
from fleetbuild.workers import Workers

_ASKERS = 3  # of a package that dies, that are named
_OLDER = 5  # versions that are read before the search ends
_LARGE = 20_000_000  # bytes; downloads of more are announced


def check(
    requirements: Sequence[str] = (),
    *,
    files: Sequence[Path] = (),
    lock: Path | None = None,
    env: Path | None = None,
    kinds: Sequence[str] = (),
    facts: Mapping[str, Facts] | None = None,
    config: Config | None = None,
    emulate: bool = False,
    use: str | None = None,
    instead: bool = False,
    state_dir: Path | str = ".fleetbuild",
    progress: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Return what of a stack runs on each kind of machine, and what dies there.

    `requirements`, requirements `files` or a `lock` name the stack, or `env`, a folder in which it
    is installed. `kinds` name rungs, SMs,
    groups, CPU models or nodes in `facts`; the default are the groups of `facts`, or this machine.
    With `instead`, other versions of what dies are fetched and read; else only known files count.
    `use` is Python code, or a file of it, that `emulate` runs with each package that it imports.
    """
    refuse_foreign_home()  # uv resolves by settings there
    listed = read_requirements(requirements, files)
    wanted = listed.requirements
    named = [what for what in (wanted, lock, env) if what]
    if len(named) != 1:
        raise UsageError(
            "More than one stack is named." if named else "Nothing to check is named.",
            "Name requirements, -r FILE, --lock FILE or --env DIR: fleetbuild check numpy",
        )
    if env and (emulate or instead):
        raise UsageError("Installed packages are read alone.", "Leave out --emulate and --instead.")
    given = read_use(use, emulate=emulate) if use is not None else ""
    locked = read_lock(lock) if lock else None
    meant = named_kinds(kinds, facts) if kinds else ()
    meant = meant or (kinds_of_fleet(facts) if facts else (this_machine(),))
    if emulate:
        require_emulation()
    state = StateDir(Path(state_dir).absolute()).checked().create()
    config = config or Config()
    config = config.model_copy(update={"index": (*config.index, *listed.indexes)})
    settings = settings_of(config, Path.cwd())
    results = Results()
    if env:
        return _environment_report(env, meant, results, progress)
    if locked:
        stacks = {kind.name: _Stack(locked_wheels(locked, kind), {}) for kind in meant}
    else:
        stacks = _resolve(wanted, meant, replace(settings, bounds=listed.constraints))
    with ExitStack() as environments:
        store = Store(state.store, settings)
        checker = _Checker(
            store, results, emulate, environments, progress, instead=instead, use=given
        )
        return checker.report(meant, stacks).model_copy(update={"places": listed.places})


def _environment_report(
    env: Path, kinds: Sequence[MachineKind], results: Results, progress: Callable[[str], None]
) -> CheckReport:
    """Return the report about the packages that are installed in a folder."""
    rows = []
    for package in installed_packages(env):
        progress(f"reading {package.name} {package.version or ''}")
        known = read_package(package, results)
        for kind in kinds:
            verdict = verdict_from(known, kind, package=package.name)
            rows.append(_row(package.name, package.version, kind, verdict))
    meanings = {kind.name: kind.meaning for kind in kinds}
    return CheckReport(rows=tuple(rows), kinds=meanings)


class _Stack:
    """The files to install on a kind of machine, and the packages that have no wheel for it."""

    def __init__(self, resolution: Resolution, without_wheel: Mapping[str, str]) -> None:
        self.wheels = resolution.wheels
        self.problem = (resolution.problem, resolution.fix or "") if resolution.problem else None
        self.without_wheel = without_wheel  # name -> why, and the way out


def _resolve(
    wanted: Sequence[str], kinds: Sequence[MachineKind], settings: IndexSettings
) -> dict[str, _Stack]:
    """Resolve the requirements for each kind; a package without any wheel is left out and named."""
    requests = {kind.name: kind.request(wanted) for kind in kinds}
    answers = resolve_all(requests.values(), settings)
    stacks = {}
    for kind in kinds:
        answer = answers[requests[kind.name]]
        if answer.offline:
            raise BlockedError(str(answer.problem), str(answer.fix))
        bare = _without_wheel(wanted, kind, settings) if answer.problem else {}
        if bare:
            left = [text for text in wanted if _name(text) not in bare]
            answer = resolve(kind.request(left), settings) if left else Resolution()
        stacks[kind.name] = _Stack(answer, bare)
    return stacks


def _without_wheel(
    wanted: Sequence[str], kind: MachineKind, settings: IndexSettings
) -> dict[str, str]:
    """Return the packages that an index has, but with no wheel for this kind of machine, each with
    the index that was asked and the way out."""
    settings = replace(settings, bounds=())
    alone = {text: kind.request([text]) for text in wanted}
    answers = find_wheels(alone.values(), settings)
    return {
        _name(text): _why_without(_name(text), settings)
        for text, request in alone.items()
        if answers[request].problem and _is_on_index(text, kind, settings)
    }


def _why_without(name: str, settings: IndexSettings) -> str:
    return (
        f"it has no wheel in {settings.asked}: whoever installs it"
        " builds it, for the CPU of that machine. If another index has a wheel, name it in"
        f" fleetbuild.yml: package_index: {{{name}: ADDRESS}}"
    )


def _is_on_index(text: str, kind: MachineKind, settings: IndexSettings) -> bool:
    ranges = {_name(text): str(Requirement(text).specifier)}
    try:
        return bool(pick_versions(ranges, (), kind.python_version, settings))
    except ResolutionError:
        return False


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


class _Checker:
    """Judges files, each read once; remembers the environments of the emulation."""

    def __init__(
        self,
        store: Store,
        results: Results,
        emulate: bool,
        environments: ExitStack,
        progress: Callable[[str], None],
        *,
        instead: bool = False,
        use: str = "",
    ) -> None:
        self._use = use
        self._known_users: dict[str, bool] = {}  # by hash: whether the given use imports it
        self._store, self._results, self._emulate = store, results, emulate
        self._fetch_instead = instead
        self._environments, self._progress = environments, progress
        self._known: dict[str, FileResults | str] = {}  # by hash; a text says why it is not read
        self._installed: dict[tuple[str, ...], Path] = {}

    def report(self, kinds: Sequence[MachineKind], stacks: Mapping[str, _Stack]) -> CheckReport:
        """Return the report about the stack of each kind."""
        self._read_all(file for stack in stacks.values() for file in stack.wheels)
        rows = [
            row
            for kind in kinds
            for row in self._with_askers(list(self._rows(kind, stacks[kind.name])))
        ]
        if self._use and not any(self._known_users.values()):
            raise UsageError(
                "--use imports no package of this stack that has a wheel.",
                "Check the packages that it imports, too.",
            )
        order = {kind.name: number for number, kind in enumerate(kinds)}
        return CheckReport(
            rows=tuple(sorted(rows, key=lambda row: (row.name, order[row.kind]))),
            kinds={kind.name: kind.meaning for kind in kinds},
            unresolved={name: stack.problem for name, stack in stacks.items() if stack.problem},
        )

    def judge_alone(self, file: LockedFile, kind: MachineKind, requires: Sequence[str]) -> Verdict:
        """Return the verdict about one file, which runs with what it requires."""
        request = kind.request(requires)
        answer = resolve_all([request], self._store.settings)[request] if requires else Resolution()
        if answer.offline:
            raise BlockedError(str(answer.problem), str(answer.fix))
        if answer.problem:
            return undecided(f"what it requires cannot be installed: {answer.problem}")
        self._read_all([file])
        return self._verdict(file, kind, [file, *answer.wheels])

    def _rows(self, kind: MachineKind, stack: _Stack) -> Iterable[CheckRow]:
        for name, where in stack.without_wheel.items():
            yield CheckRow(
                name=name,
                kind=kind.name,
                verdict="undecided",
                where=where,
                instead=_how_to_build(name),
            )
        for file in stack.wheels:
            verdict = self._verdict(file, kind, stack.wheels)
            yield _row(
                file.name,
                file.version,
                kind,
                verdict,
                file=file.file,
                sha256=file.sha256,
                instead=self._instead(file, kind) if verdict.dies else (),
                run_decides=verdict.checks
                and verdict.evidence == "static"
                and not self._emulate
                and is_imitated(kind.arch, kind.features)
                and not why_not_emulated(kind, file.file),
            )

    def _with_askers(self, rows: list[CheckRow]) -> list[CheckRow]:
        """Return the rows of a kind; a death names who requires the package, and dies with it.

        An import of what requires it dies as well, if the package dies as it is imported.
        """
        requires = {row.name: self._requires(row) for row in rows}
        cause = {row.name: row for row in rows if row.verdict in ("dies-at-import", "refuses")}
        open_ends = list(cause)
        while open_ends:
            dead = open_ends.pop()
            for row in rows:
                if dead in requires[row.name] and row.name not in cause and not row.dies:
                    why = f"it requires {dead}, which {VERDICT_WORDS[cause[dead].verdict]}"
                    changes = {"verdict": cause[dead].verdict, "where": why, "native": True}
                    cause[row.name] = row.model_copy(
                        update={**changes, "evidence": cause[dead].evidence}
                    )
                    open_ends.append(row.name)
        return [_naming(cause.get(row.name, row), requires) for row in rows]

    def _requires(self, row: CheckRow) -> tuple[str, ...]:
        known = self._known.get(row.sha256 or "")
        needs = known.needs if isinstance(known, FileResults) else None
        return needs.requires if needs else ()

    def _instead(self, file: LockedFile, kind: MachineKind) -> tuple[str, ...]:
        """Return the newest and the nearest older version that run, then how to build this one."""
        if self._fetch_instead:
            self._progress(f"looking for a version of {file.name} that runs on {kind.name}")
            newest = _newest_wheel(file.name, kind, (), self._store.settings)
            others = [newest] if newest and newest.version != file.version else []
            found = [next((one for one in others if self._runs(one, kind)), None)]
            older = _older_wheels(file, kind, self._store.settings)
            found.append(next((one for one in older if self._runs(one, kind)), None))
        else:
            found = [
                next(self._known_to_run(file, kind, newer=newer), None) for newer in (True, False)
            ]
        names = dict.fromkeys(f"{one.name}=={one.version}" for one in found if one)
        return (*names, *_how_to_build(file.name))

    def _known_to_run(
        self, file: LockedFile, kind: MachineKind, *, newer: bool
    ) -> Iterator[LockedFile]:
        """Yield the newer or older versions that are known to run, if an index has them."""
        mine = Version(file.version)
        for version, known in self._results.known_files(file.name):
            if version == mine or (version > mine) is not newer:
                continue
            if self._judge(known, file, kind, ()).verdict == "runs":
                named = (f"{file.name}=={version}",)
                wheel = _newest_wheel(file.name, kind, named, self._store.settings)
                if wheel and wheel.sha256 == known.sha256:
                    yield wheel

    def _runs(self, file: LockedFile, kind: MachineKind) -> bool:
        """Return whether another version runs; it is fetched and read."""
        self._read_all([file])
        closure: Sequence[LockedFile] = ()
        if self._emulate and not why_not_emulated(kind):
            request = kind.request([f"{file.name}=={file.version}"])
            closure = resolve_all([request], self._store.settings)[request].wheels
            self._read_all(closure)
        return self._verdict(file, kind, closure or [file]).verdict == "runs"

    def _read_all(self, files: Iterable[LockedFile]) -> None:
        """Read what each file needs, unless that is known."""
        new = {file.sha256: file for file in files if file.sha256 not in self._known}
        known = {sha256: self._results.of(sha256, file.file) for sha256, file in new.items()}
        self._known |= known
        unread = [file for sha256, file in new.items() if known[sha256].needs is None]
        if (missing := self._store.missing_bytes(unread)) > _LARGE:
            self._progress(f"fetching {count(len(unread), 'file')}, {missing / 1e6:.0f} MB")
        with Workers(max(1, min(4, os.cpu_count() or 1))) as pool:
            read = pool.map(self._read, unread)
            self._known |= zip((file.sha256 for file in unread), read, strict=True)

    def _read(self, file: LockedFile) -> FileResults | str:
        try:
            self._progress(f"reading {file.file}")
            needs = read_needs(self._store.fetch(file))
        except AuditError as error:
            return f"it is not read: {error.message}"
        except InstallError as error:
            return f"it could not be fetched: {error.message}"
        known = self._results.of(file.sha256, file.file)
        known = known.model_copy(update={"needs": needs})
        self._results.keep(known)
        return known

    def _verdict(
        self, file: LockedFile, kind: MachineKind, closure: Sequence[LockedFile]
    ) -> Verdict:
        known = self._known[file.sha256]
        if isinstance(known, str):
            return Verdict(verdict="undecided", where=known)
        use = self._hash_of_use(file)
        if not self._emulate or not (use or (known.needs and known.needs.files)):
            return self._judge(known, file, kind, closure)
        if known.on_cpu(kind.features, kind.python, _hashes(closure), use) is None:
            verdict = self._judge(known, file, kind, closure)
            if why := why_not_emulated(kind, file.file):
                note = f"{verdict.where}; " if verdict.where else ""
                return verdict.model_copy(update={"where": f"{note}not run: {why}"})
            if verdict.verdict != "no-kernel":
                known = self._run(known, file, kind, closure)
        return self._judge(known, file, kind, closure)

    def _judge(
        self, known: FileResults, file: LockedFile, kind: MachineKind, closure: Sequence[LockedFile]
    ) -> Verdict:
        use = self._hash_of_use(file)
        return verdict_from(known, kind, package=file.name, beside=_hashes(closure), use=use)

    def _hash_of_use(self, file: LockedFile) -> str:
        """Return the hash of the given use, if it imports this file's package; else ""."""
        if self._use and file.sha256 not in self._known_users:
            self._known_users[file.sha256] = is_used(self._store.fetch(file), self._use)
        is_user = self._known_users.get(file.sha256, False)
        return sha256(self._use.encode()).hexdigest() if is_user else ""

    def _run(
        self, known: FileResults, file: LockedFile, kind: MachineKind, closure: Sequence[LockedFile]
    ) -> FileResults:
        """Run a file on the CPU of a kind, and return the results with how that went."""
        use = self._hash_of_use(file)
        self._progress(f"running {file.name} {file.version} on {kind.name}")
        try:
            environment = self._environment(closure)
            wheel = self._store.fetch(file)
            given = self._use if use else ""
            verdict = run_emulated(kind, file.name, wheel, environment, given)
        except (SandboxError, FleetbuildError) as problem:
            verdict = undecided(f"it could not be run: {problem}")
        run = EmulatedRun(
            cpu=qemu_cpu_of(kind),
            qemu=qemu_version(),
            python=kind.python,
            uses=uses_of(known.needs) if known.needs else (),
            beside=tuple(sha256 for sha256 in _hashes(closure) if sha256 != file.sha256),
            exercised=bool(use or use_of(file.name)),
            use=use,
            verdict=verdict,
        )
        self._known[file.sha256] = known = known.with_run(run)
        self._results.keep(known)
        return known

    def _environment(self, closure: Sequence[LockedFile]) -> Path:
        key = _hashes(closure)
        if key not in self._installed:
            wheels = [self._store.fetch(file) for file in closure]
            problems, _ = owners(wheels, self._store.settings.allow_files)
            if problems:
                raise SandboxError(f"its wheels take each other's names: {problems[0]}")
            self._installed[key] = self._environments.enter_context(installed(wheels))
        return self._installed[key]


def _row(
    name: str, version: str | None, kind: MachineKind, verdict: Verdict, **more: Any
) -> CheckRow:
    return CheckRow(
        name=name,
        version=version,
        kind=kind.name,
        verdict=verdict.verdict,
        where=verdict.where,
        evidence=verdict.evidence,
        native=verdict.native,
        chooses=bool(verdict.guarded),
        **more,
    )


def _naming(row: CheckRow, requires: Mapping[str, Sequence[str]]) -> CheckRow:
    """Return the row of a death with the packages that require it."""
    askers = [name for name, wanted in requires.items() if row.name in wanted]
    if not row.dies or not askers:
        return row
    more = f" and {len(askers) - _ASKERS} more" if len(askers) > _ASKERS else ""
    by = f"required by {', '.join(askers[:_ASKERS])}{more}"
    return row.model_copy(update={"where": f"{row.where}; {by}" if row.where else by})


def _hashes(files: Iterable[LockedFile]) -> tuple[str, ...]:
    return tuple(sorted(file.sha256 for file in files))


def _how_to_build(name: str) -> tuple[str, ...]:
    """Return the recipe that builds this package; empty if only the generic one does."""
    recipe = find_recipe(name)
    return () if recipe.name == GENERIC else (f"build it: recipe {recipe.name}",)


def _older_wheels(
    file: LockedFile, kind: MachineKind, settings: IndexSettings
) -> Iterator[LockedFile]:
    """Yield the published wheels of earlier versions, nearest first."""
    version = file.version
    for _ in range(_OLDER):
        one = _newest_wheel(
            file.name, kind, (f"{file.name}<{version.partition('+')[0]}",), settings
        )
        if one is None:
            return
        yield one
        version = one.version


def _newest_wheel(
    name: str, kind: MachineKind, constraints: tuple[str, ...], settings: IndexSettings
) -> LockedFile | None:
    request = kind.request([name]).model_copy(update={"constraints": constraints})
    wheels = find_wheels([request], settings)[request].wheels
    return wheels[0] if wheels else None


def judge_wheel(
    wheel: Path,
    kinds: Sequence[str],
    *,
    requires: Sequence[str] = (),
    emulate: bool = False,
    state_dir: Path | str = ".fleetbuild",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Verdict]:
    """Return the verdict about one wheel file for each kind, from its code and known runs of it.

    With `emulate` the wheel also runs on the CPU of each kind, with the wheels of an index for
    `requires`, the requirements of its metadata.
    """
    meant = named_kinds(kinds)
    file = _local_file(wheel)
    if file is None or not emulate:
        sha256 = file.sha256 if file else ""
        runs = shipped_runs().get(sha256, FileResults(sha256=sha256, file=wheel.name)).runs
        results = FileResults(sha256=sha256, file=wheel.name, needs=read_needs(wheel), runs=runs)
        return {
            kind.name: verdict_from(results, kind, package=wheel.name.partition("-")[0])
            for kind in meant
        }
    require_emulation()
    state = StateDir(Path(state_dir).absolute()).checked().create()
    store, kept = Store(state.store, index_settings()), Results()
    with ExitStack() as environments:
        checker = _Checker(store, kept, True, environments, progress)
        return {kind.name: checker.judge_alone(file, kind, requires) for kind in meant}


def _local_file(path: Path) -> LockedFile | None:
    """Return a wheel of this machine as a file of a lock; None if its name is not a wheel's."""
    try:
        name, version, *_ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        return None
    return LockedFile(
        name=name,
        version=str(version),
        file=path.name,
        sha256=sha256_of(path),
        url=path.absolute().as_uri(),
    )
