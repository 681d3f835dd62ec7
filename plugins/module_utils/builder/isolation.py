"""Run code of a package in a process of its own that reaches nothing but its folders.

In: what the process may read and write, and the user to run as. Out: the child. It asks the kernel
for namespaces and needs no program. Nodes build in it; the controller runs in it what it may not
run as its user. Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess

from .refused_calls import refuse

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

# How a build is kept apart, the best first.
NAMESPACES, OWN_USER, NOTHING = "namespaces", "user", "none"

USER, NOBODY = "fleetbuild-build", (65534, 65534)
ADD_USER = (
    ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
     "--shell", "/usr/sbin/nologin", USER],
    ["adduser", "-S", "-D", "-H", "-h", "/nonexistent", "-s", "/sbin/nologin", USER],  # Alpine
)  # fmt: skip

# The system's programs, libraries and settings. All else is invisible, unless a build names it.
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/sys",
)
INSIDE_SYSTEM = tuple(path + "/" for path in SYSTEM)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# In memory, and small: TMPDIR is in the build's folder, on a disk.
SCRATCH = dict.fromkeys(("/tmp", "/var/tmp", "/dev/shm"), 512)  # MiB  # noqa: S108 (its own)

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = (
    1, 2, 4, 8, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
KEPT = {
    "nosuid": NOSUID, "nodev": NODEV, "noexec": NOEXEC, "noatime": 1024, "nodiratime": 2048,
    "relatime": 1 << 21,
}  # fmt: skip
STRICTATIME = 1 << 24
HIDDEN = (errno.EINVAL, errno.ENOENT, errno.EACCES)
DETACH = 2  # of umount2
PDEATHSIG, DUMPABLE, CAPBSET_DROP, NO_NEW_PRIVS = 1, 4, 24, 38  # of prctl
CAPABILITIES_3 = 0x20080522
LOOPBACK_UP = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
SIOCSIFFLAGS = 0x8914


class CannotIsolate(Exception):
    """This node does not let this process make namespaces; the text says why."""


class View:
    """What a process sees, each as {path inside: path here}, besides the paths in `system`.

    It starts in the first folder that it can write to. `hidden` folders are empty, but for what
    lies in them by name; `memory` folders, as {path inside: MiB}, begin empty and end with it.
    """

    def __init__(self, readable, writable, hidden=(), memory=None, system=SYSTEM):
        self.readable, self.writable, self.hidden = readable, writable, hidden
        self.memory, self.system = memory or {}, system


def start(work, level, view, user, *kept):
    """Start `work` in a child at this level; return (pid, the end of a pipe that it writes to).

    `user` is (uid, gid) of the user to become, if this process is root; `kept` are the descriptors
    of files that stay open. Raise CannotIsolate if the level cannot be reached.
    """
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        _keep_open(told, *kept)
        os._exit(_child(work, level, view, user, told))
    os.close(told)
    first = os.read(ready, 1)
    if first == b"+":
        return pid, ready
    with os.fdopen(ready, "rb") as rest:
        why = rest.read(2000).decode("utf-8", "replace")
    os.waitpid(pid, 0)
    raise CannotIsolate(why or "the process ended at once")


def _keep_open(*kept):
    """Close all other files: a build must not reach its parent's lock and output through them."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2}.difference(kept):
        os.dup2(null, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _child(work, level, view, user, told):
    """Run in the child: go to the level, tell that it is reached, work. Return the exit code."""
    try:
        os.setsid()
        os.umask(0o022)  # the user that it becomes must pass through folders made here
        die_with(os.getppid())
        if level == NAMESPACES:
            return _in_namespaces(work, view, user, told)
        _become(user)
        _prctl(NO_NEW_PRIVS, 1)
        refuse()  # where the kernel can: namespaces and users hold without it
        os.write(told, b"+")
        return work(told)
    except Exception as problem:  # any: nothing of the parent's may run in here
        os.write(told, f"-{problem}".encode("utf-8", "replace"))
        return 1


def _in_namespaces(work, view, user, told):
    if ctypes is None:
        raise CannotIsolate("its Python has no ctypes")
    spaces = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
    alone = user is None
    if user is not None:
        try:
            _call("unshare", spaces)
        except OSError:  # root of a container
            _become(user)
            _prctl(DUMPABLE, 1)  # its files in /proc are its own again
            alone = True
    if alone:
        _new_user_namespace(spaces)
    inside = os.fork()
    if inside:  # outside of the new process namespace, which ends with its first process
        return ending(os.waitpid(inside, 0)[1])
    die_with(None)
    show_only(view, alone)
    for wish in (lambda: socket.sethostname("localhost"), _loopback):
        with contextlib.suppress(OSError):  # some containers forbid it
            wish()
    _give_up_capabilities(None if alone else user)
    _prctl(NO_NEW_PRIVS, 1)
    refuse()
    worker = os.fork()
    if worker == 0:
        os.write(told, b"+")
        os._exit(work(told))
    os.close(told)
    while True:  # the first process is the parent of all that lost theirs
        ended, status = os.wait()
        if ended == worker:
            return ending(status)


def _new_user_namespace(spaces):
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", NEWUSER | spaces)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    except OSError as problem:
        raise CannotIsolate(f"user namespaces are not allowed: {problem.strerror}") from problem


def show_only(view, alone):
    """Make a root of its own with nothing but the system, read-only, and the view's folders."""
    sources = dict.fromkeys(view.hidden)
    for inside, path in [*view.readable.items(), *view.writable.items()]:
        sources[inside] = os.path.realpath(path)
    top = [path for path in view.system if os.path.lexists(path)]
    links = {path: os.readlink(path) for path in top if os.path.islink(path)}
    sources.update({path: path for path in top if path not in links})
    _mount("none", "/", None, REC | PRIVATE)
    base = "/tmp"  # noqa: S108 (a folder that every system has; nothing is written to it)
    _mount("tmpfs", base, "tmpfs", NOSUID | NODEV)
    for name in ("old", "new"):
        os.mkdir(os.path.join(base, name))
    _call("pivot_root", os.fsencode(base), os.fsencode(os.path.join(base, "old")))
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", NOSUID | NODEV, "mode=0755")
    for path, leads_to in links.items():
        os.symlink(leads_to, "/new" + path)
    _devices()
    _processes(alone)
    memory = {**SCRATCH, **view.memory}
    for inside, size in memory.items():
        os.makedirs("/new" + inside)
        _mount("tmpfs", "/new" + inside, "tmpfs", NOSUID | NODEV, f"size={size}m,mode=1777")
    for inside in sorted(sources):  # a folder before its content
        if sources[inside]:
            _bind("/old" + sources[inside], "/new" + inside)
        elif os.path.isdir("/new" + inside):
            _mount("tmpfs", "/new" + inside, "tmpfs", NOSUID | NODEV)
    os.chdir("/new")
    _call("pivot_root", b".", b".")  # the old root is now on top of the new one
    _call("umount2", b".", DETACH)
    os.chdir("/")
    stays = {**dict.fromkeys(memory, True), **dict.fromkeys(sources, False)}
    _make_read_only({**stays, **dict.fromkeys(view.writable, True)})
    os.chdir(next(iter([*view.writable, *view.memory])))


def _bind(source, target):
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644))
    _mount(source, target, None, BIND | REC)


