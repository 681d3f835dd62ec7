"""Code for a higher level that no check of the CPU guards is never called fine, whatever its name.

Each module is compiled by the compilers that are here, judged for Ivy Bridge by reading, and run as
Ivy Bridge where QEMU is here: a module that dies there must not be one that "runs".
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from fleetbuild.audit.check import implied_features
from fleetbuild.audit.level_names import own_name
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.extensions.check.judge import judge
from fleetbuild.extensions.check.needs import WheelNeeds
from fleetbuild.hardware.cpu_models import CPU_MODELS
from tests.factories.elf import GCC
from tests.factories.native import GXX, HEADERS

QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
pytestmark = pytest.mark.skipif(not (GCC and GXX), reason="no gcc and g++ here")

# Imports a module as Python does, and uses it.
IMPORTS = """
#include <dlfcn.h>
int main(int count, char **words) {
    void *module = dlopen(words[1], RTLD_NOW);
    if (!module) return 3;
    void *(*init)(void) = (void *(*)(void))dlsym(module, "PyInit_demo");
    double (*use)(double) = (double (*)(double))(init ? init() : 0);
    return use && use(count) == 12345.0;
}
"""
BEGIN = """
static int w[64];
#define WORK(by) for (int i = 0; i < 64; i++) w[i] = (w[i] ^ (int)x) * by; return w[3] + x;
#define LOCAL static __attribute__((noinline))
#define AVX2 LOCAL __attribute__((target("avx2")))
#define EXPORTED __attribute__((visibility("default")))
#ifdef __cplusplus
extern "C"
#endif
EXPORTED void *PyInit_demo(void);
LOCAL int has_avx2(void) { __builtin_cpu_init(); return __builtin_cpu_supports("avx2"); }
"""
INIT = "void *PyInit_demo(void) { return (void *)use; }"
WHOLE = ("-march=haswell",)
TWO_FUNCTIONS = """
LOCAL double dist_avx2(double x) { WORK(3) }
LOCAL double dist(double x) { WORK(5) }
double use(double x) { return has_avx2() ? dist_avx2(x) : dist(x); }
"""

KEPT = """
static double (*volatile kept)(double), (*volatile other)(double);
AVX2 double fast(double x) { WORK(3) }
LOCAL double way(double x) { return x > 1000 ? x : fast(x); }
LOCAL double plain(double x) { return x + 2; }
"""
LABEL = """
asm(".section .text.labels, \\"ax\\"; dist_avx2: vpaddd %ymm0, %ymm0, %ymm0; ret;"
    "more: MORE ret; .text");
