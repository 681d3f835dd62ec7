"""A kubeconfig as it is written. Each value is of its type, or there is a sentence that says where
it is not; no value is shown, since any may be a secret. What is null was not said, as in Go.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from fleetbuild.config import parse_yaml
from fleetbuild.errors import KubeconfigError

FIX = "Look at it with: kubectl config view"
_BELONGS = {
    "bool_type": "true or false belongs here, without quotes",
    "dict_type": "keys with values belong here",
    "missing": "this is missing",
    "model_type": "keys with values belong here",
    "string_type": "a text belongs here; put it in quotes",
    "tuple_type": "a list belongs here",
}


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))

    @model_validator(mode="before")
    @classmethod
    def _said(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


class Variable(_Written):
    """A variable of the environment in which a command runs."""

    name: str
    value: str = ""


class Exec(_Written):
    """The command that logs a user in."""

    api_version: Annotated[str, Field(alias="apiVersion")] = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    hint: Annotated[str, Field(alias="installHint")] = ""
    cluster_info: Annotated[StrictBool, Field(alias="provideClusterInfo")] = False
    interactive: Annotated[str, Field(alias="interactiveMode")] = ""


class Login(_Written):
    """How a user logs in, and as whom they act then."""

    token: str = ""
    token_file: Annotated[str, Field(alias="tokenFile")] = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    command: Annotated[Exec | None, Field(alias="exec")] = None
    auth_provider: dict[Any, Any] | None = None
    acts_as: Annotated[str, Field(alias="as")] = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class Server(_Written):
    """Where an API server is, and how it is known to be the right one."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: StrictBool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class Context(_Written):
    """Which user at which server."""

    cluster: str = ""
    user: str = ""


class _NamedServer(_Written):
    name: str = ""
    cluster: Server = Server()


class _NamedLogin(_Written):
    name: str = ""
    user: Login = Login()


class _NamedContext(_Written):
    name: str = ""
    context: Context = Context()


class Kubeconfig(_Written):
    """A whole file."""

    current_context: str = ""
    clusters: tuple[_NamedServer, ...] = ()
    users: tuple[_NamedLogin, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


def parse(text: str, source: str) -> Kubeconfig:
    """The kubeconfig in this text."""
    try:
        return Kubeconfig.model_validate(parse_yaml(text, source, KubeconfigError) or {})
    except ValidationError as problem:
        first = problem.errors()[0]
        place = f"{source}: {'.'.join(map(str, first['loc']))}" if first["loc"] else source
        reason = _BELONGS.get(first["type"], "this does not belong here")
        raise KubeconfigError(f"{place}: {reason}.", FIX) from None
