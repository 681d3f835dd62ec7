"""`fleetbuild store push`: publish the last plan's wheels in a folder or on an index server.

In: a plan, the store, a destination. Out: the published files, and the table of variants. A
published file never changes: the same name with another content is refused. Index servers get each
file by `uv publish`.
"""

from __future__ import annotations

import json
import netrc
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from fleetbuild.errors import BlockedError, ConfigError, InstallError, UsageError
from fleetbuild.extensions.supply.variants import write_uploaded, write_variants
from fleetbuild.models import Plan, ReleaseFile
from fleetbuild.programs import uv_program
from fleetbuild.store.fetch_locked import way_on
from fleetbuild.store.index import write_index
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store
from fleetbuild.text import clean


class Pushed(NamedTuple):
    """What a push did: files that are new there, files that were there, and the table."""

    new: tuple[str, ...]
    there: tuple[str, ...]
    table: Path | None


OnFile = Callable[[str, bool], None]  # a file's name, and whether it is new there


def ignore_file(_name: str, _new: bool) -> None:
    """Do nothing: nobody asked to hear of each file."""


def is_address(destination: str, index: str | None = None) -> bool:
    """Return whether this is the address of a server, and not a folder."""
    if urlsplit(destination).scheme in ("http", "https"):
        return True
    if "://" in destination:
        raise UsageError(
            f"{destination} is not an address that takes uploads.",
            "Name an address that begins with https://, or a folder.",
        )
    if index:
        raise UsageError(
            "The address that pip installs from goes with an upload, but the destination is a "
            "folder.",
            "Leave out --index-url, or name the address of a server.",
        )
    return False


def push_to_folder(plan: Plan, store: Store, folder: Path) -> Pushed:
    """Add each complete group to its index in this folder; files that are there stay."""
    new: list[str] = []
    present: list[str] = []
    groups: list[str] = []
    for group, files in release_files(plan, store).items():
        published = {file.path.name: file for file in _published(folder / group)}
        for file in files:
            _refuse_change(published.get(file.path.name), file, folder / group)
            (present if file.path.name in published else new).append(f"{group}/{file.path.name}")
        kept = [published[name] for name in published.keys() - {file.path.name for file in files}]
        write_index(folder / group, [*files, *kept])
        groups.append(group)
    table = write_variants(plan, store, groups, folder, keep=True) if groups else None
    return Pushed(tuple(new), tuple(present), table)


def push_to_server(
    plan: Plan,
    store: Store,
    url: str,
    *,
    index: str | None,
    table: Path,
    on_file: OnFile = ignore_file,
) -> Pushed:
    """Upload each wheel that was built for this plan; write the table into the folder `table`.

    `index` is the address that pip installs from; default: the upload's address and simple/.
    """
    refuse_login_in(url)
    if index:
        refuse_login_in(index)
    simple = index or f"{url.rstrip('/')}/simple/"
    wheels = tuple({wheel.sha256: wheel for wheel in _built(plan, store)}.values())
    if not wheels:
        raise BlockedError(
            "The store has no wheel that was built for the last plan, so nothing was uploaded.",
            f"{way_on(plan, store)}.",
        )
    login = login_for(url)
    new: list[str] = []
    present: list[str] = []
    for wheel in wheels:
        arrived = upload(wheel, url, simple, login)
        (new if arrived else present).append(wheel.path.name)
        on_file(wheel.path.name, arrived)
    return Pushed(tuple(new), tuple(present), write_uploaded(plan, store, simple, table))


def _built(plan: Plan, store: Store) -> Iterator[ReleaseFile]:
    for wheel in plan.wheels:
        if not wheel.published and (stored := store.find(wheel)):
            yield ReleaseFile(wheel.package, stored.path, stored.sha256)


def _published(folder: Path) -> Iterator[ReleaseFile]:
    """Yield the files of an index that was pushed or exported to this folder before."""
    for page in sorted(folder.glob("simple/*/index.json")):
        found: list[ReleaseFile] = []
        try:
            for entry in json.loads(page.read_bytes())["files"]:
                path = folder / "files" / Path(entry["filename"]).name
                name, _version, *_ = path.name.split("-")
                sha256 = bytes.fromhex(entry["hashes"]["sha256"]).hex()
                found.append(ReleaseFile(canonicalize_name(name, validate=True), path, sha256))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise UsageError(
                f"{page} is not an index that fleetbuild wrote.",
                "Name another folder, or remove it.",
            ) from None
        yield from (file for file in found if file.path.is_file())


def _refuse_change(known: ReleaseFile | None, file: ReleaseFile, folder: Path) -> None:
    if known is None or known.sha256 == file.sha256:
        return
    raise UsageError(
        f"{folder} already has a {file.path.name} with the sha256 {known.sha256}; this one has "
        f"{file.sha256}. Installers that locked the other file would refuse this one.",
        "Remove the folder and push again, or push to another one.",
    )


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
_EXISTS = re.compile(r"already exist|overwrite|updat\w{1,9} asset|redeploy", re.IGNORECASE)
_LOCAL = re.compile(
    r"local version|can't use.{0,200}\+|\+.{0,200} (?:invalid|not allowed)", re.IGNORECASE
)


def upload(wheel: ReleaseFile, url: str, index: str, login: Mapping[str, str]) -> bool:
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
        login = {}
    elif password := environ.get("TWINE_PASSWORD"):
        user = environ.get("TWINE_USERNAME") or _TOKEN
        login = {"UV_PUBLISH_USERNAME": user, "UV_PUBLISH_PASSWORD": password}
    elif _in_netrc(host, environ):
        login = {}
    else:
        return {"UV_PUBLISH_USERNAME": "", "UV_PUBLISH_PASSWORD": ""}
    if urlsplit(url).scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(
            f"The login for {host} would travel unencrypted.",
            "Name an address that begins with https://, or open a tunnel to the server (ssh -L) "
            "and name http://localhost:PORT/.",
        )
    return login


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
    wheel: ReleaseFile, url: str, index: str, login: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [
        uv_program(), "publish", "--color", "never", "--no-progress",
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


def _refusal(wheel: ReleaseFile, host: str, status: int, output: str) -> InstallError:
    """Return what uv's messages mean: what the server or the network refused, and what to do."""
    name = wheel.path.name
    differs = _DIFFERS.search(output)
    if differs or _NO_HASH.search(output):
        hash_there = f"with the sha256 {differs[1]}" if differs else "without a sha256 to compare"
        return InstallError(
            f"{host} has a {name} already, {hash_there}; this one has {wheel.sha256}. "
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
