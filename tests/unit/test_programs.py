"""Programs of the controller: their time and their output have limits."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from fleetbuild import programs
from fleetbuild.programs import run_program
from fleetbuild.workers import Workers


def python(code: str, within: float = 30) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "-c", f"import sys\n{code}"], within=within)


def test_exit_code_output_and_errors_are_returned() -> None:
    done = python("print('out'); print('why', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "why\n")


def test_the_end_of_endless_errors_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_ERRORS", 1000)
    done = python("sys.stderr.write('x' * 5_000_000); print('fatal: it', file=sys.stderr)")
    assert len(done.stderr) == 1000
    assert done.stderr.endswith("xfatal: it\n")


def test_too_much_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_OUTPUT", 1 << 20)
    done = python("while True: sys.stdout.write('x' * 100_000)")
    assert done.returncode == 1
    assert done.stderr.endswith("printed more than 1 MB")
    assert done.stdout == ""


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "while True: print(9 ** 999, file=sys.stderr)"]
)
def test_a_program_without_an_end_is_ended(code: str) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        python(code, within=0.5)
    assert time.monotonic() - began < 20


def test_an_interrupted_pool_ends_its_programs_and_waits_for_nobody_else() -> None:
    answered, began = threading.Event(), time.monotonic()
    with suppress(KeyboardInterrupt), Workers(2) as pool:
        program = pool.submit(python, "import time; time.sleep(60)", 90)
        silent = pool.submit(answered.wait, 60)  # like a server
        queued = pool.submit(print)
        while not (program.running() and silent.running()):
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 20
    assert isinstance(program.exception(0), KeyboardInterrupt)
    assert silent.running()
    assert queued.cancelled()
    answered.set()
