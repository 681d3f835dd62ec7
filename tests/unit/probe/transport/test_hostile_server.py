"""Servers that speak no proper SSH, or send what takes long to read: each costs one node."""

from __future__ import annotations

import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from pydantic import SecretStr

from fleetbuild.models import Event, Login, Node, Unreachable
from fleetbuild.probe.probing import Probed, ask, probe, transport_for
from fleetbuild.probe.transport.base import Deadline
from fleetbuild.probe.transport.openssh import ProgramTransport, settle

pytestmark = pytest.mark.no_cover  # what the servers send is read slowly enough


def packet(payload: bytes) -> bytes:
    """An unencrypted packet of SSH's."""
    padding = 4 + -(len(payload) + 9) % 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


# Names of algorithms that are not UTF-8; SSH requires ASCII.
KEXINIT = packet(b"\x14" + bytes(16) + (struct.pack(">I", 2) + b"\xff\xfe") * 10 + bytes(5))


class _Hostile(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"SSH-2.0-Hostile\r\n" + KEXINIT)
        self.rfile.read(64)


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Hostile) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_an_undecodable_server_name_fails_only_its_node(port: int) -> None:
    login = Login(host="127.0.0.1", port=port, user="u", ssh_args=("-F", "none"))
    found = ask([Node(name="n", login=login)], b"", (), lambda *_: {}, timeout=10)
    assert isinstance(found["n"], Unreachable)
    assert found["n"].reason
    assert found["n"].fix


@contextmanager
def servers(*answers: str, stderr: IO[str] | int = subprocess.DEVNULL) -> Iterator[list[Node]]:
    """A node for each of these answers of loopback_server.py."""
    program = Path(__file__).with_name("loopback_server.py")
    with subprocess.Popen(
        [sys.executable, program, *answers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as running:
        assert running.stdout
        try:
            ports = running.stdout.readline().split()
            yield [
                Node(name=f"{answer}{number}", login=login_at(int(port)))
                for number, (answer, port) in enumerate(zip(answers, ports, strict=True))
            ]
        finally:
            running.kill()


def login_at(port: int) -> Login:
    return Login(
        host="127.0.0.1",
        port=port,
        user="u",
        password=SecretStr("p"),
        host_key_checking=False,
        ssh_args=("-F", "none", "-o", "UserKnownHostsFile=/dev/null"),
    )


@pytest.fixture(scope="module")
def good() -> Iterator[list[Node]]:
    with servers(*["good"] * 6) as nodes:
        yield nodes


def probed(
    nodes: list[Node], timeout: int = 12
) -> tuple[dict[str, Probed | Unreachable], float, float]:
    """What a probe found, when the last good node's facts came, and when all was over."""
    came = {}
    began = time.monotonic()

    def listen(event: Event) -> None:
        came[event.node] = time.monotonic() - began

    found = probe(nodes, timeout=timeout, on_event=listen)
    last = max(came[node.name] for node in nodes if node.name.startswith("good"))
    return found, last, time.monotonic() - began


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("marks", "the node returned a malformed result"),
        ("flags", None),  # it is read, elsewhere
        ("endless", "it printed more than 16 MB"),
        ("drops", ""),  # late
    ],
)
def test_a_node_with_worst_case_output_does_not_delay_others(
    good: list[Node], answer: str, reason: str | None
) -> None:
    usual = min(probed(good)[1] for _ in range(2))
    timeout = 5 if answer == "drops" else 12  # it is at work until then
    with servers(answer) as (bad,):
        runs = []
        for _ in range(2):  # a busy machine is slow in one of them
            found, last, whole = probed([bad, *good], timeout)
            assert all(isinstance(found[node.name], Probed) for node in good)
            worst = found[bad.name]
            if reason is None:
                assert isinstance(worst, Probed)
                assert len(worst.facts.features) == 1024  # the most that is kept
            else:
                assert isinstance(worst, Unreachable)
                assert reason in worst.reason
            assert whole < timeout + 2
            runs.append(last)
            if last - usual < 1:
                break
        assert min(runs) - usual < 1


def test_neither_agent_nor_display_is_forwarded(tmp_path: Path) -> None:
    """By paramiko; what the ssh program does with such settings is in test_openssh.py."""
    config = tmp_path / "config"
    config.write_text("ForwardAgent yes\nForwardX11 yes\nUserKnownHostsFile /dev/null\n")
    log = tmp_path / "log"
    with log.open("w") as heard, servers("good", stderr=heard) as (node,):
        login = node.login.model_copy(update={"ssh_args": ("-F", str(config))})
        found = probe([node.model_copy(update={"login": login})])
    assert isinstance(found[node.name], Probed)
    assert "asked for" not in log.read_text()


@pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
@pytest.mark.parametrize("user", ["u", "u" * 40])
@pytest.mark.parametrize("alias", [(), ("-o", "HostKeyAlias=N1")])
def test_the_password_answers_only_the_prompt_of_this_login(
    good: list[Node], method: str, user: str, alias: tuple[str, ...]
) -> None:
    preferred = ("-o", f"PreferredAuthentications={method}", "-o", "LogLevel=ERROR", *alias)
    login = good[0].login
    login = login.model_copy(update={"ssh_args": (*login.ssh_args, *preferred), "user": user})
    settings = settle(login, Deadline(10))
    answer = ProgramTransport(login, settings).run("sh -s -- fleetbuild-0", b"", Deadline(20))
    assert b"fleetbuild-0 end uname 0" in answer.out


def test_a_shell_that_hangs_is_not_taken_for_a_firewall() -> None:
    with servers("silent") as (node,):
        transport, _ = transport_for(node.login)
        with pytest.raises(TimeoutError):
            transport.run("sh -s -- fleetbuild-nonce", b"x", Deadline(3))
        found = probe([node], timeout=3)[node.name]
    assert isinstance(found, Unreachable)
    assert found.reason == "no answer within 3 s"
    assert "the shell's profile" in str(found.fix)
