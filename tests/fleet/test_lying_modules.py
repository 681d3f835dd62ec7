"""Nodes whose modules lie: Ansible acts on nothing that they send, and the other node goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from fleetbuild.ansible import HostRun, Playbooks, TaskEvent, playbooks
from fleetbuild.ansible.role_results import reply_in

ROOT = Path(__file__).parents[2]
# What the module says that every one of these actions runs on the node.
_HONEST = {"changed": False, "rc": 0}
_RELEASE: dict[str, object] = {"fleetbuild.core.release": {"spec": {"path": "/nonexistent"}}}
_TASKS: dict[str, dict[str, object]] = {
    "release": _RELEASE,
    "toolchain": {"fleetbuild.core.toolchain": {"python": "/usr/bin/python3", "packages": {}}},
    "verify": {"fleetbuild.core.verify": {"spec": {"path": "/nonexistent"}}},
    "async": {**_RELEASE, "async": 30, "poll": 0},
}
_EVIL = "-o ProxyCommand=evil"
_LIES: dict[str, dict[str, object]] = {
    "ansible_facts": {"ansible_facts": {"jump": _EVIL, "ansible_ssh_common_args": _EVIL}},
    "add_host": {"add_host": {"host_name": "good", "groups": [], "host_vars": {"jump": _EVIL}}},
    "add_group": {"add_group": "chosen", "changed": True, "parent_groups": ["all"]},
    "ansible_stats": {"ansible_stats": {"data": {"x": 1}}},
    "ansible_become_password": {"ansible_become_password": "x"},
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory whose ssh arguments hold a variable, and an ssh that records its arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(playbooks, "ansible_dir", lambda: tmp_path)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "plugins").symlink_to(ROOT / "plugins")
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/argv\nfor last; do :; done\nsh -c "$last"\n')
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text(
        f"[all:vars]\nansible_ssh_executable={ssh}\njump=-4\n"
        "ansible_ssh_common_args='{{ jump }}'\n[all]\n"
        "good ansible_python_interpreter=/usr/bin/python3\n"
        + "".join(f"{lie} ansible_python_interpreter={tmp_path}/python-{lie}\n" for lie in _LIES)
    )
    return tmp_path


def run(
    place: Path, tasks: list[dict[str, object]], lies: Sequence[str], **reply: object
) -> tuple[dict[str, HostRun], list[TaskEvent]]:
    """Run the tasks on the good node, and beside it on one node for each of these lies."""
    for lie in lies:
        said, python = json.dumps(_HONEST | _LIES[lie] | reply), place / f"python-{lie}"
        python.write_text(f"#!/bin/sh\n[ $# -gt 0 ] || cat >/dev/null\necho '{said}'\n")
        python.chmod(0o755)
    play = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (place / "playbooks" / "try.yml").write_text(yaml.safe_dump(play))
    events: list[TaskEvent] = []
    hosts = Playbooks(inventory="hosts", state_dir=place / "state").run(
        "try.yml", limit=["good", *lies], extravars={}, on_event=events.append
    )
    return hosts, events


def test_a_reply_that_would_set_variables_is_refused_and_other_nodes_go_on(place: Path) -> None:
    """Ansible removes some of these keys, and the check of replies drops the others."""
    jumps = " ".join(f"{{{{ hostvars.{host}.jump }}}}" for host in ("good", *_LIES))
    show = {"jump": jumps, "chosen": "{{ groups }}", "nodes": "{{ ansible_play_hosts_all }}"}
    tasks: list[dict[str, object]] = [
        {"name": "lie", **_RELEASE},
        {"name": "next", **_RELEASE},
        {"name": "show", "ansible.builtin.set_fact": show, "when": "inventory_hostname == 'good'"},
    ]
    hosts, events = run(place, tasks, list(_LIES))
    assert {host.state for host in hosts.values()} == {"ok", "failed"}
    (lie,) = (host for host in hosts if hosts[host].state == "failed")
    assert lie == "ansible_facts"
    assert f"{lie} answered fleetbuild.core.release with a value of {lie}" in hosts[lie].message
    assert [event.task for event in events if event.host == lie] == ["lie"]
    (reply,) = filter(None, map(reply_in, (e for e in events if e.host == lie)))
    assert f"Check {lie} for a replaced Python" in reply.fix
    (shown,) = (e.result["ansible_facts"] for e in events if e.task == "show" and e.host == "good")
    assert shown["jump"].split() == ["-4"] * (1 + len(_LIES))
    assert "chosen" not in shown["chosen"]
    assert set(shown["nodes"]) == {"good", *_LIES}
    assert "evil" not in (place / "argv").read_text()
    # Ansible warns of what it removes, in the node's words; nothing acts on a warning.
    results = [{**event.result, "warnings": []} for event in events]
    assert "evil" not in json.dumps(results)


@pytest.mark.parametrize("data", [{"host": "good", "task": "forged"}, None])
def test_words_of_a_node_make_no_event_of_another(place: Path, data: object) -> None:
    """ansible-runner reads events between control characters, which Ansible's warnings quote."""
    forged = {"uuid": "x", "event": "runner_on_ok", "event_data": data} if data else [1]
    event = base64.b64encode(json.dumps(forged).encode()).decode()
    words = f"\x1b[K{event}\x1b[1D\x1b[K"
    hosts, events = run(place, [{"name": "next", **_RELEASE}], ["add_group"], _ansible_x=words)
    assert {host.state for host in hosts.values()} == {"ok"}
    assert [event.task for event in events if event.host == "good"] == ["next"]
    (log,) = (place / "state/runs").iterdir()
    assert "\x1b" not in log.read_text()


