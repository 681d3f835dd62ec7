"""A build: what it refuses, what it finds again, what it says."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.factories.files import nest
from tests.factories.role_modules import CHECKOUT, plugin


@pytest.mark.parametrize("flag", ["-march=native", "-mtune=native", "-mcpu=native"])
def test_building_for_the_builder_is_refused(
    wheel_build: ModuleType, build: Any, flag: str
) -> None:
    build.params["environment"]["CXXFLAGS"] = f"-O3 {flag}"
    with pytest.raises(wheel_build.BuildFailed, match=f"CXXFLAGS has {flag}"):
        build.refuse_native()


def test_the_packages_own_native_flags_are_found(wheel_build: ModuleType, build: Any) -> None:
    probe = f"gcc -march=native -c {build.at('tmp')}/probe.c\n"
    Path(build.log).write_text("a mention of -march=native\n" + probe)
    build.refuse_native_in_log()  # asking the compiler about itself does no harm
    Path(build.log).write_text("gcc -O3 -march=native -c a.c -o a.o\n")
    with pytest.raises(wheel_build.BuildFailed, match="compile with -march=native"):
        build.refuse_native_in_log()


def test_a_damaged_input_is_removed_and_refused(wheel_build: ModuleType, build: Any) -> None:
    build.params["source_sha256"] = "0" * 64
    wrong = r"a-1\.0\.tar\.gz is not the planned file"
    with pytest.raises(wheel_build.BuildFailed, match=wrong) as raised:
        build.check_inputs()
    assert raised.value.kind == "input"
    assert not os.path.exists(build.at("in", "a-1.0.tar.gz"))


def test_an_intact_input_is_kept(build: Any) -> None:
    build.params["source_sha256"] = hashlib.sha256(b"not unpacked here").hexdigest()
    build.check_inputs()
    assert os.path.exists(build.at("in", "a-1.0.tar.gz"))


def test_a_running_build_is_seen_by_its_lock(build: Any) -> None:
    assert build.status()["state"] == "absent"
    with open(build.at("lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build.write_status(state="running", started=0)
        assert build.status()["state"] == "running"
        assert build.run() == {"attached": True}
    assert build.status()["state"] == "failed"
    assert "was killed" in build.status()["reason"]
    assert build.status()["kind"] == "machine"


# A build: it holds the lock, and a compiler runs in a session of its own.
RUNNING = """
import fcntl, json, os, subprocess, sys, time
folder, writer = sys.argv[1:]
lock = open(folder + "/lock", "ab")
fcntl.flock(lock, fcntl.LOCK_EX)
compiler = subprocess.Popen(["sleep", "300"], start_new_session=True)
pid = {"own": os.getpid(), "other": os.getppid(), "none": None}[writer]
with open(folder + "/status.json", "w") as file:
    json.dump({"state": "running", "started": time.time(), "pid": pid}, file)
print(compiler.pid, flush=True)
time.sleep(300)
"""


@contextlib.contextmanager
def running_build(folder: Path, writer: str = "own") -> Iterator[tuple[int, int]]:
    """A build that runs in this folder: the numbers of its process and of its compiler."""
    folder.mkdir()
    command = [sys.executable, "-c", RUNNING, str(folder), writer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout
        compiler = int(builder.stdout.readline())
        try:
            yield builder.pid, compiler
        finally:
            builder.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(compiler, signal.SIGKILL)


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_preparing_ends_an_abandoned_build_with_its_compilers(build: Any, tmp_path: Path) -> None:
    with running_build(tmp_path / "old") as old, running_build(tmp_path / "wanted") as wanted:
        assert all(map(runs, (*old, *wanted)))
        build.params["abandoned"] = ["../old", "gone"]
        build.prepare()
        deadline = time.monotonic() + 5
        while any(map(runs, old)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(runs, old))
        assert all(map(runs, wanted))
    assert build.status()["state"] == "absent"


@pytest.mark.parametrize("writer", ["other", "none"])
def test_a_process_that_does_not_hold_the_lock_is_not_ended(
    build: Any, tmp_path: Path, writer: str
) -> None:
    """The number in status.json may be another process's by now; here it would be this test."""
    with running_build(tmp_path / "old", writer) as old:
        build.params["abandoned"] = ["old"]
        build.prepare()
        assert all(map(runs, old))


