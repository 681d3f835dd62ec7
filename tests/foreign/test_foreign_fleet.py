"""The foreign lab: every node is probed as its CPU, and its programs die of what that CPU lacks."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild import Fleet
from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS
from tests.foreign.test_emulated_arm import HAVE
from tests.foreign.test_emulated_arm import SOURCE as ARM_SOURCE
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
# One instruction of each rung, past any C library: the compiler's flags are the rung's.
X86_SOURCE = """
volatile float some[8];
volatile unsigned bits, sink;
int main(void) {
#if defined(__AVX2__)
  __asm__ volatile("vpaddd %ymm0, %ymm0, %ymm0");
#elif defined(__AVX__)
  __asm__ volatile("vaddps %ymm0, %ymm0, %ymm0");
#elif defined(__SSE4_2__)
  sink = __builtin_popcount(bits);
#endif
  return 0;
}
"""
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


def runs(lab: Lab, node: str, program: Path) -> bool:
    """Whether the program ends well on the node; another end than SIGILL fails the test."""
    copy = ["scp", "-q", "-F", str(lab.ssh_config), str(program), f"{node}:"]
    subprocess.run(copy, check=True)
    code = over_ssh(lab, node, f"./{program.name}; exit $?").returncode
    assert code in (0, 132), f"{program.name} ends with {code} on {node}"
    return code == 0


def test_the_probe_detects_the_rung_of_every_emulated_node(nodes: Lab, tmp_path: Path) -> None:
    facts = Fleet(nodes.inventory, state_dir=tmp_path, timeout=300).probe()
    assert {name: node.isa for name, node in facts.items()} == ISA
    assert over_ssh(nodes, "n1", "uname -m").stdout == "aarch64\n"


@pytest.mark.parametrize("node", [name for name, isa in ISA.items() if RUNGS[isa].arch == "x86_64"])
def test_x86_code_runs_only_on_nodes_of_its_rung(nodes: Lab, node: str, tmp_path: Path) -> None:
    (tmp_path / "uses.c").write_text(X86_SOURCE)
    ended = {}
    for rung in ("x86-64", "x86-64-v2", "avx", "avx2"):
        options = [*flags(RUNGS[rung], "gcc", None).split(), "-O1", "-static", "-o", rung]
        subprocess.run(["gcc", "uses.c", *options], cwd=tmp_path, check=True)
        ended[rung] = runs(nodes, node, tmp_path / rung)
    if node.startswith("native"):  # what its files say is not what its CPU is
        assert all(ended.values())
    else:
        has = RUNGS[ISA[node]].features
        assert ended == {rung: RUNGS[rung].features <= has for rung in ended}


@pytest.mark.parametrize(
    "node", [name for name, isa in ISA.items() if RUNGS[isa].arch == "aarch64"]
)
def test_arm_code_runs_only_on_nodes_of_its_rung(nodes: Lab, node: str, tmp_path: Path) -> None:
    gcc = shutil.which("aarch64-linux-gnu-gcc-12")
    assert gcc, "Fix: apt-get install gcc-12-aarch64-linux-gnu"
    (tmp_path / "uses.c").write_text(ARM_SOURCE)
    plain = ["-O2", "-ffreestanding", "-nostdlib", "-static", "-mno-outline-atomics"]
    ended = {}
    for rung in (each for each in RUNGS.values() if each.arch == "aarch64"):
        options = [*plain, *flags(rung, "gcc", "12.2.0").split(), "-o", rung.name]
        subprocess.run([gcc, "uses.c", *options], cwd=tmp_path, check=True)
        ended[rung.name] = runs(nodes, node, tmp_path / rung.name)
    has = HAVE[str(nodes.nodes[node].spec.cpu)]
    assert ended == {rung: rung in has for rung in ended}


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
