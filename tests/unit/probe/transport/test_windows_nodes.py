"""The script for a Windows node, and the answers of a wrong kind of node."""

from __future__ import annotations

import base64
import re

import pytest

from fleetbuild.models import Become, Login, Unreachable
from fleetbuild.probe.inventory.nodes import node_of
from fleetbuild.probe.probing import (
    Probed,
    _script_for,
    probe,
    script,
    transport_for,
    windows_script,
)
from fleetbuild.probe.transport.base import Answer, NoAnswer, command_for
from fleetbuild.probe.transport.failure_reasons import unusable_answer
from tests.unit.probe.transport.test_hostile_server import servers

WINDOWS = Login(host="w", shell_type="powershell")


def sent(*arguments: str) -> str:
    command, _ = command_for(WINDOWS, b"", arguments)
    return base64.b64decode(command.split()[-1]).decode("utf-16-le")


def test_the_script_goes_to_standard_input_and_the_command_fits_cmd() -> None:
    command, stdin = command_for(WINDOWS, windows_script(), ("fleetbuild-" + "0" * 32,))
    assert stdin == windows_script()
    assert len(command) < 2000
    assert re.fullmatch(r"[A-Za-z0-9 .+/=-]+", command)


def test_arguments_are_literal_in_powershell() -> None:
    assert sent("it's; $x").endswith(" 'it''s; $x'")


def test_the_probe_of_windows_ignores_become() -> None:
    elevated = WINDOWS.model_copy(update={"become": Become()})
    assert command_for(elevated, b"x", ("n",)) == command_for(WINDOWS, b"x", ("n",))


def test_the_script_is_ascii_because_windows_reads_it_in_its_own_encoding() -> None:
    assert windows_script().isascii()


@pytest.mark.parametrize("shell", ["powershell", "cmd", "ansible.builtin.powershell"])
def test_the_shell_type_of_ansible_chooses_the_script(shell: str) -> None:
    windows = node_of("w", {"ansible_shell_type": shell}).login
    linux = node_of("l", {"ansible_shell_type": "sh"}).login
    scripts = (script(), ("a",)), (windows_script(), ("b",))
    assert _script_for(windows, *scripts) == scripts[1]
    assert _script_for(linux, *scripts) == scripts[0]


@pytest.mark.parametrize("connection", ["winrm", "psrp", "ansible.builtin.winrm"])
def test_other_ways_to_windows_are_refused_with_the_way_out(connection: str) -> None:
    login = node_of("w", {"ansible_connection": connection}).login
    with pytest.raises(NoAnswer, match="fleetbuild reaches Windows by SSH") as refused:
        transport_for(login)
    assert "ansible_shell_type: powershell" in refused.value.fix


@pytest.mark.parametrize(
    "said",
    [
        "'sh' is not recognized as an internal or external command,\r\noperable program",
        "'sudo' is not recognized as an internal or external command,\r\n",
        "sh : The term 'sh' is not recognized as the name of a cmdlet, function, script file",
        'Der Befehl "sh" ist entweder falsch geschrieben oder\r\nkonnte nicht gefunden werden.',
    ],
)
def test_a_linux_probe_on_windows_names_the_setting(said: str) -> None:
    problem = unusable_answer(Answer(1, b"", said.encode()), Login(host="w"))
    assert problem.reason == "it is a Windows node, and the inventory does not say so"
    assert problem.fix == "set ansible_shell_type: powershell (or cmd) for this host"


def test_a_windows_probe_on_linux_names_the_setting() -> None:
    answer = Answer(127, b"", b"bash: line 1: powershell.exe: command not found")
    problem = unusable_answer(answer, WINDOWS)
    assert problem.reason == "it has no powershell.exe"
    assert "remove ansible_shell_type" in problem.fix


def test_one_probe_reads_linux_and_windows_over_ssh_each_by_its_script() -> None:
    with servers("windows", "good", "windows") as nodes:
        login = nodes[0].login.model_copy(update={"shell_type": "powershell"})
        found = probe([nodes[0].model_copy(update={"login": login}), *nodes[1:]], timeout=60)
    windows, linux, unnamed = found.values()
    assert isinstance(windows, Probed)
    assert (windows.facts.os.id, windows.facts.isa) == ("windows", "avx")
    assert isinstance(linux, Probed)
    assert linux.facts.os.id is None
    assert isinstance(unnamed, Unreachable)
    assert unnamed.fix == "set ansible_shell_type: powershell (or cmd) for this host"
