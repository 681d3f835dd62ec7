"""OpenSSH: the options that Ansible would pass, the effective settings, and the ssh program.

`ssh -G` evaluates a login with the user's ssh_config, Match and Include, so these are not parsed
here. Nodes whose settings differ only by name share one `ssh -G`. See
docs/decisions/0004-ssh-transport.md.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import os
import re
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr

from fleetbuild.models import Login
from fleetbuild.probe.transport.base import Answer, Deadline, NoAnswer
from fleetbuild.probe.transport.failure_reasons import ssh_problem
from fleetbuild.probe.transport.process import Process

Settings = Mapping[str, tuple[str, ...]]

_NO_PASSWORDS = (
    "KbdInteractiveAuthentication=no",
    "PreferredAuthentications=gssapi-with-mic,gssapi-keyex,hostbased,publickey",
    "PasswordAuthentication=no",
)
# These come first, and OpenSSH uses the first value. A new master connection would outlive the
# probe and hold its pipes; an existing one of the user is used through its ControlPath.
_OURS = (
    "ControlMaster=no", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes",
    "ForwardAgent=no", "ForwardX11=no", "ForwardX11Trusted=no", "PermitLocalCommand=no",
    "Tunnel=no",
)  # fmt: skip
# The same by the options that count wherever they stand, after a -A or -X in Ansible's arguments.
_LAST = ("-a", "-x")
_ASKING = threading.Lock()
_PREFIXED = (8, 5)  # since then a question in a server's own words begins with who asks it


def options(login: Login, connect_timeout: int = 0) -> list[str]:
    """Return the ssh options for a login, in Ansible's order."""
    words = [] if login.host_key_checking else ["StrictHostKeyChecking=no"]
    words += [f"Port={login.port}"] if login.port else []
    words += [f'IdentityFile="{Path(login.key_file).expanduser()}"'] if login.key_file else []
    words += [] if login.password else _NO_PASSWORDS
    words += [f'User="{login.user}"'] if login.user else []
    words += [f"ConnectTimeout={connect_timeout}"] if connect_timeout else []
    return [*login.ssh_args, *_options(words), *login.ssh_common_args]


def _options(words: Sequence[str]) -> list[str]:
    return [word for option in words for word in ("-o", option)]


def seconds_to_connect(login: Login, settings: Settings) -> int:
    """Return how long an address may take to accept a connection; the rest is for a slow login."""
    named = settings.get("connecttimeout", ("none",))[0]
    return int(named) if named.isdecimal() and int(named) else login.connect_timeout


def settle(login: Login, deadline: Deadline) -> Settings:
    """Return OpenSSH's effective settings for a login, from `ssh -G`."""
    if login.host.startswith("-"):
        raise NoAnswer(f"{login.host!r} is not a valid host name", "correct ansible_host")
    words = [login.ssh_executable, "-G", *options(login), "--", login.host]
    return ask_ssh(words, min(10.0, deadline.left))[0]


def defaults(ssh: str) -> Settings:
    """Return OpenSSH's default settings, without any configuration file."""
    with _ASKING:  # the nodes' threads come here at the same time
        return _defaults(ssh)


@functools.cache
def _defaults(ssh: str) -> Settings:
    return ask_ssh([ssh, "-F", "none", "-G", "--", "localhost"], 10.0)[0]


def ask_ssh(words: Sequence[str], timeout: float) -> tuple[Settings, str]:
    """Return the settings that `ssh -G` prints, and its stderr."""
    try:
        ended = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(
            "its ssh configuration takes longer to read than 10 s", "check its Match exec lines"
        ) from None
    except OSError as error:
        raise NoAnswer(f"{words[0]} cannot be run: {error.strerror}", "install OpenSSH") from None
    if ended.returncode != 0:
        complaint = ended.stderr.decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        raise NoAnswer(
            f"ssh does not accept its options: {complaint[0]}", "correct the ssh arguments"
        )
    settings: dict[str, tuple[str, ...]] = {}
    for line in ended.stdout.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        settings[name] = (*settings.get(name, ()), value)
    return settings, ended.stderr.decode(errors="replace")


