"""The build of one wheel: its folder, its environment, its steps. Standard library only."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile

from ansible.module_utils.memory import kills, ran_out
from ansible.module_utils.stamp_wheel import StampError, stamp
from ansible.module_utils.wheel_inputs import (
    BuildFailed,
    apply_patches,
    filled,
    find_toolkit,
    lay_files,
)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OTHER_COMPILERS = ("clang", "clang++", "nvcc")
COMPILERS = ("cc", "c++", "gcc", "g++", *OTHER_COMPILERS)
TOOLSET = "/opt/rh/gcc-toolset-{}/root/usr/bin/gcc"
NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native\b")
STEPS = re.compile(rb"^[ \t]*\[\s*(\d+)/(\d+)\]", re.M)
COMPILED = re.compile(rb"^[^\n]*(?:\s-c\s|Building \w+ object )", re.M)
ERROR = re.compile(r"\berror\b|\bundefined reference\b|No such file|not found|Error:", re.I)
PIPS_OWN = re.compile(
    r"subprocess-exited-with-error|error: Failed|ERROR: Failed|This error originates"
    r"|Building wheel for|did not run successfully|^\s*[×╰│─>]*\s*(?:exit code|\[end of output\])"
)


class Build:
    """A build and its folder, the same one for every run with the same key."""

    def __init__(self, params):
        self.params = params
        self.dir = os.path.abspath(params["dir"])
        self.log = self.at("build.log")

    def at(self, *names):
        """A path in the build's folder."""
        return os.path.join(self.dir, *names)

    # What is there

    def prepare(self):
        """Make the folder; forget how an earlier build failed."""
        os.makedirs(self.at("in"), exist_ok=True)
        if self.status()["state"] == "failed":
            os.unlink(self.at("status.json"))

    def status(self):
        """{state: absent|running|failed|done, …}: read from the files and the lock alone."""
        running = self.is_locked()
        status = self.read_status()
        if status.get("state") == "done" and not self.wheel_is_whole(status):
            status = {}
        if status.get("state") == "running" and not running and not self.is_locked():
            status = self.read_status()
            if status.get("state") == "running":
                status = {
                    "state": "failed",
                    "reason": "The build was ended from outside: a restart or a lack of memory.",
                    "fix": "Run again; the compiler cache has what was done.",
                }
        state = "running" if running else status.get("state", "absent")
        return dict(
            {"reason": "", "fix": "", "file": "", "sha256": "", "seconds": 0, "errors": []},
            **dict(status, state=state, progress=self.progress(status)),
        )

    def is_locked(self):
        """Does a build run in this folder?"""
        try:
            with open(self.at("lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def read_status(self):
        """What status.json says; nothing where it cannot be read."""
        try:
            with open(self.at("status.json"), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_status(self, **status):
        """Write status.json in one atomic step."""
        with open(self.at("status.json.new"), "w", encoding="utf-8") as file:
            json.dump(status, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.at("status.json.new"), self.at("status.json"))
        return status

    def wheel_is_whole(self, status):
        """Is the finished wheel still what it was?"""
        path = self.at("out", status.get("file", ""))
        return os.path.isfile(path) and sha256(path) == status.get("sha256")

    def progress(self, status):
        """How far the compiler is, by the log."""
        data = tail(self.log, 1 << 22)
        steps = STEPS.findall(data)
        lines = data[-2000:].decode("utf-8", "replace").split("\n")
        seconds = status.get("seconds") or time.time() - status.get("started", time.time())
        return {
            "done": int(steps[-1][0]) if steps else None,
            "total": int(steps[-1][1]) if steps else None,
            "steps": len(COMPILED.findall(data)),
            "seconds": round(seconds, 1),
            "last_line": next((line.strip() for line in reversed(lines) if line.strip()), "")[:200],
        }

    # Building

    def run(self):
        """Build, unless somebody does. How it ends stands in status.json."""
        os.makedirs(self.dir, exist_ok=True)
        with open(self.at("lock"), "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return {"attached": True}
            started, began = time.time(), time.monotonic()
            self.write_status(state="running", started=started)
            try:
                wheel = self.build(started + self.params["timeout"])
                ending = {"state": "done", "file": os.path.basename(wheel), "sha256": sha256(wheel)}
            except Exception as problem:
                # Any at all: archives and wheels are read here that others have made, and what is
                # not told would pass for a build that was ended from outside.
                ending = {
                    "state": "failed",
                    "reason": in_words(problem),
                    "fix": getattr(problem, "fix", ""),
                    "errors": last_errors(self.log),
                }
            return self.write_status(seconds=round(time.monotonic() - began, 1), **ending)

    def build(self, deadline):
        """The whole way from what was copied to the stamped wheel."""
        self.refuse_native()
        self.check_inputs()
        with open(self.log, "wb") as log:
            lay_files(self.params["files"], self.dir)
            self.make_source()
            python = self.make_venv(log, deadline)
            environment = self.environment(python)
            self.make_wrappers(environment)
            wheel = self.compile(log, python, environment, deadline)
            if self.params["bundle"]:
                wheel = self.bundle(log, python, environment, wheel, deadline)
        self.refuse_native_in_log()
        stamped = stamp(wheel, self.params["wheel_version"], self.at("out"), self.params["pins"])
        if stamped != wheel:
            os.unlink(wheel)
        with open(stamped + ".sha256", "w", encoding="ascii") as file:
            file.write(f"{sha256(stamped)}  {os.path.basename(stamped)}\n")
        for name in ("in", "src", "files", "venv", "bin", "home", "tmp", "bundled"):
            shutil.rmtree(self.at(name), ignore_errors=True)  # large, and done with
        return stamped

    def refuse_native(self):
        """A build belongs to its target, not to its builder."""
        for name, value in sorted(self.params["environment"].items()):
            native = NATIVE.search(str(value))
            if native:
                raise BuildFailed(
                    f"{name} has {native.group()}: made for the builder, not for the target.",
                    "Name the target's features in the recipe's environment.",
                )

    def refuse_native_in_log(self):
        """The package's own build files may ask for it, too."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            for line in log:
                native = NATIVE.search(line)
                if native and " -c " in line and self.at("tmp") not in line:
                    raise BuildFailed(
                        f"The package's own build files compile with {native.group()}.",
                        "Switch that off in the recipe: an environment variable or a patch.",
                    )

    def check_inputs(self):
        """Everything copied is what the plan says, by hash."""
        wanted = [(item["file"], item["sha256"]) for item in self.params["requirements"]]
        if self.params["source_sha256"]:
            wanted.append((self.params["source"], self.params["source_sha256"]))
        for name, expected in wanted:
            path = self.at("in", name)
            if os.path.isfile(path) and sha256(path) == expected:
                continue
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise BuildFailed(
                f"{name} is not what was planned: its sha256 is another.",
                "Run again: it is copied anew.",
            )

    def make_source(self):
        """Unpack to `src`, always the same path; kept as it is where the same build goes on."""
        source = self.at("in", self.params["source"])
        names = ("environment", "python", "config_settings", "files", "patches", "cuda")
        inputs = [tree_hash(source), *(self.params[name] for name in names)]
        mark = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()
        if self.read(self.at("src.mark")) == mark and os.path.isdir(self.at("src")):
            return
        for name in ("src", "src.new"):
            shutil.rmtree(self.at(name), ignore_errors=True)
        if os.path.isdir(source):
            shutil.copytree(source, self.at("src"), symlinks=True)
        else:
            unpack(source, self.at("src.new"))
            inside = os.listdir(self.at("src.new"))
            only = self.at("src.new", inside[0]) if len(inside) == 1 else ""
            os.rename(only if os.path.isdir(only) else self.at("src.new"), self.at("src"))
            shutil.rmtree(self.at("src.new"), ignore_errors=True)
        apply_patches(self.params["patches"], self.at("src"), PATH)
        with open(self.at("src.mark"), "w", encoding="ascii") as file:
            file.write(mark)

    @staticmethod
    def read(path):
        """A small file's text, or nothing."""
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def make_venv(self, log, deadline):
        """A fresh environment with exactly the planned build requirements."""
        python = self.at("venv", "bin", "python")
        shutil.rmtree(self.at("venv"), ignore_errors=True)
        plain = {"PATH": PATH, "HOME": self.at("home"), "LANG": "C.UTF-8"}
        code = self.call(
            log, [self.params["python"], "-I", "-m", "venv", self.at("venv")], plain, deadline
        )
        if code != 0:
            raise BuildFailed(
                "{} cannot make a virtual environment.".format(self.params["python"]),
                "Install its venv module (Debian and Ubuntu: its -venv package).",
            )
        files = [self.at("in", item["file"]) for item in self.params["requirements"]]
        if files:
            install = [*pip(python), "install", "--no-index", "--no-deps", "--no-cache-dir", *files]
            if self.call(log, install, plain, deadline) != 0:
                raise BuildFailed(
                    "The build requirements cannot be installed.",
                    "See the log; they must be wheels for this Python.",
                )
        return python

    def environment(self, python):
        """All that the build sees of its surroundings: nothing is inherited."""
        os.makedirs(self.at("tmp"), exist_ok=True)
        given = filled(self.params["environment"], self.dir)
        environment = {
            "HOME": self.at("home"),
            "TMPDIR": self.at("tmp"),
            "LANG": "C.UTF-8",
            "SOURCE_DATE_EPOCH": "315532800",  # 1980, the oldest date that a zip file knows
            "VIRTUAL_ENV": self.at("venv"),
        }
        search = [given.get("PATH", PATH)]
        if self.params["cuda"]:
            home = find_toolkit(self.params["cuda"], search[0])
            search.insert(0, os.path.join(home, "bin"))
            environment.update(CUDA_HOME=home, CUDACXX=os.path.join(home, "bin", "nvcc"))
        environment.update(given)
        environment["PATH"] = ":".join([self.at("bin"), os.path.dirname(python), *search])
        cache_dir = self.params["cache_dir"]
        if self.params["cache"] == "ccache":
            environment.update(
                CCACHE_DIR=cache_dir,
                CCACHE_BASEDIR=self.dir,
                CCACHE_NOHASHDIR="1",
                CCACHE_COMPILERCHECK="content",
            )
        elif self.params["cache"] == "sccache":
            environment["SCCACHE_DIR"] = cache_dir
        return environment

    def make_wrappers(self, environment):
        """Compilers in `bin`, first in PATH, that ask the cache: any build system finds them."""
        shutil.rmtree(self.at("bin"), ignore_errors=True)
        os.makedirs(self.at("bin"))
        search = environment["PATH"].partition(":")[2]
        cache = shutil.which(self.params["cache"], path=search)
        chosen = self.chosen_compilers(search)
        if cache is None and not chosen:  # slower without a cache, and right all the same
            return
        for name in [*COMPILERS, *self.pythons_own_compilers()]:
            gcc = "" if name in OTHER_COMPILERS else "g++" if "+" in name else "gcc"
            beside = chosen.get(gcc)
            compiler = beside or shutil.which(name, path=search)
            if compiler is None or os.path.lexists(self.at("bin", name)):
                continue
            if self.params["cache"] == "ccache" and cache and not beside:
                os.symlink(cache, self.at("bin", name))
                continue
            command = " ".join(f'"{program}"' for program in (cache, compiler) if program)
            with open(self.at("bin", name), "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec {command} "$@"\n')
            os.chmod(self.at("bin", name), 0o755)
        if cache and self.params["cuda"]:
            # CUDACXX is the toolkit's own, by which CMake finds the toolkit; torch asks CUDA_HOME.
            environment.setdefault("CMAKE_CUDA_COMPILER_LAUNCHER", cache)
            environment.setdefault("PYTORCH_NVCC", self.at("bin", "nvcc"))
        if chosen:  # its own assembler and linker, where it has them
            path = environment["PATH"].split(":")
            environment["PATH"] = ":".join([*path[:2], os.path.dirname(chosen["gcc"]), *path[2:]])

    def chosen_compilers(self, search):
        """What stands for gcc and g++ where it is not simply these: the wanted major version, or
        clang where there is no gcc."""
        major = self.params["gcc"]
        if not major:
            clang = [shutil.which(name, path=search) for name in ("clang", "clang++")]
            there = all(shutil.which(name, path=search) for name in ("gcc", "g++"))
            return {} if there or not all(clang) else dict(zip(("gcc", "g++"), clang))
        for gcc in ("gcc", f"gcc-{major}", f"gcc{major}-gcc", TOOLSET.format(major)):
            pair = [shutil.which(name, path=search) for name in (gcc, _plus(gcc))]
            if all(pair) and first_line(pair[0], "-dumpversion").split(".")[0] == major:
                return dict(zip(("gcc", "g++"), pair))
        raise BuildFailed(
            f"There is no gcc {major} with its g++ here, and this target needs one.",
            f"Install it; the role toolchain does with toolchain_gccs: ['{major}'].",
        )

    def pythons_own_compilers(self):
        """setuptools compiles with what this Python was compiled with: x86_64-linux-gnu-gcc."""
        ask = "from sysconfig import get_config_vars as v; print(*v('CC', 'CXX'), sep='\\n')"
        said = subprocess.run(
            [self.params["python"], "-I", "-c", ask],
            stdout=subprocess.PIPE,
            universal_newlines=True,
        ).stdout
        commands = [line.split()[0] for line in said.split("\n") if line]
        return [name for name in commands if "/" not in name]

    def compile(self, log, python, environment, deadline):
        """Run the package's build; once more with half the jobs where the compiler was killed."""
        shutil.rmtree(self.at("out"), ignore_errors=True)
        os.makedirs(self.at("out"))
        command = [*pip(python), "wheel", "-v", "--no-index", "--no-deps", "--no-build-isolation"]
        command += ["--no-cache-dir", "--wheel-dir", self.at("out")]
        for name, value in filled(self.params["config_settings"], self.dir).items():
            command += ["--config-settings", f"{name}={value}"]
        command += ["./src"]
        jobs = [self.params["jobs"]]
        code, starved = self.attempt(log, command, environment, jobs[0], deadline)
        if starved and jobs[0] > 1:
            jobs.append(jobs[0] // 2)
            say(log, f"Out of memory. Once more with {count(jobs[1])}; what is done is kept.")
            code, starved = self.attempt(log, command, environment, jobs[1], deadline)
        if starved:
            tried = " and again with ".join(count(number) for number in jobs)
            raise BuildFailed(
                f"The compiler was killed for lack of memory, with {tried}.",
                "Build on a node with more memory, add swap, or raise job_memory_gb in the recipe.",
            )
        if code != 0:
            raise BuildFailed("The build failed.")
        wheels = glob.glob(self.at("out", "*.whl"))
        if len(wheels) != 1:
            raise BuildFailed(f"The build made {len(wheels)} wheels, not one.")
        return wheels[0]

    def bundle(self, log, python, environment, wheel, deadline):
        """Put the system's libraries that the wheel is linked with into it."""
        command = [python, "-I", "-m", "auditwheel", "repair", "--plat", "auto"]
        # What the code asks of the CPU is the target's, and is looked at when it arrives.
        command += ["--disable-isa-ext-check", "--wheel-dir", self.at("bundled")]
        # What is in the environment comes from wheels of its own, on the nodes as it does here.
        installed = glob.glob(
            self.at("venv", "lib*", "python*", "site-packages", "**", "*.so*"), recursive=True
        )
        for name in sorted({os.path.basename(path) for path in installed}):
            command += ["--exclude", name]
        command.append(wheel)
        shutil.rmtree(self.at("bundled"), ignore_errors=True)
        code = self.call(log, command, environment, deadline)
        bundled = glob.glob(self.at("bundled", "*.whl"))
        if code != 0 or len(bundled) != 1:
            raise BuildFailed(
                "The libraries that the wheel is linked with cannot be put into it.",
                "See what auditwheel says in the log: a library that is not there, or one that "
                "is newer than the C library allows.",
            )
        os.unlink(wheel)
        return shutil.move(bundled[0], self.at("out"))

    def attempt(self, log, command, environment, jobs, deadline):
        """Run the build with so many jobs: its exit code, and whether it ran out of memory."""
        begins, killed = log.tell(), kills()
        environment.update(
            MAX_JOBS=str(jobs),
            CMAKE_BUILD_PARALLEL_LEVEL=str(jobs),
            MAKEFLAGS=f"-j{jobs}",
        )
        code = self.call(log, command, environment, deadline)
        return code, code != 0 and ran_out(code, self.log, begins, killed)

    def call(self, log, command, environment, deadline):
        """Run a command in the folder, its output into the log; its exit code."""
        os.makedirs(self.at("home"), exist_ok=True)
        say(log, "$ " + " ".join(command))
        with subprocess.Popen(
            command,
            cwd=self.dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as child:
            try:
                code = child.wait(max(0, deadline - time.time()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                raise BuildFailed(
                    "The build did not end within {} s.".format(self.params["timeout"]),
                    "Build again: the compiler cache has what was done. Or have a stronger machine "
                    "build it.",
                ) from None
        log.seek(0, os.SEEK_END)
        return code


def in_words(problem):
    """What an exception says; one that was not meant to be shown says what it is as well."""
    meant = isinstance(problem, (BuildFailed, StampError, OSError))
    return str(problem) if meant else f"{type(problem).__name__}: {problem}"


def pip(python):
    """pip without configuration, network and questions."""
    return [python, "-I", "-m", "pip", "--isolated", "--no-input", "--disable-pip-version-check"]


def count(jobs):
    """Jobs in words."""
    return "one job at a time" if jobs == 1 else f"{jobs} jobs"


def _plus(gcc):
    """gcc-11 to g++-11."""
    return "g++".join(gcc.rsplit("gcc", 1))


def first_line(*command):
    """The first line of what a command prints; nothing where it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()


def say(log, line):
    """A line of our own in the log."""
    log.write(("# " + line + "\n").encode("utf-8"))
    log.flush()


def sha256(path):
    """The hash of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()


def tree_hash(path):
    """The hash of a file, or of a folder's names and contents."""
    if os.path.isfile(path):
        return sha256(path)
    lines = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in files:
            full = os.path.join(folder, name)
            content = os.readlink(full) if os.path.islink(full) else sha256(full)
            lines.append(f"{os.path.relpath(full, path)} {content}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8")).hexdigest()


def tail(path, size):
    """The end of a file."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read()
    except OSError:
        return b""


def last_errors(log):
    """The few lines that say what went wrong: the compiler's, not pip's words about them."""
    lines = [line.strip() for line in tail(log, 1 << 18).decode("utf-8", "replace").split("\n")]
    lines = [line for line in lines if line and not PIPS_OWN.search(line)]
    errors = [line for line in lines if ERROR.search(line) and not line.startswith("# $")]
    return [line[:300] for line in (errors or lines)[-5:]]


def unpack(archive, dest):
    """Unpack an archive; nothing may land outside of `dest`."""
    os.makedirs(dest)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as found:
            found.extractall(dest)  # drops leading slashes and ".." itself
        return
    try:
        with tarfile.open(archive) as found:
            members = [check_member(member, archive) for member in found.getmembers()]
            kwargs = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            found.extractall(dest, members, **kwargs)
    except tarfile.TarError as error:
        raise BuildFailed(
            f"{os.path.basename(archive)} cannot be unpacked: {error}.",
            "Get the source again.",
        ) from error


def check_member(member, archive):
    """The member, if it is a file or folder, or a link, that stays inside."""
    names = [member.name]
    if member.issym():
        names.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        names.append(member.linkname)
    inside = not any(
        os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == ".." for name in names
    )
    if inside and (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return member
    raise BuildFailed(
        f"{os.path.basename(archive)} holds {member.name}, which would land outside of it.",
        "Do not trust this archive.",
    )
