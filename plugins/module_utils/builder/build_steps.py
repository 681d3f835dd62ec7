"""The steps of a build, from its inputs to the stamped wheel. Standard library only.

They run the package's own code, so they run in a process of their own: see wheel_build.py.
"""

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

from .build_folder import ANOTHER_ATTEMPT, Folder
from .compilers import chosen_compilers, count_reused, make_wrappers
from .memory import kills, ran_out
from .own_pip import pip_wheel
from .source_tree import lay_source, text_of
from .stamp_wheel import stamp
from .wheel_inputs import (
    MACHINE,
    BuildFailed,
    apply_patches,
    filled,
    find_toolkit,
    lay_files,
    lay_toolkit,
    write_driver_stub,
)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REUSED = "From the compiler cache:"
NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native\b")
UNPACK = (
    "import sys, sysconfig, zipfile;"
    " zipfile.ZipFile(sys.argv[1]).extractall(sysconfig.get_path('purelib'))"
)


def by_name(params):
    """Return the options with names of files in place of their paths on the controller."""
    wheels = {
        name: [dict(item, path=os.path.basename(item["path"])) for item in params[name]]
        for name in ("requirements", "toolkit_wheels")
    }
    source = os.path.basename(params["source"])
    return dict(params, source=source, package=params["package"] or source, **wheels)


