"""The script on this machine, in every sh that is here."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import pytest

from fleetbuild.models import Capture
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import SECTIONS, split
from fleetbuild.probe.probing import section_seconds
from tests.factories.pythons import python_without

SCRIPT = files("fleetbuild.probe").joinpath("script.sh").read_text("utf-8")
SHELLS = ["sh", "dash", "bash --posix", "busybox sh", "mksh", "ksh93"]

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the script is for Linux")


def run(
    install: Path,
    shell: str = "sh",
    script: str = SCRIPT,
    workspace: str = "/",
    interpreters: str = "",
    *,
    seconds: int = 10,
    **environment: str,
) -> Capture:
    program, *options = shell.split()
    command = [shutil.which(program) or program, *options, "-s", "--", "N0nce"]
    command += [str(install), workspace, interpreters, str(seconds)]
    done = subprocess.run(
        command, input=script.encode(), env=environment, capture_output=True, timeout=60, check=True
    )
    assert done.stderr == b""
    return split(done.stdout.decode("utf-8", "surrogateescape"), "N0nce")


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def path(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_runs_the_probe_script(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    capture = run(tmp_path / "not" / "there", shell)  # no HOME, no PATH
    assert capture["uname"].split() == [
        platform.system(), platform.release(), platform.machine(),
    ]  # fmt: skip
    assert capture["cpuinfo"].count("processor") == Path("/proc/cpuinfo").read_text().count(
        "processor"
    )
    assert capture["os-release"] == Path("/etc/os-release").read_text()
    assert set(capture) <= set(SECTIONS)
    facts = facts_of(capture)
    assert facts.arch == platform.machine()
    assert facts.libc is not None
    assert facts.libc.version == platform.libc_ver()[1] or facts.libc.family == "musl"
    assert facts.cpus is not None
    assert facts.cpus <= len(os.sched_getaffinity(0))
    assert facts.memory_gb
    assert facts.disk_gb
    assert facts.install_filesystem


def test_the_probe_script_writes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = sorted(tmp_path.rglob("*"))
    run(tmp_path / "opt", workspace="~/.cache/fleetbuild", HOME=str(home), PATH=path(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_process_bound_to_one_cpu_counts_one(tmp_path: Path) -> None:
    if not shutil.which("taskset"):
        pytest.skip("no taskset here")
    cpu = min(os.sched_getaffinity(0))
    assert run(tmp_path, f"taskset -c {cpu} sh", PATH=os.environ["PATH"])["nproc"] == "1\n"


def test_disk_space_is_read_at_the_nearest_existing_folder(tmp_path: Path) -> None:
    lines = run(Path("/proc/not/there"), workspace=f"{tmp_path}/not/there")["disk"].splitlines()
    assert lines[2].split()[1] == "proc"
    assert lines[3:] in ([], ["no-sudo"])


PYTHON = '[ "$1" = -I ] && echo "{path} 3.11.2 cpython-311-x86_64-linux-gnu venv"'


def test_interpreters_are_started_once_and_listed_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    program(folder, "python3", PYTHON.format(path="/first"))
    (folder / "python3.11").symlink_to("python3")
    program(folder, "python3.9", PYTHON.format(path="/second"))
    program(folder, "python3.12", "exit 1")
    program(folder, "python3.11-config", PYTHON.format(path="/config"))
    program(tmp_path / "shims", "python3.8", PYTHON.format(path="/shim"))
    pythons = run(tmp_path, PATH=f"{folder}:{tmp_path / 'shims'}")["python"].splitlines()
    assert [line.split()[0] for line in pythons[:2]] == ["/first", "/second"]
    assert not [line for line in pythons if "config" in line or "shim" in line]


def test_a_real_interpreter_is_listed(tmp_path: Path) -> None:
    lines = run(tmp_path, PATH=os.environ["PATH"], HOME=str(tmp_path))["python"]
    facts = facts_of({"python": lines})
    assert platform.python_version() in [python.version for python in facts.pythons]
    assert all(Path(python.path).is_absolute() for python in facts.pythons)
    assert all(python.venv is not None for python in facts.pythons)


@pytest.mark.parametrize(
    ("lacks", "known"),
    [((), (True, True)), (("ensurepip",), (True, False)), (("venv",), (False, False))],
)
def test_a_python_without_ensurepip_still_makes_environments(
    lacks: tuple[str, ...], known: tuple[bool, bool], tmp_path: Path
) -> None:
    """Debian and Ubuntu have such a Python without python3-venv."""
    bare = python_without(tmp_path / "bare", *lacks)
    made = subprocess.run(
        [bare, "-I", "-m", "venv", "--without-pip", tmp_path / "made"],
        check=False, capture_output=True,
    )  # fmt: skip
    assert (made.returncode == 0) == known[0]
    lines = run(tmp_path, PATH=f"{bare.parent}:/nonexistent", HOME=str(tmp_path))["python"]
    found = facts_of({"python": lines}).pythons[0]
    assert found.path == str(bare)
    assert (found.venv, found.ensurepip) == known


COPIES = sys.version_info >= (3, 11)  # an older Python does not know what it was copied from


@pytest.mark.parametrize("options", [[], *([["--copies"]] if COPIES else [])])
def test_an_active_virtual_environment_gives_the_interpreter_that_it_was_made_from(
    options: list[str], tmp_path: Path
) -> None:
    """A release outlives it, and the next shell may not have it."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, venv], check=True)
    search = f"{venv}/bin:{os.environ['PATH']}"
    facts = facts_of({"python": run(tmp_path, PATH=search, HOME=str(tmp_path))["python"]})
    assert facts.pythons[0].path == os.path.realpath(sys.executable)
    assert facts.pythons[0].version == platform.python_version()
    assert not [python for python in facts.pythons if python.path.startswith(str(venv))]


