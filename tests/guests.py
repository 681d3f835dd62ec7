"""Each guest deleted alone: python -m tests.guests [GUEST…].

In: this checkout. Out: a copy of it in .cache/guests without one of `fleetbuild/extensions/*` and
its tests. There the command line loads, and the tests of the core and of the other guests pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_GUESTS = CHECKOUT / "fleetbuild" / "extensions"
_COPIES = CHECKOUT / ".cache" / "guests"
# What the core promises without any guest, as `make core` runs it.
_CORE = ("apply", "models", "plan", "recipes", "store", "test_config.py", "test_fleet.py")
_TESTS = (*(f"tests/unit/{name}" for name in _CORE), "tests/unit/test_extension.py")
_COMMANDS = ((), ("plan",), ("emit",), ("store",))


def guests() -> list[str]:
    """Return the names of the guests in this checkout."""
    return sorted(path.parent.name for path in _GUESTS.glob("*/__init__.py"))


def copy_without(guest: str) -> Path:
    """Return a copy of the files that git knows, without this guest."""
    copy = _COPIES / guest
    shutil.rmtree(copy, ignore_errors=True)
    without = [f":!{folder}/extensions/{guest}" for folder in ("fleetbuild", "tests")]
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *without,
    ]
    listed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
    return copy


def check(guest: str) -> bool:
    """Return whether everything else works without this guest."""
    copy = copy_without(guest)
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    python = [sys.executable, "-m"]
    others = [f"tests/extensions/{each}" for each in guests() if each != guest]
    runs = [[*python, "fleetbuild", *words, "--help"] for words in _COMMANDS]
    runs += [
        [*python, "pytest", "-q", *_TESTS, *(each for each in others if (copy / each).exists())]
    ]
    for run in runs:
        shown = None if "pytest" in run else subprocess.DEVNULL
        if subprocess.run(run, cwd=copy, env=environment, stdout=shown, check=False).returncode:
            print(f"== without {guest}: {' '.join(run[2:])} fails in {copy}")
            return False
    print(f"== without {guest}: passed", flush=True)
    return True


if __name__ == "__main__":
    passed = [check(guest) for guest in sys.argv[1:] or guests()]
    sys.exit(not all(passed))
