"""A lab node with another CPU: its programs die of what that CPU lacks, over SSH as anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.lab.emulation import registration, why_not

ILLEGAL = 132  # what a shell makes of SIGILL
ADDS_BY_AVX2 = """
#include <immintrin.h>
volatile int some[8];
int main(void) {
  __m256i all = _mm256_loadu_si256((__m256i *)some);
  _mm256_storeu_si256((__m256i *)some, _mm256_add_epi32(all, all));
}
"""


@pytest.fixture(scope="module")
def nodes(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    if reason := why_not():
        pytest.skip(reason)
    ivy, own = {"cpu": "IvyBridge", "gpu": False}, {"hardware": "avx2", "gpu": False}
    return make_lab({"nodes": {"ivy": ivy, "own": own}})


def test_a_program_dies_of_an_instruction_that_the_nodes_cpu_lacks(
    nodes: Lab, tmp_path: Path
) -> None:
    (tmp_path / "adds.c").write_text(ADDS_BY_AVX2)
    command = ["gcc", "-O1", "-mavx2", "-static", "adds.c", "-o", "adds"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ended = {}
    for node in nodes.nodes:
        options = ["-q", "-F", str(nodes.ssh_config)]
        subprocess.run(["scp", *options, tmp_path / "adds", f"{node}:"], check=True)
        ended[node] = subprocess.run(
            ["ssh", *options, node, "./adds; exit $?"], check=False, capture_output=True
        ).returncode
    assert ended == {"ivy": ILLEGAL, "own": 0}


def test_sudo_works_there_and_the_host_stays_as_it_was(nodes: Lab) -> None:
    assert nodes.exec("ivy", "sudo id -u", user="fleet", check=True).stdout == "0\n"
    assert not Path("/proc/sys/fs/binfmt_misc/emulated").exists()


def test_a_lab_that_cannot_start_names_the_reason_and_the_skipped_tests(tmp_path: Path) -> None:
    bare = {**os.environ, "PATH": str(tmp_path)}  # without QEMU
    this = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "dies"]
    said = subprocess.run(this, env=bare, capture_output=True, text=True, check=False).stdout
    fix = "qemu-x86_64-static is not installed. Fix: apt-get install qemu-user-static"
    assert f"test_a_program_dies_of_an_instruction_that_the_nodes_cpu_lacks ({fix})" in said
    assert said.splitlines()[-1].startswith("1 skipped")


def test_the_registration_spells_every_byte_as_an_escape() -> None:
    _, name, kind, offset, magic, mask, interpreter, flags = registration(
        "aarch64", "/emulator/emulator", "PFC"
    ).split(":")
    assert (name, kind, offset, interpreter) == ("emulated", "M", "0", "/emulator/emulator")
    assert flags == "PFC"
    assert magic == r"\x7f\x45\x4c\x46\x02\x01\x01" + 9 * r"\x00" + r"\x02\x00\xb7\x00"
    assert len(magic) == len(mask)
