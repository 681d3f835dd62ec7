"""Upload wheels to a package index: `uv publish` for each file, and what its answer means.

In: wheels, the address for uploads and the address that pip installs from. Out: which files are
new there. A file that the index has already is left alone if it is the same, and is an error if it
is another one.
"""

from __future__ import annotations

import netrc
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from uv import find_uv_bin

from fleetbuild.errors import ConfigError, InstallError, UsageError
from fleetbuild.text import clean

_TRIES = 3
# uv looks for settings in every parent folder, in /tmp as well, where any user can write. It stops
# at a project that is a workspace and has settings, even empty ones.
_PROJECT = '[project]\nname = "fleetbuild-upload"\nversion = "0"\n[tool.uv.workspace]\n'
_ELSEWHERE = (
    "UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY",
    "UV_PUBLISH_INDEX", "UV_PUBLISH_URL", "UV_PUBLISH_CHECK_URL",
)  # fmt: skip
_OWN_LOGIN = ("UV_PUBLISH_TOKEN", "UV_PUBLISH_USERNAME", "UV_PUBLISH_PASSWORD")
_TOKEN = "__token__"  # the user name that goes with an API token  # noqa: S105
_WAYS_TO_LOG_IN = (
    "Set TWINE_USERNAME and TWINE_PASSWORD (for an API token, the password alone) or uv's"
    " UV_PUBLISH_TOKEN, or write the login into ~/.netrc."
)
_WRONG_ADDRESS = (
    "Name the address that twine would upload to (--repository-url), not the one that pip installs"
    " from."
)
_OTHER_FILE = "Remove the file from the index, or keep it and push to another index."

# What uv says: its words are tried with each version that pyproject.toml allows.
_SKIPPED = re.compile(r"already exists, skipping")
_DIFFERS = re.compile(r"do not match for .* Remote: (?:sha256=)?(\w*)", re.DOTALL)
_NO_HASH = re.compile(r"hash is missing", re.IGNORECASE)
_STATUS = re.compile(r"status code (\d{3})")
_NO_UPLOADS = re.compile(r"simple index URL|redirect", re.IGNORECASE)
_SERVER_SAYS = re.compile(r"Server says: (.*)", re.DOTALL)
_CAUSE = re.compile(r"^\s*(?:cause|Caused by): (.+)$", re.MULTILINE)
# What servers say: pypiserver and devpi name a file that they have by 409, others in words.
_EXISTS = re.compile(r"already exist|overwrite|updat\w+ asset|redeploy", re.IGNORECASE)
_LOCAL = re.compile(r"local version|can't use.*\+|\+.* (?:invalid|not allowed)", re.IGNORECASE)


class Upload(NamedTuple):
    """A wheel of the store that is to be uploaded."""

    path: Path
    sha256: str


def upload(wheel: Upload, url: str, index: str, login: Mapping[str, str]) -> bool:
    """Upload a wheel; return False if the index has it already."""
    for attempt in range(1, _TRIES + 1):
        done = _publish(wheel, url, index, login)
        if done.returncode == 0:
            return not _SKIPPED.search(done.stderr)
        status = int(found[1]) if (found := _STATUS.search(done.stderr)) else 0
        if status < 500 or attempt == _TRIES:
            break
        time.sleep(2.0**attempt)
    raise _refusal(wheel, urlsplit(url).netloc, status, done.stderr)


def login_for(url: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment in which uv finds the login for this address.

    Without a login, uv gets an empty one: some servers need none. A login never is an argument of
    uv, which other users could read.
    """
    host = urlsplit(url).hostname or ""
    if any(environ.get(name) for name in _OWN_LOGIN):
        found = {}
    elif password := environ.get("TWINE_PASSWORD"):
        user = environ.get("TWINE_USERNAME") or _TOKEN
        found = {"UV_PUBLISH_USERNAME": user, "UV_PUBLISH_PASSWORD": password}
    elif _in_netrc(host, environ):
        found = {}
    else:
        return {"UV_PUBLISH_USERNAME": "", "UV_PUBLISH_PASSWORD": ""}
    if urlsplit(url).scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(
            f"The login for {host} would travel unencrypted.",
            "Name an address that begins with https://, or open a tunnel to the server (ssh -L) "
            "and name http://localhost:PORT/.",
        )
    return found


def _in_netrc(host: str, environ: Mapping[str, str]) -> bool:
    """Return whether uv will find a login for this host in .netrc."""
    path = Path(environ.get("NETRC") or Path.home() / ".netrc")
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except FileNotFoundError:
        return False
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        # The parser's own message quotes the line, which may be the password's.
        raise ConfigError(
            f"{path} cannot be read.", "Correct it, or set TWINE_USERNAME and TWINE_PASSWORD."
        ) from None


def refuse_login_in(url: str) -> None:
    """Refuse an address that contains a login: every user of this machine can read arguments."""
    if urlsplit(url).username is not None:
        raise UsageError(
            "The address contains a login, and other users of this machine can read it.",
            f"Leave it out. {_WAYS_TO_LOG_IN}",
        )


def _publish(
    wheel: Upload, url: str, index: str, login: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [
        find_uv_bin(), "publish", "--color", "never", "--no-progress",
        "--trusted-publishing", "never", "--publish-url", url, "--check-url", index,
        str(wheel.path.absolute()),
    ]  # fmt: skip
    certificates = {"UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"}  # by its name before and now
    inherited = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        Path(folder, "pyproject.toml").write_text(_PROJECT)
        return subprocess.run(
            command,
            cwd=folder,
            env={**certificates, **inherited, **login},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


def _refusal(wheel: Upload, host: str, status: int, output: str) -> InstallError:
    """Return what uv's messages mean: what the server or the network refused, and what to do."""
    name = wheel.path.name
    differs = _DIFFERS.search(output)
    if differs or _NO_HASH.search(output):
        known = f"with the sha256 {differs[1]}" if differs else "without a sha256 to compare"
        return InstallError(
            f"{host} has a {name} already, {known}; this one has {wheel.sha256}. "
            "Installers that locked the other file would refuse this one.",
            _OTHER_FILE,
        )
    causes = _CAUSE.findall(output)
    found = _SERVER_SAYS.search(output)
    words = clean(found[1].strip() if found else "; ".join(causes[:1]), limit=300)
    answer = f"HTTP {status}; {words}" if status else words
    if status in (401, 403) and not _EXISTS.search(words):
        return InstallError(f"{host} refused the login for {name}: {answer}.", _WAYS_TO_LOG_IN)
    if _NO_UPLOADS.search(output) or status in (404, 405) or 300 <= status < 400:
        return InstallError(f"{host} takes no uploads at this address: {answer}.", _WRONG_ADDRESS)
    if status == 409 or _EXISTS.search(words):
        return InstallError(f"{host} has another {name} already: {answer}.", _OTHER_FILE)
    if status:
        fix = "Read what the server says, then run this again."
        if _LOCAL.search(words):
            fix = "This index refuses versions with a +. Use an index of your own, or push to a"
            fix += " folder."
        return InstallError(f"{host} refused {name}: {answer}.", fix)
    reason = clean(causes[-1] if causes else output.strip(), limit=300)
    return InstallError(
        f"{name} could not be uploaded to {host}: {reason}.",
        "Check the address, the network and the certificates, then run this again: "
        "files that are uploaded already are left alone.",
    )