def test_preparing_removes_the_folders_in_which_nobody_has_built_for_a_month(
    build: Any, tmp_path: Path
) -> None:
    old, new, other, link = (tmp_path / name for name in ("0" * 32, "1" * 32, "mine", "2" * 32))
    month = time.time() - 31 * 86400
    for folder in (old, new, other):
        (folder / "work").mkdir(parents=True)
        (folder / "status.json").write_text("{}")
        if folder is not new:
            os.utime(folder / "status.json", (month, month))
    nest(old / "work", 3000)  # as a source may leave it
    link.symlink_to(other)
    with running_build(tmp_path / ("3" * 32)):
        os.utime(tmp_path / ("3" * 32) / "status.json", (month, month))
        build.prepare()
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            ".inputs", "1" * 32, "2" * 32, "3" * 32, "build", "mine"
        ]  # fmt: skip
    assert (other / "work").is_dir()


def test_only_its_owner_can_open_the_lock_of_a_build(build: Any) -> None:
    Path(build.at("lock")).touch(0o644)  # of an earlier version
    build.params["source_sha256"] = "0" * 64  # it ends at its inputs
    build.run()
    assert build.status()["state"] == "failed"
    assert os.stat(build.at("lock")).st_mode & 0o777 == 0o600


def test_a_build_that_never_wrote_a_status_failed_by_its_machine(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugin("modules.build")
    monkeypatch.setattr(module.time, "monotonic", itertools.count(0, 40).__next__)
    status = module.wait(build, poll=5)
    assert (status["state"], status["kind"]) == ("failed", "machine")


def test_a_finished_build_counts_only_with_its_wheel(build: Any) -> None:
    os.makedirs(build.at("out"))
    Path(build.at("out", "a.whl")).write_bytes(b"wheel")
    build.write_status(state="done", file="a.whl", sha256=hashlib.sha256(b"wheel").hexdigest())
    assert build.status()["state"] == "done"
    Path(build.at("out", "a.whl")).write_bytes(b"other")
    assert build.status()["state"] == "absent"


def test_preparing_forgets_a_failure(build: Any) -> None:
    build.write_status(state="failed", reason="x")
    build.prepare()
    assert build.status()["state"] == "absent"


def test_an_unreadable_status_counts_as_missing(build: Any) -> None:
    Path(build.at("status.json")).write_text("[]")
    assert build.read_status() == {}
    Path(build.at("status.json")).write_text("{")
    assert build.read_status() == {}


def test_progress_reads_steps_and_compiler_calls(build: Any) -> None:
    quoted = "   12 | int main()\n      |     ^~~~\n\n"  # by a compiler, from its source
    Path(build.log).write_text(
        "# $ python -I -c x\ngcc -O2 -c a.c\n"
        f"  [3/12] Building CXX object b.o\nlast words\n{quoted}"
    )
    progress = build.progress({"seconds": 7})
    assert progress == {
        "done": 3,
        "total": 12,
        "steps": 2,
        "seconds": 7,
        "last_line": "last words",
    }


KILLED = b"g++: fatal error: Killed signal terminated program cc1plus\n"


def compile_with(build: Any, *endings: tuple[bytes, int]) -> tuple[list[str], str]:
    """Compile where each attempt says and ends as told: the jobs of each, and the wheel."""
    seen: list[str] = []

    def call(log: Any, command: list[str], environment: dict[str, str], deadline: float) -> int:
        said, code = endings[len(seen)]
        seen.append(environment["MAX_JOBS"])
        log.write(said)
        log.flush()
        if code == 0 and not said:
            Path(build.at("out", "a-1.0-py3-none-any.whl")).write_bytes(b"")
        return code

    build.call = call
    with open(build.log, "wb") as log:
        return seen, build.compile(log, "python", {}, 0)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (KILLED, 1),
        (b"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", 1),
        (b"make: *** [Makefile:4: a.o] Killed\n", 2),
        (b"cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes\n", 1),
        (b"", -9),
        (b"", 137),
    ],
)
def test_a_killed_compiler_gets_half_the_jobs(build: Any, said: bytes, code: int) -> None:
    build.params["jobs"] = 5
    jobs, wheel = compile_with(build, (said, code), (b"", 0))
    assert jobs == ["5", "2"]
    assert wheel.endswith("a-1.0-py3-none-any.whl")
    assert "Once more with 2 jobs" in Path(build.log).read_text()


