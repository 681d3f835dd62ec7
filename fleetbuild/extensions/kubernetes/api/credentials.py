"""Credentials for an API server: a token, a certificate, or the output of an exec command.

In: the user entry of a kubeconfig. Out: `Credentials`.
"""

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

from fleetbuild.errors import ClusterError, KubeconfigError
from fleetbuild.extensions.kubernetes.api.kubeconfig import Access, User
from fleetbuild.extensions.kubernetes.api.kubeconfig_schema import Exec
from fleetbuild.files import read_input

COMMAND_TIMEOUT = 120.0  # seconds for an exec command: some open a browser
_KINDS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True)
class Credentials:
    """The Authorization header and client certificate of requests."""

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


def log_in(access: Access) -> Credentials:
    """Return the user's credentials; each call reads the file or runs the command again."""
    user = access.user
    # As in kubectl: a token file before a token, an exec command last.
    token = _from_file(user) or user.token
    if token:
        return Credentials(_bearer(user, token), user.certificate, user.key)
    if user.command and not user.certificate:
        return _from_command(access, user.command)
    return Credentials(None, user.certificate, user.key)


def _bearer(user: User, token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise KubeconfigError(
            f"{user.name}'s token contains a newline or non-ASCII characters.",
            "Log in again.",
        )
    return f"Bearer {token}"


def renewable(user: User) -> bool:
    """Return whether logging in again can give new credentials."""
    return user.token_file is not None or (user.token is None and user.command is not None)


def _from_file(user: User) -> str | None:
    if user.token_file is None:
        return None
    try:
        return read_input(user.token_file).decode().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise KubeconfigError(
            f"{user.name}'s token cannot be read from {str(user.token_file)!r}: {reason}.",
            "Log in again.",
        ) from None


def _from_command(access: Access, command: Exec) -> Credentials:
    kind = command.api_version
    if kind not in _KINDS or not command.command:
        raise KubeconfigError(
            f"The exec entry of {access.user.name} is {kind}, not {' or '.join(_KINDS)}.",
            "Generate the kubeconfig again with your cluster's tool.",
        )
    output = _run(access, command)
    try:
        status = _Printed.model_validate_json(output).status
    except ValidationError:
        raise _failed(access, command, "it printed no ExecCredential") from None
    if not status.token and not (status.certificate and status.key):
        raise _failed(access, command, "it printed neither a token nor a certificate")
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
    """An ExecCredential as an exec command prints it."""

    status: _Status


def _run(access: Access, command: Exec) -> bytes:
    interactive = sys.stdin.isatty() and command.interactive != "Never"
    if command.interactive == "Always" and not interactive:
        raise KubeconfigError(
            f"{access.user.name} logs in with {command.command}, which needs a terminal"
            " (interactiveMode: Always).",
            "Run the same command in a terminal, or log in another way.",
        )
    env = {variable.name: variable.value for variable in command.env}
    try:
        done = subprocess.run(
            [_program(access.user, command.command), *command.args],
            env={**os.environ, **env, "KUBERNETES_EXEC_INFO": _info(access, command, interactive)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # prompts on stderr go to the user
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        hint = command.hint.strip() or "Install it, or log in another way."
        raise KubeconfigError(
            f"{access.user.name} logs in with {command.command}, but that is not installed.", hint
        ) from None
    except subprocess.TimeoutExpired:
        raise _failed(access, command, f"it did not end within {COMMAND_TIMEOUT:g} s") from None
    except OSError as error:
        raise _failed(access, command, error.strerror or "it cannot be run") from None
    except ValueError:  # a variable with `=` in its name, or a NUL character
        raise _failed(access, command, "its name or its variables are invalid") from None
    if done.returncode:
        raise _failed(access, command, f"its exit code was {done.returncode}")
    return done.stdout


def _program(user: User, name: str) -> str:
    """Resolve a command; as in kubectl, a relative path starts at the kubeconfig's folder."""
    return str(user.folder / name) if "/" in name and not Path(name).is_absolute() else name


def _info(access: Access, command: Exec, interactive: bool) -> str:
    spec: dict[str, Any] = {"interactive": interactive}
    if command.cluster_info:
        authority = b64encode(access.authority).decode() if access.authority else None
        spec["cluster"] = {
            "server": access.server,
            "insecure-skip-tls-verify": not access.verify,
            **({"certificate-authority-data": authority} if authority else {}),
            **({"tls-server-name": access.server_name} if access.server_name else {}),
            **({"proxy-url": access.proxy} if access.proxy else {}),
            **({"config": access.exec_config} if access.exec_config is not None else {}),
        }
    about = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": spec}
    return json.dumps(about)


def _failed(access: Access, command: Exec, why: str) -> ClusterError:
    return ClusterError(
        f"{access.user.name} could not log in: {command.command}: {why}.",
        "Log in again, test it with `kubectl get nodes`, then run the same command again.",
    )
