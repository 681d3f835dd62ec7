"""OpenSSH: the options that Ansible would give it, what it makes of them, and the program itself.

`ssh -G` settles what a login means, with the user's ssh_config, Match and Include: nothing of
that is read here a second time. See docs/decisions/0004-ssh-transport.md.
"""

from __future__ import annotations

import functools
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr

from fleetbuild.models import Login
from fleetbuild.probe.transport.base import Answer, Deadline, NoAnswer, remote_command
from fleetbuild.probe.transport.failure_reasons import ssh_problem
from fleetbuild.probe.transport.process import Process

Settings = Mapping[str, tuple[str, ...]]

_NO_PASSWORDS = (
    "KbdInteractiveAuthentication=no",
    "PreferredAuthentications=gssapi-with-mic,gssapi-keyex,hostbased,publickey",
    "PasswordAuthentication=no",
)
# Ours come first, and OpenSSH's first word counts. A master of ours would outlive the probe and
# hold its pipes; one of the user's that is there already is used, by its ControlPath.
_OURS = (
    "ControlMaster=no", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes",
    "ForwardAgent=no", "ForwardX11=no", "ForwardX11Trusted=no", "PermitLocalCommand=no",
    "Tunnel=no",
)  # fmt: skip
# The same by the options that count wherever they stand, after a -A or -X in Ansible's arguments.
_LAST = ("-a", "-x")
_PREFIXED = (8, 5)  # since then a question in a server's own words begins with who asks it


def options(login: Login, deadline: Deadline | None = None) -> list[str]:
    """The options for a login, in the order in which Ansible gives them."""
    said = [] if login.host_key_checking else ["StrictHostKeyChecking=no"]
    said += [f"Port={login.port}"] if login.port else []
    said += [f'IdentityFile="{Path(login.key_file).expanduser()}"'] if login.key_file else []
    said += [] if login.password else _NO_PASSWORDS
    said += [f'User="{login.user}"'] if login.user else []
    said += [f"ConnectTimeout={math.ceil(deadline.left)}"] if deadline else []
    return [*login.ssh_args, *_options(said), *login.ssh_common_args]


def _options(words: Sequence[str]) -> list[str]:
    return [word for option in words for word in ("-o", option)]


def settle(login: Login, deadline: Deadline) -> Settings:
    """What OpenSSH makes of a login: every setting with its values, by `ssh -G`."""
    if login.host.startswith("-"):
        raise NoAnswer(f"{login.host!r} is no host name", "mend ansible_host")
    words = [login.ssh_executable, "-G", *options(login), "--", login.host]
    return ask_ssh(words, min(10.0, deadline.left))[0]


@functools.cache
def defaults(ssh: str) -> Settings:
    """OpenSSH's own settings, with no configuration file."""
    return ask_ssh([ssh, "-F", "none", "-G", "--", "localhost"], 10.0)[0]


def ask_ssh(words: Sequence[str], timeout: float) -> tuple[Settings, str]:
    """The settings that an `ssh -G` prints, and what it says on stderr."""
    try:
        ended = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(
            "its ssh configuration takes longer to read than 10 s", "look at its Match exec lines"
        ) from None
    except OSError as error:
        raise NoAnswer(f"{words[0]} cannot be run: {error.strerror}", "install OpenSSH") from None
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise NoAnswer(f"ssh does not accept its options: {said[0]}", "mend the ssh arguments")
    settings: dict[str, tuple[str, ...]] = {}
    for line in ended.stdout.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        settings[name] = (*settings.get(name, ()), value)
    return settings, ended.stderr.decode(errors="replace")


@functools.cache
def _version(ssh: str) -> tuple[int, int]:
    """OpenSSH's version; (0, 0) where it does not tell one."""
    try:
        ended = subprocess.run(
            [ssh, "-V"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    found = re.match(rb"OpenSSH_[A-Za-z_]*(\d{1,3})\.(\d{1,3})", ended.stderr)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _asked_as(login: Login, settings: Settings) -> tuple[str, str]:
    """The user and the host that OpenSSH names when it asks for this login's password."""
    host = settings.get("hostname", (login.host,))[0].lower()
    user = settings.get("user", (login.user or "",))[0]
    return user, settings.get("hostkeyalias", (host,))[0]


class ProgramTransport:
    """The ssh program: all that OpenSSH can do, at the price of a process a node."""

    def __init__(self, login: Login, settings: Settings) -> None:
        self._login = login
        self._settings = settings
        self._process: Process | None = None

    def run(self, script: bytes, arguments: Sequence[str], deadline: Deadline) -> Answer:
        """See Transport."""
        login = self._login
        command, stdin = remote_command(login.become, script, arguments)
        ours = [*_OURS, *(("NumberOfPasswordPrompts=1",) if login.password else ("BatchMode=yes",))]
        if login.password and _version(login.ssh_executable) < _PREFIXED:
            # A bastion could ask in the words that OpenSSH has for the node's password.
            ours.append("KbdInteractiveAuthentication=no")
        words = [
            login.ssh_executable,
            *("-T", *_options(ours), *options(login, deadline), *_LAST, "--", login.host, command),
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
    """Lets ssh ask for one password without a terminal.

    The little program answers when the node asks for exactly this login, and only then: not a
    bastion on the way there, and not the question whether an unknown host key is right. What a
    server asks in its own words comes after the login, in brackets; those words count for nothing.
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
