"""Each text is read once for all nodes, and no node's text changes another's facts."""

from __future__ import annotations

import pytest

from fleetbuild.models import Capture
from fleetbuild.probe.parsing import cpu
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.text import MAX_KEPT, lines, once_per_text

UNAME = "Linux 6.1 x86_64\n"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of /proc/cpuinfo that were read."""
    texts: list[str] = []

    def counted(capture: Capture, section: str, *limits: int) -> list[str]:
        if section == "cpuinfo":
            texts.append(capture[section])
        return lines(capture, section, *limits)

    monkeypatch.setattr(cpu, "lines", counted)
    return texts


def cpuinfo(flags: str, mhz: float, count: int = 2) -> str:
    return "".join(
        f"processor\t: {number}\nflags\t\t: {flags}\ncpu MHz\t\t: {mhz + number}\n"
        f"bogomips\t: {mhz * 2}\n\n"
        for number in range(count)
    )


def test_a_processor_is_read_once_whatever_its_clock_and_the_memory_of_its_node(
    read: list[str],
) -> None:
    nodes = [
        facts_of(
            {
                "uname": UNAME,
                "cpuinfo": cpuinfo("lm read_once", 2000.5 + number),
                "meminfo": f"MemTotal: {number}000000 kB\n",
            }
        )
        for number in range(1, 20)
    ]
    assert len(read) == 1
    assert {facts.features for facts in nodes} == {("lm", "read_once")}
    assert len({facts.memory_gb for facts in nodes}) == 19


def test_texts_that_differ_anywhere_are_read_apart(read: list[str]) -> None:
    text = cpuinfo("lm apart", 2000)
    last = text.replace("processor\t: 1\nflags\t\t: lm apart", "processor\t: 1\nflags\t\t: lm")
    for _ in range(2):
        assert facts_of({"uname": UNAME, "cpuinfo": text}).features == ("apart", "lm")
        assert facts_of({"uname": UNAME, "cpuinfo": last}).features == ("lm",)
        assert facts_of({"uname": "Linux 6.1 aarch64\n", "cpuinfo": text}).features == ()
    assert len(read) == 3


def test_a_long_text_is_not_kept(read: list[str]) -> None:
    capture = {"uname": UNAME, "cpuinfo": cpuinfo("lm long", 1, MAX_KEPT // 50)}
    assert facts_of(capture) == facts_of(capture)
    assert len(read) == 2


def test_a_parser_sees_its_own_sections_alone() -> None:
    @once_per_text("one")
    def sections(capture: Capture, *others: str) -> tuple[str, ...]:
        return (*capture, *others)

    assert sections({"one": "1", "two": "2"}) == ("one",)
    assert sections({"one": "1"}, "x") == ("one", "x")
    assert sections({"two": "2"}) == ()


def test_nodes_share_no_value_that_can_change() -> None:
    capture = {"uname": UNAME, "cpuinfo": cpuinfo("lm", 1), "toolchain": "gcc 13.2\n"}
    first = facts_of(capture)
    first.toolchain["nvcc"] = ("12.4",)
    assert facts_of(capture).toolchain == {"gcc": ("13.2",)}
