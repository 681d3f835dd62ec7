"""Code of a package in the sandbox, as root and as a user starts it, while the host is watched."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.plan.resolve import sandbox

ROOT = Path(__file__).parents[2]
ATTACK = Path(__file__).with_name("sandbox_attack.py")
SECRET = "canary-5b1e"
USER = 41234  # nobody is
CONTROLLER = """
import sys
from fleetbuild.plan.resolve import sandbox
told = sandbox.run_confined([str(sandbox.PYTHON), "-I", "-c", *sys.argv[2:4]], {})
sys.stdout.write(told)
"""
BUILDER = """
import os, sys
sys.path.insert(0, "plugins/module_utils")
from builder import isolation

def work(_told):
    os.execv(sys.argv[4], [sys.argv[4], "-I", "-c", *sys.argv[2:4]])

view = isolation.View({}, {sys.argv[1]: sys.argv[1]})
user = isolation.NOBODY if os.geteuid() == 0 else None
if user:
    os.chown(sys.argv[1], *user)
pid, _ = isolation.start(work, isolation.NAMESPACES, view, user, 1, 2)
sys.exit(isolation.ending(os.waitpid(pid, 0)[1]))
"""
# Without the kernel's leave to make namespaces of users, as on Ubuntu 24.04 or in many containers.
FORBIDDEN = """
import sys
sys.path.insert(0, "plugins/module_utils")
from builder import isolation
isolation._prctl(isolation.NO_NEW_PRIVS, 1)
assert isolation.refuse() == ""
"""


def run_as(user: int, code: str, *words: str) -> str:
    if user and not all(each.stat().st_mode & 0o001 for each in ROOT.parents):
        pytest.skip(f"needs a checkout that other users reach, and not {ROOT}")
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *words],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, umask=0o077,
        user=user or None, group=user or None, extra_groups=[] if user else None,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that each user of this machine reaches."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def host(place: Path) -> Iterator[dict[str, Any]]:
    """What an attack may not reach: files of others, sockets, processes, shared memory.

    Each is open to every user of the machine, so that the sandbox alone is in between.
    """
    files = place / "host"
    files.mkdir()
    files.chmod(0o777)
    for name, owner in {
        "of-root": 0,
        "of-a-user": USER,
        "of-nobody": 65534,
        "of-another": 4321,
    }.items():
        path = files / name
        path.write_text(SECRET)
        path.chmod(0o666)
        if os.geteuid() == 0:
            os.chown(path, owner, owner)
    disk = next((each for each in Path("/dev").iterdir() if each.is_block_device()), None)
    number = disk.stat().st_rdev if disk else os.makedev(7, 0)
    named, abstract = str(files / "socket"), f"fleetbuild-{os.getpid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x5B1E0000 + os.getpid() % 65536
    shm = libc.shmget(key, 4096, 0o1666)
    with (
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as by_name,
        socket.socket(socket.AF_UNIX) as by_abstract,
    ):
        by_name.bind(named)
        Path(named).chmod(0o777)
        by_abstract.bind("\0" + abstract)
        by_name.listen()
        by_abstract.listen()
        yield {
            "files": [str(path) for path in files.iterdir()],
            "secret": SECRET,
            "disk": [os.major(number), os.minor(number)],
            "port": port.getsockname()[1],
            "named": named,
            "abstract": abstract,
            "shm": key,
            "most": 1024,
        }
    libc.shmctl(shm, 0, None)


def settings() -> dict[str, str]:
    """The kernel's settings that root can write."""
    found = {}
    for folder, _, names in os.walk("/proc/sys"):
        for path in (Path(folder, name) for name in names if name != "ns_last_pid"):
            try:
                if path.stat().st_mode & 0o222:
                    found[str(path)] = path.read_text()
            except (OSError, UnicodeDecodeError):
                continue
    return found


