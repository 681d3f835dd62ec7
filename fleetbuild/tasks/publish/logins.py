"""The login for an upload, from the places where twine looks: environment, .pypirc, .netrc.

In: an address. Out: user and password, or None. Neither is ever part of an address, so that no
command line, log or table contains them.
"""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fleetbuild.errors import ConfigError, UsageError

_TOKEN = "__token__"  # the user name that goes with an API token  # noqa: S105


class IndexLogin(NamedTuple):
    """A user and a password or token."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"IndexLogin(user={self.user!r})"


def find_login(
    url: str, environ: Mapping[str, str] = os.environ, home: Path | None = None
) -> IndexLogin | None:
    """Return the login for this address; None if it has no entry: some servers need no login."""
    home = home or Path.home()
    if password := environ.get("TWINE_PASSWORD"):
        return IndexLogin(environ.get("TWINE_USERNAME") or _TOKEN, password)
    return _of_pypirc(url, home / ".pypirc") or _of_netrc(url, environ, home)


def refuse_login_in(url: str) -> None:
    """Refuse an address that contains a login: every user of this machine can read arguments."""
    if urlsplit(url).username is not None:
        raise UsageError(
            "The address contains a login, and other users of this machine can read it.",
            "Leave it out, and set TWINE_USERNAME and TWINE_PASSWORD, or write it into ~/.pypirc "
            "or ~/.netrc.",
        )


def _of_pypirc(url: str, path: Path) -> IndexLogin | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        # The parser's own message quotes the line, which may be the password's.
        raise ConfigError(
            f"{path} cannot be read.", "Correct it, or set TWINE_USERNAME and TWINE_PASSWORD."
        ) from None
    for section in parser.sections():
        known = parser[section]
        same = known.get("repository", "").rstrip("/") == url.rstrip("/")
        if same and (password := known.get("password")):
            return IndexLogin(known.get("username") or _TOKEN, password)
    return None


def _of_netrc(url: str, environ: Mapping[str, str], home: Path) -> IndexLogin | None:
    path = Path(environ.get("NETRC") or home / ".netrc")
    try:
        found = netrc.netrc(path).authenticators(urlsplit(url).hostname or "")
    except FileNotFoundError:
        return None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        raise ConfigError(
            f"{path} cannot be read.", "Correct it, or set TWINE_USERNAME and TWINE_PASSWORD."
        ) from None
    return IndexLogin(found[0], found[2] or "") if found else None
