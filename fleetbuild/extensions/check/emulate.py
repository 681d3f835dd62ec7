"""Run wheels on CPUs that QEMU imitates: import them, and use them a little, inside the sandbox.

In: the wheels of one resolution, and a CPU. Out: a verdict for each wheel. The packages' code runs
only confined: without network, home or this process's environment.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from fleetbuild.audit.downloads import contents_of
from fleetbuild.audit.import_names import import_names, top_level
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.extensions.check.judge import LEVEL
from fleetbuild.extensions.check.machine_kinds import MachineKind
from fleetbuild.extensions.check.qemu_cpus import emulated_features, not_emulated, qemu_cpu
from fleetbuild.extensions.check.results import undecided, use_of
from fleetbuild.files import read_input
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models.verdict import Verdict
from fleetbuild.plan.resolve.sandbox import (
    PYTHON,
    PYTHON_TAG,
    SandboxError,
    run_confined,
    why_unavailable,
)
from fleetbuild.plan.resolve.uv import install_wheels
from fleetbuild.text import clean

_STEPS = Path(__file__).with_name("emulated_steps.py")
_CPUINFO = Path(__file__).with_name("emulated_cpuinfo.py")
_SECONDS = 300.0  # of one script; QEMU is some twenty times slower than the CPU
_LONGEST_PATH = 4096
_EXTENSION = re.compile(r"(?P<name>[A-Za-z_]\w*)\.(?:cpython-\S+|abi3)\.so", re.ASCII)
_ASIDE = {"test", "tests", "testing", "__main__", "conftest", "setup", "examples", "benchmarks"}
# What an answer raises that a wheel's code wrote.
_MALFORMED = (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError)
_NAMED_FEATURE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)*")
# Features whose name in messages is not the kernel's.
_OTHER_NAMES = {
    "sse3": "pni", "avx512": "avx512f", "fma3": "fma", "lzcnt": "abm", "neon": "asimd",
    "cmpxchg16b": "cx16", "lahf": "lahf_lm",
}  # fmt: skip
_LEVELS = {
    "x86v2": "x86-64-v2", "x86v3": "avx2", "x86v4": "avx512",
    "x8664v2": "x86-64-v2", "x8664v3": "avx2", "x8664v4": "avx512",
}  # fmt: skip
_FRAME = re.compile(r'File "/env/([^"/]+)(?:/[^"]*)?"')
_SCRIPT = """
import contextlib, importlib, sys, traceback
for name in {modules!r}:
    print("import", name, flush=True)
    try:
        importlib.import_module(name)
    except BaseException as error:
        places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        owner = [p for p in places if p.startswith("/env/")][-1:] or [""]
        text = " ".join(str(error).split())[:300]
        kind = "OSError" if isinstance(error, OSError) else type(error).__name__
        print("failed", name, owner[0], kind + ": " + text, sep="\\t", flush=True)
print("use", flush=True)
exec({use!r})
if {given!r}:
    print("use as given", flush=True)
    with contextlib.redirect_stdout(sys.stderr):
        exec({given!r}, {{"__name__": "__main__"}})
print("done", flush=True)
"""


def why_not_emulated(kind: MachineKind, wheel: str | None = None) -> str | None:
    """Return why no code, or not this wheel's, can be run for a kind here; None if it can."""
    if wheel and not parse_wheel_filename(wheel)[3] & frozenset(sys_tags()):
        return f"this machine's {PYTHON_TAG} cannot install {wheel}"
    if kind.python != PYTHON_TAG or kind.libc.family != "glibc":
        return f"this Python is {PYTHON_TAG} and {kind.name} has {kind.python}"
    if qemu_cpu(kind.arch, kind.features) is None or kind.arch != _machine():
        return f"QEMU cannot imitate {kind.name} on this machine"
    return None


def qemu_cpu_of(kind: MachineKind) -> str:
    """Return QEMU's -cpu for a kind of machine."""
    return qemu_cpu(kind.arch, kind.features) or ""


def require_emulation() -> None:
    """Raise if this machine has no QEMU or no sandbox."""
    if not shutil.which(_qemu()):
        raise BlockedError(
            f"--emulate needs {_qemu()}, which is not installed.",
            "Install it, such as with: apt-get install qemu-user-static. Or leave out --emulate.",
        )
    if problem := why_unavailable():
        raise BlockedError(
            f"--emulate runs the code of packages only in a sandbox, and {problem}.",
            "Let users make namespaces, run it as root, or leave out --emulate.",
        )


