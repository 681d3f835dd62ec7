"""Nodes: the hosts of an inventory, and how to log in to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, SecretStr

from fleetbuild.models._base import Frozen
from fleetbuild.models.problem import Problem

SKIPPED = "The inventory says fleetbuild_skip."
ON_WINDOWS = Problem(
    "fleetbuild builds and installs on Linux only, and this node runs Windows.",
    "Write a build script for it: fleetbuild emit windows INVENTORY",
)
NO_SSH = "none"  # the connection of a node that only the cluster reaches


class Become(Frozen):
    """Ansible's become settings: how to act as another user on a node."""

    method: str = "sudo"
    user: str = "root"
    password: SecretStr | None = None
    flags: str | None = None
    exe: str | None = None


class Login(Frozen):
    """How to log in to a node. Ansible has rendered every template in it."""

    connection: str = "ssh"  # "ssh" or "local"; probing refuses any other
    host: str
    port: int | None = None
    user: str | None = None
    password: SecretStr | None = None
    key_file: str | None = None
    # OpenSSH's first word counts, so the order is Ansible's: its ssh_args, then what the fields
    # here say, then the common and the extra args.
    ssh_args: tuple[str, ...] = ()
    ssh_common_args: tuple[str, ...] = ()
    ssh_executable: str = "ssh"
    host_key_checking: bool = True
    connect_timeout: int = 10  # seconds; Ansible's timeout, if ssh_config has no ConnectTimeout
    become: Become | None = None
    is_windows: bool = False  # the inventory says so: no command of the core contacts it


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
    skip: bool = False  # no command contacts this node
    packages: tuple[str, ...] = ()
    # All of the host's variables, for templates such as kubernetes.node_name. May hold secrets.
    variables: dict[str, Any] = Field(default_factory=dict, repr=False, exclude=True)

    @property
    def interpreter(self) -> str | None:
        """The Python for Ansible's modules, if the inventory sets one."""
        path = self.variables.get("ansible_python_interpreter")
        return str(path) if path else None


class Inventory(Frozen):
    """The nodes of an inventory that match the limit."""

    source: str
    limit: str | None = None
    nodes: tuple[Node, ...]
    warnings: tuple[str, ...] = ()  # Ansible's warnings about it

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)


# Section ("uname", "cpuinfo", …) -> the text that the node printed. A missing section is unknown.
Capture = Mapping[str, str]


class Unreachable(Frozen):
    """A node that could not be probed. `reason` says why, `fix` what to do about it."""

    reason: str
    fix: str = ""
