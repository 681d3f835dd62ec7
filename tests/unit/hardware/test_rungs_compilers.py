"""Compilers that are here, asked what a rung's flags turn on: its features, no more and no less.

`make test` asks the newest of each kind that happens to be installed; `make test-long` installs all
that Debian has, and asks them all.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.hardware.flags import flags, unknown_features
from fleetbuild.hardware.rungs import RUNGS, Rung
from fleetbuild.toolchains.cuda import Gcc
from fleetbuild.toolchains.pytorch import SVE_GCC

TABLE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "macros.yml").read_text())
CROSS = "aarch64-linux-gnu-"
NAME = re.compile(rf"(?P<cross>{CROSS})?(?P<kind>gcc|clang)(-\d+)?")


@dataclass(frozen=True)
class Compiler:
    """A compiler that is here, for one architecture."""

    path: str
    kind: str
    arch: str

    @property
    def version(self) -> str:
        return _said(self.path, "-dumpfullversion" if self.kind == "gcc" else "-dumpversion")

    @property
    def command(self) -> list[str]:
        target = f"--target={self.arch}-linux-gnu"
        return [self.path, target] if self.kind == "clang" else [self.path]

    def __str__(self) -> str:
        return f"{self.kind}-{self.version}-{self.arch}"


@cache
def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
    return done.stdout.strip()


def _installed() -> list[Compiler]:
    """Each gcc and clang in PATH, once: `gcc` and `gcc-12` are one, and so are its links."""
    found: dict[tuple[str, str], Compiler] = {}
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            match = NAME.fullmatch(path.name)
            if match is None or "ccache" in str(path.resolve()) or not os.access(path, os.X_OK):
                continue
            for arch in _architectures(match["kind"], match["cross"], str(path)):
                compiler = Compiler(str(path), match["kind"], arch)
                found.setdefault((str(path.resolve()), arch), compiler)
    return list(found.values())


def _architectures(kind: str, cross: str | None, path: str) -> list[str]:
    """Clang compiles for all of them, a gcc for one."""
    if kind == "clang":
        return list(TABLE)
    arch = "aarch64" if cross else _said(path, "-dumpmachine").partition("-")[0]
    return [arch] if arch in TABLE else []


COMPILERS = _installed()
NEWEST = {
    max(kin, key=lambda each: [int(part) for part in each.version.split(".")])
    for kind in ("gcc", "clang")
    for arch in TABLE
    if (kin := [each for each in COMPILERS if (each.kind, each.arch) == (kind, arch)])
}
CASES = [
    pytest.param(
        compiler,
        rung,
        id=f"{compiler}-{rung}",
        marks=() if compiler in NEWEST else pytest.mark.long,
    )
    for compiler in COMPILERS
    for rung in RUNGS.values()
    if rung.arch == compiler.arch
]


def _macros(compiler: Compiler, options: str) -> frozenset[str]:
    text = _said(*compiler.command, *options.split(), "-dM", "-E", "-x", "c", "/dev/null")
    return frozenset(line.split()[1].partition("(")[0] for line in text.splitlines())


def _check_macros(compiler: Compiler, options: str, features: frozenset[str]) -> None:
    """Each feature has its macro, and no macro is there that none of them explains."""
    table = TABLE[compiler.arch]
    added = _macros(compiler, options) - _macros(compiler, table["base"])
    rows = [table["features"][feature] for feature in features]
    missing = [row["macro"] for row in rows if added.isdisjoint(row["macro"])]
    assert not missing, f"{compiler} {options}"
    explained = {macro for row in rows for macro in (*row["macro"], *row.get("brings", ()))}
    assert not added - explained, f"{compiler} {options}"


@pytest.mark.parametrize(("compiler", "rung"), CASES)
def test_flags_of_a_rung_enable_exactly_its_features(compiler: Compiler, rung: Rung) -> None:
    assert not unknown_features(rung, compiler.kind, compiler.version)
    _check_macros(compiler, flags(rung, compiler.kind, compiler.version), rung.features)


# What an older one would be given, spelled out, a newer one understands just so.
@pytest.mark.parametrize("version", ["10.2.0", "8.5.0", None])
@pytest.mark.parametrize(("compiler", "rung"), CASES)
def test_the_spelled_out_flags_enable_the_same_features(
    compiler: Compiler, rung: Rung, version: str | None
) -> None:
    known = rung.features - unknown_features(rung, compiler.kind, version)
    _check_macros(compiler, flags(rung, compiler.kind, version), known)


@pytest.mark.parametrize(("compiler", "rung"), CASES)
def test_code_that_uses_a_rungs_features_compiles(
    compiler: Compiler, rung: Rung, tmp_path: Path
) -> None:
    """A macro says what code may use; headers and assemblers have a say of their own."""
    table = TABLE[compiler.arch]
    rows = [table["features"][feature] for feature in sorted(rung.features)]
    rows = [row for row in rows if "code" in row]
    includes = dict.fromkeys([table["include"], *(row.get("include") for row in rows)])
    lines = [f"#include <{name}>" for name in includes if name] + [table["declare"]]
    lines += [f"void use_{n}(void) {{ {row['code']}; }}" for n, row in enumerate(rows)]
    source = tmp_path / "uses.c"
    source.write_text("\n".join(lines) + "\n")
    options = flags(rung, compiler.kind, compiler.version).split()
    freestanding = ["-ffreestanding"] if compiler.arch == "aarch64" else []
    command = [*compiler.command, "-O2", "-w", *freestanding, *options, "-c", str(source)]
    _said(*command, "-o", str(tmp_path / "uses.o"))


LOOPS = """
#include <stddef.h>
#include <stdint.h>
uint32_t crc(const uint8_t *p, size_t n) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0xEDB88320u & -(c & 1));
  }
  return ~c;
}
int32_t dot(const int8_t *a, const int8_t *b, int n) {
  int32_t s = 0;
  for (int i = 0; i < n; i++) s += a[i] * b[i];
  return s;
}
static int16_t saturated(int32_t x) { return x > 32767 ? 32767 : x < -32768 ? -32768 : x; }
void rounded(int16_t *a, const int16_t *b, const int16_t *c, int n) {
  for (int i = 0; i < n; i++) a[i] = saturated(a[i] + ((2 * b[i] * c[i] + 0x8000) >> 16));
}
void fused(float *a, const float *b, const float *c, int n) {
  for (int i = 0; i < n; i++) a[i] += b[i] * c[i];
}
uint32_t swapped(const uint32_t *p) { return __builtin_bswap32(*p); }
int zeros(uint64_t x) { return __builtin_clzll(x | 1) + __builtin_ctzll(x | 1); }
int ones(uint64_t x) { return __builtin_popcountll(x); }
uint64_t shifted(uint64_t x, int n) { return (x << n) & ~(x >> n); }
int64_t counted(int64_t *p) { return __atomic_fetch_add(p, 1, 5); }
#ifdef __aarch64__
void halves(__fp16 *a, const __fp16 *b, int n) { for (int i = 0; i < n; i++) a[i] += a[i] * b[i]; }
#endif
"""


@pytest.mark.parametrize(("compiler", "rung"), CASES)
def test_code_for_a_rung_needs_no_more_than_the_rung(
    compiler: Compiler, rung: Rung, tmp_path: Path
) -> None:
    """What the compiler makes of plain loops, by the audit that every wheel has to pass."""
    source, made = tmp_path / "loops.c", tmp_path / "loops.o"
    source.write_text(LOOPS)
    options = flags(rung, compiler.kind, compiler.version).split()
    command = [*compiler.command, "-O3", "-ffast-math", "-ffreestanding", *options]
    _said(*command, "-c", str(source), "-o", str(made))
    needs = {use.feature for use in audit_elf(made.name, made.read_bytes()).features}
    implied = {"aarch64": aarch64, "x86_64": x86}[rung.arch].implied
    assert needs <= implied(rung.features)  # whoever has SVE2 has SVE
    assert needs or rung.name in ("x86-64", "armv8")  # it does use its features


SVE = """
#include <arm_sve.h>
#include <arm_neon.h>
bfloat16x4_t low(float32x4_t a) { return vget_low_bf16(vreinterpretq_bf16_f32(a)); }
"""
ARM_GCCS = [each for each in COMPILERS if (each.kind, each.arch) == ("gcc", "aarch64")]


@pytest.mark.parametrize("compiler", ARM_GCCS, ids=str)
def test_only_some_gccs_compile_bf16_and_sve_in_one_file_as_torchs_kernels_need(
    compiler: Compiler,
) -> None:
    options = ["-march=armv8-a+sve+bf16", "-msve-vector-bits=256", "-S", "-o", "/dev/null"]
    command = [*compiler.command, *options, "-x", "c", "-"]
    done = subprocess.run(command, input=SVE, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == Gcc(SVE_GCC).fits(compiler.version), done.stderr[-2000:]


def test_a_compiler_is_installed() -> None:
    assert [compiler for compiler in COMPILERS if compiler.kind == "gcc"]
    assert {feature for rung in RUNGS.values() for feature in rung.features} == {
        feature for table in TABLE.values() for feature in table["features"]
    }


PACKAGE = r"(gcc|clang)-([0-9]+)(-aarch64-linux-gnu)?"


@pytest.mark.long
def test_every_compiler_of_debian_is_checked() -> None:
    here = {(each.kind, each.version.partition(".")[0], each.arch) for each in COMPILERS}
    offered = _said("apt-cache", "search", "--names-only", f"^{PACKAGE}$").splitlines()
    packages = [re.match(PACKAGE, line) for line in offered]
    wanted = {
        (package[1], package[2], arch)
        for package in packages
        if package
        for arch in (TABLE if package[1] == "clang" else [_arch_of(package)])
    }
    assert len(wanted) >= 4
    assert not wanted - here


def _arch_of(package: re.Match[str]) -> str:
    return "aarch64" if package[3] else platform.machine()
