"""Captures of Windows nodes, one case per machine, and what their features follow from."""

from __future__ import annotations

import pytest

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Capture
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import SECTIONS
from tests.factories.data import WINDOWS, windows_nodes

EXPECTED = {
    "adl-3080": ("avx2", ("8.6",), "10.0.26200", 20, ["cp313"]),
    "nhm-w3520": ("x86-64-v2", (), "6.3.9600", 4, ["cp310"]),
    "skl-6700hq": ("avx2", (), "10.0.19045", 8, ["cp311"]),
    "snb-2670qm": ("avx", (), "6.1.7601", 8, ["cp38"]),
    "snb-k40c": ("avx", ("3.5",), "10.0.19045", 16, ["cp310"]),
}


def capture(node: str, **changes: str) -> Capture:
    found = load_captures(WINDOWS, [node])[node]
    assert isinstance(found, dict)
    return {**found, **{name.replace("_", "-"): text for name, text in changes.items()}}


@pytest.mark.parametrize("node", EXPECTED)
def test_each_captured_windows_node_is_read(node: str) -> None:
    facts = windows_nodes()[node]
    tags = [python.tag for python in facts.pythons]
    read = (facts.isa, facts.sms, facts.os.version, facts.cpus, tags)
    assert (facts.state, facts.os.id, facts.arch) == ("ok", "windows", "x86_64")
    assert read == EXPECTED[node]
    assert facts.os.name is not None
    assert facts.os.name.startswith("Microsoft Windows")
    assert facts.memory_gb
    assert facts.libc is None


def test_cpuid_is_exact_and_needs_no_model() -> None:
    facts = facts_of(capture("skl-6700hq", processors="Manufacturer : GenuineIntel\n"))
    assert facts.isa == "avx2"
    assert {"fma", "f16c", "bmi2", "movbe", "abm", "popcnt", "lahf_lm"} <= set(facts.features)
    assert not any(name.startswith("avx512") for name in facts.features)
    assert not any("PowerShell 7" in warning for warning in facts.warnings)


def test_avx_counts_only_if_windows_saves_its_registers() -> None:
    said = capture("skl-6700hq")["cpu-features"]
    without = facts_of(capture("skl-6700hq", cpu_features=said.replace("0000001F", "00000003")))
    assert without.isa == "x86-64-v2"
    assert not {"avx", "avx2", "fma", "f16c"} & set(without.features)
    assert set(RUNGS["avx2"].features) - set(without.features) == set(without.hypervisor_masked)


def test_a_leaf_beyond_the_last_one_is_not_read() -> None:
    said = capture("skl-6700hq")["cpu-features"].replace(
        "00000000 00000000 00000016", "00000000 00000000 00000001"
    )
    facts = facts_of(capture("skl-6700hq", cpu_features=said))
    assert facts.isa == "avx"
    assert "avx512_bf16" not in facts_of(capture("skl-6700hq")).features


def test_without_cpuid_the_model_completes_what_windows_confirms() -> None:
    (warning,) = windows_nodes()["adl-3080"].warnings
    assert warning == (
        "Windows does not show abm, bmi1, f16c, fma, movbe, popcnt, which the CPU's model has and a"
        " hypervisor may hide. Install PowerShell 7, with which the probe reads CPUID itself."
    )


def test_what_windows_does_not_confirm_is_not_taken_from_the_model() -> None:
    said = capture("adl-3080")["cpu-features"].replace("feature 40\n", "")
    facts = facts_of(capture("adl-3080", cpu_features=said))
    assert facts.isa == "avx"
    assert not {"fma", "bmi1", "movbe"} & set(facts.features)


def test_an_unknown_model_adds_nothing() -> None:
    facts = facts_of(capture("adl-3080", processors="Name : ?\nManufacturer : Somebody\n"))
    assert facts.isa == "x86-64"
    assert "its model is unknown" in facts.warnings[0]


def test_if_windows_was_not_asked_only_the_baseline_counts() -> None:
    without = {k: v for k, v in capture("adl-3080").items() if k != "cpu-features"}
    assert facts_of(without).isa == "x86-64"


@pytest.mark.parametrize(
    ("uname", "reason"),
    [
        ("Windows 10.0.26100 ARM64", "Windows on ARM64 is not supported: only on AMD64."),
        ("Windows nonsense", "This Windows is not supported: only on AMD64."),
    ],
)
def test_other_windows_machines_are_unsupported(uname: str, reason: str) -> None:
    facts = facts_of(capture("adl-3080", uname=uname))
    assert (facts.state, facts.reason) == ("unsupported", reason)


def test_a_unix_shell_on_windows_names_the_setting() -> None:
    facts = facts_of({"uname": "MINGW64_NT-10.0-19045 3.4.9 x86_64"})
    assert facts.state == "unsupported"
    assert facts.reason is not None
    assert "Set ansible_shell_type: powershell" in facts.reason


def test_a_32_bit_python_is_left_out() -> None:
    facts = windows_nodes()["skl-6700hq"]
    assert [python.path for python in facts.pythons] == [r"C:\Program Files\Python311\python.exe"]
    assert "is a 32-bit Python" in facts.warnings[0]


@pytest.mark.parametrize("section", SECTIONS)
def test_nonsense_in_a_section_is_unknown_and_never_fails(section: str) -> None:
    for text in ("", "\x1b[2J\x00" * 50, "a : b\n" * 5000, "cpuid " + "F" * 4000, ": : :\n"):
        facts = facts_of({**capture("skl-6700hq"), section: text})
        assert facts.state in ("ok", "unsupported")
        assert "\x1b" not in facts.model_dump_json()


def test_numbers_beyond_any_machine_are_left_out() -> None:
    facts = facts_of(
        capture(
            "skl-6700hq",
            processors="NumberOfLogicalProcessors : 99999999\n",
            windows="TotalVisibleMemorySize : " + "9" * 400,
        )
    )
    assert (facts.cpus, facts.memory_gb) == (None, None)
