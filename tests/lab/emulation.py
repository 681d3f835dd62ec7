"""Nodes whose CPU is another one: QEMU's user mode, registered in a container's own binfmt_misc.

In: the CPU that a fleet file names. Out: what the container needs to run as if on it.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.podman import LabError, as_root

_PROGRAMS = Path(__file__).parent / "programs"
_IDS = "0:1000000:65536"  # one mapping for all nodes, so that podman maps the image once
_MACHINES = {"x86_64": 0x3E, "aarch64": 0xB7}
FIRST = ["--register", "/usr/local/sbin/node-init"]  # the arguments of a container's entry point


@dataclass(frozen=True)
class Cpu:
    """A CPU that QEMU emulates, and the hardware that a node shows with it."""

    arch: str
    model: str
    hardware: str


# What QEMU cannot emulate of a CPU is taken away: else each program's standard error says so.
CPUS = {
    "Nehalem": Cpu("x86_64", "Nehalem", "x86-64-v2"),
    "SandyBridge": Cpu("x86_64", "SandyBridge,-x2apic,-tsc-deadline", "avx"),
    "IvyBridge": Cpu("x86_64", "IvyBridge,-x2apic,-tsc-deadline", "avx"),
    "Haswell": Cpu("x86_64", "Haswell-noTSX,-x2apic,-tsc-deadline,-pcid,-invpcid", "avx2"),
    "cortex-a72": Cpu("aarch64", "cortex-a72", "cortex-a72"),
    "neoverse-n1": Cpu("aarch64", "neoverse-n1", "neoverse-n1"),
    "max": Cpu("aarch64", "max", "arm-max"),
}


def why_not(arch: str = "x86_64") -> str:
    """The reason why this machine cannot run nodes with CPUs of this architecture, or nothing."""
    if platform.machine() != "x86_64":
        return f"nodes with another CPU need an x86-64 machine, and this is {platform.machine()}"
    if not shutil.which(f"qemu-{arch}-static"):
        return f"qemu-{arch}-static is not installed. Fix: apt-get install qemu-user-static"
    if not shutil.which("gcc"):
        return "gcc is not installed. Fix: apt-get install gcc libc6-dev"
    if arch != "x86_64" and not shutil.which("arch-test"):
        return "arch-test is not installed. Fix: apt-get install arch-test"
    return _why_no_binfmt()


@cache
def _why_no_binfmt() -> str:
    mount = "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc"
    done = subprocess.run(
        as_root(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        return ""
    return (
        "a user namespace has no binfmt_misc of its own here "
        f"(kernel {platform.release()}: {done.stderr.strip()}). "
        "Fix: Linux 6.7 or newer, with user namespaces allowed (sysctl user.max_user_namespaces)"
    )


def container_options(cpu: Cpu, scratch: Path) -> list[str]:
    """Write what the container's emulator needs below `scratch`; podman's options for it."""
    folder = scratch / "emulator"
    folder.mkdir()
    program = Path(shutil.which(f"qemu-{cpu.arch}-static") or "")
    (folder / "qemu").write_bytes(_marked(program.read_bytes()))
    (folder / "emulator").write_bytes(_marked(_emulator()))
    (folder / "model").write_text(cpu.model)
    (folder / "registration").write_text(registration(cpu.arch, "/emulator/emulator", "PFC"))
    for name in ("qemu", "emulator"):
        (folder / name).chmod(0o755)
    return [
        *("--uidmap", _IDS, "--gidmap", _IDS),
        *("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"),
        *("--volume", f"{folder}:/emulator:ro", "--entrypoint", "/emulator/emulator"),
    ]


def registration(arch: str, interpreter: str, flags: str) -> str:
    """binfmt_misc's line for every program of this architecture, as its escapes."""
    magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + bytes((2, 0, _MACHINES[arch], 0))
    # Whatever the system ABI says, and executables and position-independent ones alike.
    mask = b"\xff" * 7 + b"\xfc" + b"\xff" * 8 + b"\xfe" + b"\xff" * 3
    spelled = ["".join(f"\\x{byte:02x}" for byte in part) for part in (magic, mask)]
    return f":emulated:M:0:{spelled[0]}:{spelled[1]}:{interpreter}:{flags}"


def with_arch(arch: str, command: list[str]) -> list[str]:
    """The command, as root in a user namespace that runs programs of this architecture, too.

    All ids stay what they are. The host's own binfmt_misc is not touched.
    """
    entry = registration(arch, shutil.which(f"qemu-{arch}-static") or "", "OCF")
    inside = (
        "until read -r _ < /proc/self/uid_map && read -r _ < /proc/self/gid_map; "
        "do sleep 0.05; done; "
        "set -e; mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; "
        f"printf %s {shlex.quote(entry)} > /proc/sys/fs/binfmt_misc/register; "
        f"exec {shlex.join(command)}"
    )
    maps = "".join(
        f"until echo 0 0 4294967295 2>/dev/null > /proc/$it/{ids}_map; do sleep 0.05; done; "
        for ids in ("uid", "gid")
    )
    script = f"unshare --user --mount sh -c {shlex.quote(inside)} & it=$!; {maps}wait $it"
    return as_root(["sh", "-c", script])


def _marked(program: bytes) -> bytes:
    """The program with a byte in the unused end of e_ident, which the registration asks to be 0."""
    return program[:15] + b"\x01" + program[16:]


@cache
def _emulator() -> bytes:
    source = _PROGRAMS / "emulator.c"
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "emulator"
        command = ["gcc", "-O2", "-static", str(source), "-o", str(made)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            said = done.stderr.strip()
            raise LabError(f"{source} does not compile: {said}\nFix: apt-get install libc6-dev")
        return made.read_bytes()
