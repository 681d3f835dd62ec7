"""What a run reports about a task is declared by the task's role."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.ansible.steps import Step, step_of
from tests.factories.role_modules import ROLES

DECLARED = [
    (path.parents[1].name, Step.model_validate(each))
    for path in sorted(ROLES.glob("*/meta/steps.yml"))
    for each in yaml.safe_load(path.read_text())
]


def names(tasks: list[dict[str, Any]]) -> Iterator[str]:
    for task in tasks:
        yield task["name"]
        for part in ("block", "rescue", "always"):
            yield from names(task.get(part, []))


def tasks_of(role: Path) -> list[str]:
    files = sorted(role.glob("tasks/*.yml"))
    return [name for file in files for name in names(yaml.safe_load(file.read_text()))]


@pytest.mark.parametrize(("role", "step"), DECLARED, ids=lambda each: getattr(each, "task", each))
def test_a_declared_step_is_one_task_of_its_role(role: str, step: Step) -> None:
    assert tasks_of(ROLES / role).count(step.task) == 1
    assert step_of(f"fleetbuild.core.{role} : {step.task}") == step
    assert step_of(f"{role} : {step.task}") == step


def test_each_stage_of_an_install_has_an_end() -> None:
    ends = [step.stage for _, step in DECLARED if step.ends]
    assert sorted(ends) == ["distribute", "install", "verify"]


def played(tasks: list[dict[str, Any]]) -> Iterator[str]:
    """The names of a playbook's tasks in order, with the tasks of its roles."""
    for task in tasks:
        if role := task.get(
            "ansible.builtin.import_role", task.get("ansible.builtin.include_role")
        ):
            file = (
                ROLES / role["name"].rpartition(".")[2] / "tasks" / role.get("tasks_from", "main")
            )
            yield from played(yaml.safe_load(file.with_suffix(".yml").read_text()))
        elif part := task.get("ansible.builtin.import_tasks"):
            (file,) = ROLES.glob(f"install_wheel/tasks/{part}")
            yield from played(yaml.safe_load(file.read_text()))
        elif "block" in task:
            for key in ("block", "rescue", "always"):
                yield from played(task.get(key, []))
        else:
            yield task["name"]


@pytest.mark.parametrize("playbook", ["install.yml", "rollback.yml", "clean_up.yml"])
def test_a_silent_node_keeps_no_other_node_of_a_playbook_waiting(playbook: str) -> None:
    (play,) = yaml.safe_load((ROLES.parent / "playbooks" / playbook).read_text())
    assert play["strategy"] == "ansible.builtin.host_pinned"


def test_an_install_that_failed_ends_its_reservation_and_no_other_does(tmp_path: Path) -> None:
    (play,) = yaml.safe_load((ROLES.parent / "playbooks" / "install.yml").read_text())
    (whole,) = play["tasks"]
    assert list(played(whole["always"]))[1:] == ["End the reservation"]
    whole["block"] = [
        {"ansible.builtin.set_fact": {"install_wheel_result": "{{ result }}"}},
        {"ansible.builtin.fail": {}, "when": "inventory_hostname == 'failed'"},
    ]
    whole["always"][1:] = [{"ansible.builtin.debug": {"msg": "ended {{ inventory_hostname }}"}}]
    results: dict[str, Any] = {
        "active": {"active": True}, "verified": {"active": False, "verification": {"ok": True}},
        "broken": {"active": False, "verification": {"ok": False}}, "failed": {}, "unknown": {},
    }  # fmt: skip
    hosts = {host: {"result": result} for host, result in results.items()}
    play |= {"hosts": "all", "connection": "local"}
    for name, content in {"play": [play], "hosts": {"all": {"hosts": hosts}}}.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(content))
    line = [Path(sys.executable).parent / "ansible-playbook", "-i", "hosts.yml", "play.yml"]
    said = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert set(re.findall(r"ended (\w+)", said)) == {"broken", "failed", "unknown"}


def test_an_undeclared_task_is_not_a_step() -> None:
    assert step_of("fleetbuild.core.install_wheel : Result") is None
    assert step_of("Make a sandwich") is None


def test_events_name_a_task_without_its_role() -> None:
    step = step_of("Make the release")
    assert step is not None
    assert step.stage == "install"
