"""The faults: how each strikes at a moment of a run, and how it is over afterwards."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.disk import Disk, root
from tests.faults.scene import Controller, Ended, Scene
from tests.lab.podman import podman

CLOCK = "/srv/faults/clock.so"
Process = subprocess.Popen[str]


@dataclass
class Fault:
    """One strike on one node, while a controller changes it. `end` makes good what it did."""

    scene: Scene
    node: str
    controller: Controller
    afterwards: ExitStack = field(default_factory=ExitStack)
    second: list[Ended] = field(default_factory=list)

    def strike(self, kind: str, process: Process) -> None:
        STRIKES[kind](self, process)

    def prepare(self, kind: str) -> None:
        """What must be in place before the run starts."""
        state = self.controller.state
        if kind == "disk-full-controller":
            kept = state.with_name(state.name + ".kept")
            state.rename(kept)
            disk = Disk(state.with_suffix(".img"), state).make(60)
            root("chown", "--reference", kept, state)
            root("cp", "-a", f"{kept}/.", state)
            root("rmdir", state / "lost+found")
            root("rm", "-r", kept)
            self._disk = disk
            self.afterwards.callback(disk.drop)
        if kind == "clock-controller":
            offset = state.with_name("clock-offset")
            offset.write_text("0")
            library = self.scene.folder / "tools/clock.so"
            self.controller.env = {
                **self.controller.env, "LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)
            }  # fmt: skip

    def end(self) -> None:
        """The fault is over. A state directory with its own disk stays until `close`."""
        for callback in reversed(self._over):
            callback()
        self._over.clear()

    def __post_init__(self) -> None:
        self._over: list[Callable[[], object]] = []

    def over(self, callback: Callable[[], object]) -> None:
        """Do this when the fault is over."""
        self._over.append(callback)

    def close(self) -> None:
        self.end()
        self.afterwards.close()


def kill_controller(_: Fault, process: Process) -> None:
    process.kill()


def terminate_controller(_: Fault, process: Process) -> None:
    process.terminate()


def hang_up(_: Fault, process: Process) -> None:
    process.send_signal(signal.SIGHUP)


def kill_sshd(fault: Fault, _: Process) -> None:
    fault.scene.lab.exec(fault.node, "pkill -9 -f '^sshd: fleet'")


def stop_node(fault: Fault, _: Process) -> None:
    podman("kill", fault.scene.container(fault.node))
    podman("wait", fault.scene.container(fault.node), check=False)
    fault.scene.lab.start(fault.node)


def pause_node(fault: Fault, _: Process) -> None:
    stillness = fault.scene.lab.silent(fault.node)
    stillness.__enter__()
    fault.over(lambda: stillness.__exit__(None, None, None))


def drop_packets(fault: Fault, _: Process) -> None:
    silence = fault.scene.lab.silent(fault.node, link=True)
    silence.__enter__()
    fault.over(lambda: silence.__exit__(None, None, None))


def slow_link(fault: Fault, _: Process) -> None:
    link = fault.scene.lab.exec(
        fault.node, "cat /sys/class/net/eth0/iflink", check=True
    ).stdout.strip()
    device = next(
        path.parent.name for path in Path("/sys/class/net").glob("*/ifindex")
        if path.read_text().strip() == link
    )  # fmt: skip
    limit = ("tbf", "rate", "400kbit", "burst", "16kb", "latency", "500ms")
    root("tc", "qdisc", "add", "dev", device, "root", *limit)
    fault.over(lambda: root("tc", "qdisc", "del", "dev", device, "root"))


def disk_full_node(fault: Fault, _: Process) -> None:
    disk = fault.scene.disks[fault.node]
    disk.fill()
    fault.over(disk.empty)


def disk_full_controller(fault: Fault, _: Process) -> None:
    fault._disk.fill()
    fault.over(fault._disk.empty)


def read_only(fault: Fault, _: Process) -> None:
    fault.scene.disks[fault.node].fail()
    fault.over(lambda: fault.scene.revive(fault.node))


def clock_node(fault: Fault, _: Process) -> None:
    preload = "/etc/ld.so.preload"
    command = f"echo -172800 > /etc/clock-offset && echo {CLOCK} > {preload}"
    fault.scene.lab.exec(fault.node, command, check=True)
    fault.over(
        lambda: fault.scene.lab.exec(fault.node, f"rm {preload} /etc/clock-offset", check=True)
    )


def clock_controller(fault: Fault, _: Process) -> None:
    offset = Path(fault.controller.env["CLOCK_OFFSET"])
    offset.write_text(str(40 * 24 * 3600))
    fault.over(lambda: offset.write_text("0"))


def out_of_memory(fault: Fault, _: Process) -> None:
    container = fault.scene.container(fault.node)
    podman("update", "--memory", "200m", "--memory-swap", "200m", container)
    fault.over(lambda: podman("update", "--memory", "8g", "--memory-swap", "8g", container))


def second_controller(fault: Fault, _: Process) -> None:
    other = fault.scene.controller(fault.node, fault.controller.package, "two")
    thread = threading.Thread(target=lambda: fault.second.append(other.run()))
    thread.start()
    fault.over(thread.join)


def power_loss(fault: Fault, _: Process) -> None:
    podman("kill", fault.scene.container(fault.node))
    fault.scene.disks[fault.node].cut()
    fault.over(lambda: fault.scene.revive(fault.node))


STRIKES: dict[str, Callable[[Fault, Process], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        kill_controller, terminate_controller, hang_up, kill_sshd, stop_node, pause_node,
        drop_packets, slow_link, disk_full_node, disk_full_controller, read_only, clock_node,
        clock_controller, out_of_memory, second_controller, power_loss,
    )
}  # fmt: skip
