"""When code runs: at load, by default, behind a check of the CPU; files of the gcc that is here."""

import struct
import subprocess

import pytest

from fleetbuild.audit import audit_wheel, check_wheel
from fleetbuild.audit.downloads import audit_download
from fleetbuild.audit.elf import Elf
from fleetbuild.audit.level_names import is_for_level, is_of_library
from fleetbuild.audit.wheel import audit_elf
from tests.factories.elf import GCC, compile_c, make_elf
from tests.factories.files import demo_wheel
from tests.factories.plans import make_target

VADDPS_ZMM = bytes.fromhex("62f1744858c2")
TARGET = make_target("avx")
needs_gcc = pytest.mark.skipif(not GCC, reason="no gcc here")
LEVELS = {"avx2": "avx2", "avx512": "avx512f"}
# Integer vectors: with -mavx2 this needs AVX2, and not only AVX.
WORK = "for (int i = 0; i < 64; i++) out[i] = (out[i] ^ i) * 3;"


def audit(folder, source, *flags):
    return audit_elf("code.so", compile_c(folder, source, "-march=x86-64", *flags))


@needs_gcc
@pytest.mark.parametrize("how", ["constructor", "called", "through a library call"])
def test_avx2_in_a_constructor_and_what_it_calls_runs_at_load(tmp_path, how):
    exported = "" if how == "through a library call" else "static"
    source = f"""
    int out[64];
    {exported} __attribute__((noinline, target("avx2"))) void work(void) {{ {WORK} }}
    """
    if how == "constructor":
        source = f"""
        int out[64];
        __attribute__((constructor, target("avx2"))) void start(void) {{ {WORK} }}
        """
    else:
        source += "__attribute__((constructor)) void start(void) { work(); }"
    found = audit(tmp_path, source)
    assert "avx2" in found.load
    assert found.default == found.guarded == frozenset()
    assert found.where["avx2"] == ("start" if how == "constructor" else "work")


@needs_gcc
def test_a_stripped_file_tells_the_same(tmp_path):
    source = f"""
    int out[64];
    static __attribute__((noinline, target("avx2"))) void work(void) {{ {WORK} }}
    __attribute__((constructor)) void start(void) {{ work(); }}
    """
    compile_c(tmp_path, source, "-march=x86-64")
    subprocess.run(["strip", tmp_path / "code.so"], check=True)
    found = audit_elf("code.so", (tmp_path / "code.so").read_bytes())
    assert "avx2" in found.load
    assert found.default == frozenset()


@needs_gcc
def test_a_module_is_imported_so_its_init_function_runs_at_load(tmp_path):
    found = audit(
        tmp_path,
        f"""
        int out[64];
        __attribute__((target("avx2"))) void *PyInit_demo(void) {{ {WORK} return 0; }}
        """,
    )
    assert "avx2" in found.load


@needs_gcc
def test_clones_that_a_resolver_chooses_are_behind_a_check(tmp_path):
    source = f"""
    int out[64];
    __attribute__((target_clones("avx2", "arch=skylake-avx512", "default"), noinline))
    void work(void) {{ {WORK} }}
    void use(void) {{ work(); }}
    """
    found = audit(tmp_path, source)
    assert "avx2" in found.guarded
    assert found.load == found.default == frozenset()
    assert found.checks_cpu


@needs_gcc
@pytest.mark.parametrize("checks", [True, False])
def test_a_function_named_for_a_level_is_guarded_only_in_a_file_that_asks_the_cpu(tmp_path, checks):
    condition = '__builtin_cpu_supports("avx2")' if checks else "out[0]"
    source = f"""
    int out[64];
    __attribute__((noinline, target("avx2"))) void work_avx2(void) {{ {WORK} }}
    void use(void) {{ if ({condition}) work_avx2(); }}
    """
    found = audit(tmp_path, source, "-static-libgcc")
    assert ("avx2" in found.guarded, "avx2" in found.default) == (checks, not checks)


@pytest.mark.parametrize(
    ("name", "guarded"),
    [  # as they stand in wheels of cantera, numpy, pynacl, soundfile, blis, opencv, pillow, pysam
        ("camax_k_ATOM", True),
        ("dgemm_kernel_CORE2.constprop.0", True),
        ("sgemm_kernel_OPTERON_SSE3", True),
        ("ztrsm_ounucopy_HASWELL", True),
        ("simd_create_module_FMA3", True),
        ("FLAC__lpc_compute_autocorrelation_intrin_fma_lag_8", True),
        ("crypto_scalarmult_curve25519_sandy2x_ladder", True),
        ("bli_saxpyf_zen_int_8", True),
        ("bli_cgemm1m_zen2_ref", True),
        ("bli_cntx_init_skx", True),
        ("bli_cgemm1m_generic_ref", False),
        ("__gmpn_mul_basecase_zen", True),
        ("__gmpn_mul_basecase_generic", False),
        ("simsimd_dot_i8_ice", True),
        ("my_zen_ref", False),
        ("xcb_intern_atom_reply", False),
        ("imap_atom", False),
        ("_ZN6kmldom10AtomAuthorC1Ev", False),
        ("bam_merge_core2", False),
        ("_ZN10rayon_core20ThreadPoolBuildError3newE", False),
        ("_ZN14QtOpenCVPython25QOpenGLFunctions_3_2_Core25initializeOpenGLFunctionsEv", False),
        ("_ZN8GDAL_MRF10MRFDataset7ZenCopyEv", False),
        ("zenlib_avx", True),
        ("zenlib_read", False),
        ("sandy_beach", False),
        ("decNumberFMA", False),
    ],
)
def test_processors_whose_names_are_words_count_only_as_openblas_writes_them(name, guarded):
    assert (is_for_level(name) or is_of_library(name)) == guarded


