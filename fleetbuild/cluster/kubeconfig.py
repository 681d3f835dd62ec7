"""Finds the user's kubeconfig and reads out of it how one API server is reached, as kubectl does.

Several files in KUBECONFIG are one: the first that says something counts. A relative path in a
file starts where that file lies.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from fleetbuild.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FIX = "Look at it with: kubectl config view"
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True)
class User:
    """How one logs in. What is secret in it is never shown."""

    name: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    certificate: bytes | None = field(default=None, repr=False)  # PEM
    key: bytes | None = field(default=None, repr=False)  # PEM
    password: tuple[str, str] | None = field(default=None, repr=False)
    command: Mapping[str, Any] | None = field(default=None, repr=False)  # exec, as it is written
    folder: Path = Path()  # where the command's relative path starts
    impersonate: str | None = None
    impersonate_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Access:
    """An API server, and who we are there."""

    server: str
    context: str
    user: User = User()
    authority: bytes | None = None  # PEM; None: what the system trusts
    verify: bool = True
    server_name: str | None = None  # whom the certificate must name, where not the host
    proxy: str | None = None

    @property
    def where(self) -> str:
        """The cluster, as people call it."""
        return f"{self.server} (context {self.context})"


def find_access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """How the cluster is reached: by the file named, KUBECONFIG, ~/.kube/config, or from a pod."""
    paths = _paths(kubeconfig)
    if not paths:
        if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return _from_pod()
        raise KubeconfigError(
            "There is no kubeconfig: neither KUBECONFIG nor ~/.kube/config names a file that is"
            " there.",
            "Name one with --kubeconfig, or get one from whoever runs the cluster.",
        )
    return _access(_merged(paths), context, ", ".join(map(str, paths)))


def _paths(kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise KubeconfigError(f"There is no kubeconfig {kubeconfig}.", "Name one that exists.")
        return [kubeconfig]
    named = os.environ.get("KUBECONFIG")
    paths = named.split(os.pathsep) if named else ["~/.kube/config"]
    return [path for text in paths if text and (path := Path(text).expanduser()).is_file()]


def _merged(paths: Sequence[Path]) -> dict[str, Any]:
    whole: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}}
    for path in paths:
        read = _read(path)
        whole["current-context"] = whole.get("current-context") or read.get("current-context")
        for kind, one in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for name, entry in _named(read.get(kind), one, path):
                whole[kind].setdefault(name, entry)
    return whole


def _read(path: Path) -> dict[str, Any]:
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not valid YAML"
        raise KubeconfigError(f"The kubeconfig {path} cannot be read: {reason}.", _FIX) from None
    if not isinstance(read, dict):
        raise KubeconfigError(f"{path} is no kubeconfig.", _FIX)
    return read


def _named(entries: Any, one: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for entry in entries or ():
        if not isinstance(entry, dict) or not isinstance(entry.get(one) or {}, dict):
            raise KubeconfigError(f"{path}: a {one} is not written as keys with values.", _FIX)
        values = dict(entry.get(one) or {}, folder=path.parent.absolute())
        for key in _FILES:
            if isinstance(values.get(key), str) and values[key]:
                values[key] = values["folder"] / Path(values[key]).expanduser()
        yield str(entry.get("name")), values


def _access(whole: Mapping[str, Any], context: str | None, files: str) -> Access:
    name = context or whole["current-context"]
    if name not in whole["contexts"]:
        known = ", ".join(sorted(whole["contexts"])) or "none"
        what = f"no context {name!r}" if name else "no current context"
        raise KubeconfigError(
            f"{files} has {what}; it has: {known}.", "Name one with --context NAME."
        )
    chosen = whole["contexts"][name]
    cluster = whole["clusters"].get(chosen.get("cluster"))
    if not cluster or not cluster.get("server"):
        raise KubeconfigError(f"{files}: the context {name} leads to no cluster.", _FIX)
    login = chosen.get("user")
    if login and login not in whole["users"]:
        raise KubeconfigError(f"{files}: the context {name} names no user that is there.", _FIX)
    return Access(
        server=_server(str(cluster["server"]), files),
        context=name,
        user=_user(str(login), whole["users"][login]) if login else User(),
        authority=_content(cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name") or None,
        proxy=cluster.get("proxy-url") or None,
    )


def _server(text: str, files: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise KubeconfigError(f"{files}: {text!r} is no address of an API server.", _FIX)
    return text.rstrip("/")


def _user(name: str, user: Mapping[str, Any]) -> User:
    if user.get("auth-provider"):
        raise KubeconfigError(
            f"The user {name} logs in with an auth-provider, which kubectl has given up.",
            "Let your cluster's tool write a kubeconfig that logs in with exec.",
        )
    password = (
        (str(user["username"]), str(user.get("password", ""))) if "username" in user else None
    )
    return User(
        name=name,
        token=user.get("token") or None,
        token_file=user.get("tokenFile"),
        certificate=_content(user, "client-certificate"),
        key=_content(user, "client-key"),
        password=password,
        command=user.get("exec") or None,
        folder=user["folder"],
        impersonate=user.get("as") or None,
        impersonate_groups=tuple(user.get("as-groups") or ()),
    )


def _content(values: Mapping[str, Any], key: str) -> bytes | None:
    """What `key` names a file of, or what `key`-data holds."""
    try:
        if data := values.get(f"{key}-data"):
            return base64.b64decode(data, validate=True)
        return values[key].read_bytes() if values.get(key) else None
    except OSError as error:
        raise KubeconfigError(
            f"The {key} {values[key]} cannot be read: {error.strerror}.", _FIX
        ) from None
    except (binascii.Error, TypeError, ValueError):
        raise KubeconfigError(f"{key}-data in the kubeconfig is not base64.", _FIX) from None


def _from_pod() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT")
    name = f"[{host}]" if ":" in host else host
    try:
        authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"The pod's service account cannot be read: {error.filename}: {error.strerror}.",
            "Set automountServiceAccountToken: true for it, or name a kubeconfig.",
        ) from None
    return Access(
        server=f"https://{name}:{port or 443}",
        context="in-cluster",
        user=User(name="the pod's service account", token_file=SERVICE_ACCOUNT / "token"),
        authority=authority,
    )
