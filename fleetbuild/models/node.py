"""A node: a host of the inventory, and how to reach it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SecretStr

from fleetbuild.models._base import Frozen


class Become(Frozen):
    """How a node lets us act as another user, in Ansible's words."""

    method: str = "sudo"
    user: str = "root"
    password: SecretStr | None = None
    flags: str | None = None


class Login(Frozen):
    """Everything that decides how a node is reached; rendered by Ansible, so no templates left."""

    connection: Literal["ssh", "local"] = "ssh"
    host: str
    port: int | None = None
    user: str | None = None
    password: SecretStr | None = None
    key_file: str | None = None
    ssh_args: tuple[
        str, ...
    ] = ()  # OpenSSH options: ssh_args, common and extra args, in that order
    host_key_checking: bool = True
    become: Become | None = None


class Node(Frozen):
    """A host of the inventory."""

    name: str
    login: Login
    groups: tuple[str, ...] = ()
    # Overrides from the inventory (fleetbuild_isa and so on).
    isa: str | None = None
    sms: tuple[str, ...] | None = None
    python: str | None = None
    builder: bool = False
    skip: bool = False
    packages: tuple[str, ...] = ()
    # All of the host's variables, for templates such as kubernetes.node_name. May hold secrets.
    variables: dict[str, Any] = Field(default_factory=dict, repr=False, exclude=True)


class Inventory(Frozen):
    """The nodes of an inventory, after the limit."""

    source: str
    limit: str | None = None
    nodes: tuple[Node, ...]

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
