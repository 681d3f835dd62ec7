"""Files that nodes give to each other: no byte is kept or given on before its hash is compared."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.factories.role_modules import plugin

relay = plugin("module_utils.relay")
DATA = os.urandom((3 << 20) + 5)
SHA256 = hashlib.sha256(DATA).hexdigest()
PIECES = [
    hashlib.sha256(DATA[start : start + relay.PIECE]).hexdigest()
    for start in range(0, len(DATA), relay.PIECE)
]
Start = Callable[..., dict[str, Any]]


@pytest.fixture
def port() -> int:
    """A free port, the same one on all addresses of the loopback network."""
    with socket.socket() as free:
        free.bind(("", 0))
        number: int = free.getsockname()[1]
        return number


class Nodes:
    """Nodes of this machine: each runs the program with an address of 127.0.0.0/8."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        # In place of a node's only address.
        self.source = (
            Path(relay.__file__)
            .read_text("utf-8")
            .replace(
                'super().__init__(("", spec["port"]), Handler)',
                'super().__init__((spec["address"], spec["port"]), Handler)',
            )
            .replace('waiting_room(spec["port"])', 'waiting_room((spec["address"], spec["port"]))')
        )
        self.started: list[subprocess.Popen[str]] = []

    def path(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def start(
        self, number: int, *sources: int, path: Path | None = None, **changed: Any
    ) -> subprocess.Popen[str]:
        spec = {
            "address": f"127.0.0.{number}", "port": self.port, "token": f"t{number}",
            "sources": {f"127.0.0.{source}": f"t{source}" for source in sources},
            "patience": 3, "pace": 3, "again": False,
            "files": [{"path": str(path or self.path(number)), "size": len(DATA), "sha256": SHA256,
                       "pieces": PIECES}],
            **changed,
        }  # fmt: skip
        program = f"{self.source}\n\nmain({spec!r})\n"
        running = subprocess.Popen(
            [sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert running.stdin
        running.stdin.write(program)
        running.stdin.close()
        running.stdin = None
        self.started.append(running)
        return running


@pytest.fixture
def nodes(tmp_path: Path, port: int) -> Iterator[Nodes]:
    found = Nodes(tmp_path, port)
    yield found
    subprocess.run(["pkill", "-KILL", "-f", str(tmp_path)], check=False)
    for running in found.started:
        running.kill()
        running.communicate()


def said(running: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = running.communicate(timeout=60)
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def is_there(path: Path) -> bool:
    """Return whether the file is whole; nodes run as nobody where these tests are root."""
    return path.read_bytes() == DATA


def test_a_file_goes_on_while_it_grows(nodes: Nodes) -> None:
    assert said(nodes.start(2))["missing"] == [SHA256]  # the controller sends it
    behind = [nodes.start(number, number - 1) for number in (3, 4)]
    with nodes.path(2).open("r+b") as file:
        for start in range(0, len(DATA), 100_000):
            file.write(DATA[start : start + 100_000])
            file.flush()
            time.sleep(0.01)
    assert [said(each) for each in behind] == [{"missing": [], "failures": {}}] * 2
    assert all(is_there(nodes.path(number)) for number in (3, 4))


def test_a_program_that_arrived_can_be_started_while_it_is_given_on(nodes: Nodes) -> None:
    said(nodes.start(2))
    nodes.path(2).write_bytes(DATA)
    said(nodes.start(3, 2))
    for number in (2, 3):
        nodes.path(number).chmod(0o755)
        with pytest.raises(OSError, match="Exec format error"):  # not "Text file busy"
            subprocess.run([nodes.path(number)], check=False)


def test_a_killed_node_is_left_for_the_one_before_it(nodes: Nodes) -> None:
    nodes.path(2).write_bytes(DATA)
    said(nodes.start(2))
    nodes.path(2).write_bytes(DATA)
    found = said(nodes.start(4, 3, 2))  # nobody is at 3
    assert found == {"missing": [], "failures": {"127.0.0.3": "refused"}}
    assert is_there(nodes.path(4))


def test_a_silent_node_is_left_in_time(nodes: Nodes) -> None:
    said(nodes.start(2))  # nothing is sent to it
    began = time.monotonic()
    found = said(nodes.start(3, 2, patience=1))
    assert found == {"missing": [SHA256], "failures": {"127.0.0.2": "silent"}}
    assert time.monotonic() - began < 20


class Liar(BaseHTTPRequestHandler):
    """A node of this fleet that knows the token and gives other bytes, or one after the other."""

    drips, lies = False, Event()
    lies.set()

    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        while self.drips:
            self.wfile.write(DATA[:1])
            time.sleep(0.1)
        self.wfile.write(DATA[: relay.PIECE])
        self.lies.wait(50)
        self.wfile.write(bytes(relay.PIECE))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def lying(handler: type[BaseHTTPRequestHandler], port: int) -> Iterator[None]:
    """Have such a node at 127.0.0.2."""
    with ThreadingHTTPServer(("127.0.0.2", port), handler) as liar:
        Thread(target=liar.serve_forever, daemon=True).start()
        yield
        liar.shutdown()


@pytest.mark.parametrize(("drips", "word"), [(False, "damaged"), (True, "silent")])
def test_wrong_and_slow_bytes_are_not_kept(nodes: Nodes, port: int, drips: bool, word: str) -> None:
    with lying(type("Handler", (Liar,), {"drips": drips}), port):
        found = said(nodes.start(3, 2, patience=1))
    assert found == {"missing": [SHA256], "failures": {"127.0.0.2": word}}
    assert nodes.path(3).stat().st_size <= relay.PIECE  # the piece with the right hash


def test_a_node_that_is_not_silent_but_slow_is_left(nodes: Nodes, port: int) -> None:
    class Slow(Liar):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Content-Length", str(len(DATA)))
            self.end_headers()
            for start in range(0, len(DATA), relay.PIECE):
                time.sleep(1.5)
                self.wfile.write(DATA[start : start + relay.PIECE])

    with lying(Slow, port):
        assert said(nodes.start(3, 2, pace=0.1))["failures"] == {"127.0.0.2": "silent"}
        assert said(nodes.start(4, 2))["failures"] == {}


def test_a_node_that_ends_the_connection_was_reached(nodes: Nodes, port: int) -> None:
    ends = type("Handler", (Liar,), {"do_GET": lambda _: None})
    with lying(ends, port):
        assert said(nodes.start(3, 2))["failures"] == {"127.0.0.2": "silent"}
    assert said(nodes.start(4, 2))["failures"] == {"127.0.0.2": "refused"}


def test_a_file_that_the_controller_sends_after_all_goes_on_from_its_start(
    nodes: Nodes, port: int
) -> None:
    with lying(Liar, port):
        assert said(nodes.start(3, 2))["missing"] == [SHA256]  # it got one piece
    with nodes.path(3).open("wb") as file:
        behind = nodes.start(4, 3)
        time.sleep(1)
        file.write(DATA)
    assert said(behind) == {"missing": [], "failures": {}}


def test_nodes_behind_one_that_lost_its_sources_learn_it_at_once(nodes: Nodes, port: int) -> None:
    began, lies = time.monotonic(), Event()
    with lying(type("Handler", (Liar,), {"lies": lies}), port):
        first = nodes.start(3, 2, again=True, patience=60)
        behind = nodes.start(4, 3, again=True, patience=60)
        while not (nodes.path(4).exists() and nodes.path(4).stat().st_size >= relay.PIECE):
            assert time.monotonic() < began + 40
            time.sleep(0.01)
        lies.set()
        assert said(first)["failures"] == {"127.0.0.2": "damaged"}
        assert said(behind)["failures"] == {"127.0.0.3": "silent"}
    assert time.monotonic() - began < 40
    assert said(nodes.start(3))["failures"] == {}  # the port is free


def test_a_lost_run_does_not_cut_off_the_file_of_the_next_one(tmp_path: Path) -> None:
    """The connection was lost, and the node has not noticed yet."""
    about = (str(tmp_path / "file"), len(DATA), SHA256, PIECES)
    lost, following = relay.Arriving(*about), relay.Arriving(*about)
    (tmp_path / "file").write_bytes(DATA)  # by the controller
    lost.end()
    following.look()
    assert following.whole


def test_the_next_run_of_a_user_with_a_large_number_is_known(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Successors:
        def accept(self) -> tuple[Any, str]:
            return self, ""

        def getsockopt(self, *_: int) -> bytes:
            return struct.pack("iII", 1, 3_000_000_000, 1)

        def close(self) -> None:
            pass

    monkeypatch.setattr(os, "geteuid", lambda: 3_000_000_000)
    server = relay.bound([], {"port": port, "token": "t", "patience": 1})
    with server, server.successors:
        server.successors = Successors()
        assert server.is_wanted()


def test_a_file_that_the_disk_does_not_hold_is_not_whole(nodes: Nodes) -> None:
    said(nodes.start(2))
    nodes.path(2).write_bytes(DATA)
    limit = (len(DATA) - 2,) * 2  # a part of the last piece
    nodes.source = (
        f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, {limit})\n" + nodes.source
    )
    found = said(nodes.start(3, 2))
    assert found == {"missing": [SHA256], "failures": {"127.0.0.2": "unwritten"}}


def test_bytes_without_an_announced_length_are_not_read(nodes: Nodes, port: int) -> None:
    sent: list[int] = []

    class Endless(Liar):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"-1\r\n")  # as many as come
            while len(sent) < 100:
                self.wfile.write(bytes(1 << 20))
                sent.append(1)

    with lying(Endless, port):
        assert said(nodes.start(3, 2))["failures"] == {"127.0.0.2": "silent"}
    assert len(sent) < 20


def test_who_does_not_know_the_token_gets_nothing(nodes: Nodes, port: int) -> None:
    said(nodes.start(2))
    nodes.path(2).write_bytes(DATA)
    for path in ("/", f"/{SHA256}", f"/u/{SHA256}", "/../../etc/passwd", "//etc/passwd"):
        with socket.create_connection(("127.0.0.2", port), timeout=10) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            assert b" 404 " in client.recv(100)


def test_who_does_not_know_the_token_takes_no_place_of_a_node(nodes: Nodes, port: int) -> None:
    said(nodes.start(2))
    first = nodes.start(3, 2, patience=30)
    time.sleep(1)  # it waits for bytes
    with ExitStack() as strangers:
        for _ in range(2 * relay.CLIENTS):
            client = socket.create_connection(("127.0.0.2", port), timeout=10)
            strangers.enter_context(client).sendall(b"GET ")
        second = nodes.start(4, 2, patience=30)
        time.sleep(1)
        nodes.path(2).write_bytes(DATA)
        assert [said(first), said(second)] == [{"missing": [], "failures": {}}] * 2


def test_a_port_in_use_is_said(nodes: Nodes, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))
        other.listen()
        found = said(nodes.start(2, 3))
    assert found == {"missing": [SHA256], "failures": {"": "port"}}


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "is silent"])
def test_who_holds_the_port_and_the_name_of_the_next_server_delays_a_node_by_seconds_alone(
    nodes: Nodes, port: int, answers: bool
) -> None:
    """Any user of a node can bind both; then the controller sends the files, and says why."""
    room = relay.waiting_room(("127.0.0.2", port))
    with socket.socket() as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(("127.0.0.2", port))
        other.listen()
        waiting.bind(room)
        waiting.listen()
        started = nodes.start(2, 3)
        asking, _ = waiting.accept()
        if answers:
            asking.send(b"x")
        assert said(started) == {"missing": [SHA256], "failures": {"": "port"}}
        asking.close()


