"""Probe nodes: run script.sh, or script.ps1 on Windows, in one round trip, and read its output.

In: nodes. Out: captures and facts, or why a node is unreachable.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import Generic, TypeVar

from fleetbuild.models import Capture, Event, Facts, Login, Node, OnEvent, Unreachable, ignore
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import split
from fleetbuild.probe.pool import run_all
from fleetbuild.probe.transport import failure_reasons as reasons
from fleetbuild.probe.transport import openssh
from fleetbuild.probe.transport.base import Answer, Deadline, NoAnswer, Transport
from fleetbuild.probe.transport.fabric import FabricTransport, beyond_paramiko
from fleetbuild.probe.transport.local import LocalTransport
from fleetbuild.probe.transport.shared_settings import SharedSettings

WORKSPACE = "~/.cache/fleetbuild"
_WINDOWS_REMOTING = ("winrm", "psrp")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]{1,1000}")
T = TypeVar("T")


@dataclass(frozen=True)
class Probed:
    """The capture of a node that answered, and the facts in it."""

    capture: Capture
    facts: Facts


def probe(
    nodes: Sequence[Node],
    *,
    timeout: float = 30,
    forks: int = 64,
    install_path: str = "/opt/fleetbuild",
    workspace: str = WORKSPACE,
    on_event: OnEvent = ignore,
) -> dict[str, Probed | Unreachable]:
    """Probe every node; the results are in the order of `nodes`."""
    nonce = f"fleetbuild-{secrets.token_hex(16)}"
    seconds = section_seconds(timeout)
    answers = ask(
        nodes,
        script(),
        (nonce, install_path, workspace, _interpreters(nodes), seconds),
        functools.partial(_read, nonce=nonce),
        timeout=timeout,
        forks=forks,
        on_event=on_event,
        windows=(windows_script(), (nonce, seconds)),
    )
    return {node.name: answers[node.name] for node in nodes}


def section_seconds(timeout: float) -> str:
    """Return the limit of each section, as the probe script takes it: half of the node's.

    The sections run at the same time; the other half is for the login.
    """
    return str(max(1, int(timeout / 2)))


def _interpreters(nodes: Sequence[Node]) -> str:
    """Return the paths that the inventory sets for Ansible's modules, for all nodes alike."""
    paths = {path for node in nodes if (path := node.interpreter) and _PLAIN_PATH.fullmatch(path)}
    return " ".join(sorted(paths)[:64])


def script() -> bytes:
    """Return the probe script."""
    return files("fleetbuild.probe").joinpath("script.sh").read_bytes()


def windows_script() -> bytes:
    """Return the probe script of Windows nodes."""
    return files("fleetbuild.probe").joinpath("script.ps1").read_bytes()


def ask(
    nodes: Sequence[Node],
    text: bytes,
    arguments: Sequence[str],
    read: Callable[[Answer, Login], T],
    *,
    timeout: float = 30,
    forks: int = 64,
    on_event: OnEvent = ignore,
    windows: tuple[bytes, Sequence[str]] | None = None,
) -> dict[str, T | Unreachable]:
    """Run a sh script on every node and read the output; `read` may raise NoAnswer.

    `windows` is the PowerShell script for Windows nodes, with its arguments.
    """
    if any(node.login.connection == "ssh" for node in nodes):
        # Import here: fifty threads importing at once have hung on Python's import locks.
        import_module("fabric")
    way = functools.partial(
        transport_for, settle=SharedSettings(node.login for node in nodes).settle
    )
    scripts = (_script_for(node.login, (text, arguments), windows) for node in nodes)
    jobs = [
        _NodeProbe(node, *script, timeout, read, way=way)
        for node, script in zip(nodes, scripts, strict=True)
    ]
    found: dict[str, T | Unreachable] = {}
    for number, outcome in run_all(
        jobs, at_once=forks, timeout=timeout, late=lambda: _late(timeout)
    ):
        if isinstance(outcome, BaseException):
            raise outcome
        node = nodes[number]
        found[node.name] = outcome
        on_event(_event(node, outcome, len(found), len(nodes)))
    return found


def _script_for(
    login: Login, sh: tuple[bytes, Sequence[str]], windows: tuple[bytes, Sequence[str]] | None
) -> tuple[bytes, Sequence[str]]:
    return windows if windows and login.shell_type == "powershell" else sh


class _NodeProbe(Generic[T]):
    """The job for one node: choose a transport, run the script, read the output."""

    def __init__(
        self,
        node: Node,
        text: bytes,
        arguments: Sequence[str],
        timeout: float,
        read: Callable[[Answer, Login], T],
        *,
        way: Callable[[Login, float], tuple[Transport, str | None]],
    ) -> None:
        self._login = node.login
        self._text = text
        self._arguments = arguments
        self._timeout = timeout
        self._read = read
        self._way = way
        self._transport: Transport | None = None

    def run(self, admitted: Callable[[str | None], None]) -> T | Unreachable:
        """See Job."""
        try:
            self._transport, gate = self._way(self._login, self._timeout)
            admitted(gate)
            answer = self._transport.run(self._text, self._arguments, Deadline(self._timeout))
            return self._read(answer, self._login)
        except NoAnswer as problem:
            return Unreachable(reason=problem.reason, fix=problem.fix)
        except TimeoutError:
            return _late(self._timeout)

    def abandon(self) -> None:
        """See Job."""
        if self._transport is not None:
            self._transport.abandon()


def transport_for(
    login: Login,
    timeout: float = 30,
    settle: Callable[[Login, Deadline], openssh.Settings] = openssh.settle,
) -> tuple[Transport, str | None]:
    """Return the transport for a node, and its bastion if it has one."""
    if login.connection == "local":
        return LocalTransport(login.become), None
    if login.connection in _WINDOWS_REMOTING:
        raise NoAnswer(
            f"connection {login.connection!r} is not supported: fleetbuild reaches Windows by SSH",
            "install OpenSSH Server there and set ansible_connection: ssh and ansible_shell_type: "
            "powershell, or set fleetbuild_skip: true",
        )
    if login.connection != "ssh":
        raise NoAnswer(
            f"connection {login.connection!r} is not supported", "use ssh, or fleetbuild_skip: true"
        )
    settings = settle(login, Deadline(timeout))
    gate = next(
        (settings[name][0] for name in ("proxyjump", "proxycommand") if name in settings), None
    )
    if beyond_paramiko(login, settings):
        return openssh.ProgramTransport(login, settings), gate
    return FabricTransport(login, settings), gate


def _read(answer: Answer, login: Login, *, nonce: str) -> Probed:
    capture = split(answer.out.decode(errors="replace"), nonce)
    if not capture:
        raise reasons.unusable_answer(answer, login)
    return Probed(capture, facts_of(capture))


def _late(timeout: float) -> Unreachable:
    return Unreachable(
        reason=f"no answer within {timeout:g} s",
        fix="set a longer --timeout, or find out what blocks the node",
    )


def _event(node: Node, outcome: object, done: int, total: int) -> Event:
    lost = isinstance(outcome, Unreachable)
    return Event(
        stage="probe",
        state="unreachable" if lost else "ok",
        node=node.name,
        message=outcome.reason if isinstance(outcome, Unreachable) else "",
        fix=outcome.fix if isinstance(outcome, Unreachable) else "",
        done=done,
        total=total,
    )
