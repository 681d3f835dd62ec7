"""Inventories of every kind, read by Ansible itself; and playbooks run with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild import ansible
from fleetbuild.ansible import Playbooks, Secrets, TaskEvent, playbooks
from fleetbuild.errors import FleetbuildError, InventoryError
from fleetbuild.probe.inventory import read_inventory
from tests.factories.processes import left_behind


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Only the programs of the environment that runs the tests, and those not by way of PATH.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def vault(text: str, password: str, *words: str) -> str:
    Path("password").write_text(password)
    program = Path(sys.executable).with_name("ansible-vault")
    return subprocess.run(
        [program, "encrypt_string", "--vault-password-file", "password", text, *words],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def executable(name: str, text: str) -> str:
    Path(name).write_text(text)
    Path(name).chmod(0o755)
    return f"./{name}" if os.sep not in name else name


def test_ini_with_host_vars_and_group_vars() -> None:
    Path("inv/group_vars").mkdir(parents=True)
    Path("inv/host_vars").mkdir()
    Path("inv/hosts").write_text("[gpu]\na ansible_port=2200\nb\n[all:vars]\nansible_user=all\n")
    Path("inv/group_vars/gpu.yml").write_text("fleetbuild_sms: ['8.6']\nansible_user: gpu\n")
    Path("inv/host_vars/b.yml").write_text("ansible_user: b\nfleetbuild_skip: true\n")
    fleet = read_inventory("inv")
    assert [node.name for node in fleet.nodes] == ["a", "b"]
    assert fleet["a"].login.port == 2200
    assert [node.login.user for node in fleet.nodes] == ["gpu", "b"]
    assert fleet["a"].sms == ("8.6",)
    assert fleet["a"].groups == ("gpu",)
    assert fleet["b"].skip
    assert not fleet["a"].skip
    assert fleet["b"].variables["inventory_hostname"] == "b"
    assert fleet["b"].variables["group_names"] == ["gpu"]


def test_limit_is_a_pattern_or_a_file() -> None:
    Path("hosts").write_text("[x]\na\nb\n[y]\nb\nc\n")
    Path("only").write_text("a\nc\n")
    assert [n.name for n in read_inventory("hosts", limit="x:&y").nodes] == ["b"]
    assert [n.name for n in read_inventory("hosts", limit="@only").nodes] == ["a", "c"]


def test_a_dynamic_script_and_a_host_list() -> None:
    said = '{"g": {"hosts": ["s"]}, "_meta": {"hostvars": {"s": {"ansible_host": "10.0.0.9"}}}}'
    script = executable("script", f"#!/bin/sh\necho '{said}'\n")
    assert read_inventory(script)["s"].login.host == "10.0.0.9"
    assert [node.name for node in read_inventory("h1,h2,").nodes] == ["h1", "h2"]


def test_templates_and_vaulted_values_are_rendered_by_ansible() -> None:
    secret = vault("pa{{ss", "open")
    document = f"""
all:
  vars: {{lab: example}}
  hosts:
    node1:
      ansible_host: "{{{{ inventory_hostname }}}}.{{{{ lab }}}}"
      ansible_port: "{{{{ 2000 + 22 }}}}"
      kubernetes_node: "{{{{ inventory_hostname | upper }}}}"
      fleetbuild_sms: ["{{{{ '8.' + '6' }}}}"]
      ansible_password: {secret.replace(chr(10), chr(10) + "        ")}
