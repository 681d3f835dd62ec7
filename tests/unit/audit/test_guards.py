"""Code for a higher level that no check of the CPU guards is never called fine, whatever its name.

Each module is compiled by the compilers that are here, judged for Ivy Bridge by reading, and run as
Ivy Bridge where QEMU is here: a module that dies there must not be one that "runs".
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fleetbuild.audit.evidence import implied_features
from fleetbuild.audit.functions import own_name
from fleetbuild.audit.models import WheelNeeds
from fleetbuild.audit.verdict import judge
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.hardware.cpu_models import CPU_MODELS
from tests.factories.elf import GCC
from tests.factories.native import GXX

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
WHOLE = ("-march=haswell",)

# Each of these dies on Ivy Bridge: its source, its suffix, and the flags beside -O3 and hidden names.
DEADLY = {
    "whole": ("""
        LOCAL double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { WORK(5) }
        double use(double x) { return has_avx2() ? dist_avx2(x) : dist(x); }
        void *PyInit_demo(void) { return (void *)use; }
        """, ".c", WHOLE),
    "template": ("""
        typedef double Dist(double);
        LOCAL double dist_avx2(double x) { WORK(3) }
        LOCAL double dist(double x) { return x; }
        template <Dist *dist> struct Tree {
            static __attribute__((noinline)) double search(double x) { x += dist(x); WORK(5) } };
        double use(double x) {
            return Tree<dist>::search(x) + (has_avx2() ? Tree<dist_avx2>::search(x) : 0); }
        void *PyInit_demo(void) { return (void *)use; }
        """, ".cc", WHOLE),
}  # fmt: skip


def compiled(folder, source, suffix, flags):
    code, module = folder / f"code{suffix}", folder / "demo.so"
    code.write_text(BEGIN + source)
    compiler = GXX if suffix == ".cc" else GCC
    always = ["-shared", "-fPIC", "-O3", "-fvisibility=hidden", "-march=x86-64"]
    subprocess.run([compiler, *always, *flags, code, "-o", module], check=True)
    return module


def verdict_of(module):
    needs = WheelNeeds(file="demo.whl", files=(audit_elf("demo.so", module.read_bytes()),))
    features = implied_features("x86_64", CPU_MODELS["IvyBridge"].features)
    return judge(needs, package="demo", arch="x86_64", features=features)


def dies_on_ivy_bridge(folder, module):
    (folder / "main.c").write_text(IMPORTS)
    subprocess.run(
        [GCC, "-march=x86-64", folder / "main.c", "-o", folder / "main", "-ldl"], check=True
    )
    done = subprocess.run([QEMU, "-cpu", "IvyBridge", folder / "main", module], check=False)
    assert done.returncode in (0, -4)  # SIGILL
    return done.returncode == -4


@pytest.mark.parametrize("name", DEADLY)
def test_code_that_dies_does_not_count_as_guarded(tmp_path, name):
    module = compiled(tmp_path, *DEADLY[name])
    assert verdict_of(module).verdict != "runs"
    if QEMU:
        assert dies_on_ivy_bridge(tmp_path, module)


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
        ("_ZN6memchr4arch6x86_644avx26memchr3One4findE", "memchr::arch::x86_64::avx2::memchr::One::find"),
        ("_ZN26_$LT$memchr..avx2..One$GT$3fmtE", "_::fmt"),
        ("_RNvNtNtCs123_6memchr4arch4avx24find", "memchr::arch::avx2::find"),
        ("_RINvNtCs123_6memchr4arch4findNtNtB2_4avx23OneE", "memchr::arch::find"),
        ("_ZTVN4avx23FooE", "_ZTVN4avx23FooE"),
    ],
)  # fmt: skip
def test_template_arguments_and_parameters_are_not_a_functions_name(symbol, name):
    assert own_name(symbol) == name
