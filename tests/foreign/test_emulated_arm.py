"""Code for each Arm rung on CPUs that have it and on CPUs that lack it, by QEMU's user mode."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS

pytestmark = pytest.mark.long

# Uses what its flags turn on, and ends without a C library.
SOURCE = """
#include <arm_neon.h>
#ifdef __ARM_FEATURE_SVE
#include <arm_sve.h>
#endif
volatile int8_t bytes[64];
volatile int sink;
static long counter;
void _start(void) {
  int32x4_t sum = vdupq_n_s32(0);
  int8x16_t some = vdupq_n_s8(bytes[0] + 1);
  __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
#ifdef __ARM_FEATURE_DOTPROD
  sum = vdotq_s32(sum, some, some);
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
  sum = vmmlaq_s32(sum, some, some);
#endif
#ifdef __ARM_FEATURE_SVE
  sink += svcntb();
#endif
#ifdef __ARM_FEATURE_SVE2
  sink += svaddv_u8(svptrue_b8(), sveorbt_u8(svdup_u8(bytes[1]), svdup_u8(2), svdup_u8(3)));
#endif
  sink += vaddvq_s32(sum);
  register long status __asm__("x0") = 0;
  register long exit __asm__("x8") = 93;
  __asm__ volatile("svc 0" : : "r"(status), "r"(exit));
}
"""
HAVE = {
    "cortex-a72": {"armv8"},
    "neoverse-n1": {"armv8", "armv8.2"},
    "a64fx": {"armv8"},  # SVE, and no dot products
    "max": {"armv8", "armv8.2", "armv8.4sve", "armv9"},
}
ARM = [rung for rung in RUNGS.values() if rung.arch == "aarch64"]


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing. Fix: apt-get install {package}"
    return found


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program for each rung."""
    folder = tmp_path_factory.mktemp("arm")
    gcc = program("aarch64-linux-gnu-gcc-12", "gcc-12-aarch64-linux-gnu")
    (folder / "uses.c").write_text(SOURCE)
    plain = ["-O2", "-ffreestanding", "-nostdlib", "-static", "-mno-outline-atomics"]
    for rung in ARM:
        options = [*plain, *flags(rung, "gcc", "12.2.0").split(), "-o", rung.name]
        subprocess.run([gcc, "uses.c", *options], cwd=folder, check=True)
    return {rung.name: folder / rung.name for rung in ARM}


@pytest.mark.parametrize("cpu", HAVE)
@pytest.mark.parametrize("rung", ARM, ids=str)
def test_code_of_a_rung_runs_only_on_cpus_of_that_rung(
    rung: object, cpu: str, compiled: dict[str, Path]
) -> None:
    qemu = program("qemu-aarch64-static", "qemu-user-static")
    done = subprocess.run([qemu, "-cpu", cpu, compiled[str(rung)]], check=False)
    assert done.returncode == (0 if str(rung) in HAVE[cpu] else -signal.SIGILL)