def test_an_environment_of_copies_by_an_older_python_gives_the_interpreter_in_its_home(
    tmp_path: Path,
) -> None:
    """Python 3.10 does not know what it was copied from, and names the folder in pyvenv.cfg."""
    home, venv = tmp_path / "home", tmp_path / "venv" / "bin"
    home.mkdir()
    venv.mkdir(parents=True)
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (home / name).symlink_to(sys.executable)
    older = f"import sys; sys._base_executable = sys.executable = {str(venv / 'python3')!r}"
    command = f'exec {sys.executable} -I -S -B -c "{older}; exec(sys.argv.pop())" "$5"'
    program(venv, "python3", command)

    def first() -> str:
        return run(tmp_path, PATH=f"{venv}:/nonexistent")["python"].split()[0]

    assert first() == str(venv / "python3")
    for home_line in ("home = nowhere", "home =", f"home = {venv}", "\udcff"):
        text = home_line.encode("utf-8", "surrogateescape")
        (tmp_path / "venv" / "pyvenv.cfg").write_bytes(text)
        assert first() == str(venv / "python3")
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.9.2\n")
    assert first() == os.path.realpath(sys.executable)


def test_links_to_an_interpreter_are_listed_with_it(tmp_path: Path) -> None:
    first, second, real = tmp_path / "a", tmp_path / "b", os.path.realpath(sys.executable)
    for folder in (first, second):
        folder.mkdir()
        (folder / "python3").symlink_to(real)
    text = run(tmp_path, PATH=f"{first}:{second}:{os.environ['PATH']}")["python"]
    assert text.splitlines()[1] == f"{first}/python3 -> {real}"
    assert {f"{first}/python3", f"{second}/python3"} <= {
        *facts_of({"python": text}).pythons[0].links
    }


SMI = """case $* in
*compute_cap*) {with_it} ;;
*) echo 'index, name, driver_version'; echo '0, Tesla K40c, 470.256.02' ;;
esac"""


