"""The texts of a lab: each node's setup script, and how to reach the nodes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab.fleet import Fleet, NodeSpec

# As tests/lab/podman.py calls podman on this machine, and for the same reasons.
_CONTAINERS = """[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


def node_setup(node: NodeSpec, *, gateway: str) -> str:
    """Shell for node-init, run at every start, so each line must bear repeating."""
    lines = []
    for user in node.users:
        name, shell = shlex.quote(user.name), shlex.quote(user.shell)
        lines.append(
            f"id -u {name} >/dev/null 2>&1"
            f" || useradd --create-home --shell {shell} --password '*' {name}"
        )
        if user.password is not None:
            lines.append(f"echo {shlex.quote(f'{user.name}:{user.password}')} | chpasswd")
        if user.sudo != "none":
            how = "NOPASSWD: ALL" if user.sudo == "nopasswd" else "ALL"
            lines.append(f"echo '{user.name} ALL=(ALL) {how}' > /etc/sudoers.d/{name}")
            lines.append(f"chmod 440 /etc/sudoers.d/{name}")
    if node.containers:
        lines += [
            "mkdir -p /etc/containers",
            f"cat > /etc/containers/containers.conf <<'end'\n{_CONTAINERS}end",
        ]
    if node.behind is not None:
        # The host is the bridge's gateway: nothing sent to it arrives, so it cannot connect.
        lines.append(f"ip route replace blackhole {gateway}/32")
    return "\n".join([*lines, node.setup, ""])


def inventory(fleet: Fleet, addresses: Mapping[str, str], folder: Path) -> str:
    hosts: dict[str, dict[str, Any]] = {}
    children: dict[str, dict[str, Any]] = {}
    for name, node in fleet.nodes.items():
        hosts[name] = {"ansible_host": addresses[name], **node.vars}
        if node.behind is not None:
            to = ("-W", "%h:%p", f"fleet@{addresses[node.behind]}")
            jump = shlex.join(["ssh", "-i", str(folder / "id_ed25519"), *_options(folder), *to])
            hosts[name].setdefault(
                "ansible_ssh_common_args",
                shlex.join([*_options(folder), "-o", f"ProxyCommand={jump}"]),
            )
        for group in node.inventory_groups:
            children.setdefault(group, {"hosts": {}})["hosts"][name] = {}
    everywhere = {
        "lab_key": str(folder / "id_ed25519"),
        "ansible_user": "fleet",
        "ansible_ssh_private_key_file": "{{ lab_key }}",
        "ansible_ssh_common_args": shlex.join(_options(folder)),
        "ansible_python_interpreter": "/usr/bin/python3",
        **fleet.vars,
    }
    document = {"all": {"vars": everywhere, "hosts": hosts, "children": children}}
    return "---\n" + yaml.safe_dump(document, sort_keys=False, width=1000)


def _options(folder: Path) -> list[str]:
    options = (
        f"UserKnownHostsFile={folder / 'known_hosts'}",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
    )
    return [word for option in options for word in ("-o", option)]


def ssh_config(fleet: Fleet, addresses: Mapping[str, str], folder: Path) -> str:
    lines = []
    for name, node in fleet.nodes.items():
        lines += [f"Host {name}", f"  HostName {addresses[name]}"]
        if node.behind is not None:
            lines.append(f"  ProxyJump {node.behind}")
    lines += [
        "Host *",
        "  User fleet",
        f'  IdentityFile "{folder / "id_ed25519"}"',
        "  IdentitiesOnly yes",
        f'  UserKnownHostsFile "{folder / "known_hosts"}"',
        "  StrictHostKeyChecking yes",
        "",
    ]
    return "\n".join(lines)