@needs_gcc
@pytest.mark.parametrize(
    ("name", "guarded"),
    [
        ("aws_lc_0_39_0_aes128gcmsiv_work", True),
        ("ring_core_0_17_14__sha256_block_data_order_hw", True),
        ("ring_core_0_17_14__aes_gcm_enc_update_vaes_avx2", True),
        ("bssl_g3_sha1_block_data_order_hw", True),
        ("Ledwards25519_decode_work", True),
        ("crc32_pclmul", True),
        ("_ZN3tbb6detail2r14workEv", True),
        ("_ZN9crc32fast5avx2_4workE", True),
        ("_ZN3tbb6detail2d14workEv", False),
        ("aws_lc_0_39_0_other", False),
        ("my_aes128gcmsiv_work", False),
    ],
)
def test_a_library_is_known_behind_the_prefix_of_its_build(tmp_path, name, guarded):
    source = f"""
    int out[64];
    void __attribute__((target("avx2"))) {name}(void) {{ {WORK} }}
    int asks(void) {{ __builtin_cpu_init(); return __builtin_cpu_supports("avx2"); }}
    """
    found = audit(tmp_path, source)
    assert ("avx2" in found.guarded, "avx2" in found.default) == (guarded, not guarded)


@needs_gcc
@pytest.mark.parametrize(
    ("text", "exported", "guarded"),
    [
        ("Restored data doesn't match checksum", False, True),
        ("Restored data doesn't match checksum", True, False),  # compiled for the level as a whole
        ("Any other text that a library may have", False, False),
    ],
)
def test_a_library_without_names_is_known_by_its_text(tmp_path, text, exported, guarded):
    source = f"""
    volatile unsigned out[64];
    const char *message(void) {{ return "{text}"; }}
    {"" if exported else "static"} __attribute__((noinline, target("bmi2")))
    void shift(int by) {{ for (int i = 0; i < 64; i++) out[i] <<= (by + i) & 31; }}
    void use(int by) {{ shift(by); }}
    int asks(void) {{ __builtin_cpu_init(); return __builtin_cpu_supports("bmi2"); }}
    """
    found = audit(tmp_path, source, "-static-libgcc", "-O2")
    assert ("bmi2" in found.guarded, "bmi2" in found.default) == (guarded, not guarded)


@pytest.mark.parametrize(
    ("file", "exported", "exports", "guarded"),
    [
        ("lib/libgfortran-040039e1.so.5.0.0", False, 30, True),
        ("lib/libgfortran.so.5", False, 30, True),
        ("lib/libgfortran.so.5", True, 30, False),  # compiled for the level as a whole
        ("lib/libgfortran.so.5", False, 3, False),  # too few to tell
        ("lib/libother.so.5", False, 30, False),
    ],
)
def test_a_known_library_chooses_through_a_table(tmp_path, file, exported, exports, guarded):
    target = '__attribute__((noinline, target("avx2")))'
    source = f"""
    int out[64];
    static {target} void fast(void) {{ {WORK} }}
    static void slow(void) {{ out[0] = 1; }}
    static void (*table[])(void) = {{ slow, fast }};
    void choose(void) {{ __builtin_cpu_init(); table[!!__builtin_cpu_supports("avx2")](); }}
    {f"{target} void more(void) {{ {WORK} }}" if exported else ""}
    """ + "".join(f"int f{number}(void) {{ return {number}; }}\n" for number in range(exports))
    compile_c(tmp_path, source, "-march=x86-64")
    subprocess.run(["strip", tmp_path / "code.so"], check=True)
    found = audit_elf(file, (tmp_path / "code.so").read_bytes())
    assert ("avx2" in found.guarded, "avx2" in found.default) == (guarded, not guarded)


@needs_gcc
def test_a_constructor_named_for_a_library_that_checks_is_read_all_the_same(tmp_path):
    source = f"""
    int out[64];
    int asks(void) {{ return __builtin_cpu_supports("avx2"); }}
    __attribute__((target("avx2"))) void dnnl_work(void) {{ {WORK} }}
    __attribute__((constructor, target("avx2"))) void mkl_start_avx2(void) {{ {WORK} }}
    """
    found = audit(tmp_path, source, "-static-libgcc")
    assert "avx2" in found.load
    assert "avx2" in found.guarded
    assert "avx2" not in found.default


