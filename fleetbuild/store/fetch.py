"""Download a file by URL and sha256; it is stored only if it is complete and the hash matches.

In: a locked file's URL and hash. Out: the file, or InstallError.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import netrc
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from fleetbuild.errors import InstallError
from fleetbuild.files import is_disk_full, sha256_of
from fleetbuild.store.address_secrets import HIDDEN, server_of
from fleetbuild.workers import check_stopped

_CHUNK = 1 << 16  # small, so that a slow download stops soon
_TRIES = 4
_MAX_BYTES = 16 << 30  # of a file whose size the index does not tell
_SECONDS, _SLOWEST = 600, 50_000  # a download may take this long, and longer by bytes a second
_SCHEMES = ("https", "http", "file")


class _Damaged(Exception):
    """The downloaded content is not the locked one."""


def fetch(
    url: str,
    sha256: str,
    dest: Path,
    *,
    size: int | None = None,
    credentials: Mapping[str, str] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Return `dest`, with this hash; no more than `size` bytes are read.

    `credentials` are user:password by server.
    """
    if dest.is_file() and sha256_of(dest) == sha256:
        return dest
    if urllib.parse.urlsplit(url).scheme not in _SCHEMES:
        raise InstallError(
            f"{dest.name} cannot be fetched: {url or 'an empty address'} is not a valid file URL.",
            "Make a new plan, which locks the URLs again.",
        )
    if HIDDEN in url:
        raise InstallError(
            f"{dest.name} cannot be fetched from {_host(url)}: the address has a token or a"
            " signature, which a plan does not hold.",
            "Set the index as for the plan. If it signs each address, use an index with a user and"
            " password instead.",
        )
    dest.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _TRIES + 1):
        check_stopped()
        try:
            _once(_request(url, credentials or {}), sha256, dest, size)
        except _Damaged as problem:
            raise InstallError(
                f"{dest.name} from {_host(url)} is not the locked file: {problem}.",
                "Make a new plan; if the error stays, the index or a proxy has changed the file.",
            ) from None
        except (OSError, http.client.HTTPException) as problem:
            if isinstance(problem, urllib.error.HTTPError):
                problem.close()  # it holds the connection
            if attempt == _TRIES or not _is_temporary(problem):
                raise _fetch_error(url, dest, problem) from None
            pause(2.0 ** (attempt - 1))
        else:
            break
    return dest


def read_text(url: str, limit: int, credentials: Mapping[str, str]) -> str | None:
    """Return a small text at an address; None if it is missing, too large or not reachable."""
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        return None
    text, asked = io.BytesIO(), _request(url, credentials)
    try:
        with urllib.request.urlopen(asked, timeout=60, context=tls_context()) as response:  # noqa: S310
            _copy(response, text, limit)
    except (OSError, http.client.HTTPException, _Damaged):
        return None
    return text.getvalue().decode("utf-8", "replace")


def _once(request: urllib.request.Request, sha256: str, dest: Path, size: int | None) -> None:
    local = urllib.request.url2pathname(request.selector) if request.type == "file" else None
    if local and not Path(local).is_file():  # a device or a pipe never ends
        raise FileNotFoundError("it is not a file")
    with (
        urllib.request.urlopen(request, timeout=60, context=tls_context()) as response,  # noqa: S310
        tempfile.NamedTemporaryFile(dir=dest.parent, prefix=".part-", delete=False) as part,
    ):
        try:
            digest = _copy(response, part, size)
            if digest != sha256:
                raise _Damaged(f"its sha256 is {digest}, not {sha256}")
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).chmod(0o644)
            Path(part.name).rename(dest)
        finally:
            Path(part.name).unlink(missing_ok=True)


def _copy(response: http.client.HTTPResponse, part: IO[bytes], size: int | None) -> str:
    length = response.headers.get("Content-Length")
    total = int(length) if length and length.isdigit() and len(length) < 20 else None
    limit = _MAX_BYTES if size is None else size
    deadline = time.monotonic() + _SECONDS + limit / _SLOWEST
    digest, done = hashlib.sha256(), 0
    while chunk := response.read1(_CHUNK):  # so that a trickle is seen
        check_stopped()
        part.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        if done > limit:
            raise _Damaged(f"it has more than {limit} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {done} bytes arrived in time")
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)
    return digest.hexdigest()


def _request(url: str, credentials: Mapping[str, str]) -> urllib.request.Request:
    request = urllib.request.Request(url, headers={"User-Agent": "fleetbuild"})  # noqa: S310
    login = credentials.get(server_of(url)) or _netrc_login(_host(url))
    if login:
        token = base64.b64encode(login.encode()).decode()
        # Not sent to the target of a redirect.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _netrc_login(host: str) -> str | None:
    try:
        login = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return f"{login[0]}:{login[2]}" if login else None


def tls_context() -> ssl.SSLContext:
    """Return the certificates to trust: the system's, and PIP_CERT."""
    context = ssl.create_default_context()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    if extra := os.environ.get("PIP_CERT"):
        context.load_verify_locations(cafile=extra)
    return context


def _is_temporary(problem: Exception) -> bool:
    """Return whether a retry may help; not after a definite refusal of the server."""
    if isinstance(problem, urllib.error.HTTPError):
        return problem.code >= 500 or problem.code in (408, 429)
    if is_disk_full(problem):
        return False
    reason = getattr(problem, "reason", problem)
    return not isinstance(
        reason, FileNotFoundError | PermissionError | ssl.SSLCertVerificationError
    )


def _fetch_error(url: str, dest: Path, problem: Exception) -> InstallError | OSError:
    if isinstance(problem, OSError) and is_disk_full(problem):
        problem.filename = str(dest)
        return problem
    reason = getattr(problem, "reason", None) or problem
    if isinstance(problem, urllib.error.HTTPError):
        reason = f"HTTP {problem.code} {problem.reason}"
    return InstallError(
        f"{dest.name} cannot be fetched from {_host(url) or url}: {reason}.",
        "Check the network, proxy and certificates of this machine, or name a mirror of this "
        "address under mirrors: in fleetbuild.yml. Then run this again: files already fetched are "
        "kept.",
    )


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or ""
