"""Print /proc/cpuinfo of the CPU that runs this. Runs by itself under QEMU, without fleetbuild.

In: the features of the CPU and the number of CPUs, as arguments. Out: the text. The kernel's own
file describes the real machine, and packages such as pyarrow choose their code by it. Maker, family
and model come from the CPU's own registers, so the file agrees with CPUID.
"""

import ctypes
import mmap
import os
import sys

# void ask(leaf, 0, answer): cpuid; on Arm long ask(): mrs x0, midr_el1
X86 = bytes.fromhex("5389f889f14989d00fa241890041895804418948084189500c5bc3")
ARM = bytes.fromhex("000038d5c0035fd6")
BASELINE = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse"
    " sse2 ht syscall nx lm rep_good nopl cpuid hypervisor"
)


def main(features: str, cpus: str) -> None:
    """Print one block for each CPU."""
    rows = x86(features) if os.uname().machine == "x86_64" else arm(features)
    for number in range(int(cpus)):
        lines = [("processor", number), *rows]
        sys.stdout.write("".join(f"{name}\t: {value}\n" for name, value in lines) + "\n")


def x86(features: str) -> list[tuple[str, object]]:
    """Return the lines from CPUID."""
    text = cpuid(0)
    version = int.from_bytes(cpuid(1)[:4], "little")
    family, model = version >> 8 & 15, version >> 4 & 15 | version >> 12 & 0xF0
    return [
        ("vendor_id", (text[4:8] + text[12:] + text[8:12]).decode()),
        ("cpu family", family + (version >> 20 & 0xFF) if family == 15 else family),
        ("model", model),
        ("model name", b"".join(map(cpuid, range(0x80000002, 0x80000005))).decode().strip("\0 ")),
        ("stepping", version & 15),
        ("cpu MHz", "2000.000"),
        ("flags", f"{BASELINE} {features}"),
    ]


def cpuid(leaf: int) -> bytes:
    """Return eax, ebx, ecx and edx."""
    answer = ctypes.create_string_buffer(16)
    call(X86, None, leaf, 0, ctypes.byref(answer))
    return answer.raw


def arm(features: str) -> list[tuple[str, object]]:
    """Return the lines from the register that names the CPU."""
    midr = call(ARM, ctypes.c_long)
    return [
        ("BogoMIPS", "50.00"),
        ("Features", f"{features} cpuid"),
        ("CPU implementer", f"{midr >> 24 & 0xFF:#04x}"),
        ("CPU architecture", 8),
        ("CPU variant", f"{midr >> 20 & 15:#x}"),
        ("CPU part", f"{midr >> 4 & 0xFFF:#05x}"),
        ("CPU revision", midr & 15),
    ]


def call(code: bytes, result, *arguments):  # type: ignore[no-untyped-def]
    """Run machine code, and return its result."""
    pages = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    pages.write(code)
    function = ctypes.CFUNCTYPE(result)(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
    return function(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
