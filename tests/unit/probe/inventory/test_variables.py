"""Which of a host's variables and Ansible's settings make a login."""

from __future__ import annotations

from typing import Any

import pytest

from fleetbuild.ansible import Secrets, needs_rendering
from fleetbuild.ansible.messages import plain, sentence, unreachable_reason
from fleetbuild.ansible.playbooks import task_event
from fleetbuild.ansible.settings import flattened
from fleetbuild.errors import InventoryError
from fleetbuild.probe.inventory.nodes import node_of

SETTINGS = {"ssh.remote_user": "cfg", "ssh.port": 2022, "ssh.host_key_checking": False}


def test_variables_come_before_settings() -> None:
    login = node_of("n", {"ansible_user": "var"}, settings=SETTINGS).login
    assert (login.host, login.user, login.port, login.host_key_checking) == (
        "n",
        "var",
        2022,
        False,
    )
    assert node_of("n", {"ansible_user": ""}, settings=SETTINGS).login.user is None


def test_of_two_names_ansible_takes_the_last() -> None:
    own = {"ansible_host": "a", "ansible_ssh_host": "b", "ansible_password": "x",
           "ansible_ssh_pass": "y"}  # fmt: skip
    login = node_of("n", own).login
    assert login.host == "b"
    assert login.password is not None
    assert login.password.get_secret_value() == "y"


@pytest.mark.parametrize(
    ("kind", "is_now"),
    [("smart", "ssh"), ("paramiko_ssh", "ssh"), ("ansible.builtin.ssh", "ssh"),
     ("local", "local"), ("winrm", "winrm")],
)  # fmt: skip
def test_the_connection_variables_give_a_login(kind: str, is_now: str) -> None:
    assert node_of("n", {"ansible_connection": kind}).login.connection == is_now


def test_the_become_variables_give_become_settings() -> None:
    assert node_of("n", {"ansible_become_user": "x"}).login.become is None
    become = node_of("n", {"ansible_become": "yes", "ansible_become_pass": "p"}).login.become
    assert become is not None
    assert (become.method, become.user) == ("sudo", "root")
    typed = node_of("n", {"ansible_become": True}, secrets=Secrets(ask_pass="typed")).login.become
    assert typed is not None
    assert typed.password is not None
    assert typed.password.get_secret_value() == "typed"


def test_words_are_read_as_in_a_shell() -> None:
    own = {"ansible_ssh_common_args": "-o 'ProxyCommand=ssh -W %h:%p gate'"}
    assert node_of("n", own).login.ssh_common_args == ("-o", "ProxyCommand=ssh -W %h:%p gate")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ansible_timeout", "soon"),
        ("ansible_port", "twenty"), ("ansible_port", 0), ("ansible_port", True),
        ("ansible_host", ["a"]), ("ansible_become", "perhaps"), ("ansible_password", {"a": 1}),
        ("ansible_ssh_common_args", "-o 'open"), ("fleetbuild_sms", ["86"]),
        ("fleetbuild_sms", {"a": 1}), ("fleetbuild_python", "python3"),
        ("fleetbuild_packages", [["x"]]), ("fleetbuild_isa", ["avx"]),
    ],
)  # fmt: skip
def test_a_wrong_type_names_host_and_variable(name: str, value: Any) -> None:
    with pytest.raises(InventoryError, match=f"node7: {name} "):
        node_of("node7", {name: value})


def test_ansibles_timeout_bounds_a_connection() -> None:
    settings = {"ssh.timeout": 7}
    assert node_of("n", {}).login.connect_timeout == 10
    assert node_of("n", {}, settings=settings).login.connect_timeout == 7
    assert node_of("n", {"ansible_timeout": 4}, settings=settings).login.connect_timeout == 4


def test_fleetbuild_variables_override_facts() -> None:
    own = {"fleetbuild_sms": "8.6, 9.0", "fleetbuild_python": 3.11, "fleetbuild_builder": True,
           "fleetbuild_packages": ["a==1"], "fleetbuild_isa": "avx2"}  # fmt: skip
    node = node_of("n", own)
    assert (node.sms, node.python, node.builder) == (("8.6", "9.0"), "3.11", True)
    assert (node.packages, node.isa, node.skip) == (("a==1",), "avx2", False)


def test_templates_and_vaulted_values_need_rendering() -> None:
    assert needs_rendering("{{ x }}")
    assert needs_rendering({"__ansible_vault": "…"})
    assert needs_rendering([{"a": "{% if x %}"}])
    assert not needs_rendering(["a", 1, {"b": None}])


def test_secrets_do_not_appear_in_repr() -> None:
    node = node_of("n", {"ansible_password": "hush", "ansible_become": True})
    assert "hush" not in repr(node)
    assert "hush" not in node.model_dump_json()


def test_settings_of_plugins_stand_under_their_plugin() -> None:
    dump = [
        {"name": "DEFAULT_BECOME", "value": True},
        {"CONNECTION_PLUGINS": [{"ssh": [{"name": "port", "value": 22}]}]},
        {"BECOME_PLUGINS": []},
    ]
    assert flattened(dump) == {"DEFAULT_BECOME": True, "ssh.port": 22}


def test_messages_lose_colours_labels_and_line_breaks() -> None:
    assert plain("\x1b[31mred\x1b[0m\x07") == "red"
    assert sentence("[ERROR]: one\n two.\n[WARNING]: three") == "one two"
    assert sentence("") == "no reason given"


def test_events_say_why_a_task_failed() -> None:
    res = {"msg": "non-zero return code", "rc": 2, "stderr": "no space left\n"}
    event = task_event("runner_on_failed", {"host": "n", "task": "build", "res": res})
    assert event.message == "non-zero return code: no space left"
    assert task_event("runner_on_ok", {"host": "n", "res": {"changed": True}}).state == "changed"
    assert task_event("runner_on_ok", {"host": "n", "res": "what"}).result == {}


CHANGED = """Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /root/.ssh/known_hosts:3
  remove with:
  ssh-keygen -f "/root/.ssh/known_hosts" -R "[10.0.0.7]:2222"
"""


def test_a_changed_host_key_is_reported_with_its_fix() -> None:
    said = unreachable_reason(CHANGED)
    assert said.startswith("HOST KEY CHANGED: another machine may be answering.")
    assert said.endswith("ssh-keygen -f /root/.ssh/known_hosts -R '[10.0.0.7]:2222'")
    hostile = CHANGED.replace("[10.0.0.7]:2222", "x; rm -rf /")
    assert unreachable_reason(hostile).endswith("ssh-keygen -R HOST")
    assert unreachable_reason("Connection timed out") == "Connection timed out"
