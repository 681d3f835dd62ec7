"""Why a check fails, in a sentence."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest


def test_what_works_gives_its_output(verify: ModuleType) -> None:
    result = verify.run(sys.executable, ["import json", "print(6 * 7)"], 30)
    assert result == {"ok": True, "reason": "", "fix": "", "output": "42"}


def test_a_crash_is_blamed_on_its_step(verify: ModuleType) -> None:
    steps = ["import json", "import os\nos.kill(os.getpid(), 4)"]
    result = verify.run(sys.executable, steps, 30)
    assert not result["ok"]
    assert result["reason"].startswith("`import os`: Illegal instruction: the wheel uses")


def test_a_check_that_hangs_is_ended(verify: ModuleType) -> None:
    result = verify.run(sys.executable, ["import time; time.sleep(60)"], 1)
    assert "did not end within 1 s" in result["reason"]


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("RuntimeError: CUDA error: no kernel image is available for ...", "No kernel image"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by x)", "needs GLIBC_2.38"),
        ("/l/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "needs GLIBCXX_3.4.32"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "libcudart.so.12 is miss"),
        ("Error loading shared library libgomp.so.1: No such", "library libgomp.so.1 is missing"),
        ("ImportError: a.so: undefined symbol: _ZN3c10", "ABI mismatch: the symbol _ZN3c10 is"),
        ("Error relocating a.so: foo: symbol not found", "ABI mismatch: the symbol foo is"),
        ("A module that was compiled using NumPy 1.x cannot be run", "another NumPy"),
        ("The NVIDIA driver on your system is too old", "driver is too old"),
        ("ModuleNotFoundError: No module named 'numpy'", "The module numpy is not in"),
        ("ValueError: last words", "ValueError: last words"),
    ],
)
def test_known_signs(verify: ModuleType, output: str, says: str) -> None:
    reason, fix = verify.why(output, 1, False, 1)
    assert says in reason
    assert fix


def test_ends_without_words(verify: ModuleType) -> None:
    assert verify.why("", -signal.SIGKILL, False, 1)[0].startswith("The process was killed")
    assert verify.why("", 0, False, 1)[0].startswith("The process ended itself")
    assert verify.why("", 3, False, 1)[0] == "The process ended with 3."


def test_marking_is_done_once(verify: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"id": "a", "verified": False}))
    assert verify.mark(str(tmp_path), True)
    assert not json.loads(path.read_text())["verified"]
    assert verify.mark(str(tmp_path), False)
    assert json.loads(path.read_text()) == {"id": "a", "verified": True}
    assert not verify.mark(str(tmp_path), False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]
