"""A large file to many nodes on slow links: star, scp, clush, libtorrent.

python -m benchmarks.distribution [--nodes 16] [--megabytes 100] [--mbit 100] [--ways star …]
    [--python PATH]

Controller and nodes are network namespaces of this machine, each with an sshd, behind one bridge.
tc limits each link in both directions. They share the CPU; files are in memory. `--python` is an
interpreter with the package libtorrent. Needs root, sshd, tc with tbf, and clush for its rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.probe import HERE, SCRIPTS, say

PORT = 47100
NETWORK = "10.97.0"
CONTROLLER = "fbd-0"
ENTER = ("ip", "netns", "exec")
SSHD = """\
ListenAddress {address}
HostKey {folder}/id
AuthorizedKeysFile {folder}/id.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
MaxStartups 100
Subsystem sftp internal-sftp
"""


@dataclass
class Fleet:
    """The nodes, and how the controller reaches them. On each, its own folder is at `there`."""

    folder: Path
    nodes: int
    size: int
    sshds: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The file to send."""
        return self.folder / "file"

    @property
    def there(self) -> Path:
        """Where the file is to be on a node."""
        return self.folder / "node/part/file"

    @property
    def names(self) -> list[str]:
        """The nodes' names, for ssh."""
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    def received(self, name: str) -> Path:
        """Return where a node's file is for this program."""
        return self.folder / name / "part/file"

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start a program on the controller."""
        line = [*ENTER, CONTROLLER, *map(str, words)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *words: str | Path) -> None:
        """Run a program on the controller to its end."""
        end(self.start(*words))

    def start_sshds(self) -> None:
        """Empty the nodes' folders, and start an sshd on each."""
        for number, name in enumerate(self.names, 1):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            self.received(name).parent.mkdir(parents=True)
            bind = f"mount --bind {self.folder}/{name} {self.folder}/node"
            sshd = f"exec {shutil.which('sshd')} -D -f {self.folder}/sshd-{name}"
            line = [*ENTER, f"fbd-{number}", "sh", "-c", f"{bind} && {sshd}"]
            self.sshds.append(subprocess.Popen(line, stderr=subprocess.DEVNULL))
        for name in self.names:
            while self.start("ssh", "-F", self.folder / "ssh_config", name, "true").wait() != 0:
                if any(sshd.poll() is not None for sshd in self.sshds):
                    raise SystemExit("An sshd ended at its start.")
                time.sleep(0.1)

    def stop_sshds(self) -> None:
        """Stop them, so that the CPU of their sessions is counted."""
        time.sleep(2)
        for sshd in self.sshds:
            sshd.terminate()
        for sshd in self.sshds:
            sshd.wait()
        self.sshds.clear()


def end(running: subprocess.Popen[bytes]) -> None:
    """Wait for a program; stop if it failed."""
    said, _ = running.communicate()
    if running.returncode != 0:
        raise SystemExit(f"{running.args!r}:\n{said.decode()[-4000:]}")


class Peer:
    """A process of a distribution among nodes, on the controller or on a node by ssh."""

    def __init__(self, fleet: Fleet, node: str | None, words: Sequence[str], spec: object) -> None:
        shell = ("ssh", "-F", str(fleet.folder / "ssh_config"), node) if node else ()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*ENTER, CONTROLLER, *shell, *words], stdin=pipe, stdout=pipe, text=True
        )
        self.say(json.dumps(spec))

    def say(self, line: str = "") -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None  # noqa: S101
        if not (line := self._process.stdout.readline()):
            raise SystemExit("A peer ended before the file was there.")
        return line.strip()

    def end(self) -> None:
        """Close its standard input, which ends it."""
        self._process.communicate()


