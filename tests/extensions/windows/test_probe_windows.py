"""Captures of Windows nodes, one case per machine, and what their features follow from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleetbuild.extensions.windows.facts import SECTIONS, windows_facts
from fleetbuild.probe.parsing.text import MAX_OTHER
from tests.extensions.windows.captured import capture, known
from tests.unit.probe.test_probe_cost import filled, is_linear, no_text_is_kept  # noqa: F401

EXPECTED = {
    "adl-3080": ("avx2", ("8.6",), ["cp313"]),
    "nhm-w3520": ("x86-64-v2", (), ["cp310"]),
    "skl-6700hq": ("avx2", (), ["cp311"]),
    "snb-2670qm": ("avx", (), ["cp38"]),
    "snb-k40c": ("avx", ("3.5",), ["cp310"]),
}


@pytest.mark.parametrize("node", EXPECTED)
def test_each_captured_windows_node_is_read(node: str) -> None:
    facts = known(node)
    tags = [python.tag for python in facts.pythons]
    assert (facts.state, facts.arch) == ("ok", "x86_64")
    assert (facts.isa, facts.sms, tags) == EXPECTED[node]


def test_cpuid_is_exact_and_needs_no_model() -> None:
    facts = windows_facts(capture("skl-6700hq", processors="Manufacturer : GenuineIntel\n"))
    assert facts.isa == "avx2"
    assert {"fma", "f16c", "bmi2", "movbe", "abm", "popcnt", "lahf_lm"} <= set(facts.features)
    assert not any(name.startswith("avx512") for name in facts.features)
    assert not any("PowerShell 7" in warning for warning in facts.warnings)


def test_avx_counts_only_if_windows_saves_its_registers() -> None:
    said = capture("skl-6700hq")["cpu-features"]
    without = windows_facts(
        capture("skl-6700hq", cpu_features=said.replace("0000001F", "00000003"))
    )
    assert without.isa == "x86-64-v2"
    assert not {"avx", "avx2", "fma", "f16c"} & set(without.features)


def test_a_leaf_beyond_the_last_one_is_not_read() -> None:
    said = capture("skl-6700hq")["cpu-features"].replace(
        "00000000 00000000 00000016", "00000000 00000000 00000001"
    )
    facts = windows_facts(capture("skl-6700hq", cpu_features=said))
    assert facts.isa == "avx"
    assert "avx512_bf16" not in windows_facts(capture("skl-6700hq")).features


def test_without_cpuid_the_model_completes_what_windows_confirms() -> None:
    (warning,) = known("adl-3080").warnings
    assert warning == (
        "Windows does not show abm, bmi1, f16c, fma, movbe, popcnt, which the CPU's model has and a"
        " hypervisor may hide. Install PowerShell 7, with which the probe reads CPUID itself."
    )


def test_what_windows_does_not_confirm_is_not_taken_from_the_model() -> None:
    said = capture("adl-3080")["cpu-features"].replace("feature 40\n", "")
    facts = windows_facts(capture("adl-3080", cpu_features=said))
    assert facts.isa == "avx"
    assert not {"fma", "bmi1", "movbe"} & set(facts.features)


def test_an_unknown_model_adds_nothing() -> None:
    facts = windows_facts(capture("adl-3080", processors="Name : ?\nManufacturer : Somebody\n"))
    assert facts.isa == "x86-64"
    assert "its model is unknown" in facts.warnings[0]


def test_if_windows_was_not_asked_only_the_baseline_counts() -> None:
    without = {k: v for k, v in capture("adl-3080").items() if k != "cpu-features"}
    assert windows_facts(without).isa == "x86-64"


@pytest.mark.parametrize(
    ("uname", "reason"),
    [
        ("Windows 10.0.26100 ARM64", "Windows on ARM64 is not supported: only on AMD64."),
        ("Windows nonsense", "This Windows is not supported: only on AMD64."),
    ],
)
def test_other_windows_machines_are_unsupported(uname: str, reason: str) -> None:
    facts = windows_facts(capture("adl-3080", uname=uname))
    assert (facts.state, facts.reason) == ("unsupported", reason)


def test_a_32_bit_python_is_left_out() -> None:
    facts = known("skl-6700hq")
    assert [python.path for python in facts.pythons] == [r"C:\Program Files\Python311\python.exe"]
    assert "is a 32-bit Python" in facts.warnings[0]


@pytest.mark.parametrize("section", SECTIONS)
def test_nonsense_in_a_section_is_unknown_and_never_fails(section: str) -> None:
    for text in ("", "\x1b[2J\x00" * 50, "a : b\n" * 5000, "cpuid " + "F" * 4000, ": : :\n"):
        facts = windows_facts({**capture("skl-6700hq"), section: text})
        assert facts.state in ("ok", "unsupported")
        assert "\x1b" not in facts.model_dump_json()


@pytest.mark.parametrize(
    ("section", "unit"),
    [
        ("uname", "Windows 1."),
        ("processors", "Description : Family 6 Model 94 Stepping 3\n"),
        ("processors", "Name : "),
        ("cpu-features", "feature 3\n"),
        ("cpu-features", "cpuid "),
        ("python", "C:\\a 3.1 cpython-31-win32 a "),
        ("python", "C:\\a a"),
        ("python", "C:\\a 3.11.1 cpython-311-win_amd64 venv -\n"),
    ],
)
def test_each_section_is_read_in_linear_time(section: str, unit: str) -> None:
    def work(size: int) -> Callable[[], object]:
        return lambda: windows_facts(capture("adl-3080", **{section: filled(unit, size)}))

    assert is_linear(work, MAX_OTHER)