__attribute__((visibility("hidden"))) double dist_avx2(double), more(double);
"""

# Each of these dies on Ivy Bridge: source, suffix, and flags beside -O3 and hidden names.
DEADLY = {
    "whole": (TWO_FUNCTIONS, ".c", WHOLE),
    "whole, with link-time optimization": (TWO_FUNCTIONS, ".c", (*WHOLE, "-flto")),
    "whole and stripped": (TWO_FUNCTIONS, ".c", (*WHOLE, "-s")),
    "template": ("""
        typedef double Dist(double);
        LOCAL double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { return x; }
        template <Dist *dist> struct Tree {
            static __attribute__((noinline)) double search(double x) { x += dist(x); WORK(5) } };
        double use(double x) {
            return Tree<dist>::search(x) + (has_avx2() ? Tree<dist_avx2>::search(x) : 0); }
        """, ".cc", WHOLE),
    "table of pointers, compiled whole": ("""
        LOCAL double dist(double x) { WORK(3) }
        LOCAL double dist_avx2(double x) { WORK(5) }
        static double (*const table[])(double) = {dist, dist_avx2};
        double use(double x) { return table[has_avx2()](x); }
        """, ".c", WHOLE),
    "called at import": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        double use(double x) { return has_avx2() ? dist_avx2(x) : x; }
        void *PyInit_demo(void) { w[2] = dist_avx2(2); return (void *)use; }
        """, ".c", ()),
    "called by a constructor": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        __attribute__((constructor)) void start(void) { w[2] = dist_avx2(2); }
        double use(double x) { return has_avx2() ? dist_avx2(x) : x; }
        """, ".c", ()),
    "called by an exported function": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        EXPORTED double plain(double x) { w[1]++; return dist_avx2(x) + 1; }
        double use(double x) { return plain(x) + (has_avx2() ? dist_avx2(x) : x); }
        """, ".c", ()),
    "jumped to": ("""
        LOCAL double plain(double x);
        AVX2 double dist_avx2(double x) { WORK(3) }
        LOCAL double plain(double x) { w[1]++; return dist_avx2(x); }
        double use(double x) { return has_avx2() ? dist_avx2(x) : plain(x); }
        """, ".c", ()),
    "its address is taken": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        double use(double x) { return has_avx2() ? x : dist_avx2(x); }
        EXPORTED double other(double x) { return has_avx2() ? dist_avx2(x) : x; }
        void *PyInit_demo(void) { w[4] = 1; return (void *)dist_avx2; }
        """, ".c", ()),
    "both ways lead there": ("""
        AVX2 double fast(double x) { WORK(3) }
        double use(double x) {
            if (has_avx2()) w[1]++;
            if (x < 1000) return fast(x);
            return x; }
        """, ".c", ()),
    "after a check and a condition of its own": ("""
        AVX2 double fast(double x) { WORK(3) }
        double use(double x) {
            w[2] += has_avx2() ? 3 : 5;
            if (x < 1000) return fast(x);
            return x; }
        """, ".c", ()),
    "inlined, before a check": ("""
        __attribute__((target("avx2"))) double use(double x) {
            for (int i = 0; i < 64; i++) w[i] = (w[i] ^ (int)x) * 3;
            return has_avx2() ? w[3] : x; }
        """, ".c", ()),
    "one of two functions without a level in their names": ("""
        AVX2 double fast(double x) { WORK(3) }
        AVX2 double slow(double x) { WORK(5) }
        double use(double x) { return has_avx2() ? fast(x) : slow(x); }
        """, ".c", ()),
    "in an unguarded table beside a guarded one": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        AVX2 double more_avx2(double x) { WORK(5) }
        LOCAL double dist(double x) { return x; }
        static double (*const chosen[])(double) = {dist, dist_avx2};
        static double (*const always[])(double) = {more_avx2, more_avx2};
        double use(double x) { return chosen[has_avx2()](x) + always[w[1] & 1](x); }
        """, ".c", ()),
    "after one check, and after another that leads there both ways": ("""
        AVX2 double fast(double x) { WORK(3) }
        double use(double x) {
            if (x > 1000) return x;
            if (has_avx2()) w[1] += fast(x);
            if (has_avx2()) w[2]++;
            return fast(x + 1) + 1; }
        """, ".c", ()),
    "a pointer that is kept unless nothing is known of the CPU": (KEPT + """
        LOCAL int known(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2"); }
        double use(double x) { if (!known()) return x; kept = way; other = plain; return kept(x); }
        """, ".c", ()),
    "a kept pointer to a function that others call, too": (KEPT + """
        double use(double x) {
            if (has_avx2()) { kept = way; w[1]++; } else { kept = plain; w[2]++; }
            return kept(x) + way(x + 1); }
        """, ".c", ()),
    "a label of assembly, unguarded": (LABEL.replace("MORE", "") + """
        LOCAL double run(double x) { return dist_avx2(x) + 1; }
        double use(double x) { return run(x) + has_avx2(); }
        """, ".c", ()),
    "behind a label of assembly for a level": (LABEL.replace("MORE", "vpaddd %ymm0, %ymm0, %ymm0;")
        + """
        double use(double x) { return has_avx2() ? dist_avx2(x) : more(x) + 1; }
        """, ".c", ()),
    "bytes of CPUID in a constant": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        double use(double x) { return dist_avx2(x) + *(volatile int *)w; }
        void *PyInit_demo(void) { *(volatile int *)w = 0x00a20f00; return (void *)use; }
        """, ".c", ("-Dhas_avx2=unused", "-Wno-unused")),
}  # fmt: skip

# These choose by the CPU, and run on Ivy Bridge.
CHOOSING = {
    "without names": ("""
        AVX2 double fast(double x) { WORK(3) }
        LOCAL double slow(double x) { WORK(5) }
        double use(double x) { if (has_avx2()) return fast(x); return slow(x + 1); }
        """, ".c", ("-s",)),
    "a table of pointers": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { return x; }
        static double (*const table[])(double) = {dist, dist_avx2};
        double use(double x) { return table[has_avx2()](x); }
        """, ".c", ()),
    "what the caller knows": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { return x + 1; }
        LOCAL double run(int level, double x) { return level & 4 ? dist_avx2(x) : dist(x); }
        double use(double x) { return run(has_avx2() ? 4 : 1, x); }
        """, ".c", ()),
    "a label of assembly": (LABEL.replace("MORE", "") + """
        double use(double x) { return has_avx2() ? dist_avx2(x) : x; }
        """, ".c", ()),
    "a helper of guarded code": ("""
        AVX2 double sum(double x) { WORK(3) }
        AVX2 double dist_avx2(double x) { return sum(x) + sum(x + 1); }
        double use(double x) { return has_avx2() ? dist_avx2(x) : x; }
        """, ".c", ()),
    "a kept answer": ("""
        static int level;
        AVX2 double dist_avx2(double x) { WORK(3) }
        __attribute__((constructor)) void start(void) {
            __builtin_cpu_init(); level = __builtin_cpu_supports("avx2"); }
        double use(double x) { return level ? dist_avx2(x) : x; }
        """, ".c", ()),
    "a kept pointer": ("""
        AVX2 double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { return x; }
        static double (*best)(double);
        double use(double x) {
            if (!best) best = has_avx2() ? dist_avx2 : dist; return best(x); }
        """, ".c", ()),
    "CPUID itself": ("""
        #include <cpuid.h>
        static unsigned a, b, c, d;
        AVX2 double dist_avx2(double x) { WORK(3) }
        double use(double x) {
            return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2 ? dist_avx2(x) : x; }
        """, ".c", ()),
    "a resolver": ("""
        __attribute__((target_clones("avx2", "default"), noinline))
        double dist(double x) { WORK(3) }
        double use(double x) { return dist(x); }
        """, ".c", ()),
}  # fmt: skip

# Each of these idioms with a check, and with another condition: source, both, and flags.
IDIOMS = {
    "an answer on the stack, or a constant": ("""
        AVX2 double fast(double x) { WORK(3) }
        double use(double x) {
            volatile int level = has_avx2(); if (w[5]) level = 0;
            if (CHECK) return fast(x);
            return x; }
        """, "level", "(w[2] += level, x < 1000)", ()),
    "an answer that is kept by compare and exchange": ("""
        static long known;
        AVX2 double fast(double x) { WORK(3) }
        LOCAL void learn(void) { long old = 0; __builtin_cpu_init();
            __atomic_compare_exchange_n(&known, &old, __builtin_cpu_supports("avx2") ? 3 : 1, 0,
                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
        double use(double x) { learn(); return CHECK ? fast(x) : x; }
        """, "(known & 2)", "(w[2] += known, w[5] == 0)", ()),
    "an answer that a large function keeps": ("""
        static volatile char seen;
        AVX2 double fast(double x) { WORK(3) }
        double use(double x) {
            asm volatile(".skip 1100, 0x90");
            __builtin_cpu_init(); if (!seen) seen = (__builtin_cpu_supports("avx2") > 0) + 1;
            return CHECK ? fast(x) : x; }
        """, "seen == 2", "w[5] != 2", ()),
    "a function that does nothing but call one": ("""
        AVX2 double fast(double x) { WORK(3) }
        LOCAL double way(double x) { return fast(x + 1) + 1; }
        double use(double x) { return CHECK ? way(x) : x; }
        """, "has_avx2()", "(w[2] += has_avx2(), x < 1000)", ()),
    "a table that is taken": ("""
        AVX2 double fast(double x) { WORK(3) }
        static double (*const wide[])(double) = {fast, fast};
        LOCAL double apply(double (*const *table)(double), double x) { return table[w[5]](x); }
        double use(double x) { if (CHECK) return apply(wide, x) + 1; return x; }
        """, "has_avx2()", "(w[2] += has_avx2(), x < 1000)", ()),
    "a kept pointer to a function that leads to one": (KEPT + """
        double use(double x) {
            if (CHECK) { kept = way; w[1]++; } else { kept = plain; w[2]++; }
            return kept(x); }
        """, "has_avx2()", "(w[2] += has_avx2(), x < 1000)", ()),
    "beside the ciphers of a library": ("""
        const char *text(void) { return "AES, CRYPTOGAMS by <appro@openssl.org>"; }
        LOCAL void cipher(void) { asm volatile("adcx %rax, %rax"); }
        LOCAL void between(void) { asm volatile(".skip FAR, 0x90"); }
        AVX2 double fast(double x) { WORK(3) }
        LOCAL double run(int known, double x) {
            if (known == 9) { cipher(); between(); } return CHECK ? fast(x) : x; }
        double use(double x) { return run(has_avx2() ? 2 : text()[0], x); }
        """, "(known & 2)", "(known | 2)", ("-s", "-fno-toplevel-reorder")),
}  # fmt: skip
for name, (text, check, other, flags) in IDIOMS.items():
    guarded, unguarded = text.replace("FAR", "16"), text.replace("FAR", "40000")
    CHOOSING[name] = (guarded.replace("CHECK", check), ".c", flags)
    DEADLY[name] = (unguarded.replace("CHECK", other), ".c", flags)


def compiled(folder, source, suffix, flags):
    code, module = folder / f"code{suffix}", folder / "demo.so"
    code.write_text(BEGIN + source + ("" if "PyInit_demo" in source else INIT))
    compiler = GXX if suffix == ".cc" else GCC
    always = ["-shared", "-fPIC", "-O3", "-fvisibility=hidden", "-march=x86-64"]
    subprocess.run([compiler, *always, *flags, code, "-o", module], check=True)
    return module


def verdict_of(module):
    needs = WheelNeeds(file="demo.whl", files=(audit_elf("demo.so", module.read_bytes()),))
    features = implied_features("x86_64", CPU_MODELS["IvyBridge"].features)
    return judge(needs, package="demo", arch="x86_64", features=features)


def dies_on_ivy_bridge(folder, module):
    source, main = folder / "main.c", folder / "main"
    source.write_text(IMPORTS)
    subprocess.run([GCC, "-march=x86-64", source, "-o", main, "-ldl"], check=True)
    done = subprocess.run([QEMU, "-cpu", "IvyBridge", main, module], check=False)
    assert done.returncode in (0, -4)  # SIGILL
    return done.returncode == -4


@pytest.mark.parametrize("name", DEADLY)
def test_code_that_dies_does_not_count_as_guarded(tmp_path, name):
    module = compiled(tmp_path, *DEADLY[name])
    assert verdict_of(module).verdict != "runs"
    if QEMU:
        assert dies_on_ivy_bridge(tmp_path, module)


RUST = """
use std::hint::black_box;
#[inline(never)] fn dist_avx2(w: &mut [i32; 64], x: i32) { for v in w { *v = (*v ^ x) * 3; } }
#[inline(never)] fn dist(w: &mut [i32; 64], x: i32) { for v in w { *v = (*v ^ x) * 5; } }
extern "C" fn run(x: f64) -> f64 {
    let mut w = [7; 64];
    if is_x86_feature_detected!("avx2") { dist_avx2(black_box(&mut w), x as i32) }
    else { dist(black_box(&mut w), x as i32) }
    w[3] as f64
}
#[no_mangle] pub extern "C" fn PyInit_demo() -> extern "C" fn(f64) -> f64 { run }
"""


@pytest.mark.skipif(not shutil.which("rustc"), reason="no rustc here")
def test_a_rust_module_that_dies_does_not_count_as_guarded(tmp_path):
    module = tmp_path / "demo.so"
    (tmp_path / "demo.rs").write_text(RUST)
    options = ["--crate-type=cdylib", "-O", "-Ctarget-cpu=haswell"]
    subprocess.run(["rustc", *options, tmp_path / "demo.rs", "-o", module], check=True)
    assert verdict_of(module).verdict != "runs"
    if QEMU:
        assert dies_on_ivy_bridge(tmp_path, module)


CYTHON = """
cdef extern from *:
    "static int has_avx2(void) { __builtin_cpu_init(); return __builtin_cpu_supports(\\"avx2\\"); }"
    int has_avx2()
cdef int w[64]
cdef int dist_avx2(int x) noexcept nogil:
    cdef int i
    for i in range(64): w[i] = (w[i] ^ x) * 3
    return w[3]
cdef int dist(int x) noexcept nogil:
    cdef int i
    for i in range(64): w[i] = (w[i] ^ x) * 5
    return w[3]
def use(int x): return dist_avx2(x) if has_avx2() else dist(x)
"""


def test_a_cython_module_that_dies_does_not_count_as_guarded(tmp_path):
    pytest.importorskip("Cython", reason="no Cython here")
    if not HEADERS.is_file():
        pytest.skip("no headers of Python here")
    (tmp_path / "demo.pyx").write_text(CYTHON)
    translate = [sys.executable, "-m", "cython", "-3", tmp_path / "demo.pyx"]
    subprocess.run(translate, check=True)
    module = tmp_path / "demo.so"
    flags = ["-shared", "-fPIC", "-O3", "-fvisibility=hidden", f"-I{HEADERS.parent}", *WHOLE]
    subprocess.run([GCC, *flags, tmp_path / "demo.c", "-o", module], check=True)
    assert verdict_of(module).verdict != "runs"


START = """
asm(".text; .p2align 4; start: ret; .p2align 4;"
    "kernel: vpaddd %ymm0, %ymm0, %ymm0; .skip 64, 0x90; ret;"
    ".section .init_array, \\"aw\\"; .quad start; .text");
double use(double x) { return has_avx2() ? x : 1; }
"""


def test_assembly_behind_the_start_of_a_file_does_not_run_at_load(tmp_path):
    module = compiled(tmp_path, START, ".c", ())
    found = verdict_of(module)
    assert (found.verdict, found.features) == ("undecided", ("avx2",))
    if QEMU:
        assert not dies_on_ivy_bridge(tmp_path, module)


@pytest.mark.parametrize(("byte", "verdict"), [("0x90", "undecided"), ("0xec", "runs")])
def test_bytes_between_functions_that_no_program_runs_are_a_table(tmp_path, byte, verdict):
    source = f"""
    asm(".text; .skip 32, 0x90; .byte {byte}; .skip 8, 0x90; vpaddd %ymm0, %ymm0, %ymm0;"
        ".skip 64, 0x90; ret");
    double use(double x) {{ return has_avx2() ? x : 1; }}
    """
    assert verdict_of(compiled(tmp_path, source, ".c", ())).verdict == verdict


@pytest.mark.parametrize("name", CHOOSING)
def test_code_that_asks_the_cpu_first_is_guarded(tmp_path, name):
    module = compiled(tmp_path, *CHOOSING[name])
    found = verdict_of(module)
    assert found.verdict == "runs"
    assert "avx2" in found.guarded
    if QEMU:
        assert not dies_on_ivy_bridge(tmp_path, module)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN6pynear4TreeIXadL_Z9dist_avx2PKfEEE6searchEi", "pynear::Tree"),
        ("_Z4workIN5xsimd4avx2EEvv", "work"),
        ("_Z4work8My__avx2", "work"),
        ("_ZZN2at6native4funcI5vavx2EEvENKUlvE_clEv", "at::native::func"),
        ("_ZN2at6native6AVX51212_GLOBAL__N_14funcERNS_6TensorE",
         "at::native::AVX512::_GLOBAL__N_1::func"),
        ("_Z9work_avx2Pf.constprop.0", "work_avx2.constprop.0"),
        ("_Z4workPf.avx2", "work.avx2"),
        ("work.arch_haswell", "work.arch_haswell"),
        ("_ZN6memchr4arch6x86_644avx23One4findE", "memchr::arch::x86_64::avx2::One::find"),
        ("_ZN26_$LT$memchr..avx2..One$GT$3fmtE", "_::fmt"),
        ("_RNvNtNtCs123_6memchr4arch4avx24find", "memchr::arch::avx2::find"),
        ("_RINvNtCs123_6memchr4arch4findNtNtB2_4avx23OneE", "memchr::arch::find"),
        ("_ZTVN4avx23FooE", "_ZTVN4avx23FooE"),
    ],
)  # fmt: skip
def test_template_arguments_and_parameters_are_not_a_functions_name(symbol, name):
    assert own_name(symbol) == name
