"""Hooks around the switch, and a group that goes back to what it served before, on real nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild import Config, Event, Plan, Result
from tests.factories.files import make_wheel
from tests.lab import Lab

NODES = ["one", "three", "two"]
DRAIN = """
- hosts: all
  gather_facts: false
  vars: {log: /tmp/drained, hook: "{{ fleetbuild_hook }}"}
  tasks:
    - name: Drain
      ansible.builtin.shell: >-
        echo {{ hook.name }} {{ hook.nodes[inventory_hostname].kubernetes_node }} >> {{ log }}
      no_log: true
    - name: Look at the release that serves meanwhile
      ansible.builtin.shell: (readlink /opt/fleetbuild/current || echo none) >> {{ log }}
"""
AFTER = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.shell: echo {{ fleetbuild_hook.name }} {{ inventory_hostname }} >> after
      args: {chdir: "{{ playbook_dir }}"}
      delegate_to: localhost
      become: false
"""
SLOW = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Drain
      ansible.builtin.command: sleep {{ 100 if inventory_hostname == "three" else 0 }}
      timeout: 10
"""
# A release that works unless its node says otherwise.
CODE = "import os\nif os.path.exists('/etc/breaks-VERSION'): os._exit(9)\n"


class Fleet:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.inventory = fleetbuild.read_inventory(lab.inventory)
        self.told: list[Event] = []
        for version in ("1.0", "2.0", "3.0"):
            code = CODE.replace("VERSION", version).encode()
            make_wheel(folder / "wheels", "tiny", version, files={"tiny.py": code})

    def plan(self, version: str, **rollout: Any) -> Plan:
        """A plan for another version of the package, and so another release."""
        config = Config.model_validate({
            "rollout": {"serial": 1, "max_fail": 0, **rollout},
            "index": [str(self.folder / "wheels")], "build": {"policy": "published"},
        })  # fmt: skip
        options: dict[str, Any] = {
            "config": config.within(str(self.folder)),
            "state_dir": self.folder / "state",
        }
        return fleetbuild.Fleet(self.inventory, **options).plan([f"tiny=={version}"])

    def apply(
        self,
        plan: Plan,
        *,
        listen: Callable[[Event], None] = lambda _: None,
        timeout: float = 15,
        **options: bool,
    ) -> Result:
        self.told.clear()

        def on_event(event: Event) -> None:
            self.told.append(event)
            listen(event)

        fleet = fleetbuild.Fleet(self.inventory, state_dir=self.folder / "state", timeout=timeout)
        return fleet.apply(plan, on_event=on_event, **options)

    def serving(self) -> list[str]:
        """What each node serves: the end of its `current`, or an empty text."""
        link = "readlink /opt/fleetbuild/current"
        return [self.lab.exec(n, link).stdout.strip().rpartition("/")[2] for n in NODES]

    def drained(self, node: str) -> list[str]:
        return self.lab.exec(node, "cat /tmp/drained; rm -f /tmp/drained").stdout.splitlines()


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    nodes: dict[str, dict[str, Any]] = {name: {"hardware": "avx2"} for name in NODES}
    nodes["three"]["vars"] = {"ansible_become": True}  # so that files are sent as another user
    lab = make_lab({"nodes": nodes})
    folder = tmp_path_factory.mktemp("rollout")
    for name, text in (("drain", DRAIN), ("after", AFTER), ("slow", SLOW)):
        (folder / f"{name}.yml").write_text(text)
    (folder / "hangs.yml").write_text(SLOW.replace("timeout: 10", ""))
    return Fleet(lab, folder)


def states(result: Result) -> dict[str, str]:
    return {node.node: node.state for node in result.nodes}


def last_of(plan: Plan) -> str:
    """The node that comes last: the canary is the first by name, as all are equal."""
    return plan.groups[0].nodes[-1]


def test_hooks_run_around_each_switch_and_nowhere_else(fleet: Fleet) -> None:
    log = fleet.folder / "after"
    plan = fleet.plan(
        "1.0",
        before={"playbook": "drain.yml", "timeout": 60},
        after={"playbook": "after.yml"},
    )
    result = fleet.apply(plan)
    assert (set(states(result).values()), result.exit_code) == ({"installed"}, 0)
    assert fleet.serving() == [plan.groups[0].release_id] * 3
    assert sorted(log.read_text().splitlines()) == [f"after {name}" for name in NODES]
    for name in NODES:  # drained once, while nothing served yet
        assert fleet.drained(name) == [f"before {name}", "none"]
    assert fleet.apply(plan).exit_code == 0
    assert len(log.read_text().splitlines()) == 3
    assert fleet.drained("one") == []


def test_a_group_that_stops_serves_again_what_it_served_before(fleet: Fleet) -> None:
    before = fleet.serving()
    plan = fleet.plan("2.0", before={"playbook": "drain.yml"})
    broken = last_of(plan)
    fleet.lab.exec(broken, "touch /etc/breaks-2.0", check=True)
    result = fleet.apply(plan, rollback_on_failure=True)
    fleet.lab.exec(broken, "rm /etc/breaks-2.0", check=True)
    assert states(result) == {**dict.fromkeys(NODES, "rolled_back"), broken: "verify_failed"}
    assert (fleet.serving(), result.exit_code) == (before, 7)
    assert fleet.drained(broken) == []
    switched = next(name for name in NODES if name != broken)
    drained = fleet.drained(switched)
    assert [line.rpartition("/")[2] for line in drained] == [
        *(f"before {switched}", before[0]),  # around the switch
        *(f"before {switched}", plan.groups[0].release_id),  # and around the way back
    ]
    python = "/opt/fleetbuild/current/bin/python"
    for name in NODES:
        fleet.lab.exec(name, f"{python} -c 'import tiny'", user="fleet", check=True)


@pytest.mark.parametrize(
    ("version", "hook", "failing", "reason"),
    [
        # A task's timeout is for its node, a hook's for all nodes of its step.
        ("3.0", {"playbook": "slow.yml"}, ["three"], "Drain.*did not end within 10 s"),
        ("1.0", {"playbook": "hangs.yml", "timeout": 20}, NODES, "it did not end within 20 s"),
    ],
)
def test_a_node_whose_before_fails_does_not_switch(
    fleet: Fleet, version: str, hook: dict[str, Any], failing: list[str], reason: str
) -> None:
    (fleet.folder / "after").unlink(missing_ok=True)
    before, after = fleet.serving(), {"playbook": "after.yml"}
    plan = fleet.plan(version, before=hook, after=after, max_fail=3, canary=0, serial=3)
    result = fleet.apply(plan)
    failed = {node.node: node.reason for node in result.nodes if node.state == "install_failed"}
    assert list(failed) == failing
    for why in failed.values():
        assert re.match(f"Not switched, because rollout.before failed: {reason}", why or "")
    both = zip(NODES, before, fleet.serving(), strict=True)
    assert [name for name, then, now in both if then == now] == failing
    assert sorted((fleet.folder / "after").read_text().split()[1::2]) == NODES  # none stays drained
    again = fleet.apply(fleet.plan(version, max_fail=1))
    assert (again.exit_code, states(again)["three"]) == (0, "installed")
    assert len(set(fleet.serving())) == 1


def test_a_node_that_stands_still_for_14_seconds_comes_back_into_the_run(fleet: Fleet) -> None:
    plan = fleet.plan("2.0", canary=0, serial=3)
    seconds: list[float] = []  # from the freeze on to the end of the freeze, and of the node's work

    def freeze() -> None:
        fleet.lab.exec("two", "pkill -STOP -x sshd", check=True)
        time.sleep(14)
        fleet.lab.exec("two", "pkill -CONT -x sshd", check=True)

    still = threading.Thread(target=freeze)

    def listen(event: Event) -> None:
        if event.node == "two" and event.stage == "distribute" and not still.ident:
            still.start()
            seconds.append(time.monotonic())
        elif event.node == "two" and event.stage == "activate" and event.state == "ok":
            seconds.append(time.monotonic())

    result = fleet.apply(plan, listen=listen, timeout=30)  # which is the default
    still.join()
    assert (result.exit_code, set(states(result).values())) == (0, {"installed"})
    began, ended = seconds
    assert ended - began > 14
    assert fleet.serving() == [plan.groups[0].release_id] * 3
