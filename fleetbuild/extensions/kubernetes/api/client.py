"""A client of the Kubernetes API that uses only the standard library; see docs/decisions/.

Requests that get no answer or find a busy server are retried; this is safe, since each request
describes a state and not a step. A server that has answered in this run is awaited for as long as
the upgrade of a control plane takes, any other for a few seconds. Connections are kept, one per
thread. TLS, certificates and proxies are as the kubeconfig says.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import ssl
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from fleetbuild.errors import KubeconfigError
from fleetbuild.extensions.kubernetes.api.credentials import Credentials, log_in, renewable
from fleetbuild.extensions.kubernetes.api.errors import (
    NoResponse,
    Refusal,
    endless_answer,
    endless_list,
    no_api,
    no_list,
    untrusted,
)
from fleetbuild.extensions.kubernetes.api.kubeconfig import Access, address


class _Https(http.client.HTTPConnection):
    """HTTPS with a server name in the certificate that may differ from the host."""

    default_port = 443

    def __init__(
        self, host: str, port: int, *, timeout: float, context: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context, self._name = context, name

    def connect(self) -> None:
        """Connect to the server, through the proxy if there is one, and start TLS."""
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def connect(access: Access, credentials: Credentials, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(access.server)
    host = parts.hostname or ""
    if parts.scheme == "http":
        if access.proxy:
            raise KubeconfigError(
                f"The proxy-url of {access.where} is not supported for an http:// server.",
                "Name the server's https:// address in the kubeconfig, or remove proxy-url.",
            )
        return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout)
    context, name = _tls(access, credentials), access.server_name or host
    port = parts.port or 443  # without it, http.client takes the end of an IPv6 address for one
    proxy = access.proxy or _environment_proxy(host)
    if proxy is None:
        return _Https(host, port, timeout=timeout, context=context, name=name)
    way = address(proxy)
    if way is None or way.scheme != "http" or not way.hostname:
        shown = f"{way.scheme}://{way.hostname}" if way else "of this cluster"
        raise KubeconfigError(
            f"The proxy {shown} is not supported.",
            "Set proxy-url of the cluster in the kubeconfig to an http:// proxy.",
        )
    connection = _Https(way.hostname, way.port or 80, timeout=timeout, context=context, name=name)
    connection.set_tunnel(host, port, headers=_proxy_login(way.username, way.password))
    return connection


def _environment_proxy(host: str) -> str | None:
    """Return the proxy that the environment names, if any.

    As in kubectl and unlike Python: none for this machine, and NO_PROXY may name networks.
    """
    variables = getproxies()
    with contextlib.suppress(ValueError):  # a name, not an address
        address_of_host = ip_address(host)
        if address_of_host.is_loopback:
            return None
        for word in variables.get("no", "").split(","):
            with contextlib.suppress(ValueError):
                if address_of_host in ip_network(word.strip(), strict=False):
                    return None
    return None if host == "localhost" or proxy_bypass(host) else variables.get("https")


def _proxy_login(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    login = b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {login}"}


def _tls(access: Access, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if access.authority:
            context = ssl.create_default_context(cadata=access.authority.decode("ascii"))
        # Self-made certificate authorities of clusters often fail strict checks.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not access.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if credentials.certificate and credentials.key:
            _show(context, credentials.certificate, credentials.key)
    except (ssl.SSLError, ValueError):
        raise KubeconfigError(
            f"The certificate or key for {access.where} is invalid, or they do not match.",
            "Get a new kubeconfig from the cluster's administrator.",
        ) from None
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate through private temporary files; Python needs files."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        files = [Path(folder, name) for name in ("certificate", "key")]
        for file, content in zip(files, (certificate, key), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(content)
        context.load_cert_chain(str(files[0]), str(files[1]))


TIMEOUT = 15.0  # seconds for each answer
WAITS = (0.5, 1.0, 2.0)  # seconds before each retry
LONGEST_WAIT = 10.0
AWAY = 180.0  # seconds that one request waits for a server that has answered before
SETTLING = 30.0  # seconds after which a server that came back knows its rules
PAGE = 500
MAX_ANSWER = 512 * 1024**2
LONGEST_ANSWER = 300.0  # seconds from an answer's first byte to its last
_BLOCK = 1024**2
APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"
CREATE = "application/json"
MAX_PAGES = 400  # 200,000 Nodes or pods
LISTINGS = 3  # of a list that expires while it is read
_GONE = 410
_FAILED = 500
_BUSY = (429, 502, 503, 504)
_LOG = logging.getLogger("fleetbuild")

Json = dict[str, Any]


class _Expired(Refusal):
    """The rest of a list is no longer available."""


@dataclass
class _Answer:
    code: int
    wait: str | None
    body: bytearray


class Client:
    """A connection to one API server as one user."""

    def __init__(
        self,
        access: Access,
        *,
        timeout: float = TIMEOUT,
        away: float = AWAY,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.access = access
        self._timeout, self._away, self._sleep = timeout, away, sleep
        self._local = threading.local()
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._open: list[http.client.HTTPConnection] = []
        self._has_answered = False
        self._silent_at: float | None = None  # when a request last got no answer
        self._is_awaited = False  # and the user knows of it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open:
            connection.close()

    def get(self, path: str, **query: str) -> Json:
        """Return an object, or one page of a list."""
        return self._ask("GET", path, query)

    def all(self, path: str, **query: str) -> Iterator[Json]:
        """Return every item of a list, across all pages; a list that expires meanwhile is read
        again."""
        for _ in range(LISTINGS - 1):
            with contextlib.suppress(_Expired):
                return iter(self._pages(path, query))
        return iter(self._pages(path, query))

    def _pages(self, path: str, query: Mapping[str, str]) -> list[Json]:
        items: list[Json] = []
        onward = ""
        for _ in range(MAX_PAGES):
            more = {"continue": onward} if onward else {}
            try:
                page = self.get(path, limit=str(PAGE), **query, **more)
            except Refusal as refusal:
                if refusal.code == _GONE and onward:  # the server forgot this page's place
                    raise _Expired(refusal.code, {"message": refusal.message}) from None
                raise
            items += _items(page, self.access)
            metadata = page.get("metadata")
            onward = str((metadata if isinstance(metadata, dict) else {}).get("continue") or "")
            if not onward:
                return items
        raise endless_list(self.access, path, len(items))

    def apply(
        self, path: str, wanted: Json, *, manager: str, force: bool, dry_run: bool = False
    ) -> Json:
        """Apply a document server-side for a field manager; return the object as it is now."""
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self._ask("PATCH", path, query, wanted, APPLY)

    def merge(self, path: str, change: Json, *, manager: str) -> Json:
        """Apply a merge patch; null removes a key, whoever owns it."""
        return self._ask("PATCH", path, {"fieldManager": manager}, change, MERGE)

    def create(self, path: str, document: Json) -> Json:
        """Create an object in a collection. After a retry it may be there already (409)."""
        return self._ask("POST", path, {"fieldValidation": "Strict"}, document, CREATE)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        kind: str = "",
    ) -> Json:
        text = json.dumps(body).encode() if body is not None else None
        target = f"{path}?{urlencode(query)}" if query else path
        answer = self._ask_with_retries(method, target, text, kind)
        document = _document(answer.body)
        if answer.code >= 400:
            raise Refusal(answer.code, document or _error_body(answer.body))
        if answer.code >= 300 or document is None:
            raise no_api(self.access, answer.code)
        return document

    def _ask_with_retries(self, method: str, target: str, body: bytes | None, kind: str) -> _Answer:
        renewed, spent, number = False, 0.0, 0
        while True:
            number += 1
            wait, credentials = WAITS[min(number, len(WAITS)) - 1], self._log_in()
            may_wait = number <= len(WAITS) or (self._has_answered and spent < self._away)
            try:
                answer = self._once(credentials, method, target, body, kind)
            except (OSError, http.client.HTTPException) as problem:
                self._close_connections()
                if isinstance(problem, ssl.SSLCertVerificationError):
                    raise untrusted(self.access, problem) from None
                reason = _reason(problem, self._timeout)
                spent += self._timeout if isinstance(problem, TimeoutError) else 0
                self._silent_at = time.monotonic()
            else:
                if answer.code == 401 and not renewed and renewable(self.access.user):
                    renewed = True
                    self._forget(credentials)
                    continue
                if not self._is_passing(answer.code, number, spent):
                    self._has_answered, self._is_awaited = True, False
                    return answer
                reason = f"it is busy (HTTP {answer.code})"
                wait = _retry_after(answer.wait, wait)
            if not may_wait:
                raise NoResponse(reason, number)
            if number == len(WAITS) + 1:  # not later: another request may have been answered since
                self._say_once(reason)
            self._sleep(wait)
            spent += wait

    def _is_passing(self, code: int, number: int, spent: float) -> bool:
        """Return whether such an answer is one that the server gives for a while only.

        A server that has just come up refuses what it allows once it has read its rules.
        """
        if code == 403:
            back = self._silent_at is not None and time.monotonic() - self._silent_at < SETTLING
            return self._has_answered and back and spent < SETTLING
        return code in _BUSY or (code == _FAILED and number <= len(WAITS))

    def _say_once(self, reason: str) -> None:
        """Tell the user that the run waits for the server, once for each time that it is away."""
        with self._lock:
            told, self._is_awaited = self._is_awaited, True
        if not told:
            _LOG.warning(
                "%s does not answer: %s. Each request is tried again for up to %.0f s.",
                self.access.where, reason, self._away,
            )  # fmt: skip

    def _once(
        self, credentials: Credentials, method: str, target: str, body: bytes | None, kind: str
    ) -> _Answer:
        connection = self._connection(credentials)
        connection.putrequest(method, urlsplit(self.access.server).path + target)
        for name, value in _headers(credentials, self.access):
            connection.putheader(name, value.encode())
        if body is not None:
            connection.putheader("Content-Type", kind)
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        received = _read_body(response, self.access)
        return _Answer(response.status, response.getheader("Retry-After"), received)

    def _log_in(self) -> Credentials:
        with self._lock:  # one login prompt, not one per thread
            if self._credentials is None:
                self._credentials = log_in(self.access)
            return self._credentials

    def _forget(self, credentials: Credentials) -> None:
        with self._lock:
            if self._credentials is credentials:
                self._credentials = None

    def _connection(self, credentials: Credentials) -> http.client.HTTPConnection:
        if getattr(self._local, "of", None) is not credentials:
            self._close_connections()
            self._local.connection = connect(self.access, credentials, self._timeout)
            self._local.of = credentials
            with self._lock:
                self._open.append(self._local.connection)
        connection: http.client.HTTPConnection = self._local.connection
        return connection

    def _close_connections(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()


def _headers(credentials: Credentials, access: Access) -> Iterator[tuple[str, str]]:
    yield "Accept", "application/json"
    yield "User-Agent", "fleetbuild"
    if credentials.authorization:
        yield "Authorization", credentials.authorization
    yield from access.user.impersonation()


def _read_body(response: http.client.HTTPResponse, access: Access) -> bytearray:
    """Read an answer; one that never ends is given up, one that was cut off is asked for again."""
    body, start = bytearray(), time.monotonic()
    while block := response.read1(_BLOCK):  # read() waits for whole blocks, so it has no deadline
        body += block
        if len(body) > MAX_ANSWER or time.monotonic() - start > LONGEST_ANSWER:
            raise endless_answer(access, len(body), time.monotonic() - start)
    if response.length:  # what the server announced and did not send
        raise http.client.IncompleteRead(b"")
    response.close()  # the connection stays open
    return body


def _items(page: Json, access: Access) -> list[Json]:
    items = page.get("items")
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise no_list(access)
    return items


def _document(body: bytearray) -> Json | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _error_body(body: bytearray) -> Json:
    return {"message": body[:300].decode(errors="replace").strip()}


def _retry_after(header: str | None, otherwise: float) -> float:
    return min(float(header), LONGEST_WAIT) if header and header.isdigit() else otherwise


def _reason(problem: Exception, timeout: float) -> str:
    if isinstance(problem, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(problem, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror.lower()
    if isinstance(problem, http.client.IncompleteRead):
        return "the connection was lost within its answer"
    return str(problem) or "the connection was lost"


def path_of(*parts: str) -> str:
    """Return a path of the API; each part is quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)
