"""Windows nodes: the core contacts none, and says what can be done for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.models import Facts, Login, Node, Unreachable
from fleetbuild.models.node import ON_WINDOWS
from fleetbuild.probe.facts import probe_nodes, stored_facts
from fleetbuild.probe.inventory.nodes import node_of
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.probing import Probed, probe
from fleetbuild.probe.transport.base import Answer
from fleetbuild.probe.transport.failure_reasons import unusable_answer
from tests.factories.fleets import facts, planned
from tests.unit.probe.transport.test_hostile_server import servers

WINDOWS = Facts(state="unsupported", reason=ON_WINDOWS.reason, fix=ON_WINDOWS.fix)


@pytest.mark.parametrize(
    "variables",
    [
        {"ansible_shell_type": "powershell"},
        {"ansible_shell_type": "cmd"},
        {"ansible_shell_type": "ansible.builtin.powershell"},
        {"ansible_connection": "winrm"},
        {"ansible_connection": "ansible.builtin.psrp"},
    ],
)
def test_shell_and_connection_say_that_a_node_runs_windows(variables: dict[str, str]) -> None:
    assert node_of("w", variables).login.is_windows
    assert not node_of("l", {"ansible_shell_type": "sh"}).login.is_windows


def test_a_windows_node_is_not_contacted_and_its_captures_are_not_read(tmp_path: Path) -> None:
    node = Node(name="w", login=Login(host="192.0.2.1", is_windows=True))
    asked = probe_nodes([node], timeout=60, forks=1, install_path="/x", on_event=print)
    assert asked == {"w": WINDOWS} == stored_facts(tmp_path, [node])
    assert "fleetbuild emit windows" in (WINDOWS.fix or "")


@pytest.mark.parametrize(
    "uname", ["Windows 10.0.19045 AMD64", "MINGW64_NT-10.0-19045 3.4.9 x86_64"]
)
def test_a_capture_of_windows_names_the_setting(uname: str) -> None:
    found = facts_of({"uname": uname})
    assert (found.state, found.reason) == ("unsupported", ON_WINDOWS.reason)
    assert "ansible_shell_type: powershell" in (found.fix or "")


@pytest.mark.parametrize(
    "said",
    [
        "'sh' is not recognized as an internal or external command,\r\noperable program",
        "'sudo' is not recognized as an internal or external command,\r\n",
        "sh : The term 'sh' is not recognized as the name of a cmdlet, function, script file",
        'Der Befehl "sh" ist entweder falsch geschrieben oder\r\nkonnte nicht gefunden werden.',
    ],
)
def test_a_probe_on_a_windows_node_that_is_not_named_so_names_the_setting(said: str) -> None:
    problem = unusable_answer(Answer(1, b"", said.encode()), Login(host="w"))
    assert problem.reason == "it is a Windows node, and the inventory does not say so"
    assert problem.fix == "set ansible_shell_type: powershell (or cmd) for this host"


def test_a_windows_node_that_is_not_named_so_does_not_fail_the_others() -> None:
    with servers("good", "windows") as nodes:
        linux, windows = probe(nodes, timeout=60).values()
    assert isinstance(linux, Probed)
    assert isinstance(windows, Unreachable)
    assert windows.fix == "set ansible_shell_type: powershell (or cmd) for this host"


def test_a_plan_blocks_windows_nodes_and_serves_the_rest() -> None:
    plan = planned({"w": WINDOWS, "linux": facts()})
    assert plan.nodes["w"].state == "blocked"
    assert (plan.nodes["w"].reason, plan.nodes["w"].fix) == ON_WINDOWS
    assert plan.changes == {"cpu-avx2-cp311": ("linux",)}
    assert plan.exit_code == 4