@contextmanager
def peers(
    fleet: Fleet, program: str, python: str, specs: Sequence[object]
) -> Iterator[tuple[list[Peer], list[int]]]:
    """Start a program on the controller and each node; yield them and their process ids."""
    path = fleet.folder / program
    shutil.copy(HERE / "benchmarks" / program, path)
    words = [python, "-I", str(path)]
    started = [
        Peer(fleet, node, words, spec)
        for node, spec in zip([None, *fleet.names], specs, strict=True)
    ]
    pids = [int(peer.hear()) for peer in started]
    for peer in started:
        peer.say()
    yield started, pids
    for peer in started:
        peer.end()


def star(fleet: Fleet, _: str) -> None:
    """Send it by the module `transfer`, from the controller to all nodes at once."""
    link = fleet.folder / "play/collections/ansible_collections/fleetbuild/core"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(HERE)
    book, hosts = fleet.folder / "play/book.yml", fleet.folder / "play/hosts.json"
    files = [{"path": str(fleet.file), "sha256": "part", "file": "file"}]
    task = {"folder": str(fleet.folder / "node"), "files": files}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"fleetbuild.core.transfer": task}]}
    book.write_text(json.dumps([play]))
    arguments = {
        "ansible_ssh_common_args": f"-F {fleet.folder}/ssh_config",
        # As fleetbuild, without compression. No session outlasts the run, so its CPU is counted.
        "ansible_ssh_args": "-o ControlMaster=no",
        "ansible_python_interpreter": sys.executable,
    }
    nodes = dict.fromkeys(fleet.names, arguments)
    hosts.write_text(json.dumps({"all": {"hosts": nodes}}))
    fleet.run(SCRIPTS / "ansible-playbook", "-i", hosts, "--forks", "25", book)


def scp(fleet: Fleet, _: str) -> None:
    """Send it by scp, node by node."""
    options = ("-q", "-F", fleet.folder / "ssh_config")
    for name in fleet.names:
        fleet.run("scp", *options, fleet.file, f"{name}:{fleet.there}")


def clush(fleet: Fleet, _: str) -> None:
    """Send it by one clush to all nodes at once."""
    options = ("-q", "-f", "64", "-o", f"-F {fleet.folder}/ssh_config")
    fleet.run(
        "clush", *options, "-w", ",".join(fleet.names), "--copy", fleet.file, "--dest", fleet.there
    )


