"""What archspec calls a CPU of which only flags, maker and part are known."""

from __future__ import annotations

import pytest
from archspec.cpu import TARGETS

from fleetbuild.hardware.cpus import microarchitecture

X86 = ("ivybridge", "haswell", "skylake_avx512", "cascadelake", "zen3", "zen4")


def flags(name: str) -> frozenset[str]:
    """The microarchitecture's flags, as the kernel spells them."""
    return frozenset("pni" if flag == "sse3" else flag for flag in TARGETS[name].features)


@pytest.mark.parametrize("name", X86)
def test_an_x86_is_known_by_its_flags(name: str) -> None:
    assert microarchitecture("x86_64", flags(name), TARGETS[name].vendor) == name


def test_features_hidden_by_a_hypervisor_give_an_older_name() -> None:
    hidden = flags("haswell") - {"avx2", "fma", "bmi1", "bmi2", "movbe", "abm"}
    assert microarchitecture("x86_64", hidden, "GenuineIntel") == "ivybridge"


@pytest.mark.parametrize(
    ("name", "part"), [("neoverse_n1", "0xd0c"), ("neoverse_v1", "0xd40"), ("neoverse_v2", "0xd4f")]
)
def test_an_arm_core_is_known_by_its_part(name: str, part: str) -> None:
    assert microarchitecture("aarch64", flags(name), "0x41", part) == name


@pytest.mark.parametrize("vendor", [None, "Nobody", "0x99"])
def test_an_unknown_maker_has_no_name(vendor: str | None) -> None:
    assert microarchitecture("x86_64", flags("haswell"), vendor) is None