@needs_gcc
def test_an_inline_function_that_the_linker_took_from_a_higher_level_is_in_the_default_path(
    tmp_path,
):
    shared = "inline int work(int *out) { " + WORK + " return out[0]; }"
    for name, body, flags in (
        ("high", "int high(int *out) { return work(out); }", ["-mavx2", "-mtune=generic"]),
        ("low", "int low(int *out) { return work(out); }", []),
    ):
        (tmp_path / f"{name}.cc").write_text(
            f"{shared.replace('inline', '__attribute__((noinline)) inline')} {body}"
        )
        subprocess.run(
            [
                GCC,
                "-c",
                "-fPIC",
                "-O3",
                *flags,
                tmp_path / f"{name}.cc",
                "-o",
                tmp_path / f"{name}.o",
            ],
            check=True,
        )
    objects = [tmp_path / "high.o", tmp_path / "low.o"]  # the first one's copy is taken
    subprocess.run([GCC, "-shared", *objects, "-o", tmp_path / "both.so"], check=True)
    found = audit_elf("both.so", (tmp_path / "both.so").read_bytes())
    assert "avx2" in found.default
    assert found.where["avx2"] == "_Z4workPi"


@needs_gcc
def test_a_section_whose_flag_is_cleared_is_code_all_the_same(tmp_path):
    data = bytearray(
        compile_c(tmp_path, f"int out[64]; void work(void) {{ {WORK} }}", "-march=x86-64", "-mavx2")
    )
    headers, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for at in range(headers, headers + 64 * count, 64):
        flags, size = (
            struct.unpack_from("<Q", data, at + 8)[0],
            struct.unpack_from("<Q", data, at + 32),
        )
        if flags & 4 and size[0] > 64:  # .text
            struct.pack_into("<Q", data, at + 8, flags & ~4)
    assert "avx2" in audit_elf("code.so", bytes(data)).default


@needs_gcc
@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("$ORIGIN/../demo.libs", False),
        ("/usr/local/cuda/lib64", False),
        ("/opt/pyenv/versions/3.11.7/lib", False),
        ("/tmp/lib", True),
        ("/dev/shm", True),
        ("lib", True),
        ("/usr/lib/../../tmp", True),
    ],
)
def test_search_paths_where_others_may_write_are_refused(tmp_path, path, refused):
    code = compile_c(tmp_path, "void one(void) {}", f"-Wl,--no-as-needed,-rpath,{path}", "-lm")
    needed = struct.pack("<Q", Elf(code).dynamic[1])
    code = code.replace(needed, struct.pack("<Q", 2**64 - 1))  # the loader lets it wrap around
    wheel = demo_wheel(tmp_path, files={"demo/code.so": code})
    for found in (
        check_wheel(wheel, target=TARGET, package="demo", wheel_version="1.0+cpu.avx"),
        audit_wheel(wheel).problems,
        audit_download(wheel, "demo", "1.0+cpu.avx"),
    ):
        assert sum(f"in {path!r} (RPATH)" in each for each in found) == refused
    assert audit_download(wheel, "demo", "1.0+cpu.avx", ["demo/*.so"]) == ()


def test_a_wheel_is_refused_for_code_that_no_check_guards(tmp_path):
    path = demo_wheel(tmp_path, files={"torch/lib/libtorch_cpu.so": make_elf(VADDPS_ZMM)})
    (found,) = check_wheel(path, target=TARGET, package="demo", wheel_version="1.0+cpu.avx")
    assert "libtorch_cpu.so uses avx512f" in found
    (elf,) = audit_wheel(path).elfs
    assert elf.default == {"avx512f"}


@pytest.mark.parametrize("machine", [3, 183])
def test_a_file_for_another_machine_is_data_if_others_are_for_this_one(tmp_path, machine):
    other = make_elf(b"\xc3", machine=machine)
    both = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3"), "demo/b": other})
    options = {"target": TARGET, "package": "demo", "wheel_version": "1.0+cpu.avx"}
    assert check_wheel(both, **options) == ()
    alone = demo_wheel(tmp_path, files={"demo/b": other})
    (found,) = check_wheel(alone, **options)
    assert found.startswith("demo/b is for ")


def test_machine_code_for_a_gpu_is_judged_by_its_sm(tmp_path):
    cubin = bytearray(make_elf(b"", machine=190))
    cubin[48] = 86
    path = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3"), "demo/b": cubin})
    (found,) = check_wheel(path, target=TARGET, package="demo", wheel_version="1.0+cpu.avx")
    assert found == "demo/b contains GPU code for SM 8.6, but it must be for CPUs"


@needs_gcc
def test_a_file_that_reads_where_the_kernel_tells_the_features_asks_the_cpu(tmp_path):
    source = f"""
    #include <fcntl.h>
    int out[64];
    __attribute__((noinline, target("avx2"))) void work(void) {{ {WORK} }}
    void use(void) {{ if (open("/proc/self/auxv", 0) > 0) work(); }}
    """
    assert audit(tmp_path, source, "-static-libgcc").checks_cpu
