"""The transport interface: send a script to a node and return its output in bounded time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetbuild.models import Become

LARGEST = 16 * 2**20  # bytes of output; nodes are not trusted
LARGEST_COMPLAINT = 64 * 2**10


class NoAnswer(Exception):
    """A node did not answer; `reason` and `fix` say why and what to do."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Answer:
    """The output of a node and its exit code (None if unknown)."""

    code: int | None
    out: bytes
    err: bytes = b""
    bastion: str | None = None  # the machine, or command, by way of which the node was reached


class Deadline:
    """A deadline; each step gets the seconds that are left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the seconds left; raises TimeoutError after the deadline."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Transport(Protocol):
    """Runs a command on a node."""

    def run(self, command: str, stdin: bytes, deadline: Deadline) -> Answer:
        """Run a command in the node's shell. Raises NoAnswer, or TimeoutError at the deadline."""
        ...

    def abandon(self) -> None:
        """Abort `run`, which runs in another thread. Returns at once."""
        ...


def remote_command(
    become: Become | None, script: bytes, arguments: Sequence[str]
) -> tuple[str, bytes]:
    """Return the command that runs a script in sh as the become user, and its standard input.

    It uses only plain words and single quotes, which every login shell reads the same way.
    """
    sh = shlex.join(["sh", "-s", "--", *arguments])
    if become is None:
        return sh, script
    if become.method == "sudo":
        return _sudo(become, script, arguments, sh)
    if become.method == "doas" and become.password is None:
        flags = shlex.split(become.flags or "-n")
        return shlex.join(
            [become.exe or "doas", *flags, "-u", become.user, "--"]
        ) + f" {sh}", script
    with_password = " with a password" if become.method == "doas" else ""
    raise NoAnswer(
        f"become by {become.method}{with_password} is not supported",
        "use sudo, or set ansible_become: false",
    )


def _sudo(become: Become, script: bytes, arguments: Sequence[str], sh: str) -> tuple[str, bytes]:
    flags = shlex.split(become.flags if become.flags is not None else "-H -S -n")
    flags = [flag for flag in flags if flag not in ("-n", "-S", "--non-interactive", "--stdin")]
    sudo = [become.exe or "sudo", *flags]
    if become.password is None:
        return f"{shlex.join([*sudo, '-n', '-u', become.user, '--'])} {sh}", script
    password = become.password.get_secret_value()
    if "\n" in password:
        raise NoAnswer("the become password has more than one line", "correct it in the inventory")
    # sudo may or may not read a password, and reads on after a wrong one. So it gets a pipe with
    # only that line, and the script is not on its standard input.
    asking = shlex.join([*sudo, "-S", "-p", "", "-u", become.user, "--"])
    story = (
        'IFS= read -r password; script=$(cat); printf "%s\\n" "$password" | '
        f'{asking} sh -c "exec </dev/null\n$script" sh "$@"'
    )
    return shlex.join(["sh", "-c", story, "sh", *arguments]), password.encode() + b"\n" + script