def test_who_holds_the_name_of_the_next_server_alone_changes_nothing(
    nodes: Nodes, port: int
) -> None:
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(relay.waiting_room(("127.0.0.2", port)))
        waiting.listen()
        said(nodes.start(2))
        nodes.path(2).write_bytes(DATA)
        assert said(nodes.start(3, 2)) == {"missing": [], "failures": {}}


def test_a_server_that_only_waits_gives_way_to_the_next_run(nodes: Nodes) -> None:
    said(nodes.start(2, token="of the first run"))
    behind = nodes.start(3, 2, patience=30)
    time.sleep(3)  # a busy machine starts it late, and it must not connect during the change
    assert said(nodes.start(2)) == {"missing": [SHA256], "failures": {}}
    nodes.path(2).write_bytes(DATA)
    assert said(behind) == {"missing": [], "failures": {}}


def test_a_server_that_gives_files_does_not_give_way(nodes: Nodes) -> None:
    said(nodes.start(2))
    behind = nodes.start(3, 2, patience=30)
    with nodes.path(2).open("r+b") as file:
        next_run = nodes.start(2, path=nodes.path(5))
        while next_run.poll() is None:
            file.write(DATA[file.tell() :][:20_000])
            file.flush()
            time.sleep(0.05)
        file.write(DATA[file.tell() :])
    assert said(next_run) == {"missing": [SHA256], "failures": {"": "port"}}
    assert said(behind) == {"missing": [], "failures": {}}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_server_gives_way_to_no_other_user(nodes: Nodes, port: int) -> None:
    said(nodes.start(2))
    nodes.path(2).write_bytes(DATA)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(60)
        os.seteuid(relay.NOBODY)
        try:
            asking.connect(relay.waiting_room(("127.0.0.2", port)))
        finally:
            os.seteuid(0)
        assert asking.recv(1) == b""  # it is turned away
    time.sleep(2 * relay.IDLE)
    assert said(nodes.start(3, 2)) == {"missing": [], "failures": {}}


def test_it_ends_with_the_controller(nodes: Nodes) -> None:
    said(nodes.start(2))
    waiting = nodes.start(3, 2, patience=50)
    time.sleep(1)
    assert waiting.stdout
    waiting.stdout.close()  # as sshd closes it when the connection has gone
    waiting.wait(30)
    waiting.stdout = None
    children = subprocess.run(
        ["pgrep", "-P", str(waiting.pid)], capture_output=True, text=True, check=False
    )
    assert children.stdout == ""
