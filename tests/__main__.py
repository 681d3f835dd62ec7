"""All tests: tests that compute, beside tests that mostly wait for real nodes, and one count.

python -m tests [ARGUMENTS FOR EACH PYTEST]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

# Four parts that take long by themselves, and the other tests on nodes in parts of like length.
_ALONE = ("tests/fleet/test_apply.py", "tests/fleet/test_operators_day.py")
_FLEET = sorted(
    path for path in map(str, Path("tests/fleet").glob("test_*.py")) if path not in _ALONE
)
# Coverage is measured of the pure rooms, and doubles the time of every Python that it traces.
_COVERED = ("--cov", "--cov-report=")
_PURE = {"hardware", "models", "plan", "probe", "recipes", "toolchains"}
_PURE_EXTENSIONS = ("tests/extensions/catalogue", "tests/extensions/kubernetes")
# Unit tests that start programs take as long as all others.
_PROGRAMS = {"audit", "collection", "docs", "emit", "packaging", "roles", "store"}
_UNIT = sorted({Path(*path.parts[:3]) for path in Path("tests/unit").rglob("test_*.py")})
_EXTENSIONS = sorted({str(path.parent) for path in Path("tests/extensions").glob("*/test_*.py")})
# The longest first, so that no core waits for the last one.
PARTS: Mapping[str, Sequence[str]] = {
    "programs": (*(f"tests/unit/{name}" for name in sorted(_PROGRAMS)), "tests/hostile"),
    "pure": (*(f"tests/unit/{name}" for name in sorted(_PURE)), *_PURE_EXTENSIONS, *_COVERED),
    "fleet-2": _FLEET[2::6],
    "molecule": ("tests/molecule",),
    "fleet-1": _FLEET[1::6],
    "apply": _ALONE[:1],
    "day": _ALONE[1:],
    "fleet-0": _FLEET[0::6],
    "faults": ("tests/faults",),
    "fleet-4": _FLEET[4::6],
    "fleet-3": _FLEET[3::6],
    "fleet-5": _FLEET[5::6],
    "unit": (
        *(str(path) for path in _UNIT if path.name not in _PURE | _PROGRAMS),
        "tests/contract",
    ),
    "extensions": tuple(path for path in _EXTENSIONS if path not in _PURE_EXTENSIONS),
    "simulation": ("tests/simulation",),
}
# The tests on nodes wait about half of their time, and a lab with its builds takes 2 GB.
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
AT_ONCE = max(2, min(2 * len(os.sched_getaffinity(0)), _MEMORY // 2_000_000_000))
LOGS = Path(".pytest_cache") / "parts"
COUNTED = ("passed", "failed", "skipped")
NO_TESTS = 5  # pytest's exit code where -k and the like leave none
INTERRUPTED = 2  # pytest's exit code too


def main(commands: Mapping[str, Sequence[str]], logs: Path) -> int:
    """Run the parts' commands, show one log after the other, and end with the counts of all."""
    files = {name: logs / f"{name}.log" for name in commands}
    logs.mkdir(parents=True, exist_ok=True)
    for file in files.values():
        file.write_bytes(b"")
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {
            name: pool.submit(_run, name, command, files[name])
            for name, command in commands.items()
        }
        try:
            for name, part in running.items():
                print(f"== {name} tests (log: {files[name]})", flush=True)
                _follow(part, files[name])
        except KeyboardInterrupt:  # pytest gets the signal too, and takes its labs down
            pool.shutdown(cancel_futures=True)
    texts = [file.read_text(errors="replace") for file in files.values()]
    codes = [INTERRUPTED if part.cancelled() else part.result() for part in running.values()]
    print(f"== all tests, {time.monotonic() - began:.0f} s")
    for text in texts:
        for line in text.splitlines():
            if line.startswith("not run: "):
                print(line)
    print(closing_line(texts))
    wrong = [code for code in codes if code not in (0, NO_TESTS)]
    return wrong[0] if wrong else min(codes)


def _run(name: str, command: Sequence[str], file: Path) -> int:
    began = time.monotonic()
    with file.open("wb") as log:
        part = subprocess.Popen(
            [*command, "-o", f"cache_dir={file.with_suffix('')}", "--durations=12"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "COVERAGE_FILE": f".coverage.{name}"},
        )
        _, status, used = os.wait4(part.pid, 0)
        part.returncode = os.waitstatus_to_exitcode(status)
        cpu = used.ru_utime + used.ru_stime  # without what runs in containers
        log.write(f"== {name}: {time.monotonic() - began:.0f} s, CPU {cpu:.0f} s\n".encode())
    return part.returncode


def _follow(part: Future[int], log: Path) -> None:
    """Show the log and each addition to it, until the part has ended."""
    with log.open("rb") as file:
        ended = False
        while not ended:
            ended = part.done()
            while block := file.read(1 << 16):
                sys.stdout.buffer.write(block)
            sys.stdout.flush()
            time.sleep(0 if ended else 0.5)


def closing_line(logs: list[str]) -> str:
    """'N passed, N failed, N skipped', of the closing lines of several pytests."""
    counts = dict.fromkeys(COUNTED, 0)
    for log in logs:
        lines = [line for line in log.splitlines() if re.search(r" in [\d.]+s", line)]
        found = re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1]) if lines else []
        for number, what in found:
            counts["failed" if what == "error" else what] += int(number)
        if not lines:  # it did not get so far
            counts["failed"] += 1
    return ", ".join(f"{number} {what}" for what, number in counts.items())


if __name__ == "__main__":
    pytest = (sys.executable, "-m", "pytest")
    sys.exit(main({name: (*pytest, *part, *sys.argv[1:]) for name, part in PARTS.items()}, LOGS))