def test_a_driver_with_compute_cap_is_queried_once(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", SMI.format(with_it="echo 'index, name, compute_cap'"))
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "index, name, compute_cap\n"


def test_an_older_driver_is_queried_without_compute_cap(tmp_path: Path) -> None:
    no = 'echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2'
    program(tmp_path, "nvidia-smi", SMI.format(with_it=no))
    text = run(tmp_path, PATH=path(tmp_path))["nvidia-smi"]
    assert text == "index, name, driver_version\n0, Tesla K40c, 470.256.02\n"


def test_the_output_of_a_failing_driver_is_kept(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "No devices were found\n"
    program(tmp_path, "nvidia-smi", "exit 9")
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "nvidia-smi gave no answer.\n"


# mksh's subshells keep the standard output open, so there the driver's own time limit counts.
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "mksh"])
def test_a_wedged_driver_does_not_hold_the_probe(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    ended = tmp_path / "ended"
    program(tmp_path, "nvidia-smi", f"trap '' TERM; sleep 8; touch {ended}")
    capture = run(tmp_path, shell, seconds=1, PATH=path(tmp_path))
    assert not ended.exists()
    assert capture["nvidia-smi"] == "fleetbuild: no answer within 1 s\n"
    assert "disk" in capture


def test_an_interpreter_that_hangs_makes_the_others_unknown_and_not_absent(tmp_path: Path) -> None:
    """Such as one on a network file system whose server is down."""
    program(tmp_path / "bin", "python3", "sleep 20")
    program(tmp_path / "bin", "python3.11", PYTHON.format(path="/second"))
    facts = facts_of(run(tmp_path, seconds=1, PATH=path(tmp_path / "bin")))
    assert facts.pythons == ()
    assert facts.unanswered == ("python",)
    assert facts.warnings[0] == (
        "The section python of the probe gave no answer within 1 s: its Python interpreters are"
        " unknown. Set a longer --timeout, or find out what blocks it there."
    )


def test_the_limit_of_a_section_follows_the_timeout_of_the_probe(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "sleep 3; echo 'index, name, compute_cap'; echo '0, A10, 8.6'")
    assert "8.6" in run(tmp_path, seconds=20, PATH=path(tmp_path))["nvidia-smi"]
    assert [section_seconds(seconds) for seconds in (1, 30, 300)] == ["1", "15", "150"]


# Enough of libcuda.so.1: a Tesla K40 and a Tesla K80, by their CUDA driver.
LIBCUDA = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) {
  if (flags || getenv("CUDA_VISIBLE_DEVICES")) return 100;
  return strcmp(getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID") ? 100 : RETURN;
}
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 40; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  strncpy(name, device == 40 ? "Tesla K40c" : "Tesla, K80", size);
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)11441 << 20; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 3 : attribute == 76 ? (device == 40 ? 5 : 7) : -1;
  return 0;
}
#ifdef UUID
int cuDeviceGetUuid(char *uuid, int device) {
  memset(uuid, device == 40 ? 0x11 : 0x22, 16);
  return 0;
}
#endif
"""
UUID_K40, UUID_K80 = (f"GPU-{8 * n}-{4 * n}-{4 * n}-{4 * n}-{12 * n}" for n in "12")
OLD_DRIVER = """case $* in
*compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; echo; exit 2 ;;
*) echo 'index, name, driver_version, memory.total [MiB], uuid'
   echo '0, Tesla K80, 470.256.02, 11441 MiB, {first}'
   echo '1, Tesla K40c, 470.256.02, 11441 MiB, {second}' ;;
esac"""


def libcuda(folder: Path, *options: str, returns: int = 0) -> dict[str, str]:
    """The environment in which a python3 finds this libcuda.so.1."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc here")
    source = folder / "cuda.c"
    source.write_text(LIBCUDA)
    made = ["gcc", "-shared", "-fPIC", "-w", f"-DRETURN={returns}", *options, str(source)]
    subprocess.run([*made, "-o", str(folder / "libcuda.so.1")], check=True)
    return {"PATH": path(folder), "LD_LIBRARY_PATH": str(folder), "CUDA_VISIBLE_DEVICES": "1"}


def with_devices(folder: Path) -> str:
    """The script, for which a driver has made its devices."""
    (folder / "nvidiactl").touch()
    there = SCRIPT.replace("/dev/nvidiactl", str(folder / "nvidiactl"))
    assert there != SCRIPT
    return there


