"""What a node answers about files of other nodes: known words are used, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from tests.factories.role_modules import plugin

transfer, chain = plugin("action.transfer"), plugin("plugin_utils.chain")
LINK = chain.Link(1, "own token", {"10.0.0.1": "n1"}, {"10.0.0.1": "token"})


def answered(stdout: str, folder: Path) -> Any:
    """Return the action of a node that answers so."""
    file = folder / "file"
    file.write_bytes(b"x")

    class Plain:
        transport = "local"

        def template(self, value: object) -> object:
            return value

    action: Any = transfer.ActionModule.__new__(transfer.ActionModule)
    action._files, action._arrivals = {"ab": str(file)}, {"ab": "/there"}
    action._kilobits, action._connection, action._templar = 0, Plain(), Plain()
    action._low_level_execute_command = lambda *_, **__: {"stdout": stdout}
    return action


def relayed(stdout: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return what the action takes from an answer."""
    action = answered(stdout, folder)
    found: tuple[list[str], dict[str, str]]
    found = action._relay(47100, chain.Chain(str(folder)), LINK, {})
    return found


@pytest.mark.parametrize(
    "stdout",
    [
        "", "no JSON", "[]", "3", "[" * 100_000,
        '{"missing": ["ab"]}', '{"missing": 3, "failures": {}}',
        '{"missing": [], "failures": []}', '{"missing": [], "failures": {"10.0.0.1": ["silent"]}}',
    ],
)  # fmt: skip
def test_an_answer_in_another_form_means_that_nothing_arrived(stdout: str, tmp_path: Path) -> None:
    assert relayed(stdout, tmp_path) == (["ab"], {"": "stopped"})


def test_an_answer_without_an_end_means_that_nothing_arrived(tmp_path: Path) -> None:
    def fill_memory(*_: object, **__: object) -> None:
        raise MemoryError

    action = answered("", tmp_path)
    action._low_level_execute_command = fill_memory
    found = action._relay(47100, chain.Chain(str(tmp_path)), LINK, {})
    assert found == (["ab"], {"": "stopped"})


def test_a_lost_connection_is_made_again_once_and_soon(tmp_path: Path) -> None:
    """A node that hangs is not waited for twice."""
    answers: list[Any] = []
    options, timeouts = {"timeout": 10}, list[int]()

    def answer(*_: object, **__: object) -> Any:
        timeouts.append(options["timeout"])
        if isinstance(found := answers.pop(0), Exception):
            raise found
        return found

    action = answered("", tmp_path)
    action._low_level_execute_command = answer
    action._connection.get_option, action._connection.set_option = options.get, options.__setitem__
    lost, arrived = AnsibleConnectionFailure("lost"), {"stdout": '{"missing": [], "failures": {}}'}
    answers[:] = [lost, arrived]
    assert action._relay(47100, chain.Chain(str(tmp_path)), LINK, {}) == ([], {})
    answers[:] = [lost, lost, arrived]
    with pytest.raises(AnsibleConnectionFailure):
        action._relay(47100, chain.Chain(str(tmp_path)), LINK, {})
    assert (timeouts, options) == ([10, 3, 10, 3], {"timeout": 10})


def test_unknown_files_nodes_and_words_are_dropped(tmp_path: Path) -> None:
    failures = {"10.0.0.1": "silent", "10.9.9.9": "silent", "": "{{ x }}"}
    answer = json.dumps({"missing": ["ab", "../etc"], "failures": failures})
    assert relayed("\n\n" + answer, tmp_path) == (["ab"], {"10.0.0.1": "silent"})
    assert relayed('{"missing": [], "failures": {}}', tmp_path) == ([], {})


def test_what_a_node_says_of_others_is_quoted_as_its_words(tmp_path: Path) -> None:
    chain.Chain(str(tmp_path)).join("n1", "10.0.0.1", ["ab"])
    said = {"missing": ["ab"], "failures": {"10.0.0.1": "damaged", "": "port"}}
    action = answered(json.dumps(said), tmp_path)
    action._send = lambda _: None
    peers = {"port": 47100, "folder": str(tmp_path)}
    found = action._receive(peers, {"inventory_hostname": "n2"})["not_given"]
    own, _, others = found.partition("; ")
    assert own.startswith(
        "n2 uses port 47100 (distribute.peer_port) for something else, or for another run"
    )
    assert others == "n2 says: n1 sent bytes with another hash"


def test_a_node_that_lost_its_sources_asks_again(tmp_path: Path) -> None:
    chain.Chain(str(tmp_path)).join("n1", "10.0.0.1", ["ab"])
    lost = {"missing": ["ab"], "failures": {"10.0.0.1": "silent"}}
    answers = [lost, {"missing": [], "failures": {}}]
    action = answered("", tmp_path)
    action._low_level_execute_command = lambda *_, **__: {"stdout": json.dumps(answers.pop(0))}
    peers = {"port": 47100, "folder": str(tmp_path)}
    assert action._receive(peers, {"inventory_hostname": "n2"}) == {"given_by": "n1"}
    assert answers == []


def test_a_node_without_sources_cannot_have_lost_them(tmp_path: Path) -> None:
    """Otherwise its words would end the others' chain, and leave a link that never ends."""
    found = chain.Chain(str(tmp_path))
    action = answered('{"missing": ["ab"], "failures": {"": "silent"}}', tmp_path)
    action._send = lambda _: None
    about = {"inventory_hostname": "n1", "ansible_host": "10.0.0.1"}
    action._receive({"port": 47100, "folder": str(tmp_path)}, about)
    assert found.join("n2", "10.0.0.2", ["ab"]).sources == {}


def test_a_node_that_has_its_files_waits_for_no_turn(tmp_path: Path) -> None:
    found = chain.Chain(str(tmp_path))
    other = found.join("n1", "10.0.0.1", ["ab"])
    action = answered('{"missing": [], "failures": {}}', tmp_path)
    action._kilobits = 1
    about = ({"port": 47100, "folder": str(tmp_path)}, {"inventory_hostname": "n2"})
    ended = Event()

    def receive() -> None:
        assert action._receive(*about) == {"given_by": "n1"}
        ended.set()

    with found.turn(other, 600):
        Thread(target=receive).start()
        assert ended.wait(60)


def test_an_address_whose_template_gives_nothing_is_not_used(tmp_path: Path) -> None:
    action = answered("", tmp_path)
    action._send = lambda _: None
    action._templar.template = lambda value: None if value == "{{ none }}" else value
    about = {"inventory_hostname": "n1", "fleetbuild_peer_address": "{{ none }}"}
    action._receive({"port": 47100, "folder": str(tmp_path)}, {**about, "ansible_host": "10.0.0.1"})
    found = json.loads((tmp_path / "state.json").read_text("utf-8"))["links"]
    assert found[0]["address"] == "10.0.0.1"