def _devices():
    os.mkdir("/new/dev")
    for name in DEVICES:
        if os.path.exists("/old/dev/" + name):
            _bind("/old/dev/" + name, "/new/dev/" + name)
    os.symlink("/proc/self/fd", "/new/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", "/new/dev/" + name)


def _processes(alone):
    """Mount /proc of the own processes; in a container that may not, the container's.

    There a user namespace keeps a build from other processes. Without one, it would not.
    """
    os.mkdir("/new/proc")
    try:
        _mount("proc", "/new/proc", "proc", NOSUID | NODEV | NOEXEC)
    except OSError as problem:
        if not alone:
            raise CannotIsolate(f"/proc cannot be mounted: {problem.strerror}") from problem
        _bind("/old/proc", "/new/proc")
    if os.path.exists("/new/proc/keys"):  # it lists the names of tickets
        _mount("/old/dev/null", "/new/proc/keys", None, BIND)


def _make_read_only(writable):
    """Make every mount read-only. `writable` says for each of ours whether it stays as it is."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split(" ")[4:6] for line in file]
    for written, told in mounts:
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), written)
        ours = [each for each in writable if path == each or path.startswith(each + "/")]
        if ours and writable[max(ours, key=len)]:
            continue
        options = told.split(",")
        flags = sum(KEPT.get(option, 0) for option in options)
        if not flags & (KEPT["noatime"] | KEPT["relatime"]):
            flags |= STRICTATIME
        try:
            _mount("none", path, None, REMOUNT | BIND | RDONLY | flags)
        except OSError as problem:
            # A mount below another one that hides it cannot be reached by its path.
            if "ro" not in options and problem.errno not in HIDDEN:
                raise


def _loopback():
    """Some builds talk to themselves, such as sccache. Other hosts are out of reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, LOOPBACK_UP)


def build_user(create):
    """Return (uid, gid) of the user that builds where this process is root, else None.

    With `create`, make it if the system has none. A system that takes no users has nobody.
    """
    if os.geteuid() != 0:
        return None
    commands = [command for command in ADD_USER if create and shutil.which(command[0])]
    for command in [None, *commands]:
        if command:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(USER)
            return (found.pw_uid, found.pw_gid) if found.pw_uid else NOBODY
    return NOBODY


def _become(user):
    if user is not None:
        parent = os.getppid()
        os.setgroups([])
        os.setgid(user[1])
        os.setuid(user[0])
        die_with(parent)  # the kernel forgets it with the user


def _give_up_capabilities(user):
    for number in range(64):
        if ctypes.CDLL(None).prctl(CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # the last capability of this kernel
    _become(user)
    header = struct.pack("Ii", CAPABILITIES_3, 0)
    _call("capset", header, bytes(24))


def die_with(parent):
    """End this process when its parent ends, even by SIGKILL."""
    _prctl(PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def ending(status):
    """Return an exit code for a wait status, as a shell does."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _prctl(option, value):
    if ctypes is not None:
        _call("prctl", option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def _mount(source, target, kind, flags, options=None):
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), os.fsencode(options) if options else None)


def _call(name, *arguments):
    """Call a function of the C library; raise OSError if it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