def test_the_cuda_driver_supplies_the_sm_that_an_older_nvidia_smi_lacks(tmp_path: Path) -> None:
    environment = libcuda(tmp_path, "-DUUID")
    program(tmp_path, "nvidia-smi", OLD_DRIVER.format(first=UUID_K80, second=UUID_K40))
    capture = run(tmp_path, script=with_devices(tmp_path), **environment)
    assert capture["nvidia-smi"].splitlines() == [
        "index, name, driver_version, memory.total [MiB], uuid, compute_cap",
        f"0, Tesla K80, 470.256.02, 11441 MiB, {UUID_K80}, 3.7",
        f"1, Tesla K40c, 470.256.02, 11441 MiB, {UUID_K40}, 3.5",
    ]
    assert [gpu.sm for gpu in facts_of(capture).gpus] == ["3.7", "3.5"]


def test_a_cuda_driver_without_uuids_is_taken_in_the_order_of_the_bus(tmp_path: Path) -> None:
    environment = libcuda(tmp_path)
    program(tmp_path, "nvidia-smi", OLD_DRIVER.format(first=UUID_K80, second=UUID_K40))
    capture = run(tmp_path, script=with_devices(tmp_path), **environment)
    assert [gpu.sm for gpu in facts_of(capture).gpus] == ["3.5", "3.7"]


def test_the_cuda_driver_fills_in_what_nvidia_smi_has_no_value_for(tmp_path: Path) -> None:
    environment = libcuda(tmp_path)
    rows = "\n".join(
        ["index, name, compute_cap, driver_version, memory.total [MiB], uuid",
         "0, Orin (nvgpu), [N/A], 540.4.0, [N/A], [N/A]",
         "1, NVIDIA X, 9.0, 540.4.0, 1 MiB, GPU-0"]
    )  # fmt: skip
    program(tmp_path, "nvidia-smi", f"echo '{rows}'")
    capture = run(tmp_path, script=with_devices(tmp_path), **environment)
    assert [gpu.sm for gpu in facts_of(capture).gpus] == ["3.5", "9.0"]