@cache
def qemu_version() -> str:
    """Return the version of QEMU's user mode here."""
    done = subprocess.run([_qemu(), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"version (\d[\w.]*)", done.stdout)
    return match[1] if match else "unknown"


@contextmanager
def installed(wheels: Sequence[Path]) -> Iterator[Path]:
    """Yield a folder with these wheels unpacked, as pip would; raises SandboxError if it fails."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        environment = Path(folder, "env")
        environment.mkdir()
        if problem := install_wheels(wheels, environment, within=900):
            raise SandboxError(f"the wheels cannot be installed: {problem}")
        yield environment


def read_use(given: str, *, emulate: bool) -> str:
    """Return the Python code of --use, which is code or the name of a file with it."""
    if not emulate:
        raise UsageError(
            "--use runs code, which only --emulate does.", "Add --emulate, or leave out --use."
        )
    is_file = given.endswith(".py") or (len(given) < _LONGEST_PATH and Path(given).is_file())
    try:
        text = read_input(given).decode("utf-8") if is_file else given
        compile(text, given if is_file else "--use", "exec")
    except (OSError, ValueError, SyntaxError) as error:
        why = clean(str(error.strerror if isinstance(error, OSError) else error), limit=200)
        raise UsageError(
            f"--use {clean(given, limit=100)} cannot be read as Python code: {why}.",
            "Give code, such as 'import numpy; numpy.ones(9).sum()', or a file with such code.",
        ) from None
    if not _imports(text):
        raise UsageError(
            "--use imports nothing, so no package is used.", "Begin it with its imports."
        )
    return text


def is_used(wheel: Path, use: str) -> bool:
    """Return whether a given use imports what this wheel brings."""
    return not _imports(use).isdisjoint(top_level(contents_of(wheel).names))


def _imports(code: str) -> frozenset[str]:
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return frozenset(name.partition(".")[0] for name in names if name)


def run_emulated(
    kind: MachineKind, package: str, wheel: Path, environment: Path, given: str = ""
) -> Verdict:
    """Return how this wheel ran on the CPU of a kind, with the wheels in `environment`.

    The code of `given` is a use that the user gave, and runs last.
    "runs" means only that the imports and the small use ran: `verdict_from` adds the reading.
    """
    script = _SCRIPT.format(modules=_modules(wheel), use=use_of(package), given=given)
    features = emulated_features(qemu_cpu_of(kind))
    work = work_for(kind, script)
    try:
        said = run_confined(
            [str(PYTHON), "-I", "-S", "-c", _STEPS.read_text("utf-8"), json.dumps(work)],
            {"/env": environment},
            seconds=3 * _SECONDS,
        )
        answer = json.loads(said)["try"]  # which the wheel's own code may have written
        return read_outcome(answer["native"], answer["emulated"], _top_level(wheel), features)
    except (SandboxError, *_MALFORMED) as problem:
        return undecided(f"it could not be run: {problem}")


def work_for(kind: MachineKind, script: str) -> dict[str, Any]:
    """Return what emulated_steps.py does to run a script on the CPU of a kind."""
    flags = " ".join(sorted(emulated_features(qemu_cpu_of(kind)) - not_emulated()))
    return {
        "qemu": [shutil.which(_qemu()), "-cpu", qemu_cpu_of(kind)],
        "cpuinfo": [_CPUINFO.read_text("utf-8"), flags, str(len(os.sched_getaffinity(0)))],
        "python": str(PYTHON),
        "seconds": _SECONDS,
        "scripts": {"try": script},
    }


def read_outcome(
    native: Mapping[str, Any],
    emulated: Mapping[str, Any],
    owned: frozenset[str],
    features: frozenset[str],
) -> Verdict:
    """Return the verdict from a run on this machine, the control, and a run under QEMU.

    `owned` are the names in the environment that belong to the wheel; `features` the CPU's.
    """
    lines = str(emulated["out"]).splitlines()
    before = {line.split("\t")[1] for line in str(native["out"]).splitlines() if _is_failure(line)}
    failed = [line.split("\t") for line in lines if _is_failure(line)]
    new = [row for row in failed if row[1] not in before]
    done = all(str(run["out"]).splitlines()[-1:] == ["done"] for run in (native, emulated))
    at = _last_step(emulated)
    if native["code"] != 0 or emulated["code"] is None:
        if native["code"] == 0:
            return undecided(f"it took too long (at: {at})")
        where, said = _where(_last_step(native)), _last_line(native)
        return undecided(f"it fails on this machine, too, {where}" + (f": {said}" if said else ""))
    if new:
        return _refused(new[0], owned, features)
    if emulated["code"] == 0 and not done:
        return undecided(f"it ended before its use did (at: {at})")
    if emulated["code"] == 0:
        return Verdict(verdict="runs", evidence="emulated")
    return _died(emulated, at, owned, features)


def _last_step(run: Mapping[str, Any]) -> str:
    lines = reversed(str(run["out"]).splitlines())
    return next((line for line in lines if line.startswith(("import ", "use"))), "start")


def _where(step: str) -> str:
    places = {"use": "while it is used", "use as given": "in the given use"}
    return places.get(step, f"in {clean(step, limit=100)}")


def _last_line(run: Mapping[str, Any]) -> str:
    lines = reversed(str(run["errors"]).splitlines())
    return clean(next((line for line in lines if line.strip()), ""), limit=150).strip()


def _is_failure(line: str) -> bool:
    return line.startswith("failed\t") and line.count("\t") >= 3


def _refused(row: Sequence[str], owned: frozenset[str], features: frozenset[str]) -> Verdict:
    """Return the verdict for an import that raised an exception only under QEMU.

    QEMU lacks more than features of a CPU, such as calls of the system, so the exception counts as
    a refusal only if it names a feature that the CPU lacks.
    """
    _, module, place, message = row[:4]
    owner = place.removeprefix("/env/").split("/")[0]
    if owner and owner not in owned:
        return undecided(f"it imports {owner}, which refuses")
    where = f"import {module} raises {clean(message, limit=200)}"
    if message.startswith("OSError") or not names_lacking_feature(message, features):
        return undecided(f"{where}, which names no feature that this CPU lacks")
    return Verdict(verdict="refuses", where=where, evidence="emulated")


def _died(
    emulated: Mapping[str, Any], at: str, owned: frozenset[str], features: frozenset[str]
) -> Verdict:
    """Return the verdict for a process that a signal ended, or whose use raised an exception."""
    code, errors = int(emulated["code"]), str(emulated["errors"])
    match = _FRAME.search(errors)
    owner = match[1] if match else ""
    where = _where(at)
    if owner and owner not in owned:
        return undecided(f"it uses {owner}, which dies {where}")
    if code in (-signal.SIGILL, 128 + signal.SIGILL):
        return Verdict(
            verdict="dies-in-use" if at.startswith("use") else "dies-at-import",
            where=f"illegal instruction {where}",
            evidence="emulated",
        )
    if code in (-signal.SIGABRT, 128 + signal.SIGABRT) or code == 1:
        named = (line for line in errors.splitlines() if names_lacking_feature(line, features))
        if fatal := next(named, ""):
            return Verdict(
                verdict="refuses", where=clean(fatal, limit=200).strip(), evidence="emulated"
            )
    return undecided(f"it ended with code {code} {where}: {_last_line(emulated)}")


def names_lacking_feature(message: str, features: frozenset[str]) -> bool:
    """Return whether a message of a package names a CPU feature, or a level, that is not there."""
    words = {word.lower() for word in _NAMED_FEATURE.findall(message)}
    plain = {re.sub(r"[_.-]", "", word) for word in words}
    return any(needed - features for word, needed in _feature_words().items() if word in plain)


@cache
def _feature_words() -> dict[str, frozenset[str]]:
    """Return how messages spell features and levels, in small letters, and what they stand for."""
    known = {name for rung in RUNGS.values() for name in rung.features}
    words = {name.replace("_", ""): frozenset({name}) for name in known}
    words |= {word: frozenset({name}) for word, name in _OTHER_NAMES.items()}
    return words | {word: RUNGS[name].features for word, name in _LEVELS.items()}


def _modules(wheel: Path) -> list[str]:
    """Return what a wheel brings to import: its packages, then its extension modules."""
    found = []
    for path in map(PurePosixPath, contents_of(wheel).names):
        match = _EXTENSION.fullmatch(path.name)
        parts = (*path.parts[:-1], match["name"]) if match else ()
        aside = _ASIDE & set(parts) or any(LEVEL.search(part) for part in parts)
        if parts and not aside and all(part.isidentifier() for part in parts):
            found.append(".".join(parts))
    return [*import_names(wheel), *sorted(set(found))]


def _top_level(wheel: Path) -> frozenset[str]:
    return frozenset(name.split("/")[0] for name in contents_of(wheel).names)


def _qemu() -> str:
    return f"qemu-{_machine()}-static"


def _machine() -> str:
    return platform.machine()
