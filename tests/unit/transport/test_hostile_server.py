"""Servers that speak no proper SSH: each is one node that is not reached, and no more."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from fleetbuild.models import Login, Node, Unreachable
from fleetbuild.probe import ask


def packet(payload: bytes) -> bytes:
    """An unencrypted packet of SSH's."""
    padding = 4 + -(len(payload) + 9) % 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


# Names of algorithms in what is no UTF-8, where SSH wants ASCII.
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


def test_names_that_are_no_text_cost_one_node(port: int) -> None:
    login = Login(host="127.0.0.1", port=port, user="u", ssh_args=("-F", "none"))
    found = ask([Node(name="n", login=login)], b"", (), lambda *_: {}, timeout=10)
    assert isinstance(found["n"], Unreachable)
    assert found["n"].reason
    assert found["n"].fix