def test_without_nvidia_smi_the_cuda_driver_is_queried(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is an nvidia-smi here")
    environment = libcuda(tmp_path)
    capture = run(tmp_path, script=with_devices(tmp_path), **environment)
    assert capture["nvidia-smi"].splitlines()[2] == "1, Tesla  K80, 11441 MiB, [N/A], 3.7"
    assert facts_of(capture).sms == ("3.5", "3.7")
    assert "nvidia-smi" not in run(tmp_path, **environment)  # no devices: it is not even asked


@pytest.mark.parametrize("returns", [100, 999])
def test_a_cuda_driver_that_fails_changes_nothing(tmp_path: Path, returns: int) -> None:
    environment = libcuda(tmp_path, returns=returns)
    program(tmp_path, "nvidia-smi", OLD_DRIVER.format(first=UUID_K80, second=UUID_K40))
    text = run(tmp_path, script=with_devices(tmp_path), **environment)["nvidia-smi"]
    assert text.splitlines()[0] == "index, name, driver_version, memory.total [MiB], uuid"
    assert len(text.splitlines()) == 3


def test_the_cuda_driver_is_not_queried_if_nvidia_smi_suffices(tmp_path: Path) -> None:
    environment = libcuda(tmp_path)
    row = "0, NVIDIA GB10, 12.1, 580.95.05, [N/A], GPU-0"  # its memory is the machine's
    program(tmp_path, "nvidia-smi", f"echo '{row}'")
    text = run(tmp_path, script=with_devices(tmp_path), **environment)["nvidia-smi"]
    assert text == row + "\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_sections_that_only_some_nodes_have(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "model").write_text("NVIDIA Jetson Xavier NX\0")
    (tmp_path / "tree" / "compatible").write_text("nvidia,p3449-0000+p3668-0000\0nvidia,tegra194\0")
    (tmp_path / "sve").write_text("32\n")
    for node, values in (("0", (0, 0)), ("1", (49408, 110501))):  # the processor, and its GPU
        (tmp_path / "kfd" / node).mkdir(parents=True)
        (tmp_path / "kfd" / node / "properties").write_text(
            f"simd_count 40\ngfx_target_version {values[1]}\nlocation_id {values[0]}\ndomain 0\n"
        )
    (tmp_path / "gpu0" / "mig").mkdir(parents=True)
    (tmp_path / "nvhost-gpu").touch()
    program(tmp_path, "nvidia-smi", 'echo "asked: $*"')
    script = SCRIPT
    for real, here in [
        ("/proc/device-tree", "tree"),
        ("/proc/sys/abi/sve_default_vector_length", "sve"),
        ("/sys/class/kfd/kfd/topology/nodes", "kfd"),
        ("/proc/driver/nvidia/capabilities", "."),
        ("/dev/nvhost-gpu /dev/nvgpu /dev/nvidiactl", "nvhost-gpu"),
    ]:
        assert real in script
        script = script.replace(real, str(tmp_path / here))
    capture = run(tmp_path, shell, script, PATH=path(tmp_path))
    assert capture["sve"] == "32\n"
    assert capture["kfd"] == "0 49408 110501\n"
    assert capture["device-tree"].splitlines() == [
        "model: NVIDIA Jetson Xavier NX",
        "compatible: nvidia,p3449-0000+p3668-0000",
        "compatible: nvidia,tegra194",
        f"device: {tmp_path}/nvhost-gpu",
    ]
    assert capture["mig"].splitlines() == [
        "asked: --query-gpu=index,name,mig.mode.current --format=csv",
        "asked: -L",
    ]


def test_a_node_without_such_hardware_lacks_these_sections(tmp_path: Path) -> None:
    script = SCRIPT
    for there in ("/proc/device-tree", "/proc/sys/abi/sve_d", "/proc/driver/nvidia/capabilities"):
        script = script.replace(there, str(tmp_path / "nowhere"))
    assert not {"sve", "device-tree", "mig"} & set(run(tmp_path, script=script))


def test_lspci_is_preferred(tmp_path: Path) -> None:
    line = "0000:03:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2204] (rev a1)"
    amd = (
        "0000:05:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] "
        "Aqua Vanjaram [Instinct MI300X] [1002:74a1]"
    )
    bridge = "0000:00:00.0 Host bridge [0600]: Intel Corporation Device [8086:0100]"
    listed = (
        f"{line}\n{amd}\n{bridge}\n0000:09:00.0 VGA compatible controller [0300]: X [1a03:2000]"
    )
    program(tmp_path, "lspci", f"[ \"$*\" = -Dnn ] && cat <<'E'\n{listed}\nE")
    assert run(tmp_path, PATH=path(tmp_path))["lspci"] == f"{line}\n{amd}\n"


def test_without_lspci_the_gpus_come_from_sys(tmp_path: Path) -> None:
    devices = {
        "0000:03:00.0": ("0x10de", "0x2204", "0x030200"),
        "0000:04:00.0": ("0x1002", "0x74a1", "0x120000"),
        "0000:05:00.0": ("0x8086", "0x56a0", "0x030000"),
        "0000:00:00.0": ("0x8086", "0x0100", "0x060000"),
        "0000:06:00.0": ("0x8086", "0x7d1d", "0x120000"),  # an NPU
        "0000:07:00.0": ("0x1002", "0xab28", "0x040300"),  # sound
    }
    for slot, (vendor, device, kind) in devices.items():
        folder = tmp_path / "devices" / slot
        folder.mkdir(parents=True)
        texts = {"vendor": vendor, "device": device, "class": kind, "revision": "0xa1"}
        for name, text in texts.items():
            (folder / name).write_text(text + "\n")
    program(tmp_path, "lspci", "exit 1")
    script = SCRIPT.replace("/sys/bus/pci/devices", str(tmp_path / "devices"))
    lines = run(tmp_path, script=script, PATH=path(tmp_path))["lspci"].splitlines()
    assert lines == [
        "0000:03:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2204] (rev a1)",
        (
            "0000:04:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. Device "
            "[1002:74a1] (rev a1)"
        ),
        (
            "0000:05:00.0 VGA compatible controller [0300]: Intel Corporation Device [8086:56a0] "
            "(rev a1)"
        ),
    ]


def test_tools_and_their_versions_are_listed(tmp_path: Path) -> None:
    program(tmp_path, "gcc", "echo 9.4.0")
    program(tmp_path, "g++", "echo not for you; exit 1")
    program(tmp_path, "clang", "echo 'Ubuntu clang version 14.0.6-1'; echo 'Target: 1.2'")
    program(tmp_path, "cmake", "echo 'cmake version 3.27.9'; echo; echo 'CMake suite 9.9'")
    program(tmp_path, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
    program(tmp_path, "ccache", "exec ./nothing")
    lines = run(tmp_path, PATH=path(tmp_path))["toolchain"].splitlines()
    assert lines[:3] == ["gcc 9.4.0", "clang 14.0.6-1", "nvcc 12.4"]
    assert "cmake 3.27.9" in lines
    assert not [line for line in lines if line.startswith(("g++", "ccache"))]


def test_the_gccs_beside_the_default_one_are_listed_with_their_whole_version(
    tmp_path: Path,
) -> None:
    toolset = tmp_path / "gcc-toolset-13" / "root" / "usr" / "bin"
    toolset.mkdir(parents=True)
    for suffix, version in (("-9", "9.5.0"), ("-27", "27.1.0")):
        program(tmp_path, f"gcc{suffix}", f'[ "$1" = -dumpfullversion ] && echo {version}')
        program(tmp_path, f"g++{suffix}", "exit 1")
    program(tmp_path, "gcc10-gcc", "echo 10.5.0")
    program(tmp_path, "gcc10-g++", "exit 1")
    program(toolset, "gcc", "echo 13.3.1")
    program(toolset, "g++", "exit 1")
    program(tmp_path, "gcc-28", "echo 28.1.0")  # without its g++
    program(tmp_path, "gcc-29.1", "echo 29.1.0")  # no build looks for this name
    script = SCRIPT.replace("/opt/rh/", f"{tmp_path}/")
    text = run(tmp_path, script=script, PATH=path(tmp_path))["toolchain"]
    found = facts_of({"toolchain": text}).toolchain
    assert found["gcc-9"] == ("9.5.0",)
    assert found["gcc-10"] == ("10.5.0",)
    assert found["gcc-13"] == ("13.3.1",)
    assert found["gcc-27"] == ("27.1.0",)
    assert not {"gcc-28", "gcc-29", "gcc-29.1"} & found.keys()


def test_the_nvcc_of_debians_package_is_a_toolkit(tmp_path: Path) -> None:
    """What nvidia-cuda-toolkit 11.8.89~11.8.0-5~deb12u1 prints, whose nvcc is a script."""
    said = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2022 NVIDIA Corporation
Built on Wed_Sep_21_10:33:58_PDT_2022
Cuda compilation tools, release 11.8, V11.8.89
Build cuda_11.8.r11.8/compiler.31833905_0"""
    program(tmp_path / "lib", "nvcc", f"cat <<'END'\n{said}\nEND")
    program(tmp_path, "nvcc", f'\nexec {tmp_path}/lib/nvcc "$@"')
    lines = run(tmp_path, PATH=path(tmp_path))["toolchain"].splitlines()
    assert lines.count("nvcc 11.8") == 1


def test_the_libraries_that_a_toolkit_lacks_are_printed(tmp_path: Path) -> None:
    """NVIDIA's cuda-nvcc and cuda-cudart alone are a toolkit without cuBLAS."""
    home = tmp_path / "cuda-13.0"
    home.mkdir()
    program(home / "bin", "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    (home / "include").mkdir()
    names = {"cublas_v2", "cufft", "curand", "cusolverDn", "cusparse", "nvrtc"}
    there = {*names, "cuda_runtime"} - {"cublas_v2", "cusolverDn"}
    for name in there:
        (home / "include" / f"{name}.h").touch()

    script = SCRIPT.replace("/usr/local/", f"{tmp_path}/")

    def found() -> dict[str, tuple[str, ...]]:
        printed = run(tmp_path, script=script, PATH=path(home / "bin"))["toolchain"]
        tools = facts_of({"toolchain": printed}).toolchain
        return {name: tools[name] for name in tools if name.startswith("without-")}

    assert found() == {"without-cublas": ("13.0",), "without-cusolver": ("13.0",)}
    for name in names:
        (home / "include" / f"{name}.h").touch()
    (home / "include" / "cuda_runtime.h").unlink()  # its headers are elsewhere
    assert found() == {}


def test_the_current_releases_are_printed(tmp_path: Path) -> None:
    for folder in ("current", "nightly/current", "releases/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").write_text(f'{{"of": "{folder}"}}')
    text = run(tmp_path)["release"]
    assert text == '{"of": "current"}\n{"of": "nightly/current"}\n'
    assert "release" not in run(tmp_path / "elsewhere")


def test_the_memory_limit_is_the_least_of_all_cgroups_above(tmp_path: Path) -> None:
    for folder, limit in (("", None), ("user.slice", "8589934592"), ("user.slice/s", "max")):
        (tmp_path / folder).mkdir(exist_ok=True)
        if limit:
            (tmp_path / folder / "memory.max").write_text(f"{limit}\n")
    own = tmp_path / "own"
    script = SCRIPT.replace("own_cgroups=/proc/self/cgroup", f"own_cgroups={own}")
    script = script.replace("cgroups=/sys/fs/cgroup", f"cgroups={tmp_path}")
    own.write_text("0::/user.slice/s\n")
    assert run(tmp_path, script=script)["memory-limit"] == "8589934592\n"
    (tmp_path / "memory/a").mkdir(parents=True)
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit
    own.write_text("9:memory:/a\n")
    assert "memory-limit" not in run(tmp_path, script=script)
    (tmp_path / "memory/a/memory.limit_in_bytes").write_text("1073741824\n")
    assert run(tmp_path, script=script)["memory-limit"] == "1073741824\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_release_that_a_rollback_would_switch_to_is_printed(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    assert "previous" not in run(tmp_path, shell)
    ids = {"r0": True, "r1": True, "r2": False, "gone": None, "r4": True}
    for root in (tmp_path, tmp_path / "side"):
        for name, verified in ids.items():
            if verified is not None:
                (root / "releases" / name).mkdir(parents=True)
                program(root / "releases" / name / "bin", "python", "")
                manifest = json.dumps({"id": name, "verified": verified}, indent=2)
                (root / "releases" / name / "manifest.json").write_text(manifest)
        (root / "current").symlink_to("releases/r4")
        (root / "history").write_text("".join(f"{name}\n" for name in ids))
    (tmp_path / "side" / "history").write_text("r4\n")
    assert run(tmp_path, shell)["previous"] == "default r1\n"
    # A rollback from r4 that a full disk kept out of the file.
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("releases/r1")
    assert run(tmp_path, shell)["previous"] == "default r0\n"
    # A switch to r1, which had served before r4, was done; and it was not.
    (tmp_path / "history").write_text("r0\nr1\nr4\nr1\n")
    assert run(tmp_path, shell)["previous"] == "default r4\n"
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("releases/.broken-r4")
    assert run(tmp_path, shell)["previous"] == "default r1\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_interpreters_of_the_inventory_that_are_not_programs_are_named(
    shell: str, tmp_path: Path
) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    (tmp_path / "text").touch(mode=0o644)
    program(tmp_path / "bin", "python", "true")
    paths = [str(tmp_path / name) for name in ("absent", "bin/python", "text", "bin")]
    capture = run(tmp_path, shell, interpreters=" ".join(paths))
    assert facts_of(capture).missing_interpreters == (paths[0], paths[2], paths[3])
    assert "missing-interpreters" not in run(tmp_path, shell)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_probe_finds_a_file_of_allowed_signers(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    script = SCRIPT.replace("/etc/fleetbuild/allowed_signers", f"{tmp_path}/allowed")
    assert not facts_of(run(tmp_path, shell, script=script)).requires_signature
    (tmp_path / "allowed").touch()
    assert facts_of(run(tmp_path, shell, script=script)).requires_signature


def test_an_install_path_on_a_read_only_file_system_is_reported(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    point = subprocess.run(
        ["df", "-P", tmp_path], check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    script = SCRIPT.replace("/proc/self/mounts", str(mounts))
    for options, read_only in (
        ("ro,relatime", True),
        ("rw,relatime", False),
        ("rw,errors=ro", False),
    ):
        mounts.write_text(f"/dev/x {point} ext4 {options} 0 0\n")
        capture = run(tmp_path / "not/there", script=script, PATH=os.environ["PATH"])
        assert facts_of(capture).install_read_only is read_only


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may become another user")
def test_the_release_names_for_which_only_root_can_write_are_read() -> None:
    user = "setpriv --reuid 4711 --regid 4711 --clear-groups sh"
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above)
        folder.chmod(0o755)

        def needs_root(install: str, shell: str = user) -> dict[str, int]:
            return facts_of(run(folder / install, shell, PATH=os.environ["PATH"])).needs_root

        for mine in ("mine", "mixed/alpha", "mixed/alpha/releases"):
            (folder / mine).mkdir(parents=True)
            os.chown(folder / mine, 4711, 4711)
        for roots in ("mixed/beta/releases", "mixed/unrelated", "mine/releases"):
            (folder / roots).mkdir(parents=True)
        assert needs_root("mine") == {"default": 4711}
        (folder / "mine/releases").rmdir()
        assert needs_root("mine") == needs_root("mine/not/there") == {}
        assert needs_root("not/there") == {"default": 4711}
        assert needs_root("mixed") == {"default": 4711, "beta": 4711}
        assert needs_root("mixed", "sh") == {}
        absent = SCRIPT.replace("have sudo ||", "false ||")
        assert facts_of(run(folder, user, script=absent, PATH=os.environ["PATH"])).no_sudo
        program(folder, "sudo", "")
        assert not facts_of(run(folder, user, PATH=f"{folder}:{os.environ['PATH']}")).no_sudo


def test_a_uid_that_no_user_can_have_is_not_read() -> None:
    disk = "needs-root 4294967294 a\nneeds-root 4294967295 b\nneeds-root 9999999999 c\n"
    assert facts_of({"disk": disk}).needs_root == {"a": 4294967294}


def release(folder: Path) -> Path:
    """A current release of two files, with their record."""
    made = folder / "releases/r1"
    (made / "bin").mkdir(parents=True)
    (made / "bin/python").symlink_to("/bin/sh")
    (made / "code.so").write_text("code")
    (folder / "current").symlink_to("releases/r1")
    command = "stat -c '%s %Y %n' ./bin/python ./code.so | sed \"s/^/$(printf %064d 0) /\""
    record = subprocess.run(
        ["sh", "-c", command], cwd=made, check=True, capture_output=True, text=True
    ).stdout
    (made / "manifest.files").write_text(record)
    return made


def test_a_deleted_file_differs_from_a_changed_one(tmp_path: Path) -> None:
    made = release(tmp_path)
    assert "differs" not in run(tmp_path, PATH=os.environ["PATH"])["release-files"]
    (made / "code.so").unlink()
    (made / "new.so").write_text("")
    lines = run(tmp_path, PATH=os.environ["PATH"])["release-files"].splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines[2:]] == [
        ("differs", "./new.so"), ("deleted", "./code.so"),
    ]  # fmt: skip


def test_a_current_link_that_leads_elsewhere_is_damage(tmp_path: Path) -> None:
    release(tmp_path)
    assert "elsewhere" not in run(tmp_path, PATH=os.environ["PATH"])["release-files"]
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("/usr")
    capture = run(tmp_path, PATH=os.environ["PATH"])
    damage = facts_of(capture).damaged["default"]
    assert damage == "its link `current` does not lead to one of its releases"
