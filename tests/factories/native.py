"""Extension modules made by the compiler that is here: code that needs more than old CPUs have."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.factories.files import make_wheel

GXX = shutil.which("g++")
HEADERS = Path(sysconfig.get_paths()["include"], "Python.h")
_ABI = f"cp3{sys.version_info.minor}"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

MODULE = """
#include <Python.h>
extern "C" double work(double x);
static PyObject *py_work(PyObject *, PyObject *) { return PyFloat_FromDouble(work(2.0)); }
static PyMethodDef methods[] = {{"work", py_work, METH_NOARGS, ""}, {0, 0, 0, 0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_c", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit__c(void) { return PyModule_Create(&module); }
"""
# An integer instruction: QEMU 7.2 lets vbroadcastsd of a register pass on CPUs that have AVX alone.
AVX2 = """
__attribute__((noinline)) double with_avx2(double x) {
    asm volatile("vpaddd %%ymm0, %%ymm1, %%ymm0" : : : "xmm0", "xmm1"); return x + 1; }
"""

# What each file shows: code per kind of defect, by name.
SOURCES = {
    "plain": 'extern "C" double work(double x) { return x * 2; }',
    # A constructor runs as soon as the file is loaded: historic builds had AVX2 there.
    "init_array": AVX2
    + "static double kept; __attribute__((constructor)) static void fill() { kept = with_avx2(3); }"
    + 'extern "C" double work(double x) { return x + kept; }',
    # A function of two versions, of which a resolver takes one.
    "ifunc": AVX2
    + "static double plain(double x) { return x; } typedef double Work(double);"
    + 'extern "C" { static Work *pick() { __builtin_cpu_init();'
    + ' return __builtin_cpu_supports("avx2") ? with_avx2 : plain; }'
    + ' double work(double) __attribute__((ifunc("pick"))); }',
    "cpu_check": AVX2
    + 'extern "C" double work(double x) { __builtin_cpu_init();'
    + ' return __builtin_cpu_supports("avx2") ? with_avx2(x) : x; }',
    "in_use": AVX2 + 'extern "C" double work(double x) { return with_avx2(x); }',
}
# An inline function in two objects, one of them for a higher level: the linker keeps one copy.
COMDAT = """
template <class T> __attribute__((noinline)) T shared(T x) {
    T a[64]; for (int i = 0; i < 64; i++) a[i] = x * i + x; T t = 0;
    for (int i = 0; i < 64; i++) t += a[i] * a[63 - i]; return t; }
"""


def native_wheel(folder: Path, source: str, name: str = "demo", version: str = "1.0") -> Path:
    """A wheel whose extension module is compiled from one of SOURCES, or from COMDAT's objects."""
    folder.mkdir(parents=True, exist_ok=True)
    if source == "comdat":
        fast = f"{COMDAT}double fast(double x) {{ return shared(x); }}"
        slow = f'{COMDAT}extern "C" double work(double x) {{ return shared(x); }}'
        objects = [_object(folder, "fast", fast, "-mavx2", "-mfma"), _object(folder, "slow", slow)]
    else:
        objects = [_object(folder, "code", SOURCES[source])]
    objects.append(_object(folder, "module", MODULE, f"-I{HEADERS.parent}"))
    library = folder / f"_c{_SUFFIX}"
    subprocess.run([str(GXX), "-shared", "-o", library, *objects], check=True)
    files = {
        f"{name}/__init__.py": b"from . import _c\n",
        f"{name}/{library.name}": library.read_bytes(),
    }
    tag = f"{_ABI}-{_ABI}-manylinux_2_17_x86_64"
    return make_wheel(folder / "wheels", name, version, tag, files)


def _object(folder: Path, name: str, text: str, *flags: str) -> str:
    written = folder / f"{name}.cpp"
    written.write_text(text + "\n")
    made = folder / f"{name}.o"
    command = [str(GXX), "-c", "-fPIC", "-O3", "-ffast-math", "-march=x86-64", *flags]
    subprocess.run([*command, "-o", made, written], check=True)
    return str(made)
