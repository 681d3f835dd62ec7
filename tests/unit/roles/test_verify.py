"""Why a release fails its checks, in a sentence, and the check that runs without Ansible."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fleetbuild.hardware.gpus import SMS
from fleetbuild.toolchains.cuda import runs_on
from tests.factories.processes import left_behind
from tests.factories.role_modules import plugin

TOLD = plugin("plugin_utils.known_failures").explaining({}, {"inventory_hostname": "n1"})
KNOWN_FAILURES = TOLD["known_failures"]


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    return plugin("module_utils.release_checks")


@pytest.fixture(scope="module")
def verify(checks: ModuleType) -> ModuleType:
    return plugin("modules.verify")


def about(*snippets: str, **changes: Any) -> dict[str, Any]:
    told = {"imports": [], "checks": [*snippets], "timeout": 30, "features": []}
    return {**told, "known_failures": KNOWN_FAILURES, **changes}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release of nothing, made for an Ivy Bridge with an RTX 3060."""
    manifest = {
        "id": "r1",
        "group": "sm86-avx-cp311",
        "python": sys.executable,
        "wheels": [{"package": "demo", "version": "1.0+cu130.sm86.avx"}],
        "dependencies": ["numpy==2.4.0"],
        "verified": False,
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def test_a_successful_check_returns_its_output(checks: ModuleType, release: Path) -> None:
    result = checks.try_release(str(release), about("print(6 * 7)", imports=["json"]), "n1")
    assert result == {"ok": True, "reason": "", "fix": [], "output": "42", "at": 1}


def test_a_crash_names_the_check_that_crashed(checks: ModuleType, release: Path) -> None:
    crash = about("import os\nos.kill(os.getpid(), 4)", imports=["json"])
    result = checks.try_release(str(release), crash, "n1")
    assert not result["ok"]
    assert result["at"] == 1
    assert result["reason"] == (
        "the check that begins with `import os`: Illegal instruction: the wheel uses instructions"
        " that this CPU lacks"
        " (n1 is in sm86-avx-cp311, which promises avx)."
    )


def test_a_crash_reported_by_a_shell_is_recognised(checks: ModuleType) -> None:
    assert checks.ending(132) == checks.ending(-4) == "SIGILL"
    assert checks.ending(1) == checks.ending(0) == ""


def test_a_check_that_hangs_is_ended(checks: ModuleType, release: Path) -> None:
    slow = about("import time; time.sleep(60)", timeout=1)
    assert "did not end within 1 s" in checks.try_release(str(release), slow, "n1")["reason"]


@pytest.mark.parametrize("closed", ["", "os.closerange(0, 3)"])
def test_a_check_leaves_no_process_and_waits_for_none(release: Path, closed: str) -> None:
    left = f"if not os.fork():\n    os.setsid()\n    {closed or 'pass'}\n    time.sleep(60)"
    snippet = f"import os, time\n{left}\nprint(os.environ['HOME'])"
    tried = plugin("module_utils.release_verifying").try_release
    result = tried(str(release), about(snippet, timeout=20), "n1")
    assert result["ok"], result
    assert left_behind(result["output"], 2) == []


def test_a_check_that_prints_without_end_fills_neither_memory_nor_disk(
    checks: ModuleType, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LARGEST", 1 << 20)
    monkeypatch.setattr(checks, "READ", 1 << 16)
    endless = about("while True: print('x' * 1000)")
    assert "printed 1 MiB, the most" in checks.try_release(str(release), endless, "n1")["reason"]


def test_a_release_without_its_python_fails_with_a_reason(
    checks: ModuleType, release: Path
) -> None:
    (release / "bin/python").unlink()
    result = checks.try_release(str(release), about("pass"), "n1")
    assert result["reason"].startswith("`start of python`: [Errno 2] No such file")


def why(checks: ModuleType, output: str, code: int, finished: bool = False) -> tuple[str, str]:
    told: tuple[str, str] = checks.why(output, code, finished, about(), checks.names("n1", ""))
    return told


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("RuntimeError: CUDA error: no kernel image is available for ...", "No kernel image"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by x)", "needs GLIBC_2.38"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "libcudart.so.12 is miss"),
        ("Error relocating a.so: foo: symbol not found", "ABI mismatch: the symbol foo is"),
        ("The NVIDIA driver on your system is too old", "driver of n1 is too old"),
        ("ValueError: last words", "ValueError: last words"),
    ],
)
def test_known_error_texts_have_a_reason_and_a_fix(
    checks: ModuleType, output: str, says: str
) -> None:
    reason, fix = why(checks, f"Traceback\n{output}", 1)
    assert says in reason
    assert fix


def test_printed_errors_take_precedence_over_an_abort(checks: ModuleType) -> None:
    said = "terminate called\n  what():  CUDA error: no kernel image is available for execution"
    assert "No kernel image" in why(checks, said, -signal.SIGABRT)[0]
    assert why(checks, "terminate called", -signal.SIGABRT)[0] == "The process aborted."


