"""The fast transport: Fabric over paramiko, in this process.

paramiko is not OpenSSH. It is used if `ssh -G` shows only settings that it supports. If its login
fails, the ssh program tries again, and the error of that is reported.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.models import Login
from fleetbuild.probe.transport import failure_reasons as reasons
from fleetbuild.probe.transport.base import (
    LARGEST,
    LARGEST_COMPLAINT,
    Answer,
    Deadline,
    NoAnswer,
)
from fleetbuild.probe.transport.known_hosts import KnownHosts
from fleetbuild.probe.transport.openssh import (
    ProgramTransport,
    Settings,
    defaults,
    seconds_to_connect,
)
from fleetbuild.probe.transport.process import too_much

if TYPE_CHECKING:
    from paramiko import Channel, PKey

# paramiko logs what it also raises, and Python prints that to stderr without a handler.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

# Settings that this module applies itself.
_UNDERSTOOD = {
    "host", "hostname", "user", "port", "identityfile", "identitiesonly", "userknownhostsfile",
    "globalknownhostsfile", "stricthostkeychecking", "preferredauthentications", "connecttimeout",
    "passwordauthentication", "kbdinteractiveauthentication", "challengeresponseauthentication",
}  # fmt: skip
# Settings without effect on one command without a terminal.
_IRRELEVANT = {
    "addkeystoagent", "batchmode", "canonicalizefallbacklocal", "checkhostip",
    "clearallforwardings", "compression", "connectionattempts", "controlmaster", "controlpath",
    "controlpersist", "dynamicforward", "enableescapecommandline", "escapechar",
    "exitonforwardfailure", "forwardagent", "forwardx11", "forwardx11timeout",
    "forwardx11trusted", "gatewayports", "gssapiauthentication", "gssapidelegatecredentials",
    "gssapikexalgorithms", "gssapikeyexchange", "gssapirenewalforcesrekey", "gssapitrustdns",
    "hashknownhosts", "ipqos", "localforward", "loglevel", "logverbose",
    "numberofpasswordprompts", "obscurekeystroketiming", "remoteforward", "requesttty", "sendenv",
    "serveralivecountmax", "serveraliveinterval", "streamlocalbindmask", "streamlocalbindunlink",
    "syslogfacility", "tag", "tcpkeepalive", "updatehostkeys", "visualhostkey", "xauthlocation",
}  # fmt: skip
_READING = threading.Lock()
_CHECKED, _UNCHECKED = ("ask", "yes", "true"), ("no", "off", "false")


def beyond_paramiko(login: Login, settings: Settings) -> str | None:
    """Return the first setting that paramiko does not support, or None."""
    usual = defaults(login.ssh_executable)
    for name in sorted(settings.keys() | usual.keys() - _UNDERSTOOD - _IRRELEVANT):
        if name in _UNDERSTOOD | _IRRELEVANT:
            continue
        if settings.get(name) != usual.get(name):
            return name
    if settings["stricthostkeychecking"][0] not in _CHECKED + _UNCHECKED:
        return "stricthostkeychecking"
    if login.password and settings.get("passwordauthentication") == ("no",):
        return "passwordauthentication"
    files = (*settings.get("identityfile", ()), *_known_hosts_files(settings))
    if any("%" in file or '"' in file or "${" in file for file in files):
        return "a path with tokens"
    if any(Path(f"{Path(file).expanduser()}-cert.pub").exists() for file in files):
        return "a certificate"
    return None


class FabricTransport:
    """A direct login by key, agent or password."""

    def __init__(self, login: Login, settings: Settings) -> None:
        self._login = login
        self._settings = settings
        self._connection: Any = None
        self._program: ProgramTransport | None = None
        self._given_up = threading.Event()

    def run(self, command: str, stdin: bytes, deadline: Deadline) -> Answer:
        """See Transport."""
        import paramiko  # noqa: PLC0415 (0.2 s that only a probe has to pay)

        logged_in = False
        try:
            with self._connected(deadline):
                logged_in = True
                return _exchange(self._connection, command, stdin, deadline)
        except NoAnswer:
            raise
        except Exception as problem:
            # Catch everything: paramiko parses untrusted input and may raise any exception. It must
            # fail only this node.
            late = logged_in and isinstance(problem, TimeoutError)  # the network is not to blame
            if late or self._given_up.is_set():
                raise TimeoutError from None
            if network_problem := _network_problem(problem, self._settings):
                raise network_problem from None
            if isinstance(problem, paramiko.AuthenticationException) and self._login.password:
                # A second attempt with the same password could lock the account.
                raise reasons.login_refused(self._login) from None
            self._program = ProgramTransport(self._login, self._settings)
            return self._program.run(command, stdin, deadline)

    def abandon(self) -> None:
        """See Transport."""
        self._given_up.set()
        if self._program is not None:
            self._program.abandon()
        # Closing waits for paramiko's thread, so do not wait here.
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.client.close()

    @contextmanager
    def _connected(self, deadline: Deadline) -> Iterator[None]:
        self._connection = connection = _connection(self._login, self._settings, deadline)
        try:
            connection.open()
            yield
        finally:
            connection.client.close()


def _connection(login: Login, settings: Settings, deadline: Deadline) -> Any:
    from fabric import Connection  # noqa: PLC0415
    from paramiko import RejectPolicy  # noqa: PLC0415

    left = deadline.left
    known_hosts = _known_hosts(_known_hosts_files(settings))
    unchecked = settings["stricthostkeychecking"][0] in _UNCHECKED
    if known_hosts.beyond and not unchecked:
        raise EOFError  # let OpenSSH decide
    host, port = settings["hostname"][0], int(settings["port"][0])
    connection = Connection(
        host,
        user=settings["user"][0],
        port=port,
        config=_fabric_config(),
        forward_agent=False,  # a node could log in to others with it
        connect_timeout=min(left, seconds_to_connect(login, settings)),
        connect_kwargs={
            **_keys(settings),
            "allow_agent": settings.get("identitiesonly") != ("yes",),
            "look_for_keys": False,
            "banner_timeout": left,
            "auth_timeout": left,
            "channel_timeout": left,
            **_password(login),
        },
    )
    if not unchecked:
        connection.client.set_missing_host_key_policy(RejectPolicy())
    if not unchecked or login.password:  # a changed host key is never accepted with a password
        name = host.lower() if port == 22 else f"[{host.lower()}]:{port}"
        for kind, key in known_hosts.keys_of(name).items():
            connection.client.get_host_keys().add(_paramiko_name(host, port), kind, key)
    return connection


def _paramiko_name(host: str, port: int) -> str:
    return host if port == 22 else f"[{host}]:{port}"


def _password(login: Login) -> dict[str, str]:
    # Without a passphrase of its own, paramiko would try the password on key files.
    secret = login.password
    return {"password": secret.get_secret_value(), "passphrase": ""} if secret else {}


def _fabric_config() -> Any:
    """Return a Fabric configuration that reads no files.

    Each connection has its own: a shared Config is briefly empty while another thread changes it.
    """
    from fabric import Config  # noqa: PLC0415
    from paramiko import SSHConfig  # noqa: PLC0415

    return Config(lazy=True, ssh_config=SSHConfig())


def _keys(settings: Settings) -> dict[str, Any]:
    """Return the key arguments; a single key without passphrase is read once for all nodes."""
    named = [Path(file).expanduser() for file in settings.get("identityfile", ())]
    files = [str(file) for file in named if file.is_file() and os.access(file, os.R_OK)]
    if len(files) != 1 or Path(f"{files[0]}-cert.pub").exists():
        return {"key_filename": files}
    with _READING:  # by the first thread, for all
        key = _read_key(files[0], Path(files[0]).stat().st_mtime_ns)
    return {"pkey": key} if key else {"key_filename": files}


@functools.cache
def _read_key(file: str, _changed: int) -> PKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from paramiko import PKey, SSHException  # noqa: PLC0415
    from paramiko.pkey import UnknownKeyType  # noqa: PLC0415

    try:
        return PKey.from_path(file)
    except (SSHException, UnknownKeyType, UnsupportedAlgorithm, ValueError, TypeError):
        return None  # it has a passphrase or is invalid: each login reports that


def _known_hosts_files(settings: Settings) -> tuple[str, ...]:
    lines = (*settings.get("userknownhostsfile", ()), *settings.get("globalknownhostsfile", ()))
    return tuple(file for line in lines for file in line.split() if file != "none")


def _known_hosts(files: tuple[str, ...]) -> KnownHosts:
    paths = tuple(Path(name).expanduser() for name in files)
    changed = tuple(file.stat().st_mtime_ns for file in paths if file.is_file())
    with _READING:
        return _read_known_hosts(paths, changed)


@functools.cache
def _read_known_hosts(files: tuple[Path, ...], _changed: tuple[int, ...]) -> KnownHosts:
    readable = (file for file in files if file.is_file() and os.access(file, os.R_OK))
    return KnownHosts(
        line for file in readable for line in file.read_text("utf-8", "replace").splitlines()
    )


def _exchange(connection: Any, command: str, stdin: bytes, deadline: Deadline) -> Answer:
    """Send the script and return the answer.

    This needs no threads: the script fits into the window of sshd, and stderr waits in paramiko's
    buffer. A node that fills the buffer runs into its own deadline.
    """
    channel = connection.create_session()
    channel.settimeout(deadline.left)
    channel.exec_command(command)
    _feed(channel, stdin)
    out = bytearray()
    while data := _received(channel, deadline):
        out += data
        if len(out) > LARGEST:
            raise too_much()
    code = channel.recv_exit_status() if channel.status_event.wait(deadline.left) else None
    err = channel.recv_stderr(LARGEST_COMPLAINT) if channel.recv_stderr_ready() else b""
    return Answer(None if code == -1 else code, bytes(out), err)


def _received(channel: Channel, deadline: Deadline) -> bytes:
    channel.settimeout(deadline.left)
    return channel.recv(2**16)


def _feed(channel: Channel, stdin: bytes) -> None:
    try:
        channel.sendall(stdin)
        channel.shutdown_write()
    except OSError:
        return  # the command ended early; its answer says why


def _network_problem(problem: Exception, settings: Settings) -> NoAnswer | None:
    """Return the error if the network itself failed, which no other client can change."""
    from paramiko.ssh_exception import NoValidConnectionsError  # noqa: PLC0415

    host, port = settings["hostname"][0], int(settings["port"][0])
    if isinstance(problem, NoValidConnectionsError):
        problem = next(iter(problem.errors.values()))
    if isinstance(problem, socket.gaierror):
        return reasons.unknown_name(host)
    if isinstance(problem, ConnectionRefusedError):
        return reasons.refused(host, port)
    if isinstance(problem, TimeoutError):
        return reasons.timed_out(host)
    if isinstance(problem, OSError) and problem.errno in (101, 113):  # ENETUNREACH, EHOSTUNREACH
        return reasons.no_route(host)
    return None