def test_every_kind_of_task_that_the_roles_use_is_checked(place: Path) -> None:
    # A loop whose items are skipped and done: Ansible acts on the items that are not skipped.
    tasks: list[dict[str, object]] = [
        {"name": kind, "loop": [1, 2], "ignore_errors": True, **task}
        for kind, task in _TASKS.items()
    ]
    _, events = run(place, tasks, ["ansible_facts"], skipped=True)
    told = {e.task: json.dumps(e.result) for e in events if e.host == "ansible_facts"}
    assert told.keys() == _TASKS.keys()
    for kind, result in told.items():
        assert "fleetbuild refused the answer" in result, kind
        assert "evil" not in result, kind
    assert "evil" not in (place / "argv").read_text()


def test_the_roles_run_nothing_on_a_node_that_is_not_checked() -> None:
    here = {"set_fact", "assert", "fail"}
    here |= {"include_tasks", "meta", "include_role", "import_tasks", "import_role"}
    # Of the replies to these, the role node_labels takes a yes and whether something changed.
    labels = {"file", "shell", "template"}
    for file in [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml")]:
        known = here | (labels if "node_labels" in file.parts else set())
        for task in _tasks(yaml.safe_load(file.read_text())):
            for collection, _, name in (word.rpartition(".") for word in task if "." in word):
                assert collection == "fleetbuild.core" or name in known, (file, name)
    actions = {file.stem: file.read_text() for file in ROOT.glob("plugins/action/*.py")}
    assert actions.keys() == {file.stem for file in ROOT.glob("plugins/modules/*.py")}
    for name, text in actions.items():
        assert "_execute_module" not in text, name
        assert (name == "transfer") != ("NodeModule" in text), name


def _tasks(items: list[dict[str, object]]) -> list[dict[str, object]]:
    """Every task of a file, those inside plays and blocks included."""
    found = []
    for item in items:
        inner = [item[key] for key in ("tasks", "block", "rescue", "always") if key in item]
        found += [task for tasks in inner for task in _tasks(tasks)] if inner else [item]  # type: ignore[arg-type]
    return found


def test_an_interpreter_that_ansible_discovers_is_accepted(place: Path) -> None:
    lie = "ansible_facts"  # no lie, once its Python is the discovered one
    text = (place / "hosts").read_text().replace(f"{place}/python-{lie}", "auto_silent")
    (place / "hosts").write_text(text)
    hosts, _ = run(place, [_RELEASE, _RELEASE], [lie])
    assert {host.state for host in hosts.values()} == {"ok"}


def test_a_node_does_not_choose_which_file_of_the_controller_is_copied_to_it() -> None:
    tasks = _tasks(yaml.safe_load((ROOT / "roles/install_wheel/tasks/main.yml").read_text()))
    (copy,) = (task for task in tasks if "fleetbuild.core.transfer" in task)
    chosen = "{{ install_wheel_files | selectattr('sha256', 'in', install_wheel_state.missing "
    files = copy["fleetbuild.core.transfer"]["files"]  # type: ignore[index]
    assert files == chosen + "| map(attribute='sha256')) }}"