def test_a_silent_end_is_explained_by_its_exit_code(checks: ModuleType) -> None:
    assert why(checks, "", -signal.SIGKILL)[0].startswith("The process was killed")
    assert why(checks, "", 0)[0].startswith("The process ended itself")
    assert why(checks, "", 3)[0] == "The process ended with 3."


@pytest.mark.parametrize(
    ("group", "isa", "sms"),
    [
        ("sm80.sm120-x86-64-v2-cp311", "x86-64-v2", "SM 8.0, 12.0"),
        ("cpu-armv8.2-cp312t-musl", "armv8.2", "no GPU"),
        ("anything", "the wheel's rung", "no GPU"),
    ],
)
def test_a_groups_name_is_explained(checks: ModuleType, group: str, isa: str, sms: str) -> None:
    known = checks.names("n1", group)
    assert (known["isa"], known["sms"]) == (isa, sms)


def test_a_verified_release_is_marked_once(verify: ModuleType, release: Path) -> None:
    path = release / "manifest.json"
    before = json.loads(path.read_text())
    assert verify.mark(str(release), about(), True)
    assert json.loads(path.read_text()) == before
    assert verify.mark(str(release), about(), False)
    assert json.loads(path.read_text()) == {**before, "verified": True}
    assert not verify.mark(str(release), about(), False)
    assert sorted(entry.name for entry in release.rglob("*")) == [
        "bin", "fleetbuild-sanity", "manifest.json", "python",
    ]  # fmt: skip


# The sanity check


