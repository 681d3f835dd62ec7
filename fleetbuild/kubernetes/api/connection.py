"""Connect to an API server: TLS, certificates, proxies.

In: what the kubeconfig says and the credentials. Out: an HTTP connection.
"""

from __future__ import annotations

import http.client
import ssl
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from fleetbuild.errors import KubeconfigError
from fleetbuild.kubernetes.api.credentials import Credentials, basic
from fleetbuild.kubernetes.api.kubeconfig import Access, address


class _Https(http.client.HTTPConnection):
    """HTTPS with a server name in the certificate that may differ from the host."""

    default_port = 443

    def __init__(
        self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext, name: str
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
        return http.client.HTTPConnection(host, parts.port, timeout=timeout)
    context, name = _tls(access, credentials), access.server_name or host
    proxy = access.proxy or (None if proxy_bypass(host) else getproxies().get("https"))
    if proxy is None:
        return _Https(host, parts.port, timeout=timeout, context=context, name=name)
    way = address(proxy)
    if way is None or way.scheme != "http" or not way.hostname:
        shown = f"{way.scheme}://{way.hostname}" if way else "of this cluster"
        raise KubeconfigError(
            f"The proxy {shown} is not supported.",
            "Set proxy-url of the cluster in the kubeconfig to an http:// proxy.",
        )
    connection = _Https(way.hostname, way.port or 80, timeout=timeout, context=context, name=name)
    connection.set_tunnel(host, parts.port or 443, headers=_proxy_login(way.username, way.password))
    return connection


def _proxy_login(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(user), unquote(password or ""))}


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
