"""The schema of a kubeconfig. A value of a wrong type is an error that names its place.

In: YAML text. Out: a `Kubeconfig`. Messages show no values, since any may be a secret. As in Go,
null means unset.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from fleetbuild.config import parse_yaml
from fleetbuild.errors import KubeconfigError

FIX = "Look at it with: kubectl config view"
_BELONGS = {
    "bool_type": "must be true or false, without quotes",
    "dict_type": "must be keys with values",
    "missing": "is missing",
    "model_type": "must be keys with values",
    "string_type": "must be a text; put it in quotes",
    "tuple_type": "must be a list",
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


class UserEntry(_Written):
    """How a user logs in, and which user they impersonate."""

    token: str = ""
    token_file: Annotated[str, Field(alias="tokenFile")] = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    command: Annotated[Exec | None, Field(alias="exec")] = None
    auth_provider: dict[Any, Any] | None = None
    acts_as: Annotated[str, Field(alias="as")] = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class _Extension(_Written):
    name: str = ""
    extension: Any = None


class Server(_Written):
    """The address of an API server, and how its certificate is checked."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: StrictBool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[_Extension, ...] = ()

    def exec_config(self) -> Any:
        """Return what this cluster says to exec commands, or None."""
        named = {extension.name: extension.extension for extension in self.extensions}
        return named.get("client.authentication.k8s.io/exec")


class Context(_Written):
    """A pair of user and server."""

    cluster: str = ""
    user: str = ""


class _NamedServer(_Written):
    name: str = ""
    cluster: Server = Server()


class _NamedLogin(_Written):
    name: str = ""
    user: UserEntry = UserEntry()


class _NamedContext(_Written):
    name: str = ""
    context: Context = Context()


class Kubeconfig(_Written):
    """A whole kubeconfig file."""

    current_context: str = ""
    clusters: tuple[_NamedServer, ...] = ()
    users: tuple[_NamedLogin, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


def parse(text: str, source: str) -> Kubeconfig:
    """Parse the text of a kubeconfig."""
    try:
        return Kubeconfig.model_validate(parse_yaml(text, source, KubeconfigError) or {})
    except ValidationError as problem:
        first = problem.errors()[0]
        place = f"{source}: {'.'.join(map(str, first['loc']))}" if first["loc"] else source
        reason = _BELONGS.get(first["type"], "is not valid")
        raise KubeconfigError(f"{place}: {reason}.", FIX) from None
