"""Which node gives files to which, and when nodes stop asking each other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.factories.role_modules import plugin

chain = plugin("plugin_utils.chain")


def test_each_node_gets_its_files_from_the_one_before(tmp_path: Path) -> None:
    files = ["a", "b"]
    first = chain.Chain(str(tmp_path)).join("n1", "10.0.0.1", files)
    second = chain.Chain(str(tmp_path)).join("n2", "10.0.0.2", files)
    third = chain.Chain(str(tmp_path)).join("n3", "10.0.0.3", ["a"])
    assert first.sources == {}
    assert list(second.sources.values()) == ["n1"]
    assert list(third.sources.values()) == ["n2", "n1"]
    assert chain.Chain(str(tmp_path)).join("n4", "10.0.0.4", ["a", "c"]).sources == {}


def test_nodes_of_several_groups_ask_nodes_of_their_own_group(tmp_path: Path) -> None:
    """Groups share a playbook, and some of their files."""
    links = [
        chain.Chain(str(tmp_path)).join(node, f"10.0.0.{number}", ["numpy", f"built for {node[0]}"])
        for number, node in enumerate(("a1", "b1", "a2", "b2", "a3"))
    ]
    sources = [list(link.sources.values()) for link in links]
    assert sources == [[], [], ["a1"], ["b1"], ["a2", "a1"]]
    only_shared = chain.Chain(str(tmp_path)).join("c1", "10.0.0.9", ["numpy"])
    assert list(only_shared.sources.values()) == ["a3", "b2", "a2", "b1"]


def test_a_node_tells_its_sources_no_token_but_their_own(tmp_path: Path) -> None:
    first, second, third = (
        chain.Chain(str(tmp_path)).join(f"n{number}", f"10.0.0.{number}", ["a"])
        for number in (1, 2, 3)
    )
    assert third.tokens == {"10.0.0.2": second.token, "10.0.0.1": first.token}
    assert len({first.token, second.token, third.token}) == 3


def test_a_node_that_does_not_serve_is_not_asked(tmp_path: Path) -> None:
    found = chain.Chain(str(tmp_path))
    found.end(found.join("n1", "10.0.0.1", ["a"]), serves=False)
    found.join("n2", "", ["a"])  # without an address
    assert found.join("n3", "10.0.0.3", ["a"]).sources == {}


def test_nodes_that_reach_nobody_end_the_tries(tmp_path: Path) -> None:
    found = chain.Chain(str(tmp_path))
    for number in range(chain.TRIES):
        found.join("n", f"10.0.0.{number}", ["a"])
        found.count(given=False)
    assert found.join("n9", "10.0.0.9", ["a"]).sources == {}


def test_pieces_are_hashed_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (chain.PIECE + 1))
    found = chain.Chain(str(tmp_path))
    pieces = found.pieces(str(file), "ab")
    file.unlink()
    assert found.pieces(str(file), "ab") == pieces
    assert (pieces["size"], len(pieces["pieces"])) == (chain.PIECE + 1, 2)


def test_a_process_that_is_ended_leaves_what_others_noted(tmp_path: Path) -> None:
    found = chain.Chain(str(tmp_path))
    found.join("n1", "10.0.0.1", ["a"])
    with pytest.raises(TypeError):
        found.join("n2", "10.0.0.2", ["a", b"bytes"])  # in the middle of its note
    assert list(found.join("n3", "10.0.0.3", ["a"]).sources.values()) == ["n1"]


def test_the_controller_sends_to_one_node_at_a_time(tmp_path: Path) -> None:
    found, sends = chain.Chain(str(tmp_path)), Event()
    first, second = (found.join(name, name, ["a"]) for name in ("n1", "n2"))

    def send() -> None:
        with found.turn(second, 60):
            sends.set()

    with found.turn(first, 60):
        waiting = Thread(target=send)
        waiting.start()
        assert not sends.wait(0.5)
    waiting.join(60)
    assert sends.is_set()


def test_a_node_that_takes_files_too_slowly_loses_its_turn(tmp_path: Path) -> None:
    found, sends = chain.Chain(str(tmp_path)), Event()
    slow, second, third = (found.join(name, name, ["a"]) for name in ("n1", "n2", "n3"))

    def send() -> None:
        with found.turn(third, 60):
            sends.set()

    with ExitStack() as its_turn:
        with found.turn(slow, 0):
            its_turn.enter_context(found.turn(second, 60))
        waiting = Thread(target=send)  # the slow one's end is not the second one's
        waiting.start()
        assert not sends.wait(0.5)
    waiting.join(60)
    assert sends.is_set()


def test_nodes_whose_chain_broke_form_another_one(tmp_path: Path) -> None:
    found, left = chain.Chain(str(tmp_path)), Event()
    first, second, _ = (found.join(name, name, ["a"]) for name in ("n1", "n2", "n3"))

    def leave() -> None:
        found.leave(second)
        left.set()

    with found.turn(first, 60):  # the controller still sends to the node that was killed
        waiting = Thread(target=leave)
        waiting.start()
        assert not left.wait(0.5)
    found.end(first, serves=False)
    waiting.join(60)
    assert found.join("n2", "n2", ["a"], again=True).sources == {}
    found.leave(second)  # later ones break no chain that was joined again
    assert list(found.join("n3", "n3", ["a"], again=True).sources) == ["n2"]


def test_a_broken_chain_leaves_the_chain_of_another_group(tmp_path: Path) -> None:
    found = chain.Chain(str(tmp_path))
    a1, a2, _, _ = (
        found.join(node, f"10.0.0.{number}", ["numpy", f"built for {node[0]}"])
        for number, node in enumerate(("a1", "a2", "b1", "b2"))
    )
    found.end(a1, serves=False)
    found.leave(a2)
    assert found.join("a2", "10.0.0.1", ["numpy", "built for a"], again=True).sources == {}
    sources = found.join("b3", "10.0.0.9", ["numpy", "built for b"]).sources
    assert list(sources.values()) == ["b2", "b1"]


def test_options_and_paths_do_not_pass_as_addresses() -> None:
    assert chain.plain_address("node-1.example.org") == "node-1.example.org"
    assert chain.plain_address("fe80::1%eth0") == "fe80::1%eth0"
    for value in ("-x", "a/b", "a b", None, "{{ x }}", ""):
        assert chain.plain_address(value) in ("", "None")
