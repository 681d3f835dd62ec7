"""The report of nfd-worker about a node, for tests, from the node's capture.

The names come from github.com/klauspost/cpuid/v2 (x86) and from NFD's cpuid_linux_arm64.go,
written down here a second time, so that a slip in fleetbuild's own table shows.
"""

import re

from tests.factories.nfd_master import Features

X86 = {
    "sse": "SSE",
    "sse2": "SSE2",
    "pni": "SSE3",
    "ssse3": "SSSE3",
    "sse4_1": "SSE4",
    "sse4_2": "SSE42",
    "sse4a": "SSE4A",
    "cx16": "CX16",
    "lahf_lm": "LAHF",
    "popcnt": "POPCNT",
    "abm": "LZCNT",
    "movbe": "MOVBE",
    "bmi1": "BMI1",
    "bmi2": "BMI2",
    "f16c": "F16C",
    "fma": "FMA3",
    "fma4": "FMA4",
    "xop": "XOP",
    "aes": "AESNI",
    "avx": "AVX",
    "avx2": "AVX2",
    "avx512f": "AVX512F",
    "avx512cd": "AVX512CD",
    "avx512bw": "AVX512BW",
    "avx512dq": "AVX512DQ",
    "avx512vl": "AVX512VL",
    "avx512ifma": "AVX512IFMA",
    "avx512vbmi": "AVX512VBMI",
    "avx512_vbmi2": "AVX512VBMI2",
    "avx512_vnni": "AVX512VNNI",
    "avx512_bf16": "AVX512BF16",
    "avx512_fp16": "AVX512FP16",
    "avx_vnni": "AVXVNNI",
    "amx_tile": "AMXTILE",
    "amx_int8": "AMXINT8",
    "amx_bf16": "AMXBF16",
    "hypervisor": "HYPERVISOR",
}
# Those that NFD spells as the kernel does, in capitals.
ARM = {
    *("fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp"),
    *("asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "asimddp"),
    *("sha512", "sve", "asimdfhm", "sve2", "svei8mm", "svebf16", "i8mm", "bf16", "bti"),
}

_DEVICE = re.compile(
    r"^\S+ .*\[(?P<class>[0-9a-f]{4})\]: .*\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]"
)


def report(arch, features, devices=(), *, driver=False, files=None):
    """The features of a node: CPU flags in the kernel's spelling, PCI devices as "0302 10de:2204",
    whether NVIDIA's driver is loaded, and the labels in its feature files."""
    if arch == "x86_64":
        flags = {X86[each] for each in features if each in X86} | {"SSE", "SSE2", "CMOV", "X87"}
    else:
        flags = {each.upper() for each in features if each in ARM}
    return Features(
        flags={
            "cpu.cpuid": flags,
            "kernel.loadedmodule": {"ext4", "nouveau"}
            | ({"nvidia", "nvidia_uvm"} if driver else set()),
        },
        attributes={"cpu.cpuid": {}, "local.label": dict(files or {}), "local.feature": {}},
        instances={"pci.device": [_instance(*each.split()) for each in devices]},
    )


def report_of_capture(capture, arch, features):
    """The features of a node that was captured."""
    found = filter(None, map(_DEVICE.match, capture.get("lspci", "").splitlines()))
    devices = [f"{each['class']} {each['vendor']}:{each['device']}" for each in found]
    rows = capture.get("nvidia-smi", "").splitlines()[1:]
    return report(arch, features, ["0600 8086:1237", *devices], driver=bool(rows))


def _instance(kind, ids):
    vendor, device = ids.split(":")
    return {"class": kind, "vendor": vendor, "device": device}