def sanity(
    verify: ModuleType, release: Path, told: dict[str, Any], gpu: str = "", says: str = ""
) -> Any:
    """What a user sees who runs the program that marking has left there."""
    verify.mark(str(release), told, False)
    programs = release.parent / f"{release.name}-programs"
    programs.mkdir(exist_ok=True)
    says = says or (f"echo '{gpu}'" if gpu else "")
    if says:
        (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{says}\n")
        (programs / "nvidia-smi").chmod(0o755)
    return subprocess.run(
        [release / "bin/fleetbuild-sanity"],
        env={
            **os.environ,
            "PATH": f"{programs}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(programs),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_sanity_check_describes_the_release(verify: ModuleType, release: Path) -> None:
    told = about("# It computes\nprint(6 * 7)", imports=["json"])
    done = sanity(verify, release, told, "NVIDIA GeForce RTX 3060, 8.6, 550.54.14")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"release   r1 in {release}"
    assert lines[1] == "made for  sm86-avx-cp311: avx, SM 8.6"
    assert lines[2] == "holds     demo 1.0+cu130.sm86.avx, numpy 2.4.0"
    assert lines[3].startswith("CPU       ")
    assert lines[3].endswith(": has all features of avx")
    assert lines[4:] == [
        "GPU 0     NVIDIA GeForce RTX 3060, SM 8.6, driver 550.54.14",
        "ok        import json",
        "ok        check: It computes",
    ]


def test_the_sanity_check_explains_a_crash(verify: ModuleType, release: Path) -> None:
    done = sanity(verify, release, about("import os\nos.kill(os.getpid(), 4)", imports=["json"]))
    assert done.returncode == 7
    assert "GPU       none that nvidia-smi or the CUDA driver shows" in done.stdout
    assert "ok        import json" in done.stdout
    assert "FAILED    the check that begins with `import os`: Illegal instruction" in done.stdout
    assert "          Probe and plan again" in done.stdout


def test_a_cpu_that_lacks_a_feature_fails_without_a_crash(
    verify: ModuleType, release: Path
) -> None:
    done = sanity(verify, release, about(features=["avx1024", "fma9"]))
    assert done.returncode == 7
    assert "lacks avx1024 fma9, which the wheels use" in done.stdout
    assert "does not belong to sm86-avx-cp311" in done.stdout


@pytest.mark.parametrize(("sm", "code"), [("8.6", 0), ("8.9", 0), ("8.0", 7), ("9.0", 7)])
def test_a_gpu_without_code_for_it_fails(
    verify: ModuleType, release: Path, sm: str, code: int
) -> None:
    done = sanity(verify, release, about(), f"NVIDIA X, {sm}, 550.54.14")
    assert done.returncode == code
    assert ("no code for it, the wheels have SM 8.6" in done.stdout) is bool(code)


@pytest.mark.parametrize(("other", "code"), [("8.6", 0), ("3.7", 7)])
def test_a_gpu_outside_of_the_target_is_mentioned_and_does_not_fail(
    verify: ModuleType, release: Path, other: str, code: int
) -> None:
    done = sanity(verify, release, about(), f"NVIDIA X, 3.5, 470.1\nNVIDIA Y, {other}, 470.1")
    assert done.returncode == code
    assert "NVIDIA X, SM 3.5, driver 470.1: no code for it, the wheels have SM 8.6" in done.stdout


# Enough of libcuda.so.1: an RTX 3060 and a Tesla K40.
LIBCUDA = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { name[0] = 'X'; name[1] = 0; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = device == 0 ? (attribute == 75 ? 8 : 6) : (attribute == 75 ? 3 : 5);
  return 0;
}
"""
OLD_DRIVER = """case $* in
*compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
*) echo 'RTX 3060, 470.2'; echo 'Tesla K40c, 470.2' ;;
esac"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
@pytest.mark.parametrize(
    ("says", "first", "second"),
    [
        (OLD_DRIVER, "RTX 3060, SM 8.6, driver 470.2", "Tesla K40c, SM 3.5, driver 470.2"),
        ("exit 1", "X, SM 8.6, driver unknown", "X, SM 3.5, driver unknown"),
    ],
)
def test_without_sms_in_nvidia_smi_the_cuda_driver_is_asked(
    verify: ModuleType, release: Path, says: str, first: str, second: str
) -> None:
    programs = release.parent / f"{release.name}-programs"
    programs.mkdir()
    (programs / "cuda.c").write_text(LIBCUDA)
    made = ["gcc", "-shared", "-fPIC", "cuda.c", "-o", "libcuda.so.1"]
    subprocess.run(made, cwd=programs, check=True)
    done = sanity(verify, release, about(), says=says)
    assert f"GPU 0     {first}\n" in done.stdout
    assert f"GPU 1     {second}: no code for it, the wheels have SM 8.6\n" in done.stdout
    assert done.returncode == 0


def test_a_driver_without_sms_is_mentioned(verify: ModuleType, release: Path) -> None:
    done = sanity(verify, release, about(), says=OLD_DRIVER)
    assert "GPU 0     RTX 3060, SM unknown to this driver, driver 470.2" in done.stdout
    assert done.returncode == 0


def test_code_runs_on_the_gpus_that_the_planner_means(checks: ModuleType) -> None:
    assert set(checks.JETSONS) == {name for name, sm in SMS.items() if sm.jetson}
    assert not checks.runs_on("8.6", "8.7")
    for code, sm in product(SMS, SMS):
        assert checks.runs_on(code, sm) == runs_on(code, sm), (code, sm)


def test_differing_cores_have_their_common_features(checks: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("model name : X\nflags : fpu avx\n\nmodel name : X\nflags : fpu\n")
    assert checks.cpu(str(path)) == ("X", {"fpu"})
    path.write_text("Features\t: fp asimd\n")
    assert checks.cpu(str(path)) == ("this CPU", {"fp", "asimd"})
    path.write_text("")
    assert checks.cpu(str(path)) == ("this CPU", set())


def test_the_program_starts_with_the_python_that_made_the_release(checks: ModuleType) -> None:
    assert checks.sanity_script("", {}, "/usr/bin/python3.9").startswith("#!/usr/bin/python3.9\n")
    assert checks.sanity_script("", {}, "/a b/python").startswith("#!/usr/bin/env python3\n")


def test_checks_do_not_run_as_root(checks: ModuleType, release: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        shutil.copytree(release, folder, symlinks=True, dirs_exist_ok=True)
        os.chmod(folder, 0o755)  # noqa: S103 (nobody reads it too)
        python = Path(folder, "bin/python")
        python.unlink()
        python.symlink_to("/usr/bin/python3")
        result = checks.try_release(
            folder,
            about(
                "import os; print(os.geteuid(), os.getegid())",
                "print('NoNewPrivs:\\t1' in open('/proc/self/status').read())",
                "open('written', 'w')",
            ),
            "n1",
        )
    assert result["ok"], result
    user, group, locked = result["output"].split()
    assert "0" not in (user, group)
    assert locked == "True"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("verify", {}), ("release", {"state": "present", "spec": {"verify": {"imports": ["six"]}}})],
)
def test_a_node_gets_the_known_failures_unless_the_play_has_its_own(
    monkeypatch: pytest.MonkeyPatch, module: str, arguments: dict[str, Any]
) -> None:
    action = plugin(f"action.{module}")

    def ask(_: Any, asked: dict[str, Any], __: Any) -> dict[str, Any]:
        return asked

    monkeypatch.setattr(action.NodeModule, "ask", ask)
    of_n1 = {"inventory_hostname": "n1"}

    def asked(**own: Any) -> Any:
        plain = action.ActionModule.__new__(action.ActionModule)
        return plain.ask({**arguments, **own}, of_n1)

    assert asked() == {**arguments, "known_failures": KNOWN_FAILURES, "node": "n1"}
    assert asked(known_failures=[])["known_failures"] == []


def test_the_known_failures_of_builds_stay_on_the_controller() -> None:
    assert all("run" in row["during"] for row in KNOWN_FAILURES)


def test_a_reservation_needs_no_known_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    action = plugin("action.release")
    monkeypatch.setattr(action.NodeModule, "ask", lambda _, asked, __: asked)
    begun = {"state": "begun", "spec": {"verify": {"imports": ["six"]}}}
    plain = action.ActionModule.__new__(action.ActionModule)
    assert plain.ask(dict(begun), {"inventory_hostname": "n1"}) == begun
