"""x86-64 machine code: single instructions, and what the gcc here makes of C at each level."""

import pytest

from fleetbuild.audit import x86
from fleetbuild.audit.pieces import Piece
from fleetbuild.audit.wheel import audit_elf
from tests.factories.elf import GCC, compile_c


def uses(data, address=0):
    piece = Piece(0, len(data), address, "default", known=True)
    return [use for use, _ in x86.used_features(data, [piece])]


V2 = {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
AVX = V2 | {"avx"}
AVX2 = AVX | {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("code", "features"),
    [
        ("f3 0f bc c1", ()),  # tzcnt eax, ecx: gcc's rep bsf
        ("f3 0f bd c1", ("abm",)),  # lzcnt: means something else on older CPUs
        ("c4 e2 70 f3 c9", ("bmi1",)),  # blsr
        ("c4 e2 73 f7 c1", ("bmi2",)),  # shrx
        ("0f 38 f0 07", ("movbe",)),
        ("48 0f c7 0f", ("cx16",)),  # cmpxchg16b
        ("9f", ()),  # lahf: only CPUs before 2006 lack it
        ("f3 0f b8 c1", ("popcnt",)),
        ("f2 0f 7c c1", ("pni",)),  # haddps
        ("66 0f 38 00 c1", ("ssse3",)),
        ("66 0f 3a 0e c1 01", ("sse4_1",)),
        ("f2 0f 38 f1 c1", ("sse4_2",)),
        ("c5 f4 58 c2", ("avx",)),  # vaddps ymm
        ("c5 f5 fe c2", ("avx2",)),  # vpaddd ymm
        ("c4 e2 7d 13 c1", ("f16c",)),  # vcvtph2ps
        ("c4 e2 75 b8 c2", ("fma",)),
        ("62 f1 74 48 58 c2", ("avx512f",)),  # vaddps zmm
        ("62 f1 74 28 58 c2", ("avx512vl", "avx512f")),  # evex vaddps ymm, k
        ("62 f2 75 48 50 c2", ("avx512_vnni",)),
        ("c4 e2 75 50 c2", ("avx_vnni",)),
        ("62 f2 76 48 52 c2", ("avx512_bf16", "avx512f")),
        ("c4 e2 78 49 00", ("amx_tile",)),  # ldtilecfg
        ("c4 e2 73 5e c2", ("amx_int8",)),
        ("f3 0f 1e fa", ()),  # endbr64
        ("0f 1f 44 00 00", ()),  # nop
        ("0f 0d 0f", ()),  # prefetchw
        ("0f 01 d0", ()),  # xgetbv
        ("0f a2", ()),  # cpuid
        ("0f 31", ()),  # rdtsc
        ("f3 90", ()),  # pause
        ("0f ae f0", ()),  # mfence
        ("f2 0f 58 c1", ()),  # addsd
        ("0f 44 c1", ()),  # cmov
        ("06", ()),  # not an instruction in 64-bit code
        ("0f c7 f0", ("rdrand",)),
        ("66 0f 38 dc c1", ("aes",)),
        ("c4 e3 71 44 c2 00", ("avx", "pclmulqdq")),
    ],
)
def test_an_instruction_needs_the_listed_features(code, features):
    found = [use.feature for use in uses(bytes.fromhex(code))]
    assert sorted(found) == sorted(features)


def test_an_example_names_instruction_and_place():
    (use,) = uses(bytes.fromhex("90 c5 f4 58 c2 c5 f4 58 c2"), 0x100)
    assert str(use) == "avx (vaddps ymm0,ymm1,ymm2 at 0x101)"


LOOPS = """
#include <stdint.h>
#include <stdio.h>
void say(void) { puts("loops"); }
void saxpy(float *a, const float *b, const float *c, int n) {
    for (int i = 0; i < n; i++) a[i] += b[i] * c[i];
}
void half(float *to, const uint16_t *from, int n) {
    for (int i = 0; i < n; i++) to[i] = from[i] * 0.5f;
}
int bits(uint64_t x) { return __builtin_popcountll(x) + __builtin_clzll(x) + __builtin_ctzll(x); }
uint64_t mask(uint64_t a, uint64_t b) { return ~a & b; }
uint64_t shift(uint64_t a, int b) { return a >> b; }
uint32_t swapped(const uint32_t *p) { return __builtin_bswap32(*p); }
void ints(int64_t *a, const int64_t *b, int n) {
    for (int i = 0; i < n; i++) a[i] *= b[i] > 0 ? b[i] : -b[i];
}
"""


@pytest.mark.skipif(not GCC, reason="no gcc here")
@pytest.mark.parametrize(
    ("flags", "rung", "at_least"),
    [
        (["-march=x86-64"], set(), set()),
        (["-march=x86-64-v2"], V2, {"popcnt", "sse4_1"}),
        (["-march=x86-64-v2", "-mavx"], AVX, {"avx"}),
        (["-march=x86-64-v3"], AVX2, {"avx2", "fma", "abm", "bmi1", "bmi2", "movbe"}),
        (["-march=x86-64-v4", "-mprefer-vector-width=512"], AVX512, {"avx512f", "avx512dq"}),
    ],
    ids=["x86-64", "x86-64-v2", "avx", "avx2", "avx512"],
)
def test_compiled_code_uses_its_rung_and_nothing_beyond(tmp_path, flags, rung, at_least):
    audit = audit_elf("code.so", compile_c(tmp_path, LOOPS, *flags))
    found = {use.feature for use in audit.features}
    assert at_least <= found <= rung
    assert (audit.arch, audit.libc) == ("x86_64", "glibc")


@pytest.mark.skipif(not GCC, reason="no gcc here")
def test_an_example_names_the_function(tmp_path):
    audit = audit_elf("code.so", compile_c(tmp_path, LOOPS, "-march=x86-64", "-mfma", "-mavx"))
    (fma,) = (use for use in audit.features if use.feature == "fma")
    assert fma.symbol == "saxpy"
    assert fma.instruction.startswith("vfmadd")


@pytest.mark.skipif(not GCC, reason="no gcc here")
def test_cpuid_is_not_counted_as_a_feature(tmp_path):
    dispatcher = """
    int best(void) { __builtin_cpu_init(); return __builtin_cpu_supports("avx512f"); }
    """
    audit = audit_elf("code.so", compile_c(tmp_path, dispatcher, "-static-libgcc"))
    assert audit.features == ()


def test_a_feature_implies_other_features():
    assert x86.implied(frozenset({"avx"})) == {"avx", "xsave"}


def test_all_features_of_one_function_are_found_in_whatever_order_they_come():
    code = bytes.fromhex("62f1744858c2 f30fb8c1 c5f458c2 660f3800c1 c4e275b8c2".replace(" ", ""))
    wanted = {"avx512f", "popcnt", "avx", "ssse3", "fma"}
    assert {use.feature for use in uses(code)} >= wanted
    # Bytes inside another instruction do not count.
    inside = bytes.fromhex("48b8" + "c5f458c2c5f458c2" + "c3")  # mov rax, imm64; ret
    assert uses(inside) == []
