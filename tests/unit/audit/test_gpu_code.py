"""GPU code: kernels and their SMs, packed and hidden; made by hand and by the nvcc that is here."""

import shutil
import struct
import subprocess
import sys

import pytest

from fleetbuild.audit.fatbin import containers
from fleetbuild.audit.wheel import audit_elf
from tests.factories.elf import make_elf, make_fatbin

NVCC = shutil.which("nvcc")
KERNELS = """
__device__ __noinline__ float helper(float x) { return x * x + 1; }
extern "C" __global__ void everywhere(float *a) { a[threadIdx.x] = helper(a[0]); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void newest(float *a) { a[0] = 1; }
#endif
"""


def compiled(folder, mode, *codes):
    (folder / "k.cu").write_text(KERNELS)
    wanted = [word for code in codes for word in ("-gencode", code)]
    subprocess.run(
        [NVCC, "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", f"--compress-mode={mode}",
         *wanted, folder / "k.cu", "-o", folder / "k.so"],
        check=True, cwd=folder,
    )  # fmt: skip
    return (folder / "k.so").read_bytes()


@pytest.mark.skipif(not NVCC, reason="no nvcc here")
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_a_file_that_lists_an_sm_may_lack_single_kernels_for_it(tmp_path, mode):
    codes = ("arch=compute_86,code=sm_86", "arch=compute_90,code=[sm_90,compute_90]")
    audit = audit_elf("k.so", compiled(tmp_path, mode, *codes))
    assert (audit.sms, audit.ptx, audit.unread) == (("8.6", "9.0"), ("9.0",), ())
    assert {name for each in audit.kernels for name in each.names} == {"everywhere", "newest"}
    assert audit.kernels_missing("8.6") == ("newest",)
    assert audit.kernels_missing("12.0") == ()  # the driver compiles the PTX
    assert audit.kernels_missing("7.5") == ("everywhere", "newest")


@pytest.mark.skipif(not NVCC, reason="no nvcc here")
def test_what_cannot_be_unpacked_is_said_and_is_not_missing(tmp_path, monkeypatch):
    code = compiled(tmp_path, "size", "arch=compute_86,code=sm_86")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    audit = audit_elf("k.so", code)
    assert audit.sms == ("8.6",)
    assert audit.unread == ("kernels for SM 8.6: zstandard is not installed (1 times)",)
    assert audit.kernels == ()


@pytest.mark.skipif(not NVCC, reason="no nvcc here")
@pytest.mark.parametrize(
    ("arch", "sm", "missing"), [("sm_100", "10.0", ()), ("sm_100a", "10.0a", ("k",)),
                                ("sm_100f", "10.0f", ())],
)  # fmt: skip
def test_the_variant_of_machine_code_without_a_container_is_known(tmp_path, arch, sm, missing):
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(float *a) { a[0] = 1; }')
    cubin = tmp_path / "k.cubin"
    subprocess.run([NVCC, "-cubin", f"-arch={arch}", tmp_path / "k.cu", "-o", cubin], check=True)
    for audit in (
        audit_elf("k.cubin", cubin.read_bytes()),
        audit_elf("a.so", make_elf(bytes(16) + cubin.read_bytes())),
    ):
        assert audit.sms == (sm,)
        assert audit.kernels_missing("10.3") == missing


def test_gpu_code_in_any_section_is_found():
    hidden = make_elf(bytes(16) + make_fatbin((2, 86, 0x11), (1, 90, 0x11)))
    audit = audit_elf("a.so", hidden)
    assert (audit.sms, audit.ptx) == (("8.6",), ("9.0",))


def test_machine_code_in_a_hidden_fat_binary_counts_once_and_as_its_entry_says():
    cubin = bytearray(make_elf(b"", machine=190))
    cubin[8] = 8
    struct.pack_into("<I", cubin, 48, 100 << 8)
    entry = struct.pack("<HHIQ", 2, 0, 64, len(cubin)) + bytes(12) + struct.pack("<I", 100)
    entry += struct.pack("<QQQQ", 0, 0x100000, 0, 0)
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 + len(cubin)) + entry + cubin
    hidden = make_elf(bytes(16) + fatbin)
    assert audit_elf("a.so", hidden).sms == ("10.0a",)
    assert [len(each) for each in containers(hidden, ())] == [1]


@pytest.mark.parametrize(("version", "flags"), [(7, 86), (8, 86 << 8)])
def test_the_sm_of_a_file_of_machine_code_is_known(version, flags):
    cubin = bytearray(make_elf(b"", machine=190))
    cubin[8] = version
    struct.pack_into("<I", cubin, 48, flags)
    assert audit_elf("a.cubin", bytes(cubin)).sms == ("8.6",)
    assert audit_elf("a.so", make_elf(bytes(16) + bytes(cubin))).sms == ()  # it has no kernel


@pytest.mark.parametrize("flags", [0x8000, 0x2000])
def test_an_entry_that_claims_to_unpack_to_too_much_is_not_unpacked(flags):
    header = struct.pack("<HHIQ", 2, 0, 64, 8) + struct.pack("<II", 8, 0)
    header += struct.pack("<IIIIQQQ", 0, 86, 0, 0, flags, 0, 2**40)
    body = header + bytes(8)
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    (said,) = audit_elf("a.so", make_elf(b"\xc3", fatbin=fatbin)).unread
    assert said == f"kernels for SM 8.6: it unpacks to {2**40} bytes (1 times)"
