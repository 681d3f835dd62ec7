"""Find and read the kubeconfig as kubectl does: which API server, which user.

In: a path and a context, or the environment. Out: `Access`. Several files in KUBECONFIG are merged;
the first value wins. Relative paths in a file start at that file's folder.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from fleetbuild.errors import KubeconfigError
from fleetbuild.extensions.kubernetes.api.kubeconfig_schema import (
    FIX,
    Context,
    Exec,
    Kubeconfig,
    Server,
    UserEntry,
    parse,
)
from fleetbuild.files import read_input

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class User:
    """A user entry of a kubeconfig. Its secrets are never shown."""

    name: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    certificate: bytes | None = field(default=None, repr=False)  # PEM
    key: bytes | None = field(default=None, repr=False)  # PEM
    command: Exec | None = field(default=None, repr=False)
    folder: Path = Path()  # start of the command's relative path
    impersonate: str | None = None
    impersonate_uid: str | None = None
    impersonate_groups: tuple[str, ...] = ()
    impersonate_extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def impersonation(self) -> Iterator[tuple[str, str]]:
        """Yield the impersonation headers."""
        if self.impersonate:
            yield "Impersonate-User", self.impersonate
        if self.impersonate_uid:
            yield "Impersonate-Uid", self.impersonate_uid
        for group in self.impersonate_groups:
            yield "Impersonate-Group", group
        for key, values in self.impersonate_extra.items():
            for value in values:
                yield f"Impersonate-Extra-{quote(key, safe='')}", value


@dataclass(frozen=True)
class Access:
    """An API server, and the user to log in as."""

    server: str
    context: str
    user: User = User()
    authority: bytes | None = None  # PEM; None: the system's authorities
    verify: bool = True
    server_name: str | None = None  # the name in the certificate, if it is not the host
    proxy: str | None = None
    exec_config: Any = None  # what the cluster's entry says to exec commands

    @property
    def where(self) -> str:
        """The cluster's name for messages."""
        return f"{self.server} (context {self.context})"


