"""Build one wheel: its process, its isolation and its result. Standard library only.

This process checks the inputs, starts the steps (build_steps.py) in a process of their own, and
takes the wheel. Only this process writes the status and the finished wheel. It trusts nothing that
the steps leave.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import stat
import sys
import time

from . import container, isolation
from .build_folder import Folder, errors_in
from .build_steps import NATIVE, PATH, Steps
from .container import CONTAINER
from .input_files import InputFiles
from .isolation import NAMESPACES, NOTHING, OWN_USER, CannotIsolate, View
from .removal import remove
from .source_tree import sha256
from .stamp_wheel import StampError
from .wheel_inputs import CODE, INPUT, KINDS, MACHINE, BuildFailed, toolkit_homes

INPUTS, LOG = "/inputs", "/build.log"  # in namespaces and in a container
WHEEL = re.compile(r"[A-Za-z0-9_.!+-]{1,200}\.whl")
MOST_SAID = 1 << 16
KEY = re.compile(r"[0-9a-f]{32}")  # the name of a build's folder
UNUSED = 30 * 86400  # seconds without a build, after which a folder is removed
GRACE = 60  # seconds after its time limit that a build has to end by itself


class Build(Steps):
    """A build with the module's parameters."""

    def prepare(self):
        """Create the folder, and the user that builds; delete the status of a failed build, and end
        builds that are not needed any more.

        Return the hashes of the files that the build needs and this node lacks.
        """
        self.refuse_foreign()
        for key in self.params["abandoned"]:
            Folder(os.path.join(os.path.dirname(self.dir), os.path.basename(key))).end()
        super().prepare()
        self.remove_unused()
        isolation.build_user(create=True)
        needs_none = self.status()["state"] in ("running", "done")
        return [] if needs_none else self.input_files().expect()

    def remove_unused(self):
        """Remove the folders in which nobody has built for long: one of torch has 20 GB."""
        folder = os.path.dirname(self.dir)
        for name in filter(KEY.fullmatch, os.listdir(folder)):
            other = Folder(os.path.join(folder, name))
            with contextlib.suppress(OSError):  # what stays costs space, and nothing else
                age = time.time() - os.lstat(other.at("status.json")).st_mtime
                old = age > UNUSED and other.dir != self.dir and not os.path.islink(other.dir)
                if old and not other.is_locked():
                    remove(other.dir)

    def input_files(self):
        """Return the wheels and the source."""
        wheels = self.params["requirements"] + self.params["toolkit_wheels"]
        wanted = [(item["path"], item["sha256"]) for item in wheels]
        source = (self.params["source"], self.params["source_sha256"])
        return InputFiles(self.dir, [*wanted, source])

    def status(self):
        """Return the status. A wheel that was built elsewhere does not count: in another image, or
        without isolation although that is required."""
        status = super().status()
        there = status["container"] == (self.params.get("container") or "")
        isolated = status["isolation"] in (NAMESPACES, CONTAINER)
        apart = isolated or self.params.get("isolation") != "required"
        if status["state"] == "done" and not (there and apart):
            status.update(state="absent", file="", sha256="", seconds=0)
        return status

    def run(self):
        """Build, unless another process builds here. The result is in status.json."""
        self.refuse_foreign()
        os.makedirs(self.dir, exist_ok=True)
        with open(self.at("lock"), "ab") as lock:
            os.fchmod(lock.fileno(), 0o600)  # whoever can open the file can hold the lock
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return {"attached": True}
            started, began = time.time(), time.monotonic()
            self.write_status(state="running", started=started, pid=os.getpid())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.log)  # an earlier build's output is not about this build
            try:
                with open(self.log, "wb") as log:
                    self.refuse_native()
                    self.check_inputs()
                    build = self.in_container if self.params["container"] else self.apart
                    name, level = build(log, started + self.params["timeout"])
                wheel = self.take(name)
                ending = {
                    "state": "done",
                    "file": name,
                    "sha256": sha256(wheel),
                    "isolation": level,
                    "container": self.params["container"],
                }
            except Exception as problem:
                # Any exception: the code reads archives and wheels of others. Without a status,
                # the build would look as if it had been killed.
                ending = {
                    "state": "failed",
                    "reason": in_words(problem),
                    "fix": list(getattr(problem, "fix", ())),
                    "kind": getattr(problem, "kind", CODE),
                    "errors": errors_in(self.log),
                }
            return self.write_status(seconds=round(time.monotonic() - began, 1), **ending)

    def refuse_foreign(self):
        """Refuse a folder of another user, who could change the status and the wheel."""
        for path in (self.dir, self.at("status.json"), self.at("out")):
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(path)
                if found.st_uid not in (0, os.geteuid()) or stat.S_ISLNK(found.st_mode):
                    raise BuildFailed(
                        f"The build folder {path} belongs to another user or is a link.",
                        ["remove-folder", self.dir],
                    )
                if not os.access(path, os.W_OK):
                    raise BuildFailed(
                        f"The build folder {path} belongs to root, of an earlier build as root.",
                        ["remove-folder-as-root", self.dir],
                    )

    def refuse_native(self):
        """Refuse flags that build for the builder's CPU instead of the target's."""
        for name, value in sorted(self.params["environment"].items()):
            native = NATIVE.search(str(value))
            if native:
                raise BuildFailed(
                    f"{name} has {native.group()}, which builds for the builder's own CPU.",
                    ["name-features"],
                )

    def check_inputs(self):
        """Check the hash of every copied file, and let the build's user read them."""
        files = self.input_files()
        for name, expected in files.wanted:
            if not files.lay(name, expected):
                raise BuildFailed(
                    f"{name} is not the planned file: its sha256 differs.",
                    ["run-to-copy-file"],
                    INPUT,
                )
        if os.geteuid() == 0:
            for folder, _folders, files in os.walk(self.at("in")):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    mode = os.lstat(path).st_mode
                    if not stat.S_ISLNK(mode):
                        more = 0o055 if mode & 0o100 else 0o044
                        os.chmod(path, stat.S_IMODE(mode) | more)

    def apart(self, log, deadline):
        """Run the steps at the best level of isolation that this node allows."""
        user = isolation.build_user(create=False)
        asked, plain = self.params["isolation"], OWN_USER if user else NOTHING
        levels = {"required": [NAMESPACES], "off": [plain]}.get(asked, [NAMESPACES, plain])
        why = ""
        for level in levels:
            self.make_folders(level, user)
            try:
                pid, said = isolation.start(
                    lambda told, level=level: self.work(told, log, level, deadline),
                    level,
                    self.view(level),
                    user,
                    log.fileno(),
                )
            except CannotIsolate as problem:
                why = str(problem)
                continue
            return self.outcome(pid, said, deadline), level
        raise BuildFailed(
            "This build must be isolated (build.isolation: required), and this node cannot: "
            f"{why}.",
            ["allow-namespaces"],
            MACHINE,
        )

    def in_container(self, _log, deadline):
        """Run the steps in the image that the plan names, as the build's user."""
        engine = container.find_engine(self.params["container"])
        user, cache = isolation.build_user(create=False), self.cache_dir(CONTAINER)
        self.make_folders(CONTAINER, user)
        container.lay_steps(self.at("steps"))
        if user is not None:
            os.chown(self.log, *user)
        mounts = {
            self.dir: (self.at("work"), True),
            INPUTS: (self.at("in"), False),
            LOG: (self.log, True),
            container.STEPS: (self.at("steps"), False),
            **({cache: (cache, True)} if cache else {}),
        }
        try:
            with container.start(
                engine, self.params, self.dir, mounts, user, deadline, self.log
            ) as child:
                return self.outcome(child.pid, os.dup(child.stdout.fileno()), deadline), CONTAINER
        finally:
            container.remove(engine, self.dir)
            if user is not None:
                os.chown(self.log, 0, 0)

    def work(self, told, log, level, deadline):
        """Run the steps in this process, and tell how they ended. Return the exit code."""
        log.write(f"# Isolation: {level}, as user {os.geteuid()}\n".encode("ascii"))
        log.flush()
        os.umask(0o022)
        self.params["cache_dir"] = self.cache_dir(level)
        if level in (NAMESPACES, CONTAINER):
            self.inputs, self.log = INPUTS, LOG
        else:
            self.dir = self.at("work")
            self.elsewhere = (self.dir,)
        try:
            answer = {"wheel": self.build(log, deadline)}
        except Exception as problem:  # any: see run()
            answer = {
                "reason": in_words(problem),
                "fix": list(getattr(problem, "fix", ())),
                "kind": getattr(problem, "kind", CODE),
            }
        os.write(told, json.dumps(answer).encode("ascii")[:MOST_SAID])
        return 0

    def outcome(self, pid, said, deadline):
        """Wait until the steps have ended; return the wheel's name, or raise what they say."""
        text = b""
        with os.fdopen(said, "rb", buffering=0) as pipe:
            while len(text) < MOST_SAID:
                left = max(0, deadline + GRACE - time.time())
                part = pipe.read(MOST_SAID) if select.select([pipe], [], [], left)[0] else b""
                if not part:
                    break
                text += part
        if time.time() > deadline + GRACE or len(text) >= MOST_SAID:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        try:
            answer = json.loads(text.decode("utf-8", "replace"))
            name, reason, kind = (str(answer.get(key, "")) for key in ("wheel", "reason", "kind"))
            fix = [str(word)[:2000] for word in answer.get("fix", ())][:5]
        except (ValueError, AttributeError, TypeError, RecursionError):
            name, reason = "", "The build was killed, by a restart or for lack of memory."
            fix, kind = ["run-with-cache"], MACHINE
            if self.params["container"] and os.WEXITSTATUS(status) in container.NOT_STARTED:
                reason = "The container did not start: {}".format(
                    " ".join(errors_in(self.log)[-1:])
                )
                fix = ["try-image"]
                kind = INPUT
        if WHEEL.fullmatch(name):
            return name
        kind = kind if kind in KINDS else CODE
        raise BuildFailed(reason[:2000] or "The build named no wheel.", fix, kind)

    def take(self, name):
        """Copy the wheel out of the working folder, without following a link; return its path."""
        shutil.rmtree(self.at("out"), ignore_errors=True)
        os.makedirs(self.at("out"))
        taken = self.at("out", name)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        folder = os.open(self.at("work", "out"), flags | os.O_DIRECTORY)
        try:
            with open(os.open(name, flags, dir_fd=folder), "rb") as found, open(
                taken, "wb"
            ) as file:
                about = os.fstat(found.fileno())
                owner = os.lstat(self.at("work")).st_uid
                if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
                    raise BuildFailed(f"{name} is not a file that the build made.")
                shutil.copyfileobj(found, file, 1 << 20)
        finally:
            os.close(folder)
        with open(taken + ".sha256", "w", encoding="ascii") as file:
            file.write(f"{sha256(taken)}  {name}\n")
        for folder in ("in", "incoming", "work", "steps"):
            with contextlib.suppress(OSError):
                remove(self.at(folder))  # large, and done with
        return taken

    # The folders of a build

    def make_folders(self, level, user):
        """Make the folders that the build may write to, and give them to its user."""
        work, cache = self.at("work"), self.cache_dir(level)
        for path in filter(None, (work, cache)):
            os.makedirs(path, exist_ok=True)
            if user is not None and os.lstat(path).st_uid != user[0]:
                give(path, user)
        if user is not None and level not in (
            NAMESPACES,
            CONTAINER,
        ):  # which need no path to them from outside
            for path in (self.dir, os.path.dirname(cache)):
                os.chmod(path or self.dir, 0o755)

    def cache_dir(self, level):
        """Return the compiler cache of this package's builds at this level of isolation.

        What one package's build writes there, another's never compiles with. Empty without a cache.
        """
        if self.params["cache"] == "none":
            return ""
        package = re.sub(r"[^a-z0-9]+", "-", self.params["package"].lower()).strip("-")
        return os.path.join(os.path.abspath(self.params["cache_dir"]), level, package or "unnamed")

    def view(self, level):
        """Return what the build sees in namespaces, besides the system."""
        cache = self.cache_dir(level)
        readable = {INPUTS: self.at("in"), LOG: self.log}
        readable.update({path: path for path in self.programs()})
        writable = {self.dir: self.at("work"), **({cache: cache} if cache else {})}
        around = [os.path.dirname(path) for path in (self.dir, os.path.dirname(cache)) if path]
        return View(readable, writable, [path for path in around if in_system(path)])

    def programs(self):
        """Yield folders with programs outside of the system's: Pythons, toolkits, PATH."""
        search = str(self.params["environment"].get("PATH", PATH))
        files = [sys.executable or PATH, self.params["python"]]
        bins = [os.path.dirname(each) for path in files for each in (path, os.path.realpath(path))]
        prefixes = [sys.prefix, sys.base_prefix, *map(os.path.dirname, bins)]
        bins += [os.path.abspath(path) for path in search.split(":") if os.path.isabs(path)]
        prefixes += [os.path.dirname(path) for path in bins if os.path.basename(path) == "bin"]
        if self.params["cuda"] and not self.params["toolkit_wheels"]:
            prefixes += map(os.path.realpath, toolkit_homes(self.params["cuda"], search))
        for path in dict.fromkeys((*prefixes, *bins)):
            around = (self.dir, os.path.expanduser("~"), "/")
            mine = any(each == path or each.startswith(path.rstrip("/") + "/") for each in around)
            if not mine and os.path.isdir(path) and not in_system(path + "/"):
                yield path


def in_system(path):
    """Return whether a path is in a folder of the system, which every build sees."""
    return path.startswith(isolation.INSIDE_SYSTEM)


def give(path, user):
    """Give a folder with all that is in it to a user. No process of that user runs in there."""
    os.chown(path, *user)
    for _path, folders, files, descriptor in os.fwalk(path):
        for name in folders + files:
            os.chown(name, *user, dir_fd=descriptor, follow_symlinks=False)


def in_words(problem):
    """Return an exception's message, with the class of an unexpected one."""
    meant = isinstance(problem, (BuildFailed, StampError, OSError))
    return str(problem) if meant else f"{type(problem).__name__}: {problem}"
