"""An SSH server on a loopback port for each word of its arguments, in a process of its own.

Prints the ports. Each lets everybody in and answers a probe as its word says: `good` as a node
does, the others as a hostile node does.
"""

# What paramiko calls gets more than it needs; the ports go to standard output.
# ruff: noqa: ARG002, T201
from __future__ import annotations

import base64
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator

import paramiko

KEY = paramiko.ECDSAKey.generate()
HIDDEN = 2**24 - 2**16  # bytes: what a node may send, but for the frames
CPUINFO = "processor : 0\nflags : lm sse2 avx\n"


def section(nonce: str, name: str, text: str) -> str:
    return f"{nonce} begin {name}\n{text}\n{nonce} end {name} 0\n"


def good(nonce: str) -> Iterator[bytes]:
    known = section(nonce, "uname", "Linux 6.1 x86_64") + section(nonce, "cpuinfo", CPUINFO)
    yield known.encode()


def windows(nonce: str) -> Iterator[bytes]:
    """As script.ps1 does; programs of Windows end their lines with CR LF."""
    parts = {
        "uname": "Windows 10.0.19045 AMD64",
        "processors": "Manufacturer : GenuineIntel\r\nDescription : Family 6 Model 42 Stepping 7\r",
        "cpu-features": "feature 36\nfeature 37\nfeature 38\nfeature 39\nfeature 13",
    }
    yield ("\n" + "".join(section(nonce, name, text) for name, text in parts.items())).encode()


def marks(nonce: str) -> Iterator[bytes]:
    """The beginning of a section, again and again."""
    unit = f"{nonce} begin cpuinfo\n"
    yield (unit * (HIDDEN // len(unit))).encode()


def flags(nonce: str) -> Iterator[bytes]:
    """Processors of which no two are alike: nothing takes longer to read."""
    every = " ".join(f"{number:x}" for number in range(0x1000, 0x2000))
    each = (every[5 * n :] + " " + every[: 5 * n] for n in range(HIDDEN // (len(every) + 40)))
    lines = [
        f"processor : {number}\nflags : lm {some[:16000]}\n" for number, some in enumerate(each)
    ]
    text = "".join(lines)[: HIDDEN - 1000]
    yield (section(nonce, "uname", "Linux 6.1 x86_64") + section(nonce, "cpuinfo", text)).encode()


def endless(nonce: str) -> Iterator[bytes]:
    yield f"{nonce} begin cpuinfo\n".encode()
    while True:
        yield b"\xff" * 2**20


def drops(_: str) -> Iterator[bytes]:
    """A packet for each byte."""
    while True:
        yield b"x"


def silent(_: str) -> Iterator[bytes]:
    """Nothing, as a shell whose profile hangs."""
    time.sleep(60)
    yield b""


class Everybody(paramiko.ServerInterface):
    """Lets everybody in, and keeps what they ask for."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def get_allowed_auths(self, username: str) -> str:
        return "password,publickey,keyboard-interactive"

    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if password == "p" else paramiko.AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
        return paramiko.InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return paramiko.AUTH_SUCCESSFUL if responses == ["p"] else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, command.decode()), daemon=True).start()
        return True

    def check_channel_forward_agent_request(self, channel: paramiko.Channel) -> bool:
        print("asked for: agent", file=sys.stderr, flush=True)
        return True

    def check_channel_x11_request(self, *_: object) -> bool:
        print("asked for: x11", file=sys.stderr, flush=True)
        return True

    def _answer(self, channel: paramiko.Channel, command: str) -> None:
        shell, *_, last = command.split()
        if shell == "powershell.exe":
            command = base64.b64decode(last).decode("utf-16-le")
        nonce = re.findall(r"fleetbuild-\w+", command)[0]
        try:
            if self.answer == "windows":
                self._answer_as_windows(channel, shell)
            for piece in globals()[self.answer](nonce):
                channel.sendall(piece)
            channel.send_exit_status(0)
        except OSError:
            pass
        channel.close()

    @staticmethod
    def _answer_as_windows(channel: paramiko.Channel, shell: str) -> None:
        """Refuse another shell as cmd.exe does, and read the whole script as PowerShell does."""
        if shell != "powershell.exe":
            channel.sendall_stderr(
                f"'{shell}' is not recognized as an internal or external command,\r\n".encode()
            )
            channel.send_exit_status(1)
            raise OSError
        with channel.makefile("rb") as stdin:
            if b"param([string]$Nonce" not in stdin.read():
                raise OSError


def serve(listening: socket.socket, answer: str) -> None:
    while True:
        connection, _ = listening.accept()
        transport = paramiko.Transport(connection)
        transport.add_server_key(KEY)
        transport.start_server(threading.Event(), Everybody(answer))


if __name__ == "__main__":
    ports = []
    for word in sys.argv[1:]:
        listening = socket.create_server(("127.0.0.1", 0))
        ports.append(str(listening.getsockname()[1]))
        threading.Thread(target=serve, args=(listening, word), daemon=True).start()
    print(" ".join(ports), flush=True)
    sys.stdin.read()  # until the test ends
