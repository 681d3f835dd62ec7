"""Upload wheels to a package index, as twine does: one multipart request for each file.

In: wheels, the address for uploads and a login. Out: what became of each wheel. A file that the
index has already is left alone if it is the same, and is an error if it is another one.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name, parse_wheel_filename

from fleetbuild.errors import InstallError
from fleetbuild.store.fetch import tls_context
from fleetbuild.tasks.publish.logins import IndexLogin
from fleetbuild.text import clean

_CHUNK = 1 << 20
_TRIES = 3
_PAGE = 64 << 20  # bytes of an index page
_ANSWER = 4096
# How servers say that they have a file of this name: pypiserver and devpi by 409, others in words.
_EXISTS = re.compile(r"already exist|overwrite|updat\w+ asset|redeploy", re.IGNORECASE)
_LOCAL = re.compile(r"local version|can't use.*\+|\+.* (?:invalid|not allowed)", re.IGNORECASE)
_LISTS = {"project_urls": "project_urls", "license_files": "license_file"}


class Upload(NamedTuple):
    """A wheel of the store that is to be uploaded."""

    name: str
    path: Path
    sha256: str


def upload(wheel: Upload, url: str, index: str, login: IndexLogin | None) -> bool:
    """Upload a wheel; return False if the index has it already."""
    known = _listed(wheel, index, login)
    if known is not None:
        _refuse_other(wheel, known, url)
        return False
    for attempt in range(1, _TRIES + 1):
        try:
            _post(wheel, url, login)
        except urllib.error.HTTPError as answer:
            with answer:
                said = clean(answer.read(_ANSWER).decode("utf-8", "replace"), limit=300)
            if answer.code >= 500 and attempt < _TRIES:
                time.sleep(2.0**attempt)
                continue
            # An upload whose answer was lost has arrived nevertheless.
            if _listed(wheel, index, login) == wheel.sha256:
                return True
            raise _refused(wheel, url, answer.code, f"{answer.reason}; {said}") from None
        except (OSError, http.client.HTTPException) as problem:
            reason = getattr(problem, "reason", None) or problem
            if attempt == _TRIES or isinstance(reason, ssl.SSLCertVerificationError):
                raise InstallError(
                    f"{wheel.path.name} could not be uploaded to {_host(url)}: {reason}.",
                    "Check the address, the network and the certificates, then run this again: "
                    "files that are uploaded already are left alone.",
                ) from None
            time.sleep(2.0**attempt)
        else:
            return True
    raise AssertionError("the last try returns or raises")


def _refuse_other(wheel: Upload, known: str, url: str) -> None:
    if known == wheel.sha256:
        return
    what = f"with the sha256 {known}" if known else "without a sha256 to compare"
    raise InstallError(
        f"{_host(url)} has a {wheel.path.name} already, {what}; this one has {wheel.sha256}. "
        "Installers that locked the other file would refuse this one.",
        "Remove the file from the index, or keep it and push to another index.",
    )


def _refused(wheel: Upload, url: str, code: int, said: str) -> InstallError:
    host, name = _host(url), wheel.path.name
    if code in (401, 403) and not _EXISTS.search(said):
        return InstallError(
            f"{host} refused the login for {name}: HTTP {code} {said}.",
            "Set TWINE_USERNAME and TWINE_PASSWORD (for an API token, the password alone), or "
            f"write the login into ~/.pypirc with repository = {url}, or into ~/.netrc.",
        )
    if 300 <= code < 400 or code in (404, 405):
        return InstallError(
            f"{host} takes no uploads at this address: HTTP {code} {said}.",
            "Name the address that twine would upload to (--repository-url), not the one that pip "
            "installs from.",
        )
    if code == 409 or _EXISTS.search(said):
        return InstallError(
            f"{host} has another {name} already: HTTP {code} {said}.",
            "Remove the file from the index, or keep it and push to another index.",
        )
    fix = "Read what the server says, then run this again."
    if _LOCAL.search(said):
        fix = "This index refuses versions with a +. Use an index of your own, or push to a folder."
    return InstallError(f"{host} refused {name}: HTTP {code} {said}.", fix)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected upload would arrive as an empty request, and a login at another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(wheel: Upload, url: str, login: IndexLogin | None) -> None:
    with wheel.path.open("rb") as file:
        head, tail = _envelope(wheel)
        size = len(head) + wheel.path.stat().st_size + len(tail)
        request = _request(url, login, data=_body(head, file, tail))
        request.add_header("Content-Type", f"multipart/form-data; boundary={_boundary(wheel)}")
        request.add_header("Content-Length", str(size))
        handler = urllib.request.HTTPSHandler(context=tls_context())
        opener = urllib.request.build_opener(_NoRedirect, handler)
        with opener.open(request, timeout=300):
            pass


def _body(head: bytes, file: IO[bytes], tail: bytes) -> Iterator[bytes]:
    yield head
    while chunk := file.read(_CHUNK):
        yield chunk
    yield tail


def _envelope(wheel: Upload) -> tuple[bytes, bytes]:
    """Return what stands before and after the file in the request."""
    mark = _boundary(wheel)
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in form_fields(wheel)
    ]
    parts.append(
        f'--{mark}\r\nContent-Disposition: form-data; name="content"; '
        f'filename="{wheel.path.name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    return "".join(parts).encode(), f"\r\n--{mark}--\r\n".encode()


def _boundary(wheel: Upload) -> str:
    return f"fleetbuild-{wheel.sha256}"  # which the file itself cannot contain


def form_fields(wheel: Upload) -> list[tuple[str, str]]:
    """Return the fields of the upload: what it is, and everything that its METADATA says."""
    _, _, _, tags = parse_wheel_filename(wheel.path.name)
    fields = [
        (":action", "file_upload"),
        ("protocol_version", "1"),
        ("filetype", "bdist_wheel"),
        ("pyversion", sorted({tag.interpreter for tag in tags})[0]),
        ("sha256_digest", wheel.sha256),
    ]
    metadata, _ = parse_email(_metadata(wheel.path))
    for name, value in metadata.items():
        if isinstance(value, dict):
            fields += [(name, f"{label}, {address}") for label, address in value.items()]
        elif isinstance(value, list) and name != "keywords":
            fields += [(_LISTS.get(name, name), str(each)) for each in value]
        else:
            fields.append((name, ",".join(value) if isinstance(value, list) else str(value)))
    return fields


def _metadata(path: Path) -> bytes:
    # The audit has read this file: it has one dist-info, and METADATA is small.
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        return archive.read(name)


def _request(url: str, login: IndexLogin | None, data: Any = None) -> urllib.request.Request:
    request = urllib.request.Request(url, data=data, headers={"User-Agent": "fleetbuild"})  # noqa: S310
    if login:
        token = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _listed(wheel: Upload, index: str, login: IndexLogin | None) -> str | None:
    """Return the sha256 that the index lists for this file: "" without one, None for no file."""
    page = urljoin(f"{index.rstrip('/')}/", f"{canonicalize_name(wheel.name)}/")
    request = _request(page, login)
    request.add_header(
        "Accept", "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5,"
        " text/html;q=0.1",
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=60, context=tls_context()) as answer:  # noqa: S310
            text = answer.read(_PAGE).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError):
        return None  # the upload itself reports the error
    return _files_of(text).get(wheel.path.name)


def _files_of(text: str) -> dict[str, str]:
    """Return the files that an index page lists, with their sha256 or ""."""
    try:
        files = json.loads(text)["files"]
        return {str(each["filename"]): str(each["hashes"].get("sha256", "")) for each in files}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        links = _Links()
        links.feed(text)
        return links.files


class _Links(HTMLParser):
    """The links of an index page as HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href")
        if tag == "a" and link:
            address, fragment = urldefrag(link)
            name = unquote(urlsplit(address).path.rpartition("/")[2])
            self.files[name] = fragment.removeprefix("sha256=") if "sha256=" in fragment else ""


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