def machine() -> dict[str, object]:
    """What of this machine nothing but an attack changes while the test runs."""
    others = ("/var/lib/containers", "/run/", "/tmp/", "/proc/sys/fs/binfmt_misc")
    mounts = [line.split()[3:6] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "mounts": sorted(map(str, (row for row in mounts if not row[1].startswith(others)))),
        "devices": {
            str(path): (path.lstat().st_mode, path.lstat().st_rdev)
            for path in Path("/dev").iterdir()
            if path.name not in ("shm", "pts", "mqueue", "net")
        },
        "modules": sorted(path.name for path in Path("/sys/module").iterdir()),
        "name": socket.gethostname(),
        "clock": round((time.time() - time.monotonic()) / 5),
        "swap": Path("/proc/swaps").read_text(),
    }


@pytest.fixture
def victim(
    host: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user that the attack runs as, with a secret in its environment."""
    user = {"root": 65534, "user": USER}[request.param]
    demoted: dict[str, Any] = {"user": user, "group": user} if os.geteuid() == 0 else {}
    process = subprocess.Popen(["/bin/sleep", "300"], env={"SECRET": SECRET}, **demoted)
    host["pid"] = process.pid
    yield process
    process.kill()
    process.wait()


def attack(who: str, host: dict[str, Any], place: Path, code: str) -> list[str]:
    """Return what an attack reached that root or a user starts by this code."""
    if os.geteuid() != 0 and who == "root":
        pytest.skip("needs root")
    user = USER if os.geteuid() == 0 and who == "user" else 0
    folder = place / "build"
    folder.mkdir()
    os.chown(folder, user or -1, user or -1)
    host["most"] = 1024 if code == CONTROLLER else None
    told = run_as(
        user, code, str(folder), ATTACK.read_text(), json.dumps(host), str(sandbox.PYTHON)
    )
    *reached, tried = told.splitlines()
    assert int(tried.removeprefix("tried: ")) > 50, told
    assert all(line.startswith("reached: ") for line in reached), told
    return reached


@pytest.mark.parametrize("code", [CONTROLLER, BUILDER], ids=["controller", "builder"])
@pytest.mark.parametrize(
    ("who", "victim"), [("root", "root"), ("user", "user")], indirect=["victim"]
)
def test_the_worst_that_code_can_do_in_the_sandbox_changes_nothing_of_the_host(
    host: dict[str, Any], place: Path, victim: subprocess.Popen[bytes], who: str, code: str
) -> None:
    score = Path(f"/proc/{victim.pid}/oom_score_adj")
    values, before, adjusted = settings(), machine(), score.read_text()
    files = {path: Path(path).stat() for path in host["files"]}
    assert attack(who, host, place, code) == []
    later = settings()
    both = values.keys() & later.keys()
    assert {name: later[name] for name in both if values[name] != later[name]} == {}
    assert machine() == before
    assert {path: Path(path).stat()[:9] for path in files} == {
        path: about[:9] for path, about in files.items()
    }
    assert (victim.poll(), score.read_text()) == (None, adjusted)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a user without other processes")
@pytest.mark.parametrize("victim", ["user"], indirect=True)
def test_without_the_sandbox_the_same_code_reaches_much(
    host: dict[str, Any], place: Path, victim: subprocess.Popen[bytes]
) -> None:
    code = "import os, sys; os.execv(sys.argv[4], [sys.argv[4], '-I', '-c', *sys.argv[2:4]])"
    names = {line.split(": ")[1] for line in attack("user", host, place, code)}
    assert names >= {
        "identity", "kernel files", "secrets", "environments", "signals", "loopback",
        "abstract socket", "named socket", "unshare user", "clone", "clone3", "keys", "keyctl",
        "add_key", "shared memory", "ptrace",
    }  # fmt: skip
    assert victim.wait(5) < 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_needs_no_namespaces_of_users_and_a_refusal_names_them_to_a_user() -> None:
    ask = "from fleetbuild.plan.resolve import sandbox; print(sandbox.why_unavailable())"
    assert run_as(0, FORBIDDEN + ask) == "None\n"
    assert run_as(USER, FORBIDDEN + ask) == (
        "this machine does not allow one: user namespaces are not allowed:"
        " unshare: Operation not permitted\n"
    )
