"""Runs inside the sandbox and tries to change or read the machine. Needs nothing but Python.

In: a JSON document with what the test laid out on the host. Out: a line "reached: …" for each
attack that did something, and "tried: N".
"""

import contextlib
import ctypes
import ctypes.util
import errno
import json
import os
import resource
import shutil
import signal
import socket
import sys

HOST = json.loads(sys.argv[1])
X86 = os.uname().machine == "x86_64"
LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER = 0x20000, 0x10000000
NEWS = {"mnt": NEWNS, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}


def call(name, *words):
    """Call the C library; return whether it succeeded."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    number = getattr(LIBC, name)(*words)
    if number < 0:
        raise OSError(ctypes.get_errno(), name)
    return True


def in_child(attack):
    """Return whether an attack that may end or change its process succeeds."""
    child = os.fork()
    if child == 0:
        done = 1
        with contextlib.suppress(OSError, ValueError):
            done = 0 if attack() else 1
        os._exit(done)
    return os.waitpid(child, 0)[1] == 0


def clone_user():
    """Make a child in a namespace of users, by the older call."""
    child = LIBC.syscall(*map(ctypes.c_long, (56 if X86 else 220, NEWUSER | 17, 0, 0, 0, 0)))
    if child == 0:
        os._exit(0)
    return child > 0


def clone3_user():
    """Make one by the call whose flags lie in memory."""
    words = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, 17)
    child = LIBC.syscall(ctypes.c_long(435), words, ctypes.c_long(88))
    if child == 0:
        os._exit(0)
    return child > 0


def kernel_files():
    """Return the files of the kernel that can be opened for writing."""
    found = []
    for top in ("/proc", "/sys", "/dev"):
        for folder, _, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in names):
                harmless = ("null", "zero", "full", "random", "urandom", "tty", "keys")
                memory = path.startswith(("/dev/shm/", "/dev/fd"))
                if os.path.islink(path) or memory or os.path.basename(path) in harmless:
                    continue
                with contextlib.suppress(OSError):
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    found.append(path)
    return found


def writable_system():
    """Return folders of the system in which a file can be made."""
    found = []
    for path in ("/", "/usr", "/usr/bin", "/etc", "/lib", "/proc", "/dev", "/sys", "/opt", "/env"):
        with contextlib.suppress(OSError):
            os.close(os.open(path + "/written", os.O_WRONLY | os.O_CREAT))
            found.append(path)
    return found


def read(path):
    """Return a file's bytes."""
    with open(path, "rb") as file:
        return file.read(1 << 16)


def secrets():
    """Return files of the host that can be read, by any path."""
    paths = [*HOST["files"], "/etc/shadow", "/root", "/home", "/run", "/var/lib"]
    numbers = [each for each in os.listdir("/proc") if each.isdigit()]
    paths += [f"/proc/{number}/root{path}" for number in numbers for path in HOST["files"]]
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            if os.listdir(path) if os.path.isdir(path) else read(path):
                found.append(path)
    return found


def environments():
    """Return the processes whose environment has the secret of the host."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if HOST["secret"].encode() in read(f"/proc/{number}/environ"):
                found.append(number)
    return found


def kill_all():
    """End each process of the host that this one's user may end."""
    with contextlib.suppress(OSError):
        os.kill(HOST["pid"], signal.SIGKILL)
    for process in range(2, 70000):
        if process not in (os.getpid(), os.getppid()):
            with contextlib.suppress(OSError):
                os.kill(process, 0)
                return process > 20 and process
    return False


def namespaces_of_others():
    """Enter the namespaces of another process."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        for kind in (*NEWS, "user"):
            with contextlib.suppress(OSError), open(f"/proc/{number}/ns/{kind}") as file:
                if in_child(lambda file=file: call("setns", file.fileno(), 0)):
                    return f"{number} {kind}"
    return False


def connect(family, address):
    """Connect to a socket of the host."""
    with socket.socket(family) as made:
        made.settimeout(2)
        made.connect(address)
    return True


def open_socket(family, kind, protocol=0):
    """Open a socket that reaches the kernel or another machine."""
    socket.socket(family, kind, protocol).close()
    return True


def device():
    """Make and open a disk's device file."""
    path = os.path.join(os.getcwd(), "disk")
    os.mknod(path, 0o60666, os.makedev(*HOST["disk"]))
    return read(path) or True


def set_user_id():
    """Make a program that runs as its owner, and return whether that is root."""
    shutil.copy(os.path.realpath(sys.executable), "program")
    os.chmod("program", 0o6755)
    return os.stat("program").st_uid == 0


def too_many():
    """Return how many processes there can be; False if not more than the limit."""
    if HOST["most"] is None:
        return False
    read_end, write_end = os.pipe()
    children = 0
    while children < HOST["most"] + 100:
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        children += 1
    os.close(write_end)
    for _ in range(children):
        os.wait()
    return children > HOST["most"] and children


