"""Labs: brought up in parallel, found again by name, and taken down without a trace."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab import captures, emulation, files, image
from tests.lab.emulation import CPUS
from tests.lab.fleet import Fleet, NodeSpec, default_fleet, load_fleet, parse_fleet, require_cpu
from tests.lab.podman import LabError, as_root, podman, require, ulimits

FOLDER = Path(os.environ.get("FLEETBUILD_LAB_DIR") or Path(__file__).parents[2] / ".lab").resolve()
_START_SECONDS = 60
_SUBNETS = int(IPv4Address("10.200.0.0")), int(IPv4Address("10.250.0.0"))


@dataclass(frozen=True)
class LabNode:
    name: str
    address: str
    capture: Path | None
    spec: NodeSpec

    @property
    def gateway(self) -> str:
        """The address that this machine has in the lab's network."""
        return str(IPv4Network(f"{self.address}/24", strict=False)[1])


class Lab:
    """A named lab; `fleet` is a fleet file, its content, or None for the default fleet."""

    def __init__(
        self,
        name: str = "default",
        fleet: Path | Mapping[str, Any] | None = None,
        *,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.folder = FOLDER / name
        self.nodes: dict[str, LabNode] = {}
        self._asked = fleet
        self._say = say
        # Checkouts may share a machine and their labs a name.
        self._id = "fb" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> Self:
        """Start every node and wait for its sshd; a lab that is up already is taken as it is."""
        began = time.monotonic()
        require()
        fleet = self._fleet()
        require_cpu(fleet)
        systems = {node.system for node in fleet.nodes.values()}
        for arch in sorted({CPUS[node.cpu].arch for node in fleet.nodes.values() if node.cpu}):
            if reason := emulation.why_not(arch):
                raise LabError(f"The lab cannot start nodes with another CPU: {reason}.")
        tags = {system: image.ensure(self._say, system) for system in sorted(systems)}
        stamp = hashlib.sha256(repr((fleet, tags)).encode()).hexdigest()
        if self._state().get("stamp") == stamp and len(self._containers()) == len(fleet.nodes):
            self._find(fleet)
            _in_parallel(self.start, self.nodes)
        else:
            self.down()
            self._say(f"starting {len(fleet.nodes)} nodes")
            try:
                self._create(fleet, tags, stamp)
            except BaseException:
                self.down()
                raise
        self._say(f"{len(fleet.nodes)} nodes answer ssh after {time.monotonic() - began:.1f} s")
        return self

    def down(self) -> None:
        # A mount namespace that is created at this moment holds a container's mounts for a while.
        for last in (False, False, False, True):
            if leftover := self._containers():
                podman("rm", "--force", "--volumes", "--time", "0", *leftover, check=last)
            if not self._containers():
                break
            time.sleep(1)
        if podman("network", "exists", self._id, check=False).returncode == 0:
            podman("network", "rm", "--force", self._id)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.nodes = {}

    def stop(self, node: str) -> None:
        podman("stop", "--time", "0", self._container(node))
        # As if it had been off for long: else the kernel goes on asking its last MAC address.
        subprocess.run(
            as_root(["ip", "neigh", "flush", "to", self.nodes[node].address]),
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )

    def start(self, node: str) -> None:
        podman("start", self._container(node))
        self._reach(self.nodes[node].gateway)
        self._wait(self.nodes[node])

    @contextmanager
    def silent(self, node: str, *, link: bool = False) -> Iterator[None]:
        """A node that stands still, or whose packets are dropped, until the end of the block."""
        drops = [["INPUT", "-s"], ["OUTPUT", "-d"]] if link else []
        rules = [[*drop, self.nodes[node].address, "-j", "DROP"] for drop in drops]
        if not link:
            self._pause(node)
        for rule in rules:
            self._iptables("-I", rule)
        try:
            yield
        finally:
            if not link:
                podman("unpause", self._container(node))
            for rule in rules:
                self._iptables("-D", rule)

    def exec(
        self, node: str, command: str, *, user: str = "root", check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run shell on a node, past ssh."""
        arguments = ("exec", "--user", user, self._container(node), "sh", "-c", command)
        return podman(*arguments, check=check)

    def attach(self) -> Self:
        """Take the lab of this name as it stands, for looking at it."""
        if not self.inventory.exists():
            raise LabError(f"no lab named {self.name} is up here. Fix: python -m tests.lab up")
        state = self._state()
        for name, said in state["nodes"].items():
            capture = Path(said["capture"]) if said["capture"] else None
            self.nodes[name] = LabNode(name, said["address"], capture, NodeSpec(name=name))
        return self

    def running(self) -> set[str]:
        """The names of the nodes that run."""
        up = podman("ps", "--filter", f"label=fleetbuild.lab={self._id}", "--format", "{{.Names}}")
        return {name.removeprefix(f"{self._id}-") for name in up.stdout.split()}

    def _fleet(self) -> Fleet:
        if isinstance(self._asked, Path):
            return load_fleet(self._asked)
        return parse_fleet(self._asked if self._asked is not None else default_fleet())

    def _create(self, fleet: Fleet, tags: Mapping[image.System, str], stamp: str) -> None:
        self.folder.mkdir(parents=True)
        subnet = self._network()
        hosts = subnet.hosts()
        next(hosts)  # this machine's
        for name, node in fleet.nodes.items():
            self.nodes[name] = LabNode(name, str(next(hosts)), node.capture, node)
        _keygen(self.key, "fleetbuild-lab")
        addresses = {node.name: node.address for node in self.nodes.values()}
        _in_parallel(lambda name: self._run(self.nodes[name], tags), self.nodes)
        self._reach(self.nodes[next(iter(self.nodes))].gateway)
        known = [
            f"{node.address},{node.name} {_public(self._scratch(node.name) / 'ssh/host_key')}\n"
            for node in self.nodes.values()
        ]
        self.known_hosts.write_text("".join(known))
        self.inventory.write_text(files.inventory(fleet, addresses, self.folder))
        self.ssh_config.write_text(files.ssh_config(fleet, addresses, self.folder))
        told = {
            node.name: {"address": node.address, "capture": node.capture and str(node.capture)}
            for node in self.nodes.values()
        }
        state = json.dumps({"stamp": stamp, "nodes": told}, indent=2)
        _in_parallel(lambda name: self._wait(self.nodes[name]), self.nodes)
        (self.folder / "lab.json").write_text(state + "\n")

    def _network(self) -> IPv4Network:
        """An internal network: its nodes have no gateway, so no way to any package index."""
        taken = _routed()
        refused = ""
        for _ in range(50):
            subnet = IPv4Network((random.randrange(*_SUBNETS, 256), 24))  # noqa: S311
            if any(subnet.overlaps(other) for other in taken):
                continue
            options = ("--internal", "--disable-dns", "--subnet", str(subnet))
            made = podman("network", "create", *options, self._id, check=False)
            if made.returncode == 0:
                return subnet
            refused = made.stderr.strip()
        raise LabError(f"podman gives the lab no network: {refused or 'no free subnet'}")

    def _run(self, node: LabNode, tags: Mapping[image.System, str]) -> None:
        spec, scratch = node.spec, self._scratch(node.name)
        ssh = scratch / "ssh"
        (ssh / "keys").mkdir(parents=True)
        _keygen(ssh / "host_key", node.name)
        for user in ("fleet", "root", *(user.name for user in spec.users if user.key)):
            shutil.copy(self.key.with_suffix(".pub"), ssh / "keys" / user)
        (ssh / "setup").write_text(files.node_setup(spec, gateway=node.gateway))
        volumes = [f"{ssh}:/etc/ssh/node:ro", *spec.volumes]
        volumes += captures.mounts(node.capture, gpu=spec.gpu, scratch=scratch)
        options = [f"--volume={volume}" for volume in volumes]
        if spec.memory is not None:
            options += ["--memory", spec.memory, "--memory-swap", spec.memory]
        if spec.behind is not None:
            options += ["--cap-add", "NET_ADMIN"]
        if not spec.namespaces:
            options += [
                "--security-opt",
                f"seccomp={Path(__file__).parent}/programs/no-namespaces.json",
            ]
        if spec.containers:  # of its own, in a volume: their storage cannot lie on an overlay
            options += ["--privileged", "--volume", "/var/lib/containers"]
        command = [tags[spec.system]]
        if spec.cpu is not None:
            options += emulation.container_options(CPUS[spec.cpu], scratch)
            command += emulation.FIRST
            (ssh / "host_key").chmod(0o644)  # its owner is nobody in there
        podman(
            *("run", "--detach", "--name", self._container(node.name), "--hostname", node.name),
            *("--label", f"fleetbuild.lab={self._id}"),
            *("--network", self._id, "--ip", node.address),
            *("--security-opt", "mask=/proc/driver/nvidia"),
            *(*ulimits(), *options, *command),
            cwd=scratch,  # conmon leaves a file there when a node runs out of memory
        )

    def _reach(self, gateway: str) -> None:
        """An address for this machine on the lab's bridge: netavark gives internal ones none."""
        shown = podman("network", "inspect", "--format", "{{.NetworkInterface}}", self._id)
        command = ["ip", "address", "replace", f"{gateway}/24", "dev", shown.stdout.strip()]
        subprocess.run(as_root(command), check=True, stdin=subprocess.DEVNULL)

    def _pause(self, node: str) -> None:
        for attempt in range(5):  # on a busy machine the freezer does not catch all at once
            done = podman("pause", self._container(node), check=attempt == 4)
            if done.returncode == 0:
                return

    def _iptables(self, action: str, rule: list[str]) -> None:
        subprocess.run(
            as_root(["iptables", "--wait", action, *rule]), check=True, stdin=subprocess.DEVNULL
        )

    def _wait(self, node: LabNode) -> None:
        deadline = time.monotonic() + _START_SECONDS * (3 if node.spec.cpu else 1)
        while time.monotonic() < deadline:
            if self._answers(node):
                return
            if node.name not in self.running():
                break
            time.sleep(0.1)
        log = podman("logs", "--tail", "20", self._container(node.name), check=False)
        raise LabError(f"{node.name} does not answer ssh; its last words:\n{log.stderr.strip()}")

    def _answers(self, node: LabNode) -> bool:
        if node.spec.behind is not None:  # only its bastion can tell
            ask = f"exec 3<>/dev/tcp/{node.address}/22 && head -c 4 <&3"
            done = self.exec(node.spec.behind, f"timeout 2 bash -c '{ask}'")
            return done.stdout == "SSH-"
        patience = 20 if node.spec.cpu else 2  # an emulated sshd takes its time on a busy machine
        try:
            with socket.create_connection((node.address, 22), timeout=patience) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _find(self, fleet: Fleet) -> None:
        addresses = {name: said["address"] for name, said in self._state()["nodes"].items()}
        for name, node in fleet.nodes.items():
            self.nodes[name] = LabNode(name, addresses[name], node.capture, node)

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.folder / "lab.json").read_text())
        except (OSError, ValueError):
            return {}
        return state

    def _scratch(self, node: str) -> Path:
        return self.folder / "nodes" / node

    def _container(self, node: str) -> str:
        return f"{self._id}-{node}"

    def _containers(self) -> list[str]:
        mine = ("--all", "--quiet", "--filter", f"label=fleetbuild.lab={self._id}")
        return podman("ps", *mine).stdout.split()


def labs() -> list[Lab]:
    """The labs of this checkout, up or half up."""
    return [Lab(path.name) for path in sorted(FOLDER.glob("*")) if path.is_dir()]


def _in_parallel(job: Callable[[str], None], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(job, list(names)))


def _keygen(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _public(path: Path) -> str:
    kind, key = path.with_suffix(".pub").read_text().split()[:2]
    return f"{kind} {key}"


def _routed() -> list[IPv4Network]:
    """What this host already routes somewhere, default routes aside."""
    networks = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        words = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(words[i])[::-1]) for i in (1, 7))
        if mask:
            networks.append(IPv4Network((address, mask.bit_count())))
    return networks
