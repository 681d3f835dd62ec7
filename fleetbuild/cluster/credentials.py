"""What proves to an API server who we are: a token, a certificate, or what a command prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetbuild.cluster.kubeconfig import Access, User
from fleetbuild.errors import ClusterError, KubeconfigError

PATIENCE = 120.0  # seconds that a command may take: some open a browser
_KINDS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True)
class Credentials:
    """Header and certificate of our requests."""

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


def log_in(access: Access) -> Credentials:
    """What this user has now; a command is run, and a file read, each time it is asked."""
    user = access.user
    # The order is kubectl's: a file before what is written down, a command after both.
    token = _from_file(user) or user.token
    if token:
        return Credentials(f"Bearer {token}", user.certificate, user.key)
    if user.password:
        return Credentials(basic(*user.password), user.certificate, user.key)
    if user.command and not user.certificate:
        return _from_command(access, user.command)
    return Credentials(None, user.certificate, user.key)


def basic(user: str, password: str) -> str:
    """A name and a password, as a header says them."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def renewable(user: User) -> bool:
    """May asking again bring something newer?"""
    return user.token_file is not None or (user.token is None and user.command is not None)


def _from_file(user: User) -> str | None:
    if user.token_file is None:
        return None
    try:
        return user.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KubeconfigError(
            f"The token of {user.name} cannot be read from {user.token_file}: {reason}.",
            "Log in again.",
        ) from None


def _from_command(access: Access, command: Mapping[str, Any]) -> Credentials:
    kind = str(command.get("apiVersion"))
    if kind not in _KINDS or not command.get("command"):
        raise KubeconfigError(
            f"The exec entry of {access.user.name} is of {kind}, not of {' or '.join(_KINDS)}.",
            "Let your cluster's tool write the kubeconfig again.",
        )
    said = _run(access, command, kind)
    try:
        status = json.loads(said)["status"]
        token, certificate, key = (
            status.get(name) for name in ("token", "clientCertificateData", "clientKeyData")
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        raise _failed(access, command, "it printed no ExecCredential") from None
    if not token and not (certificate and key):
        raise _failed(access, command, "it gave neither a token nor a certificate")
    return Credentials(
        authorization=f"Bearer {token}" if token else None,
        certificate=certificate.encode() if certificate else None,
        key=key.encode() if key else None,
    )


def _run(access: Access, command: Mapping[str, Any], kind: str) -> bytes:
    interactive = sys.stdin.isatty() and command.get("interactiveMode") != "Never"
    env = {str(each["name"]): str(each["value"]) for each in command.get("env") or ()}
    argv = [_program(access.user, str(command["command"])), *map(str, command.get("args") or ())]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **env, "KUBERNETES_EXEC_INFO": _info(access, command, kind)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # what it has to say to its user goes to the user
            timeout=PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        hint = str(command.get("installHint") or "Install it, or log in another way.").strip()
        raise KubeconfigError(
            f"{access.user.name} logs in with {command['command']}, which is not installed.", hint
        ) from None
    except subprocess.TimeoutExpired:
        raise _failed(access, command, f"it did not end within {PATIENCE:g} s") from None
    except OSError as error:
        raise _failed(access, command, error.strerror or "it cannot be run") from None
    if done.returncode:
        raise _failed(access, command, f"it ended with {done.returncode}")
    return done.stdout


def _program(user: User, name: str) -> str:
    """As in kubectl, a path with a slash starts where the kubeconfig lies."""
    return str(user.folder / name) if "/" in name and not Path(name).is_absolute() else name


def _info(access: Access, command: Mapping[str, Any], kind: str) -> str:
    spec: dict[str, Any] = {"interactive": sys.stdin.isatty()}
    if command.get("provideClusterInfo"):
        authority = b64encode(access.authority).decode() if access.authority else None
        spec["cluster"] = {
            "server": access.server,
            "insecure-skip-tls-verify": not access.verify,
            **({"certificate-authority-data": authority} if authority else {}),
            **({"tls-server-name": access.server_name} if access.server_name else {}),
            **({"proxy-url": access.proxy} if access.proxy else {}),
        }
    return json.dumps({"apiVersion": kind, "kind": "ExecCredential", "spec": spec})


def _failed(access: Access, command: Mapping[str, Any], why: str) -> ClusterError:
    return ClusterError(
        f"{access.user.name} could not log in: {command['command']}: {why}.",
        "Log in again, try it with `kubectl get nodes`, and run the same command again.",
    )