def find_access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Find the cluster: from the named file, KUBECONFIG, ~/.kube/config, or inside a pod."""
    paths = _paths(kubeconfig)
    if not paths:
        if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return _from_pod()
        raise KubeconfigError(
            "No kubeconfig found: neither KUBECONFIG nor ~/.kube/config names an existing file.",
            "Name one with --kubeconfig, or get one from the cluster's administrator.",
        )
    return _access(_merged(paths), context, ", ".join(map(str, paths)))


def _paths(kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise KubeconfigError(
                f"The kubeconfig {kubeconfig} does not exist.", "Name an existing file."
            )
        return [kubeconfig]
    named = os.environ.get("KUBECONFIG")
    paths = named.split(os.pathsep) if named else ["~/.kube/config"]
    return [path for text in paths if text and (path := Path(text).expanduser()).is_file()]


@dataclass
class _Known:
    """The merged content of all files."""

    current: str = ""
    servers: dict[str, tuple[Server, Path]] = field(default_factory=dict)
    logins: dict[str, tuple[UserEntry, Path]] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)


def _merged(paths: Sequence[Path]) -> _Known:
    merged = _Known()
    for path in paths:
        file, folder = _read(path), path.parent.absolute()
        merged.current = merged.current or file.current_context
        for server in file.clusters:
            merged.servers.setdefault(server.name, (server.cluster, folder))
        for login in file.users:
            merged.logins.setdefault(login.name, (login.user, folder))
        for context in file.contexts:
            merged.contexts.setdefault(context.name, context.context)
    return merged


def _read(path: Path) -> Kubeconfig:
    try:
        text = read_input(path, 16 << 20).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise KubeconfigError(f"The kubeconfig {path} cannot be read: {reason}.", FIX) from None
    return parse(text, str(path))


def _access(merged: _Known, context: str | None, files: str) -> Access:
    name = context or merged.current
    if name not in merged.contexts:
        contexts = ", ".join(sorted(merged.contexts)) or "none"
        what = f"no context {name!r}" if name else "no current context"
        raise KubeconfigError(
            f"{files} has {what}; it has: {contexts}.", "Name one with --context NAME."
        )
    chosen = merged.contexts[name]
    cluster, folder = merged.servers.get(chosen.cluster, (Server(), Path()))
    if not cluster.server:
        raise KubeconfigError(
            f"{files}: the context {name} names a cluster that is not defined.", FIX
        )
    if chosen.user and chosen.user not in merged.logins:
        raise KubeconfigError(f"{files}: the context {name} names a user that is not defined.", FIX)
    authority = (cluster.certificate_authority, cluster.certificate_authority_data)
    return Access(
        server=_server(cluster.server, files),
        context=name,
        user=_user(chosen.user, *merged.logins[chosen.user]) if chosen.user else User(),
        authority=_content("certificate-authority", *authority, folder),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=_server_name(cluster.tls_server_name, files),
        proxy=cluster.proxy_url or None,
        exec_config=cluster.exec_config(),
    )


def address(text: str) -> SplitResult | None:
    """Return the parts of a URL, or None if it is not usable."""
    try:
        parts = urlsplit(text)
        usable = _is_host(parts.hostname or "") and text.isascii() and text.isprintable()
        return parts if usable and " " not in text and parts.port != 0 else None
    except ValueError:  # an invalid port or IPv6 address
        return None


def _is_host(name: str) -> bool:
    try:
        return bool(name.encode("idna")) and name.isprintable()
    except UnicodeError:  # an empty or too long label
        return False


def _server(text: str, files: str) -> str:
    parts = address(text)
    if parts is None or parts.scheme not in ("http", "https"):
        raise KubeconfigError(f"{files}: {text!r} is not a valid API server address.", FIX)
    return text.rstrip("/")


def _server_name(text: str, files: str) -> str | None:
    if text and not _is_host(text):
        raise KubeconfigError(f"{files}: {text!r} is not a valid tls-server-name.", FIX)
    return text or None


def _user(name: str, login: UserEntry, folder: Path) -> User:
    if login.auth_provider:
        raise KubeconfigError(
            f"The user {name} logs in with an auth-provider, which kubectl no longer supports.",
            "Generate a kubeconfig that logs in with exec, with your cluster's tool.",
        )
    user = User(
        name=name,
        token=login.token or None,
        token_file=folder / login.token_file if login.token_file else None,
        certificate=_content(
            "client-certificate", login.client_certificate, login.client_certificate_data, folder
        ),
        key=_content("client-key", login.client_key, login.client_key_data, folder),
        command=login.command,
        folder=folder,
        impersonate=login.acts_as or None,
        impersonate_uid=login.as_uid or None,
        impersonate_groups=login.as_groups,
        impersonate_extra=login.as_user_extra,
    )
    headers = list(user.impersonation())
    if headers and not user.impersonate:
        raise KubeconfigError(
            f"The user {name} has as-groups, as-uid or as-user-extra without `as`.", FIX
        )
    if not all(value.isprintable() for _, value in headers):
        raise KubeconfigError(
            f"The impersonation values of user {name} must be printable ASCII.", FIX
        )
    return user


def _content(key: str, file: str, data: str, folder: Path) -> bytes | None:
    """Return the content of `key`-data, or of the file that `key` names."""
    try:
        if data:
            return base64.b64decode(data, validate=True)
    except ValueError:
        raise KubeconfigError(f"{key}-data in the kubeconfig is not base64.", FIX) from None
    try:
        return read_input(folder / file) if file else None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file name is invalid"
        raise KubeconfigError(
            f"The {key} {str(folder / file)!r} cannot be read: {reason}.", FIX
        ) from None


def _from_pod() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT")
    name = f"[{host}]" if ":" in host else host
    try:
        authority = read_input(SERVICE_ACCOUNT / "ca.crt")
    except OSError as error:
        raise KubeconfigError(
            f"The pod's service account cannot be read: {error.filename}: {error.strerror}.",
            "Set automountServiceAccountToken: true for it, or name a kubeconfig.",
        ) from None
    return Access(
        server=_server(f"https://{name}:{port or 443}", "The pod's environment"),
        context="in-cluster",
        user=User(name="the pod's service account", token_file=SERVICE_ACCOUNT / "token"),
        authority=authority,
    )
