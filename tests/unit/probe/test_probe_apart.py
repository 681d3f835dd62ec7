"""A capture that is larger than usual is read in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetbuild.planner.facts import facts_from
from fleetbuild.probe.parsing import apart
from fleetbuild.probe.parsing.apart import USUAL, read_facts
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.transport.base import NoAnswer

SMALL = {
    "uname": "Linux 6.1 x86_64\n",
    "cpuinfo": "processor : 0\nflags : lm sse2\n\n",
    "os-release": "ID=debian\nPRETTY_NAME=\udcff\ud83d\u00e9\n",
    "toolchain": "",
}
LARGE = {**SMALL, "cpuinfo": SMALL["cpuinfo"] * (USUAL // 30)}


def test_both_processes_read_the_same_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_facts(LARGE) == facts_of(LARGE)
    monkeypatch.setattr(apart, "USUAL", 0)
    assert read_facts(SMALL) == facts_of(SMALL)


def test_a_usual_capture_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert read_facts(SMALL) == facts_of(SMALL)


@pytest.mark.parametrize(
    ("where", "limit", "value"), [(apart, "SECONDS", 0.001), (sys, "executable", "/bin/false")]
)
def test_an_unreadable_capture_makes_only_its_node_unreachable(
    monkeypatch: pytest.MonkeyPatch, where: object, limit: str, value: object
) -> None:
    monkeypatch.setattr(where, limit, value)
    with pytest.raises(NoAnswer, match="cannot be read within 10 s and 512 MB"):
        read_facts(LARGE)
    facts = facts_from({"bad": LARGE, "good": SMALL})
    assert (facts["bad"].state, facts["good"].state) == ("unreachable", "ok")


@pytest.mark.parametrize("work", ["bytearray(2**30)", "open('x', 'wb', 0).write(b'x')"])
def test_the_reading_process_has_limits(tmp_path: object, work: str) -> None:
    code = f"from fleetbuild.probe.parsing.apart import limit; limit(); {work}"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=str(tmp_path), capture_output=True, check=False
    )
    assert ended.returncode != 0
    assert b"MemoryError" in ended.stderr or b"File too large" in ended.stderr