"""
    Path("inv.yml").write_text(document)
    node = read_inventory("inv.yml", secrets=Secrets(vault_password_files=("password",)))["node1"]
    assert node.login.host == "node1.example"
    assert node.login.port == 2022
    assert node.sms == ("8.6",)
    assert node.variables["kubernetes_node"] == "NODE1"
    assert node.login.password is not None
    assert node.login.password.get_secret_value() == "pa{{ss"
    typed = Secrets(vault_passwords=(("", "open"),))
    assert read_inventory("inv.yml", secrets=typed)["node1"] == node


@pytest.mark.parametrize(
    ("name", "text", "message", "fix"),
    [
        ("missing.yml", None, "missing.yml does not exist", "Name an inventory"),
        ("bad.yml", "all:\n  hosts:\n    a: {x: 1\n    b:\n", "line 4, column", "Correct it"),
        ("bad", "[a\nhost foo\n", "/bad cannot be read", "Correct it"),
        ("none.yml", "all:\n  hosts: {}\n", "none.yml names no hosts", "Add hosts"),
        ("plain.sh", "#!/bin/sh\necho {}\n", "is not executable", "chmod +x plain.sh"),
        ("fails", "#!/bin/sh\necho why >&2; exit 3\n", "exit code 3: why", "--list"),
        ("talks", "#!/bin/sh\necho hello\n", "JSON", "--list"),
        (
            "tpl.yml",
            "all: {hosts: {a: {ansible_host: '{{ nope }}'}}}",
            "'nope' is undef",
            "Correct",
        ),
        ("port.yml", "all: {hosts: {a: {ansible_port: 99999}}}", "a: ansible_port is '99999'", ""),
        ("sm.yml", "all: {hosts: {a: {fleetbuild_sms: ['sm_86']}}}", "a: fleetbuild_sms is", ""),
        ("skip.yml", "all: {hosts: {a: {fleetbuild_skip: maybe}}}", "true or false", "Correct"),
    ],
)
def test_bad_inventories_get_a_sentence_and_a_fix(
    name: str, text: str | None, message: str, fix: str
) -> None:
    if text is not None:
        Path(name).write_text(text)
    if name in ("fails", "talks"):
        Path(name).chmod(0o755)
    with pytest.raises(InventoryError) as caught:
        read_inventory(name)
    assert message in caught.value.message
    assert fix in caught.value.fix
    assert "\n" not in caught.value.message
    assert "Traceback" not in caught.value.message


def test_a_pattern_without_matching_hosts_is_an_error() -> None:
    Path("hosts").write_text("a1\na2\n[web]\na2\n")
    with pytest.raises(InventoryError, match="No host of hosts matches 'zz'") as caught:
        read_inventory("hosts", limit="zz")
    assert caught.value.fix == "Its groups are ungrouped, web; its hosts are a[1-2]."
    with pytest.raises(InventoryError, match=r"limit file .* does not exist"):
        read_inventory("hosts", limit="@zz")


def test_vault_problems_name_the_way_out() -> None:
    Path("inv/group_vars").mkdir(parents=True)
    Path("inv/hosts").write_text("a\n")
    Path("secrets.yml").write_text("x: 1\n")
    Path("pw").write_text("right")
    program = Path(sys.executable).with_name("ansible-vault")
    subprocess.run(
        [program, "encrypt", "--vault-password-file", "pw", "--output", "inv/group_vars/all.yml",
         "secrets.yml"],
        check=True, capture_output=True,
    )  # fmt: skip
    Path("wrong").write_text("wrong")
    for secrets, message in (
        (Secrets(), "no vault password was given"),
        (Secrets(vault_password_files=("wrong",)), "does not decrypt"),
        (Secrets(vault_password_files=("gone",)), "vault password file .* does not exist"),
    ):
        with pytest.raises(InventoryError, match=message):
            read_inventory("inv", secrets=secrets)
    assert read_inventory("inv", secrets=Secrets(vault_ids=("dev@pw",)))["a"].variables["x"] == 1


def test_host_key_checking_of_ansible_cfg_survives_ansible_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("hosts").write_text("a\n")
    assert read_inventory("hosts")["a"].login.host_key_checking
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    assert not read_inventory("hosts")["a"].login.host_key_checking
    monkeypatch.delenv("ANSIBLE_HOST_KEY_CHECKING")
    Path("elsewhere").mkdir()
    Path("elsewhere/my.cfg").write_text("[defaults]\nhost_key_checking = no\nremote_port = 2022\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", "elsewhere/my.cfg")
    login = read_inventory("hosts")["a"].login
    assert (login.host_key_checking, login.port) == (False, 2022)


def test_reading_fifty_hosts_starts_no_more_programs_than_reading_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    begin = subprocess.Popen.__init__

    def count(self: Any, *words: Any, **named: Any) -> None:
        started.append(words)
        begin(self, *words, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", count)

    def starts(hosts: int) -> int:
        started.clear()
        Path("hosts").write_text("".join(f"n{i} ansible_host=10.0.0.{i}\n" for i in range(hosts)))
        assert len(read_inventory("hosts").nodes) == hosts
        return len(started)

    assert 0 < starts(50) <= starts(1)


def test_ansible_starts_before_other_modules_are_loaded() -> None:
    Path("hosts").write_text("a\n")
    code = (
        "import subprocess, sys\n"
        "import fleetbuild\n"
        "start = subprocess.Popen.__init__\n"
        "heavy = {'ansible_runner', 'fabric', 'pydantic', 'yaml'}\n"
        "def begin(self, *words, **named):\n"
        "    assert not heavy & set(sys.modules)\n"
        "    start(self, *words, **named)\n"
        "subprocess.Popen.__init__ = begin\n"
        "fleetbuild.read_inventory('hosts')\n"
        "assert 'ansible_runner' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def play(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, object]]], str]:
    monkeypatch.setattr(playbooks, "ansible_dir", lambda: place)

    def write(tasks: list[dict[str, object]]) -> str:
        (place / "playbooks").mkdir()
        plays = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
        (place / "playbooks" / "try.yml").write_text(yaml.safe_dump(plays))
        (place / "hosts").write_text(
            "[all:vars]\nansible_python_interpreter=/usr/bin/python3\n[all]\n"
            "a ansible_connection=local\nb ansible_connection=local\n"
            "c ansible_host=127.0.0.1 ansible_port=1\nd ansible_connection=local\n"
        )
        return "try.yml"

    return write


def test_a_playbook_reports_events_and_an_outcome_for_each_host(
    play: Callable[[list[dict[str, object]]], str], place: Path
) -> None:
    name = play(
        [
            {"name": "fact", "set_fact": {"answer": "{{ given }}-{{ inventory_hostname }}"}},
            {"name": "hidden", "command": "echo {{ hush }}", "no_log": True},
            {
                "name": "go",
                "raw": "test {{ inventory_hostname }} != b || { echo because >&2; exit 3; }",
            },
        ]
    )  # fmt: skip
    events: list[TaskEvent] = []
    secrets = Secrets(become_pass="never-shown")
    hosts = Playbooks(inventory="hosts", state_dir=place / "state", secrets=secrets).run(
        name,
        limit=["a", "b", "c"],
        extravars={"given": "x", "hush": "s3cret"},
        on_event=events.append,
    )
    assert hosts["a"].state == "ok", hosts["a"].message
    said = [event.result.get("ansible_facts") for event in events if event.task == "fact"]
    assert {"answer": "x-a"} in said
    assert hosts["b"].state == "failed"
    assert "go: " in hosts["b"].message
    assert "because" in hosts["b"].message
    assert hosts["c"].state == "unreachable"
    assert "d" not in {event.host for event in events}
    assert "s3cret" not in repr(events)
    (log,) = (place / "state" / "runs").iterdir()
    assert "s3cret" not in log.read_text()
    assert "never-shown" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("folder", "seconds"), [("", 0.01), (".", 0.001), ("mine", 0.001)])
def test_ansible_looks_for_results_less_often_unless_the_user_has_an_ansible_cfg(
    play: Callable[[list[dict[str, object]]], str],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    seconds: float,
) -> None:
    if folder:
        (place / folder).mkdir(exist_ok=True)
        (place / folder / "ansible.cfg").write_text("[defaults]\nforks = 3\n")
    if folder == "mine":  # Ansible takes a folder, too
        monkeypatch.setenv("ANSIBLE_CONFIG", str(place / folder))
    name = play(
        [{"set_fact": {"every": "{{ lookup('config', 'DEFAULT_INTERNAL_POLL_INTERVAL') }}"}}]
    )
    events: list[TaskEvent] = []
    Playbooks(inventory="hosts", state_dir=place / "state").run(
        name, limit=["a"], extravars={}, on_event=events.append
    )
    assert {"every": seconds} in [event.result.get("ansible_facts") for event in events]


def test_ctrl_c_in_a_playbook_leaves_no_process_behind(
    play: Callable[[list[dict[str, object]]], str], place: Path
) -> None:
    name = play([{"name": "long", "command": "sleep 4711"}])
    threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        Playbooks(inventory="hosts", state_dir=place).run(
            name, limit=["a", "b"], extravars={}, on_event=lambda _: None
        )
    assert left_behind("sleep\x004711") == []


def test_a_playbook_that_cannot_start_is_an_error_with_the_log(
    play: Callable[[list[dict[str, object]]], str], place: Path
) -> None:
    name = play([{"name": "x", "no_such_module_at_all": {}}])
    with pytest.raises(FleetbuildError, match="before its first task") as caught:
        Playbooks(inventory="hosts", state_dir=place).run(
            name, limit=["a"], extravars={}, on_event=lambda _: None
        )
    assert "no_such_module_at_all" in caught.value.message
    with pytest.raises(FleetbuildError, match="is missing"):
        Playbooks(inventory="hosts", state_dir=place).run(
            "gone.yml", limit=["a"], extravars={}, on_event=lambda _: None
        )


def test_our_programs_are_found_without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert Path(ansible.find_program("ansible-playbook")).parent == Path(sys.executable).parent