@functools.cache
def _version(ssh: str) -> tuple[int, int]:
    """Return OpenSSH's version; (0, 0) if it is unknown."""
    try:
        ended = subprocess.run(
            [ssh, "-V"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    match = re.match(rb"OpenSSH_[A-Za-z_]*(\d{1,3})\.(\d{1,3})", ended.stderr)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _asked_as(login: Login, settings: Settings) -> tuple[str, str]:
    """Return the user and host that OpenSSH names in its password prompt."""
    host = settings.get("hostname", (login.host,))[0].lower()
    user = settings.get("user", (login.user or "",))[0]
    return user, settings.get("hostkeyalias", (host,))[0]


class ProgramTransport:
    """Runs the ssh program: supports all of OpenSSH, but needs a process per node."""

    def __init__(self, login: Login, settings: Settings) -> None:
        self._login = login
        self._settings = settings
        self._process: Process | None = None

    def run(self, command: str, stdin: bytes, deadline: Deadline) -> Answer:
        """See Transport."""
        login = self._login
        ours = [*_OURS, *(("NumberOfPasswordPrompts=1",) if login.password else ("BatchMode=yes",))]
        if login.password and _version(login.ssh_executable) < _PREFIXED:
            # A bastion could imitate OpenSSH's prompt for the node's password.
            ours.append("KbdInteractiveAuthentication=no")
        # Behind a bastion, ssh waits as long for the node's first words, as it does under Ansible.
        seconds = min(math.ceil(deadline.left), seconds_to_connect(login, self._settings))
        words = [
            login.ssh_executable,
            *("-T", *_options(ours), *options(login, seconds), *_LAST, "--", login.host, command),
        ]
        with _Askpass(login.password, _asked_as(login, self._settings)) as env:
            self._process = Process(words, {**os.environ, **env})
            answer = self._process.run(stdin, deadline)
        if answer.code == 255 and (problem := ssh_problem(answer.err, login)):
            raise problem
        return answer

    def abandon(self) -> None:
        """See Transport."""
        if self._process is not None:
            self._process.kill()


class _Askpass:
    """Gives ssh one password without a terminal.

    The askpass program answers only the prompt for exactly this login, not a bastion's prompt and
    not the question about an unknown host key. OpenSSH puts the login in brackets before a server's
    own prompt; the prompt itself is ignored.
    """

    PROGRAM = """#!/bin/sh
case $1 in
  "$FLEETBUILD_LOGIN's password: " | "$FLEETBUILD_SHORT's password: " | "($FLEETBUILD_LOGIN) "*)
    printf '%s\\n' "$FLEETBUILD_ANSWER" ;;
  *) exit 1 ;;
esac
"""

    def __init__(self, password: SecretStr | None, asked_as: tuple[str, str]) -> None:
        self._password = password
        self._user, self._host = asked_as
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> dict[str, str]:
        if self._password is None:
            return {}
        self._place = tempfile.TemporaryDirectory(prefix="fleetbuild-")
        program = Path(self._place.name) / "askpass"
        program.write_text(self.PROGRAM, encoding="utf-8")
        program.chmod(0o700)
        return {
            "SSH_ASKPASS": str(program),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY", ":0"),  # OpenSSH before 8.4 asks only with one
            "FLEETBUILD_LOGIN": f"{self._user}@{self._host}",
            "FLEETBUILD_SHORT": f"{self._user[:30]}@{self._host[:128]}",  # by older versions
            "FLEETBUILD_ANSWER": self._password.get_secret_value(),
        }

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.cleanup()


_ANY = "fleetbuild-any-host"
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_READ = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
# A Host line but `Host *`, a Match line, and a token such as the %h of `HostName %h.lan`.
_BY_HOST = re.compile(
    rb'^[ \t"]*(?:match\b|host\b(?![ \t]+\*[ \t\r]*$))|^[^#\n]*%', re.IGNORECASE | re.MULTILINE
)


class SharedSettings:
    """The settings of many logins; equal questions are asked once.

    `ssh -v` names the configuration files that ssh reads. If one of them, or an option, could treat
    hosts differently, `ssh -G` runs for each node.
    """

    def __init__(self, logins: Iterable[Login]) -> None:
        counted = Counter(_question(login) for login in logins if _is_plain(login))
        self._shared = {words: _Once(words) for words, count in counted.items() if count > 1}

    def settle(self, login: Login, deadline: Deadline) -> Settings:
        """Return the settings as settle does, from the shared answer if that is valid."""
        once = self._shared.get(_question(login)) if _is_plain(login) else None
        shared = once.asked(deadline) if once else None
        if shared is None:
            return settle(login, deadline)
        return {
            name: (login.host,) if value == (_ANY,) else value for name, value in shared.items()
        }


class _Once:
    """One question, asked by the first thread; other threads wait for the answer."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._asked = False
        self._answer: Settings | None = None

    def asked(self, deadline: Deadline) -> Settings | None:
        """Return the settings for all hosts; None if hosts may differ."""
        with self._lock:
            if not self._asked:
                self._answer = _for_any_host(self._words, deadline)
                self._asked = True
            return self._answer


def _question(login: Login) -> tuple[str, ...]:
    return (login.ssh_executable, *options(login))


def _is_plain(login: Login) -> bool:
    """Return whether the login uses OpenSSH itself and a name that it does not rewrite."""
    if login.connection != "ssh" or login.ssh_executable != "ssh":
        return False
    if _NAME.fullmatch(login.host):
        return True
    try:
        return str(ipaddress.IPv4Address(login.host)) == login.host
    except ValueError:
        return False


def settings_and_files(words: tuple[str, ...], timeout: float) -> tuple[Settings, Sequence[bytes]]:
    """Return the settings for a host without a name, and each configuration file that ssh reads."""
    settings, debug = ask_ssh([words[0], "-v", "-G", *words[1:], "--", _ANY], timeout)
    return settings, [Path(file).read_bytes() for file in _READ.findall(debug)]


def _for_any_host(words: tuple[str, ...], deadline: Deadline) -> Settings | None:
    """Return the settings for all hosts; None if hosts differ or that is unknown."""
    if any("%" in word for word in words):
        return None
    try:
        settings, files = settings_and_files(words, min(10.0, deadline.left))
        if not files or any(map(_BY_HOST.search, files)):
            return None
    except (NoAnswer, OSError):
        return None  # the question for each node reports the error
    named = {name for name, values in settings.items() if any(_ANY in one for one in values)}
    renamed = named - {"host"} != {"hostname"} or settings["hostname"] != (_ANY,)
    canonical = settings.get("canonicalizehostname", ("false",)) != ("false",)
    followed = settings.get("canonicalizepermittedcnames", ("none",)) != ("none",)
    # A bastion is not reached through itself: OpenSSH compares the names.
    return None if renamed or canonical or followed or "proxyjump" in settings else settings
