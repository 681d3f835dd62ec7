"""What an inventory says about a login means the same to the probe as to Ansible.

One inventory names the lab's nodes in every way there is. Ansible runs a command through it, the
probe's channels run the same, and both must come to the same answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.ansible import Secrets
from fleetbuild.models import Event, Inventory, Login, Node, Unreachable
from fleetbuild.probe.inventory import read_inventory
from fleetbuild.probe.probing import Probed, ask, probe, transport_for
from fleetbuild.probe.transport.base import Answer
from fleetbuild.probe.transport.openssh import ProgramTransport
from tests.lab import Lab

MakeLab = Callable[[dict[str, Any]], Lab]
STORY = "echo $(id -un)@$(hostname) home=$HOME"
FLEET = {
    "nodes": {
        "one": {
            "hardware": "avx2",
            "users": [
                {"name": "alice", "password": "won der'$x", "sudo": "password"},
                {"name": "bob", "key": True, "sudo": "nopasswd"},
                {"name": "nosh", "key": True, "shell": "/usr/sbin/nologin"},
                {"name": "plain", "key": True},
            ],
            "setup": "grep -q 2222 /etc/ssh/sshd_config || printf 'Port 22\\nPort 2222\\n'"
            " | cat - /etc/ssh/sshd_config > /tmp/c && cp /tmp/c /etc/ssh/sshd_config",
        },
        "gate": {"hardware": "avx2"},
        "inner": {
            "hardware": "avx2",
            "behind": "gate",
            "users": [{"name": "alice", "password": "deep", "sudo": "none"}],
        },
    }
}


@pytest.fixture(scope="module")
def fleet(make_lab: MakeLab) -> Lab:
    return make_lab(FLEET)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hosts(lab: Lab) -> dict[str, dict[str, Any]]:
    """The same few nodes, reached in every way that an inventory knows."""
    address = {name: node.address for name, node in lab.nodes.items()}
    key, known = str(lab.key), f"-o UserKnownHostsFile={lab.known_hosts}"
    base = {
        "ansible_host": address["one"],
        "ansible_user": "fleet",
        "ansible_ssh_private_key_file": key,
        "ansible_ssh_common_args": known,
    }
    jump = f"-F {lab.ssh_config} -o ProxyJump=gate {known}"
    return {
        "by_key": base,
        "by_old_names": {
            "ansible_ssh_host": address["one"],
            "ansible_ssh_user": "bob",
            "ansible_private_key_file": key,
            "ansible_ssh_extra_args": known,
        },
        "by_template": {**base, "ansible_host": "{{ addresses.one }}", "ansible_user": "{{ who }}"},
        "by_identity_option": {
            "ansible_host": address["one"],
            "ansible_user": "fleet",
            "ansible_ssh_common_args": f"-o IdentityFile='{key}' {known}",
            "ansible_ssh_extra_args": "-o StrictHostKeyChecking=yes",
        },
        "first_word_counts": {
            **base,
            "ansible_port": 22,
            "ansible_ssh_extra_args": "-o User=nobody -o Port=1",
        },
        "by_password": {
            "ansible_host": address["one"],
            "ansible_user": "alice",
            "ansible_password": "won der'$x",
            "ansible_ssh_common_args": known,
        },
        "wrong_password": {
            "ansible_host": address["one"],
            "ansible_user": "alice",
            "ansible_password": "wrong",
            "ansible_ssh_common_args": known + " -o PreferredAuthentications=password",
        },
        "become_with_password": {
            "ansible_host": address["one"],
            "ansible_user": "alice",
            "ansible_password": "won der'$x",
            "ansible_ssh_common_args": known,
            "ansible_become": True,
            "ansible_become_password": "won der'$x",
        },
        "become_wrong_password": {
            "ansible_host": address["one"],
            "ansible_user": "alice",
            "ansible_password": "won der'$x",
            "ansible_ssh_common_args": known,
            "ansible_become": "yes",
            "ansible_become_password": "wrong",
        },
        "become_nopasswd": {**base, "ansible_become": True},
        "become_needless_password": {
            **base,
            "ansible_become": True,
            "ansible_become_password": "x",
        },
        "become_someone": {**base, "ansible_become": True, "ansible_become_user": "bob"},
        "become_refused": {**base, "ansible_user": "plain", "ansible_become": True},
        "jump_option": {
            **base,
            "ansible_host": address["inner"],
            "ansible_ssh_common_args": jump,
        },
        "jump_with_password": {
            "ansible_host": address["inner"],
            "ansible_user": "alice",
            "ansible_password": "deep",
            "ansible_ssh_common_args": jump + " -o PreferredAuthentications=password",
        },
        "no_way": {**base, "ansible_host": address["inner"], "ansible_ssh_timeout": 3},
        "unknown_key": {**base, "ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"},
        "unchecked": {
            **base,
            "ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null",
            "ansible_host_key_checking": False,
        },
        "by_ssh_config": {
            "ansible_host": "inner.by.config",
            "ansible_ssh_common_args": f"-F {Path.cwd() / 'ssh_config'}",
        },
        "here": {"ansible_connection": "local"},
        "refused": {**base, "ansible_port": 1},
        "nobody_home": {**base, "ansible_host": "no.such.name.invalid"},
    }


def write(lab: Lab, where: Path, chosen: dict[str, dict[str, Any]]) -> Path:
    (where / "included").write_text(f"UserKnownHostsFile {lab.known_hosts}\nUser fleet\n")
    (where / "ssh_config").write_text(
        f"Include {where / 'included'}\n"
        f"Match originalhost *.by.config\n  IdentityFile {lab.key}\n"
        f"Host inner.by.config\n  HostName {lab.nodes['inner'].address}\n  ProxyJump the-gate\n"
        f"  HostKeyAlias {lab.nodes['inner'].address}\n"
        f"Host the-gate\n  HostName {lab.nodes['gate'].address}\n  IdentityFile {lab.key}\n"
    )
    path = where / "hosts.yml"
    values = {"who": "fleet", "addresses": {n: v.address for n, v in lab.nodes.items()}}
    path.write_text(yaml.safe_dump({"all": {"vars": values, "hosts": chosen}}, width=1000))
    return path


def said_by_ansible(inventory: Path, *words: str) -> dict[str, str | None]:
    """What each host answers to Ansible; None where it does not."""
    program = Path(sys.executable).with_name("ansible")
    outcome = inventory.parent / "tree"
    subprocess.run(
        [program, "-i", inventory, "all", "-m", "raw", "-a", STORY, "-t", outcome, *words],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        # Without shared connections: a host that must fail would use an alias's connection.
        env={**os.environ, "ANSIBLE_FORKS": "25", "ANSIBLE_SSH_ARGS": "-C"},
        timeout=180,
    )
    found = {path.name: json.loads(path.read_text()) for path in outcome.iterdir()}
    return {
        host: said["stdout"].split("\n")[-2].strip() if said.get("rc") == 0 else None
        for host, said in found.items()
    }


def text_of(answer: Answer, _: Login) -> dict[str, str]:
    return {"code": str(answer.code), "said": answer.out.decode().strip()}


def said_to_us(fleet: Inventory) -> dict[str, str | None]:
    found = ask(fleet.nodes, f"{STORY}\n".encode(), (), text_of, timeout=20)
    return {
        host: None if isinstance(one, Unreachable) or one["code"] != "0" else one["said"]
        for host, one in found.items()
    }


def test_every_kind_of_login_works_as_in_ansible(fleet: Lab, place: Path) -> None:
    inventory = write(fleet, place, hosts(fleet))
    expected = said_by_ansible(inventory)
    assert said_to_us(read_inventory(inventory)) == expected
    unanswered = {host for host, said in expected.items() if said is None}
    assert unanswered == {
        "wrong_password", "become_wrong_password", "become_refused", "no_way", "unknown_key",
        "refused", "nobody_home",
    }  # fmt: skip


def test_fabric_serves_plain_logins_and_ssh_the_others(fleet: Lab, place: Path) -> None:
    nodes = read_inventory(write(fleet, place, hosts(fleet)), limit="all:!here").nodes
    by_program = {n.name for n in nodes if isinstance(transport_for(n.login)[0], ProgramTransport)}
    assert by_program == {"jump_option", "jump_with_password", "by_ssh_config"}


def test_reasons_are_short_sentences_with_a_fix(fleet: Lab, place: Path) -> None:
    listed = hosts(fleet)
    known = place / "changed"
    lines = fleet.known_hosts.read_text().splitlines()
    other = {line.split()[0]: line.split(None, 1)[1] for line in lines}
    address = fleet.nodes["one"].address
    gate_key = next(k for name, k in other.items() if fleet.nodes["gate"].address in name)
    known.write_text(f"{address} {gate_key}\n")
    listed["changed_key"] = {
        **listed["by_key"],
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}",
    }
    listed["no_shell"] = {**listed["by_key"], "ansible_user": "nosh"}
    listed["container"] = {"ansible_connection": "docker"}
    listed["become_su"] = {**listed["become_nopasswd"], "ansible_become_method": "su"}
    events: list[Event] = []
    inventory = read_inventory(write(fleet, place, listed))
    found = probe(inventory.nodes, timeout=25, on_event=events.append)
    lost = {name: one for name, one in found.items() if isinstance(one, Unreachable)}
    for name, reason in {
        "refused": "connection refused by",
        "nobody_home": "no address is known",
        "unknown_key": "its host key is not known",
        "changed_key": "HOST KEY CHANGED",
        "wrong_password": "login refused for alice",
        "become_wrong_password": "sudo refused the become password",
        "become_refused": "sudo ",
        "no_shell": "its login user has no shell",
        "container": "connection 'docker' is not supported",
        "become_su": "become by su is not supported",
        "no_way": "",
    }.items():
        assert reason in lost.pop(name).reason
    assert not lost
    assert {event.node for event in events} == set(found)
    assert [event.done for event in events] == list(range(1, len(found) + 1))
    assert all(event.fix for event in events if event.state == "unreachable")
    assert not any(word == "wrong" for e in events for word in e.message.split())


def test_settings_of_ansible_cfg_count(fleet: Lab, place: Path) -> None:
    (place / "ansible.cfg").write_text(
        "[defaults]\nremote_user = bob\nhost_key_checking = False\n"
        "private_key_file = keys/mine\n[privilege_escalation]\nbecome = True\n"
        "[ssh_connection]\nssh_common_args = -o UserKnownHostsFile=/dev/null\n"
    )
    (place / "keys").mkdir()
    (place / "keys" / "mine").write_bytes(fleet.key.read_bytes())
    (place / "keys" / "mine").chmod(0o600)
    one = {"ansible_host": fleet.nodes["one"].address}
    inventory = write(fleet, place, {"plain": one, "own": {**one, "ansible_become": False}})
    found = said_to_us(read_inventory(inventory))
    assert found == said_by_ansible(inventory)
    assert str(found["plain"]).startswith("root@")
    assert str(found["own"]).startswith("bob@")


def test_typed_passwords_are_used_if_the_inventory_has_none(fleet: Lab, place: Path) -> None:
    known = f"-o UserKnownHostsFile={fleet.known_hosts}"
    login = {
        "ansible_host": fleet.nodes["one"].address,
        "ansible_user": "alice",
        "ansible_ssh_common_args": known,
        "ansible_become": True,
    }
    inventory = write(fleet, place, {"typed": login})
    for secrets in (
        Secrets(ask_pass="won der'$x"),
        Secrets(ask_pass="won der'$x", become_pass="won der'$x"),
    ):
        found = said_to_us(read_inventory(inventory, secrets=secrets))
        assert str(found["typed"]).startswith("root@")


def test_a_silent_node_costs_one_deadline(place: Path) -> None:
    import socket  # noqa: PLC0415

    assert place
    with socket.create_server(("127.0.0.1", 0)) as mute:
        login = Login(host="127.0.0.1", port=mute.getsockname()[1], host_key_checking=False)
        found = probe([Node(name=f"mute{n}", login=login) for n in range(5)], timeout=1)
    assert {one.reason for one in found.values() if isinstance(one, Unreachable)} == {
        "no answer within 1 s"
    }


def test_a_node_with_endless_output_is_cut_off(fleet: Lab, place: Path) -> None:
    inventory = write(
        fleet, place, {"by_key": hosts(fleet)["by_key"], "here": hosts(fleet)["here"]}
    )
    nodes = read_inventory(inventory).nodes
    found = ask(nodes, b"exec cat /dev/zero\n", (), text_of, timeout=20)
    for one in found.values():
        assert isinstance(one, Unreachable)
        assert "more than 16 MB" in one.reason


def test_greetings_and_profile_output_are_ignored(fleet: Lab, place: Path) -> None:
    fleet.exec(
        "one",
        "for f in .bashrc .profile; do"
        " printf 'echo welcome; echo begin uname; id\\n' > ~bob/$f; done",
        user="root",
        check=True,
    )
    login = {**hosts(fleet)["by_key"], "ansible_user": "bob"}
    found = probe(read_inventory(write(fleet, place, {"chatty": login})).nodes)
    assert isinstance(found["chatty"], Probed)
    assert found["chatty"].capture["uname"].startswith("Linux ")


def test_the_probe_leaves_no_password_behind(
    fleet: Lab, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {name: one for name, one in hosts(fleet).items() if "password" in name}
    nodes = read_inventory(write(fleet, place, listed)).nodes
    (place / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    probe(nodes)
    assert not list((place / "tmp").iterdir())
    assert "deep" not in repr(nodes)
