"""What proves to an API server who we are: a token, a certificate, or what a command prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from fleetbuild.cluster.kubeconfig import Access, User
from fleetbuild.cluster.kubeconfig_schema import Exec
from fleetbuild.errors import ClusterError, KubeconfigError

COMMAND_TIMEOUT = 120.0  # seconds that a command may take: some open a browser
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
        return Credentials(_bearer(user, token), user.certificate, user.key)
    if user.password:
        return Credentials(basic(*user.password), user.certificate, user.key)
    if user.command and not user.certificate:
        return _from_command(access, user.command)
    return Credentials(None, user.certificate, user.key)


def _bearer(user: User, token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise KubeconfigError(
            f"The token of {user.name} is none: it holds a line end, or what is no ASCII.",
            "Log in again.",
        )
    return f"Bearer {token}"


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
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text file"
        raise KubeconfigError(
            f"The token of {user.name} cannot be read from {str(user.token_file)!r}: {reason}.",
            "Log in again.",
        ) from None


def _from_command(access: Access, command: Exec) -> Credentials:
    kind = command.api_version
    if kind not in _KINDS or not command.command:
        raise KubeconfigError(
            f"The exec entry of {access.user.name} is of {kind}, not of {' or '.join(_KINDS)}.",
            "Let your cluster's tool write the kubeconfig again.",
        )
    said = _run(access, command)
    try:
        status = _Printed.model_validate_json(said).status
    except ValidationError:
        raise _failed(access, command, "it printed no ExecCredential") from None
    if not status.token and not (status.certificate and status.key):
        raise _failed(access, command, "it gave neither a token nor a certificate")
    return Credentials(
        authorization=_bearer(access.user, status.token) if status.token else None,
        certificate=status.certificate.encode() if status.certificate else None,
        key=status.key.encode() if status.key else None,
    )


class _Status(BaseModel):
    token: str | None = None
    certificate: Annotated[str | None, Field(alias="clientCertificateData")] = None
    key: Annotated[str | None, Field(alias="clientKeyData")] = None


class _Printed(BaseModel):
    """An ExecCredential, as a command prints it."""

    status: _Status


def _run(access: Access, command: Exec) -> bytes:
    interactive = sys.stdin.isatty() and command.interactive != "Never"
    env = {each.name: each.value for each in command.env}
    try:
        done = subprocess.run(
            [_program(access.user, command.command), *command.args],
            env={**os.environ, **env, "KUBERNETES_EXEC_INFO": _info(access, command)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # what it has to say to its user goes to the user
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        hint = command.hint.strip() or "Install it, or log in another way."
        raise KubeconfigError(
            f"{access.user.name} logs in with {command.command}, which is not installed.", hint
        ) from None
    except subprocess.TimeoutExpired:
        raise _failed(access, command, f"it did not end within {COMMAND_TIMEOUT:g} s") from None
    except OSError as error:
        raise _failed(access, command, error.strerror or "it cannot be run") from None
    except ValueError:  # a variable with `=` in its name, or a NUL somewhere
        raise _failed(access, command, "nothing can be called like it or its variables") from None
    if done.returncode:
        raise _failed(access, command, f"it ended with {done.returncode}")
    return done.stdout


def _program(user: User, name: str) -> str:
    """As in kubectl, a path with a slash starts where the kubeconfig lies."""
    return str(user.folder / name) if "/" in name and not Path(name).is_absolute() else name


def _info(access: Access, command: Exec) -> str:
    spec: dict[str, Any] = {"interactive": sys.stdin.isatty()}
    if command.cluster_info:
        authority = b64encode(access.authority).decode() if access.authority else None
        spec["cluster"] = {
            "server": access.server,
            "insecure-skip-tls-verify": not access.verify,
            **({"certificate-authority-data": authority} if authority else {}),
            **({"tls-server-name": access.server_name} if access.server_name else {}),
            **({"proxy-url": access.proxy} if access.proxy else {}),
        }
    about = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": spec}
    return json.dumps(about)


def _failed(access: Access, command: Exec, why: str) -> ClusterError:
    return ClusterError(
        f"{access.user.name} could not log in: {command.command}: {why}.",
        "Log in again, try it with `kubectl get nodes`, and run the same command again.",
    )