class Steps(Folder):
    """A build's steps, in its working folder. `inputs` is the folder of the copied files."""

    def __init__(self, params):
        super().__init__(params["dir"])
        self.params = by_name(params)
        self.inputs = self.at("in")
        self.elsewhere = ()  # the working folder, if it is not at its usual path

    def build(self, log, deadline):
        """Run all steps; return the name of the stamped wheel in `out`."""
        lay_files(self.params["files"], self.dir)
        self.make_source()
        python = self.make_venv(log, deadline)
        environment = self.environment(python, self.toolkit(log, python, deadline))
        make_wrappers(self.at("bin"), environment, self.params)
        wheel = self.compile(log, python, environment, deadline)
        if self.params["bundle"]:
            wheel = self.bundle(log, python, environment, wheel, deadline)
        self.refuse_native_in_log()
        stamped = stamp(wheel, self.params["wheel_version"], self.at("out"), self.params["pins"])
        if stamped != wheel:
            os.unlink(wheel)
        return os.path.basename(stamped)

    def refuse_native_in_log(self):
        """Refuse such flags in the package's own build files too."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            for line in log:
                native = NATIVE.search(line)
                if native and " -c " in line and self.at("tmp") not in line:
                    raise BuildFailed(
                        f"The package's own build files compile with {native.group()}.",
                        ["switch-off"],
                    )

    def make_source(self):
        """Unpack to `src`, always the same path; keep it if the same build continues."""
        source = os.path.join(self.inputs, self.params["source"])
        names = ("source_sha256", "environment", "python", "config_settings", "files", "patches")
        names += ("cuda", *(("container",) if self.params["container"] else ()))
        inputs = [*(self.params[name] for name in names), *self.elsewhere]
        mark = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()
        if text_of(self.at("src.mark")) == mark and os.path.isdir(self.at("src")):
            return
        lay_source(source, self.at("src"))
        apply_patches(self.params["patches"], self.at("src"), PATH)
        with open(self.at("src.mark"), "w", encoding="ascii") as file:
            file.write(mark)

    def make_venv(self, log, deadline):
        """Create a fresh environment with exactly the planned build requirements."""
        python = self.at("venv", "bin", "python")
        if not os.access(self.params["python"], os.X_OK):
            raise BuildFailed(
                "The build's user cannot run {}.".format(self.params["python"]),
                ["python-for-all"],
                MACHINE,
            )
        shutil.rmtree(self.at("venv"), ignore_errors=True)
        plain = self.plain_environment()
        # To have ensurepip install its pip takes seconds; to unpack it does not.
        wheel = pip_wheel(self.params["python"])
        command = [self.params["python"], "-I", "-m", "venv", *(["--without-pip"] if wheel else [])]
        code = self.call(log, [*command, self.at("venv")], plain, deadline)
        if wheel and code == 0:
            code = self.call(log, [python, "-I", "-c", UNPACK, wheel], plain, deadline)
        if code != 0:
            raise BuildFailed(
                "{} cannot make a virtual environment.".format(self.params["python"]),
                ["install-own-venv"],
            )
        files = [os.path.join(self.inputs, item["path"]) for item in self.params["requirements"]]
        if files and self.call(log, [*unpack(python), *files], plain, deadline) != 0:
            raise BuildFailed(
                "The build requirements cannot be installed.",
                ["see-log-wheels"],
            )
        return python

    def toolkit(self, log, python, deadline):
        """Return the folder of the CUDA toolkit, made of wheels or found; None without CUDA."""
        if not self.params["cuda"]:
            return None
        if not self.params["toolkit_wheels"]:
            return find_toolkit(self.params["cuda"], self.params["environment"].get("PATH", PATH))
        target = self.at("cuda")
        shutil.rmtree(target, ignore_errors=True)
        files = [os.path.join(self.inputs, item["path"]) for item in self.params["toolkit_wheels"]]
        commands, needs = [[*unpack(python), "--target", target, *files]], ""
        if not files[0].endswith(".whl"):  # NVIDIA's archives: each has one folder with the files
            home = os.path.join(target, "nvidia", "cu" + self.params["cuda"].split(".", 1)[0])
            os.makedirs(home)
            place = ["tar", "--extract", "--no-same-owner", "--strip-components=1"]
            place += ["--directory", home, "--file"]
            commands, needs = [[*place, file] for file in files], " It needs tar and xz there."
        for command in commands:
            if self.call(log, command, self.plain_environment(), deadline) != 0:
                raise BuildFailed("The CUDA toolkit cannot be unpacked." + needs, ["see-log"])
        home = lay_toolkit(self.params["cuda"], target)
        search = filled(self.params["environment"], self.dir).get("PATH", PATH)
        compiler = chosen_compilers(self.params["gcc"], search).get("gcc", "gcc")
        stub = [compiler, *write_driver_stub(home)]
        if self.call(log, stub, {**self.plain_environment(), "PATH": search}, deadline) != 0:
            raise BuildFailed("No libcuda.so to link to can be compiled.", ["see-log"])
        return home

    def plain_environment(self):
        """Return the environment for Python and pip: nothing is inherited."""
        os.makedirs(self.at("tmp"), exist_ok=True)
        # pip unpacks a whole CUDA toolkit in TMPDIR; /tmp is in memory, and small.
        return {"PATH": PATH, "HOME": self.at("home"), "TMPDIR": self.at("tmp"), "LANG": "C.UTF-8"}

    def environment(self, python, cuda_home=None):
        """Return the environment of the package's own build."""
        given = filled(self.params["environment"], self.dir)
        environment = {
            **self.plain_environment(),
            "SOURCE_DATE_EPOCH": "315532800",  # 1980, the oldest date that a zip file knows
            "VIRTUAL_ENV": self.at("venv"),
        }
        search = [given.get("PATH", PATH)]
        if cuda_home:
            search.insert(0, os.path.join(cuda_home, "bin"))
            # CUDA_PATH is for CMake, which would else start from the compiler cache's nvcc.
            environment.update(CUDA_HOME=cuda_home, CUDA_PATH=cuda_home)
            environment["CUDACXX"] = os.path.join(cuda_home, "bin", "nvcc")
        environment.update(given)
        environment["PATH"] = ":".join([self.at("bin"), os.path.dirname(python), *search])
        cache_dir = self.params["cache_dir"]
        if self.params["cache"] == "ccache":
            environment.update(
                CCACHE_DIR=cache_dir,
                CCACHE_BASEDIR=self.dir,
                CCACHE_NOHASHDIR="1",
                CCACHE_COMPILERCHECK="content",
                CCACHE_STATSLOG=self.at("ccache.stats"),
            )
        elif self.params["cache"] == "sccache":
            environment["SCCACHE_DIR"] = cache_dir
        return environment

    def compile(self, log, python, environment, deadline):
        """Run the package's build; if a compiler was killed, run it again with half the jobs."""
        shutil.rmtree(self.at("out"), ignore_errors=True)
        os.makedirs(self.at("out"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at("ccache.stats"))
        command = [*pip(python), "wheel", "-v", "--no-index", "--no-deps", "--no-build-isolation"]
        command += ["--no-cache-dir", "--wheel-dir", self.at("out")]
        for name, value in filled(self.params["config_settings"], self.dir).items():
            command += ["--config-settings", f"{name}={value}"]
        command += ["./src"]
        jobs = [self.params["jobs"]]
        code, starved = self.attempt(log, command, environment, jobs[0], deadline)
        if starved and jobs[0] > 1:
            jobs.append(jobs[0] // 2)
            say(log, f"{ANOTHER_ATTEMPT} with {count(jobs[1])}; finished work is kept.")
            code, starved = self.attempt(log, command, environment, jobs[1], deadline)
        if starved:
            tried = " and again with ".join(count(number) for number in jobs)
            raise BuildFailed(
                f"The compiler was killed for lack of memory, with {tried}.",
                ["build-with-memory"],
                MACHINE,
            )
        if code != 0:
            raise BuildFailed("The build failed.")
        reused, compiled = count_reused(self.params, environment)
        if reused:
            say(log, f"{REUSED} {reused} of {reused + compiled} files.")
        wheels = glob.glob(self.at("out", "*.whl"))
        if len(wheels) != 1:
            raise BuildFailed(f"The build made {len(wheels)} wheels, not one.")
        return wheels[0]

    def bundle(self, log, python, environment, wheel, deadline):
        """Copy the system libraries that the wheel is linked with into it."""
        command = [python, "-I", "-m", "auditwheel", "repair", "--plat", "auto"]
        # The audit on the controller checks the CPU features that their code uses.
        command += ["--disable-isa-ext-check", "--wheel-dir", self.at("bundled")]
        # Libraries in the environment come from other wheels, which the nodes install too.
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
                "The libraries that the wheel is linked with cannot be copied into it.",
                ["read-auditwheel"],
            )
        os.unlink(wheel)
        return shutil.move(bundled[0], self.at("out"))

    def attempt(self, log, command, environment, jobs, deadline):
        """Run the build with this number of jobs; return (exit code, whether memory ran out)."""
        begins, killed = log.tell(), kills()
        environment.update(
            MAX_JOBS=str(jobs),
            CMAKE_BUILD_PARALLEL_LEVEL=str(jobs),
            MAKEFLAGS=f"-j{jobs}",
        )
        code = self.call(log, command, environment, deadline)
        return code, code != 0 and ran_out(code, self.log, begins, killed)

    def call(self, log, command, environment, deadline):
        """Run a command in the folder, with its output in the log; return its exit code."""
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
                    ["build-on-stronger"],
                ) from None
        log.seek(0, os.SEEK_END)
        return code


def pip(python):
    """Return a pip command without configuration, network and questions."""
    return [python, "-I", "-m", "pip", "--isolated", "--no-input", "--disable-pip-version-check"]


def unpack(python):
    """Return a command that installs exactly the wheels that are added to it."""
    # A build imports a small part of what it requires: Python compiles this part when it is used.
    return [*pip(python), "install", "--no-index", "--no-deps", "--no-cache-dir", "--no-compile"]


def count(jobs):
    """Return a number of jobs in words."""
    return "one job at a time" if jobs == 1 else f"{jobs} jobs"


def say(log, line):
    """Write a line of fleetbuild's own into the log."""
    log.write(("# " + line + "\n").encode("utf-8"))
    log.flush()