def test_a_kill_counted_by_the_kernel_halves_the_jobs(
    build_steps: ModuleType, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([7, 8, 8])  # before the first attempt, after it, before the second
    monkeypatch.setitem(build_steps.ran_out.__globals__, "kills", lambda: next(counts))
    monkeypatch.setattr(build_steps, "kills", lambda: next(counts))
    jobs, _ = compile_with(build, (b"error: command 'g++' failed with exit code 1\n", 1), (b"", 0))
    assert jobs == ["4", "2"]


@pytest.mark.parametrize(
    ("jobs", "endings", "says"),
    [
        (4, [(b"error: nothing of the kind\n", 1)], "^The build failed.$"),
        (4, [(KILLED, 1), (b"a.c:1: error\n", 1)], "^The build failed.$"),
        (4, [(KILLED, 1), (KILLED, 1)], "lack of memory, with 4 jobs and again with 2 jobs"),
        (1, [(b"", -9)], "lack of memory, with one job at a time"),
        (4, [(b"no wheel\n", 0)], "made 0 wheels"),
    ],
)
def test_failed_builds_have_a_reason(
    wheel_build: ModuleType, build: Any, jobs: int, endings: list[tuple[bytes, int]], says: str
) -> None:
    build.params["jobs"] = jobs
    with pytest.raises(wheel_build.BuildFailed, match=says):
        compile_with(build, *endings)


@pytest.mark.parametrize(
    ("cgroup", "counter", "text", "found"),
    [
        ("0::/user/one\n", "user/one/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("0::/\n", "memory.events", "oom_kill 4\n", 4),
        ("9:cpu:/\n4:memory:/pod/a\n0::/\n", "memory/memory.oom_control", "oom_kill 1\n", 1),
        ("4:cpu,memory:/a:b\n", "memory/a:b/memory.oom_control", "under_oom 0\noom_kill 9\n", 9),
        ("4:memory:/\n", "memory/memory.oom_control", "under_oom 0\n", 0),  # an older kernel
        ("nonsense\n", "memory.events", "oom_kill 4\n", 0),
        ("0::/\n", "memory.events", "oom_kill\n", 0),
    ],
)
def test_the_kernels_count_of_kills_is_read(
    memory: ModuleType, tmp_path: Path, cgroup: str, counter: str, text: str, found: int
) -> None:
    (tmp_path / "cgroup").write_text(cgroup)
    (tmp_path / "fs" / counter).parent.mkdir(parents=True)
    (tmp_path / "fs" / counter).write_text(text)
    assert memory.kills(str(tmp_path / "cgroup"), str(tmp_path / "fs")) == found
    assert memory.kills(str(tmp_path / "none"), str(tmp_path / "fs")) == 0


def test_the_environment_is_complete(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-DNOT_SEEN")
    build.params["cache"] = "ccache"
    environment = build.environment(build.at("venv", "bin", "python"))
    assert "CXXFLAGS" not in environment
    assert environment["CFLAGS"] == "-O2"
    assert environment["PATH"].startswith(f"{build.at('bin')}:{build.at('venv', 'bin')}:/usr/local")
    assert environment["CCACHE_BASEDIR"] == build.dir
    assert environment["CCACHE_COMPILERCHECK"] == "content"


def make_tar(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return info


def test_the_source_is_always_unpacked_at_the_same_path(build: Any) -> None:
    make_tar(Path(build.at("in", "a-1.0.tar.gz")), member("a-1.0/setup.py"))
    build.make_source()
    assert os.listdir(build.at("src")) == ["setup.py"]
    Path(build.at("src", "object.o")).touch()
    build.make_source()
    assert sorted(os.listdir(build.at("src"))) == ["object.o", "setup.py"]  # goes on
    build.params["environment"]["CFLAGS"] = "-O1"
    build.make_source()
    assert os.listdir(build.at("src")) == ["setup.py"]  # another build starts clean


def test_zip_archives_are_sources_too(build: Any) -> None:
    with zipfile.ZipFile(build.at("in", "a.zip"), "w") as archive:
        archive.writestr("setup.py", "")
        archive.writestr("a.c", "")
    build.params["source"] = "a.zip"
    build.make_source()
    assert sorted(os.listdir(build.at("src"))) == ["a.c", "setup.py"]


def test_a_python_that_the_builds_user_cannot_run_is_named(
    wheel_build: ModuleType, build: Any, tmp_path: Path
) -> None:
    build.params["python"] = str(tmp_path / "python3.11")
    Path(build.params["python"]).touch(mode=0o600)
    with open(build.log, "wb") as log, pytest.raises(wheel_build.BuildFailed) as caught:
        build.make_venv(log, 0)
    assert str(caught.value) == f"The build's user cannot run {tmp_path}/python3.11."
    assert (caught.value.fix, caught.value.kind) == (["python-for-all"], wheel_build.MACHINE)


@pytest.mark.parametrize("name", ["a-1.0.tar.gz", "a-1.0.tar.xz", "a-1.0.zip"])
def test_archives_are_unpacked_by_a_user_who_cannot_read_pythons_own_library(
    build: Any, name: str
) -> None:
    """As root's build without namespaces, under a Python in root's home."""
    archive = Path(build.at("in", name))
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as found:
            found.writestr("a-1.0/setup.py", "")
    else:
        with tarfile.open(archive, f"w:{archive.suffix[1:]}") as found:
            found.addfile(member("a-1.0/setup.py"), io.BytesIO(b"x"))
    code = (
        "import sys, encodings; from tests.factories.role_modules import plugin;"
        " tree = plugin('module_utils.builder.source_tree');"
        " sys.path.clear(); encodings.__path__.clear();"
        " tree.lay_source(*sys.argv[1:])"
    )
    folders = [str(archive), build.at("src")]
    subprocess.run([sys.executable, "-c", code, *folders], cwd=CHECKOUT, check=True)
    assert os.listdir(build.at("src")) == ["setup.py"]


def test_a_file_that_is_not_an_archive_is_refused(wheel_build: ModuleType, build: Any) -> None:
    with pytest.raises(wheel_build.BuildFailed, match="cannot be unpacked"):
        build.make_source()


def test_an_archive_that_is_damaged_inside_is_a_failure_with_its_reason(build: Any) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr("a/setup.py", "x = 1\n")
    damaged = whole.getvalue().replace(b"x = 1", b"x = 2")
    Path(build.at("in", "a-1.0.tar.gz")).write_bytes(damaged)
    build.params["source_sha256"] = hashlib.sha256(damaged).hexdigest()
    build.run()
    status = build.status()
    assert status["state"] == "failed"
    assert status["reason"] == "BadZipFile: Bad CRC-32 for file 'a/setup.py'"
    assert status["seconds"] >= 0


PIPS_NOISE = """\
error: command '/usr/bin/g++' failed with exit code 1
RuntimeError: Error compiling objects for extension
error: subprocess-exited-with-error
| Building wheel for torch (pyproject.toml) did not run successfully.
│ exit code: 1
╰─> See above for output.
note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed
"""


@pytest.mark.parametrize(
    "error",
    [
        "a.c:5:2: error: #error no",
        "third_party/a.cc:12:3: fatal error: x.h: No such file or directory",
        "x.cu(12): error: identifier is undefined",
        "b.obj : error LNK2019: unresolved external symbol",
        "/usr/bin/ld: a.o: undefined reference to `f'",
        "CMake Error at CMakeLists.txt:12 (message):",
        "error[E0425]: cannot find value",
        "nvcc fatal   : Unsupported gpu architecture 'compute_35'",
    ],
)
def test_the_compilers_first_errors_are_shown_without_pips_output(
    wheel_build: ModuleType, build_steps: ModuleType, tmp_path: Path, error: str
) -> None:
    log = tmp_path / "log"
    follows = "".join(f"b.cc:{number}: error: it follows from the first\n" for number in range(9))
    log.write_text(f"z.c:1: error: before\n# {build_steps.ANOTHER_ATTEMPT} with one job.\n")
    with log.open("a") as file:
        file.write(f"[1/9] g++ -Werror -c a.c\n  {error}\n{follows}{follows}{PIPS_NOISE}")
    first, *rest = wheel_build.errors_in(str(log))
    assert first == error
    assert rest == [f"b.cc:{number}: error: it follows from the first" for number in range(4)]


def test_a_long_line_of_cmake_is_cut_as_other_lines(
    wheel_build: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(f"CMake Error at {'x' * 60_000}:\n")
    (error,) = wheel_build.errors_in(str(tmp_path / "log"))
    assert len(error) == 300


def test_without_a_compiler_error_the_last_lines_are_shown(
    wheel_build: ModuleType, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    found = "-- MIOpen not found.\n  --   CXX flags : -O2 -Werror=return-type\n"
    log.write_text(f"all well\n{found}{PIPS_NOISE}")
    assert wheel_build.errors_in(str(log)) == [
        "error: command '/usr/bin/g++' failed with exit code 1",
        "RuntimeError: Error compiling objects for extension",
    ]
    assert wheel_build.errors_in(str(tmp_path / "none")) == []


BUILD_LOGS = Path(__file__).parents[1] / "data/build-logs"
REASONS = yaml.safe_load((BUILD_LOGS / "reasons.yml").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(REASONS))
def test_the_reason_of_a_broken_build_is_what_broke_it(wheel_build: ModuleType, name: str) -> None:
    """And never pip's words, such as "Preparing metadata … error"."""
    assert wheel_build.errors_in(str(BUILD_LOGS / f"{name}.txt")) == REASONS[name]


def test_output_of_an_earlier_build_is_not_the_reason(build: Any) -> None:
    build.params["requirements"] = [{"path": "gone.whl", "sha256": "0" * 64}]
    Path(build.log).write_text("a.c:1: error: of yesterday\n")
    build.run()
    assert build.status()["errors"] == []


def test_a_changed_patch_starts_from_a_clean_source(build: Any) -> None:
    make_tar(Path(build.at("in", "a-1.0.tar.gz")), member("a-1.0/setup.py"))
    build.make_source()
    Path(build.at("src", "object.o")).touch()
    text = "--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"
    build.params["patches"] = [{"name": "y.patch", "text": text}]
    build.make_source()
    assert os.listdir(build.at("src")) == ["setup.py"]
    assert Path(build.at("src", "setup.py")).read_text() == "y\n"


def test_the_toolkit_comes_first_in_path(
    build: Any, build_steps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_steps, "find_toolkit", lambda version, _: f"/opt/cuda-{version}")
    build.params.update(cuda="13.0", environment={"PATH": "/bin", "X": "@files@/x"})
    with open(build.log, "wb") as log:
        home = build.toolkit(log, "python", 0)
    environment = build.environment(build.at("venv", "bin", "python"), home)
    assert environment["CUDA_HOME"] == environment["CUDA_PATH"] == "/opt/cuda-13.0"
    assert environment["CUDACXX"] == "/opt/cuda-13.0/bin/nvcc"
    assert environment["PATH"].endswith("/venv/bin:/opt/cuda-13.0/bin:/bin")
    assert environment["X"] == build.at("files", "x")


def test_wheels_of_a_toolkit_are_unpacked_beside_the_environment(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def call(log: Any, command: list[str], environment: dict[str, str], *_: Any) -> int:
        calls.append(command)
        # A whole toolkit is unpacked there, and the /tmp of a build is small.
        assert environment["TMPDIR"] == build.at("tmp")
        assert Path(environment["TMPDIR"]).is_dir()
        if "-shared" in command:  # the libcuda.so to link to: compiled the first time, then not
            return 0 if len(calls) == 2 else 1
        home = Path(build.at("cuda", "nvidia", "cu13"))
        for name in ("bin", "include"):
            (home / name).mkdir(parents=True)
        (home / "include" / "cuda.h").write_text("CUresult CUDAAPI cuInit(unsigned int Flags);\n")
        nvcc = home / "bin" / "nvcc"
        nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        nvcc.chmod(0o755)
        return 0

    monkeypatch.setattr(build, "call", call)
    build.params.update(cuda="13.0", toolkit_wheels=[{"path": "nvcc.whl", "sha256": "0"}])
    Path(build.at("cuda", "left")).mkdir(parents=True)
    with open(build.log, "wb") as log:
        home = build.toolkit(log, "python", 0)
        assert home == build.at("cuda", "nvidia", "cu13")
        assert not Path(build.at("cuda", "left")).exists()
        assert calls[0][-3:] == ["--target", build.at("cuda"), build.at("in", "nvcc.whl")]
        assert "--no-index" in calls[0]
        assert calls[1][-1] == build.at("cuda", "nvidia", "cu13", "lib", "stubs", "cuda.c")
        with pytest.raises(Exception, match=r"libcuda\.so to link to can be compiled"):
            build.toolkit(log, "python", 0)
        monkeypatch.setattr(build, "call", lambda *_: 1)
        with pytest.raises(Exception, match="cannot be unpacked"):
            build.toolkit(log, "python", 0)
        build.params["cuda"] = ""
        assert build.toolkit(log, "python", 0) is None


def test_a_toolkit_is_unpacked_from_nvidias_archives(build: Any, tmp_path: Path) -> None:
    """Each holds a folder of its own name; together they are one toolkit. tar and gcc are real."""
    nvcc = "#!/bin/sh\necho 'Cuda compilation tools, release 12.6, V12.6.85'\n"
    archives = {
        "cuda_nvcc-linux-x86_64-12.6.85-archive": {"bin/nvcc": nvcc, "nvvm/bin/cicc": ""},
        "cuda_cudart-linux-x86_64-12.6.77-archive": {
            "include/cuda.h": "cuInit();\n",
            "lib/libcudart.so": "",
        },
    }
    os.makedirs(build.inputs, exist_ok=True)
    for name, texts in archives.items():
        for path, text in texts.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        with tarfile.open(Path(build.inputs, name + ".tar.xz"), "w:xz") as archive:
            archive.add(tmp_path / name, name)
    files = [{"path": name + ".tar.xz", "sha256": "0"} for name in archives]
    build.params.update(cuda="12.6", toolkit_wheels=files)
    with open(build.log, "wb") as log:
        home = build.toolkit(log, "python", time.time() + 60)
    assert home == build.at("cuda", "nvidia", "cu12")
    for path in ("bin/nvcc", "nvvm/bin/cicc", "include/cuda.h", "lib64/libcudart.so"):
        assert Path(home, path).is_file(), path
    assert Path(home, "lib/stubs/libcuda.so").is_file()
    Path(build.inputs, files[0]["path"]).write_bytes(b"damaged")
    with open(build.log, "wb") as log, pytest.raises(Exception, match="needs tar and xz"):
        build.toolkit(log, "python", time.time() + 60)


def test_settings_go_to_the_backend(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def call(log: Any, command: list[str], *_: Any) -> int:
        seen.extend(command)
        Path(build.at("out", "a-1.0-py3-none-any.whl")).write_bytes(b"")
        return 0

    monkeypatch.setattr(build, "call", call)
    build.params["config_settings"] = {"cmake.args": "-C@files@/init.cmake"}
    with open(build.log, "wb") as log:
        build.compile(log, "python", {}, 0)
    given = seen[seen.index("--config-settings") + 1]
    assert given == f"cmake.args=-C{build.at('files')}/init.cmake"


@pytest.mark.parametrize(
    ("code", "made"), [(0, ["a-1.0-py3-none-manylinux_2_5_x86_64.whl"]), (1, [])]
)
def test_libraries_of_the_system_are_put_into_the_wheel(
    wheel_build: ModuleType,
    build: Any,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    made: list[str],
) -> None:
    torch = Path(build.at("venv", "lib", "python3.11", "site-packages", "torch", "lib"))
    torch.mkdir(parents=True)
    (torch / "libc10.so").touch()
    os.makedirs(build.at("out"))
    wheel = Path(build.at("out", "a-1.0-py3-none-linux_x86_64.whl"))
    wheel.touch()

    def call(log: Any, command: list[str], *_: Any) -> int:
        assert command[-3:] == ["--exclude", "libc10.so", str(wheel)]
        os.makedirs(build.at("bundled"))
        for name in made:
            Path(build.at("bundled", name)).touch()
        return code

    monkeypatch.setattr(build, "call", call)
    with open(build.log, "wb") as log:
        if code:
            with pytest.raises(wheel_build.BuildFailed, match="cannot be copied into it"):
                build.bundle(log, "python", {}, str(wheel), 0)
        else:
            build.bundle(log, "python", {}, str(wheel), 0)
            assert os.listdir(build.at("out")) == made


def test_cuda_code_is_cached_as_well(build_steps: ModuleType, build: Any, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("ccache", "nvcc", "gcc", "g++"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    build.params.update(cache="ccache", cuda="13.0")
    environment = {"PATH": f"{build.at('bin')}:{tools}"}
    build_steps.make_wrappers(build.at("bin"), environment, build.params)
    assert os.readlink(build.at("bin", "nvcc")) == str(tools / "ccache")
    assert environment["PYTORCH_NVCC"] == build.at("bin", "nvcc")
    assert environment["CMAKE_CUDA_COMPILER_LAUNCHER"] == str(tools / "ccache")
    build.params.update(cuda="")
    plain = {"PATH": f"{build.at('bin')}:{tools}"}
    build_steps.make_wrappers(build.at("bin"), plain, build.params)
    assert list(plain) == ["PATH"]