def clush_tree(fleet: Fleet, _: str) -> None:
    """Send it by clush over the first four nodes, which reach the others by the same key."""
    gateways = min(4, fleet.nodes // 2)
    topology = fleet.folder / "topology.conf"
    topology.write_text(
        f"[routes]\ncontroller: n[1-{gateways}]\nn[1-{gateways}]: n[{gateways + 1}-{fleet.nodes}]\n"
    )
    options = ("-q", "-f", "64", "-o", f"-F {fleet.folder}/ssh_config", "--topology", topology)
    where = ("--copy", fleet.file, "--dest", fleet.there)
    line: list[str | Path] = ["clush", *options, "-w", ",".join(fleet.names), *where]
    python = "CLUSTERSHELL_GW_PYTHON_EXECUTABLE=/usr/bin/python3"  # Debian's, which has the package
    shell = f'hostname controller && {python} exec "$@"'
    fleet.run("unshare", "-u", "sh", "-c", shell, "sh", *line)


def torrent(fleet: Fleet, python: str) -> None:
    """Send it by libtorrent, to peers that are named to each other."""
    about = fleet.folder / "file.torrent"
    fleet.run(python, "-I", HERE / "benchmarks/torrent.py", fleet.file, about)
    specs = [{
        "port": PORT, "torrent": str(about), "address": address(number),
        "folder": str(fleet.there.parent if number else fleet.folder),
        "peers": [(address(n), PORT) for n in range(number)],
    } for number in range(fleet.nodes + 1)]  # fmt: skip
    with peers(fleet, "torrent.py", python, specs) as (links, _):
        for link in links:
            link.hear()


Way = Callable[[Fleet, str], None]
WAYS: dict[str, tuple[str, Way]] = {
    "star": ("fleetbuild's `transfer`, from the controller to all nodes at once", star),
    "scp": ("scp, node by node", scp),
    "clush": ("clush --copy, all nodes at once", clush),
    "clush-tree": ("clush --copy, tree of four gateways with keys", clush_tree),
    "libtorrent": ("libtorrent, already on the nodes", torrent),
}


def main() -> None:
    """Measure each way and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distribution")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    if not shutil.which("sshd"):
        raise SystemExit("sshd is missing. Fix: apt-get install openssh-server")
    link, load = given.megabytes * 8 / given.mbit, os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="fleetbuild-bench-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "node").mkdir()
        fleet = Fleet(folder, given.nodes, given.megabytes * 10**6)
        fleet.file.write_bytes(os.urandom(fleet.size))
        stack.callback(fleet.stop_sshds)
        connect(fleet, given.mbit, stack)
        rows = [measure(fleet, name, given.python, link) for name in given.ways]
    say(f"{given.megabytes} MB, {given.nodes} nodes, {given.mbit} Mbit/s, load before {load:.1f}\n")
    say("| way | wall clock, s | links' times | CPU of the controller, s | CPU of all, s |")
    say("|---|--:|--:|--:|--:|")
    say("\n".join(rows))


def measure(fleet: Fleet, name: str, python: str, link: float) -> str:
    """Send the file in one way, compare what arrived, and return a row of the table."""
    title, send = WAYS[name]
    fleet.start_sshds()
    before, began = os.times(), time.monotonic()
    send(fleet, python)
    wall, controller = time.monotonic() - began, os.times()
    fleet.stop_sshds()
    spent = [
        times.children_user + times.children_system - before.children_user - before.children_system
        for times in (controller, os.times())
    ]
    wanted = sha256(fleet.file)
    if wrong := [n for n in fleet.names if sha256(fleet.received(n)) != wanted]:
        raise SystemExit(f"{title}: another file on {wrong}")
    row = f"| {title} | {wall:.1f} | {wall / link:.1f} | {spent[0]:.1f} | {spent[1]:.1f} |"
    say(row)
    return row


def sha256(path: Path) -> str:
    """Return the file's hash."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def address(number: int) -> str:
    """Return the address of a node; number 0 is the controller."""
    return f"{NETWORK}.{number + 1}"


def connect(fleet: Fleet, mbit: int, stack: ExitStack) -> None:
    """Make the namespaces and links, and the keys and settings of ssh."""

    def run(line: str) -> None:
        subprocess.run(line.split(), check=True)

    def namespace(name: str) -> None:
        run(f"ip netns add {name}")
        stack.callback(run, f"ip netns del {name}")
        run(f"ip -n {name} link set lo up")

    Path("/run/sshd").mkdir(exist_ok=True)
    key = fleet.folder / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    namespace("fbd-hub")
    run("ip -n fbd-hub link add br0 type bridge")
    run("ip -n fbd-hub link set br0 up")
    hosts = ""
    for number in range(fleet.nodes + 1):
        own, outer = f"fbd-{number}", f"v{number}"
        namespace(own)
        run(f"ip -n fbd-hub link add {outer} type veth peer name eth0 netns {own}")
        run(f"ip -n fbd-hub link set {outer} master br0 up")
        run(f"ip -n {own} addr add {address(number)}/24 dev eth0")
        run(f"ip -n {own} link set eth0 up")
        for where, device in (("fbd-hub", outer), (own, "eth0")):
            limit = f"root tbf rate {mbit}mbit burst 256kb latency 100ms"
            run(f"tc -n {where} qdisc add dev {device} {limit}")
        sshd = SSHD.format(address=address(number), folder=fleet.folder)
        (fleet.folder / f"sshd-n{number}").write_text(sshd)
        hosts += f"Host n{number}\n  HostName {address(number)}\n"
    (fleet.folder / "ssh_config").write_text(
        f"{hosts}Host *\n  User root\n  IdentityFile {key}\n  StrictHostKeyChecking no\n"
        "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )


if __name__ == "__main__":
    main()