def too_large():
    """Return the writable folders in memory that have no size."""
    found = []
    for path in ("/scratch", "/tmp", "/var/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            about = os.statvfs(path)
            if not 0 < about.f_blocks * about.f_frsize <= 2 << 30:
                found.append(path)
    return found


def raise_limits():
    """Raise the limits of this process, or of what it may use of the processor."""
    found = []
    for name in ("NPROC", "FSIZE", "DATA", "CORE"):
        limit = getattr(resource, "RLIMIT_" + name)
        if HOST["most"] is not None and resource.getrlimit(limit)[1] == resource.RLIM_INFINITY:
            found.append(name)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        found.append("nice")
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        found.append("real time")
    return found


def identity():
    """Return what of root this process has, or can get."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    caps = [
        key for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[key], 16)
    ]
    ids = [key for key in ("Uid", "Gid") if "0" in status[key].split()]
    with open("/proc/self/uid_map") as file:
        # Outside of a namespace of users the map is all; within it, root is not in it.
        maps = [line.split() for line in file]
    ids += ["map" for row in maps if row[1] == "0" and row[2] != "4294967295"]
    locked = [] if status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" else ["no filter"]
    return caps + ids + locked


def shared_memory():
    """Find shared memory of the host by its key."""
    return call("shmget", HOST["shm"], 0, 0)


def by_number(number, *words):
    """Return whether a call succeeds that the C library has no function for."""
    ctypes.set_errno(0)
    words = [word if not isinstance(word, int) else ctypes.c_long(word) for word in words]
    return LIBC.syscall(ctypes.c_long(number), *words) >= 0


NOTHING = ctypes.c_void_p(None)
LOADED = errno.ENOEXEC


def load_module():
    """Load a module into the kernel: with the right, an empty one is refused for its content."""
    ctypes.set_errno(0)
    LIBC.syscall(ctypes.c_long(175 if X86 else 105), NOTHING, ctypes.c_long(0), b"")
    return ctypes.get_errno() in (0, LOADED, errno.EFAULT)


ATTACKS = {
    "identity": identity,
    "kernel files": kernel_files,
    "system folders": writable_system,
    "secrets": secrets,
    "environments": environments,
    "namespaces of others": namespaces_of_others,
    "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", HOST["port"])),
    "abstract socket": lambda: connect(socket.AF_UNIX, "\0" + HOST["abstract"]),
    "named socket": lambda: connect(socket.AF_UNIX, HOST["named"]),
    "vsock": lambda: open_socket(40, socket.SOCK_STREAM),
    "packet": lambda: open_socket(17, socket.SOCK_RAW),
    "raw": lambda: open_socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "uid": lambda: in_child(lambda: os.setuid(0) or True),
    "gid": lambda: in_child(lambda: os.setgid(0) or True),
    "groups": lambda: in_child(lambda: os.setgroups([0]) or True),
    "chroot": lambda: in_child(lambda: os.chroot(".") or True),
    **{
        f"unshare {kind}": (lambda flag=flag: in_child(lambda: call("unshare", flag)))
        for kind, flag in {**NEWS, "user": NEWUSER, "user and mnt": NEWUSER | NEWNS}.items()
    },
    "clone": clone_user,
    "clone3": clone3_user,
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "mount proc": lambda: call("mount", b"proc", b"/proc", b"proc", 0, None),
    "remount": lambda: call("mount", None, b"/usr", None, 32 | 4096, None),
    "remount /proc": lambda: call("mount", None, b"/proc", None, 32 | 4096, None),
    "umount": lambda: call("umount2", b"/proc", 2),
    "umount keys": lambda: call("umount2", b"/proc/keys", 2),
    "pivot_root": lambda: call("syscall", 155 if X86 else 41, b".", b"."),
    "open_tree": lambda: by_number(428, -100, b"/usr", 1),
    "fsopen": lambda: by_number(430, b"tmpfs", 0),
    "mount_setattr": lambda: by_number(442, -100, b"/usr", 0, (ctypes.c_uint64 * 4)(0, 1), 32),
    "io_uring": lambda: by_number(425, 1, ctypes.create_string_buffer(120)),
    "bpf": lambda: by_number(321 if X86 else 280, 5, ctypes.create_string_buffer(128), 48),
    "add_key": lambda: by_number(248 if X86 else 217, b"user", b"x", b"y", 1, -4),
    "request_key": lambda: by_number(249 if X86 else 218, b"user", b"x", None, -4),
    "keyctl": lambda: by_number(250 if X86 else 219, 0, -4, 0),
    "keys": lambda: read("/proc/keys"),
    "module": load_module,
    "hostname": lambda: socket.sethostname("evil") or True,
    "clock": lambda: call("settimeofday", (ctypes.c_long * 2)(0, 0), None),
    "swap": lambda: call("swapon", b"/tmp", 0),
    "acct": lambda: call("acct", b"/tmp/acct"),
    "log of the kernel": lambda: call("klogctl", 5, None, 0),
    "handle": lambda: call("open_by_handle_at", -100, ctypes.create_string_buffer(16), 0),
    "ptrace": lambda: call("ptrace", 16, HOST["pid"], None, None),
    "memory of others": lambda: open(f"/proc/{HOST['pid']}/mem", "rb"),
    "shared memory": shared_memory,
    "device": device,
    "set-user-id": set_user_id,
    "size": too_large,
    "limits": raise_limits,
    "processes": too_many,
    "signals": kill_all,
}


def main():
    """Try each attack."""
    tried = 0
    for name, attack in ATTACKS.items():
        tried += 1
        try:
            reached = attack()
        except (OSError, ValueError, AttributeError):
            continue
        if reached:
            sys.stdout.write(f"reached: {name}: {str(reached)[:300]}\n")
    sys.stdout.write(f"tried: {tried}\n")


main()
