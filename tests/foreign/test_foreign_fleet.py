"""The foreign lab: every node is probed as its CPU."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild import Fleet
from fleetbuild.hardware.rungs import RUNGS
from tests.lab import Lab
from tests.lab.fleet import FLEETS

pytestmark = [pytest.mark.long, pytest.mark.fleet]

ISA = {
    "native-avx": "avx",
    "native-avx2": "avx2",
    "nehalem": "x86-64-v2",
    "sandy": "avx",
    "ivy": "avx",
    "haswell": "avx2",
    "a72": "armv8",
    "n1": "armv8.2",
    "armv9": "armv9",
}
# Linux' names for the bits of AT_HWCAP and AT_HWCAP2, in order.
HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
)
HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm "
    "svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres mte3 sme smei16i64 smef64f64 smei8i32 "
    "smef16f32 smeb16f32 smef32f32 smefa64"
)
ASK = "import ctypes; print(*map(ctypes.CDLL(None, use_errno=True).getauxval, (16, 26)))"


@pytest.fixture(scope="module")
def nodes(make_foreign_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    return make_foreign_lab(yaml.safe_load((FLEETS / "foreign.yml").read_text()))


def over_ssh(lab: Lab, node: str, command: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-q", "-F", str(lab.ssh_config), node, command]
    return subprocess.run(words, check=False, capture_output=True, text=True)


def test_the_probe_detects_the_rung_of_every_emulated_node(nodes: Lab, tmp_path: Path) -> None:
    facts = Fleet(nodes.inventory, state_dir=tmp_path, timeout=300).probe()
    assert {name: node.isa for name, node in facts.items()} == ISA
    assert over_ssh(nodes, "n1", "uname -m").stdout == "aarch64\n"


@pytest.mark.parametrize(
    "node", [name for name, isa in ISA.items() if RUNGS[isa].arch == "aarch64"]
)
def test_cpuinfo_of_an_arm_node_agrees_with_its_cpu(nodes: Lab, node: str) -> None:
    words = over_ssh(nodes, node, f'python3 -c "{ASK}"').stdout.split()
    says = [
        name
        for word, names in zip(words, (HWCAP, HWCAP2), strict=True)
        for bit, name in enumerate(names.split())
        if int(word) >> bit & 1
    ]
    cpuinfo = over_ssh(nodes, node, "cat /proc/cpuinfo").stdout
    found = re.search(r"^Features\t: (.*)$", cpuinfo, re.MULTILINE)
    assert found
    assert found[1].split() == says
