"""Share one `ssh -G` among nodes whose settings differ only by name.

`ssh -v` names the configuration files that ssh reads. If one of them, or an option, could treat
hosts differently, `ssh -G` runs for each node.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fleetbuild.models import Login
from fleetbuild.probe.transport import openssh
from fleetbuild.probe.transport.base import Deadline, NoAnswer
from fleetbuild.probe.transport.openssh import Settings

_ANY = "fleetbuild-any-host"
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_READ = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
# A Host line but `Host *`, a Match line, and a token such as the %h of `HostName %h.lan`.
_BY_HOST = re.compile(
    rb'^[ \t"]*(?:match\b|host\b(?![ \t]+\*[ \t\r]*$))|^[^#\n]*%', re.IGNORECASE | re.MULTILINE
)


class SharedSettings:
    """The settings of many logins; equal questions are asked once."""

    def __init__(self, logins: Iterable[Login]) -> None:
        counted = Counter(_question(login) for login in logins if _is_plain(login))
        self._shared = {words: _Once(words) for words, count in counted.items() if count > 1}

    def settle(self, login: Login, deadline: Deadline) -> Settings:
        """Return the settings as openssh.settle does, from the shared answer if that is valid."""
        once = self._shared.get(_question(login)) if _is_plain(login) else None
        shared = once.asked(deadline) if once else None
        if shared is None:
            return openssh.settle(login, deadline)
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
    return (login.ssh_executable, *openssh.options(login))


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


def _for_any_host(words: tuple[str, ...], deadline: Deadline) -> Settings | None:
    """Return the settings for all hosts; None if hosts differ or that is unknown."""
    if any("%" in word for word in words):
        return None
    try:
        settings, said = openssh.ask_ssh(
            [words[0], "-v", "-G", *words[1:], "--", _ANY], min(10.0, deadline.left)
        )
        files = _READ.findall(said)
        if not files or any(_BY_HOST.search(Path(file).read_bytes()) for file in files):
            return None
    except (NoAnswer, OSError):
        return None  # the question for each node reports the error
    named = {name for name, values in settings.items() if any(_ANY in one for one in values)}
    renamed = named - {"host"} != {"hostname"} or settings["hostname"] != (_ANY,)
    canonical = settings.get("canonicalizehostname", ("false",)) != ("false",)
    followed = settings.get("canonicalizepermittedcnames", ("none",)) != ("none",)
    # A bastion is not reached through itself: OpenSSH compares the names.
    return None if renamed or canonical or followed or "proxyjump" in settings else settings
