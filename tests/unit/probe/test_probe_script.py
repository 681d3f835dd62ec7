"""The script on this machine, in every sh that is here."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

from fleetbuild.models import Capture
from fleetbuild.probe.parse import facts_of
from fleetbuild.probe.sections import SECTIONS, split

SCRIPT = files("fleetbuild.probe").joinpath("script.sh").read_text("utf-8")
SHELLS = ["sh", "dash", "bash --posix", "busybox sh", "mksh", "ksh93"]

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the script is for Linux")


def run(
    install: Path,
    shell: str = "sh",
    script: str = SCRIPT,
    workspace: str = "/",
    **environment: str,
) -> Capture:
    program, *options = shell.split()
    command = [shutil.which(program) or program, *options, "-s", "--", "N0nce"]
    command += [str(install), workspace]
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
def test_every_sh_reads_this_machine(shell: str, tmp_path: Path) -> None:
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


def test_nothing_is_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = sorted(tmp_path.rglob("*"))
    run(tmp_path / "opt", workspace="~/.cache/fleetbuild", HOME=str(home), PATH=path(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_processes_bound_to_a_cpu_have_one(tmp_path: Path) -> None:
    if not shutil.which("taskset"):
        pytest.skip("no taskset here")
    cpu = min(os.sched_getaffinity(0))
    assert run(tmp_path, f"taskset -c {cpu} sh", PATH=os.environ["PATH"])["nproc"] == "1\n"


def test_the_disks_are_those_of_the_nearest_folders(tmp_path: Path) -> None:
    lines = run(Path("/proc/not/there"), workspace=f"{tmp_path}/not/there")["disk"].splitlines()
    assert len(lines) == 3
    assert lines[2].split()[1] == "proc"


PYTHON = '[ "$1" = -I ] && echo "{path} 3.11.2 cpython-311-x86_64-linux-gnu venv"'


def test_interpreters_are_asked_once_and_told_in_order(tmp_path: Path) -> None:
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


def test_a_real_interpreter_tells_itself(tmp_path: Path) -> None:
    lines = run(tmp_path, PATH=os.environ["PATH"], HOME=str(tmp_path))["python"]
    facts = facts_of({"python": lines})
    assert platform.python_version() in [python.version for python in facts.pythons]
    assert all(Path(python.path).is_absolute() for python in facts.pythons)
    assert all(python.venv is not None for python in facts.pythons)


SMI = """case $* in
*compute_cap*) {with_it} ;;
*) echo 'index, name, driver_version'; echo '0, Tesla K40c, 470.256.02' ;;
esac"""


def test_a_driver_that_knows_compute_cap_is_asked_once(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", SMI.format(with_it="echo 'index, name, compute_cap'"))
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "index, name, compute_cap\n"


def test_an_older_driver_is_asked_without_it(tmp_path: Path) -> None:
    no = 'echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2'
    program(tmp_path, "nvidia-smi", SMI.format(with_it=no))
    text = run(tmp_path, PATH=path(tmp_path))["nvidia-smi"]
    assert text == "index, name, driver_version\n0, Tesla K40c, 470.256.02\n"


def test_what_a_failing_driver_says_is_kept(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "No devices were found\n"
    program(tmp_path, "nvidia-smi", "exit 9")
    assert run(tmp_path, PATH=path(tmp_path))["nvidia-smi"] == "nvidia-smi gave no answer.\n"


# mksh's subshells keep the standard output open, so there the driver's own time limit counts.
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "mksh"])
def test_a_wedged_driver_does_not_hold_the_probe(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell.split(maxsplit=1)[0]):
        pytest.skip(f"no {shell} here")
    program(tmp_path, "nvidia-smi", "trap '' TERM; sleep 8")
    impatient = SCRIPT.replace("deadline=10", "deadline=1")
    assert impatient != SCRIPT
    began = time.monotonic()
    capture = run(tmp_path, shell, impatient, PATH=path(tmp_path))
    assert time.monotonic() - began < 6
    assert capture["nvidia-smi"] == "fleetbuild: no answer within 1 s\n"
    assert "disk" in capture


def test_lspci_is_asked_first(tmp_path: Path) -> None:
    line = "0000:03:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2204] (rev a1)"
    program(tmp_path, "lspci", f"[ \"$*\" = '-Dnn -d 10de:' ] && echo '{line}'")
    assert run(tmp_path, PATH=path(tmp_path))["lspci"] == line + "\n"


def test_tools_and_their_versions(tmp_path: Path) -> None:
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


def test_the_current_releases(tmp_path: Path) -> None:
    for folder in ("current", "nightly/current", "releases/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").write_text(f'{{"of": "{folder}"}}')
    text = run(tmp_path)["release"]
    assert text == '{"of": "current"}\n{"of": "nightly/current"}\n'
    assert "release" not in run(tmp_path / "elsewhere")
