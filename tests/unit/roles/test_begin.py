"""Who reserves a release: the user who logs in if that one can write, else root, each once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from tests.factories.role_modules import ROLES, plugin

release = plugin("action.release")
SPEC = {"path": "/opt/x", "login_uid": 0}


def begin(monkeypatch: pytest.MonkeyPatch, begun: dict[str, Any], **spec: Any) -> Any:
    """Return what the task `as root` results in, and what it asked the node."""
    asked: list[dict[str, Any]] = []
    action = release.ActionModule.__new__(release.ActionModule)
    action._task = SimpleNamespace(
        args={"state": "begun", "spec": {**SPEC, **spec}, "begun": begun}
    )

    def ask(_: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        asked.append(arguments)
        return {"counter": 7, "writable": True, "user": 0}

    monkeypatch.setattr(release.NodeModule, "ask", ask)
    return action.ask(dict(action._task.args), {}), asked


def test_a_node_whose_login_user_can_write_is_not_asked_again(monkeypatch):
    begun = {"counter": 3, "writable": True, "user": 1000}
    told = {"changed": True, "took_over": "Another run was killed.", "warnings": ["No Python"]}
    result, asked = begin(monkeypatch, {**begun, **told})
    assert result == {**begun, "became": False, "login_uid": 0}
    assert not asked


@pytest.mark.parametrize(
    ("begun", "spec"),
    [({"writable": False, "user": 1000}, {}), ({"skipped": True}, {"login_uid": 1000})],
)
def test_root_makes_folders_for_the_login_user(monkeypatch, begun, spec):
    result, (asked,) = begin(monkeypatch, begun, **spec)
    assert (result["became"], result["login_uid"], result["counter"]) == (True, 1000, 7)
    assert (asked["login_uid"], "begun" in asked) == (1000, False)


def test_later_tasks_become_as_the_reservation_did():
    tasks = [
        task
        for name in ("main", "end")
        for task in yaml.safe_load((ROLES / f"install_wheel/tasks/{name}.yml").read_text())
        if "become" in task
    ]
    assert [task["name"] for task in tasks] == [
        "Copy wheels", "Make the release", "End the reservation",
    ]  # fmt: skip
    assert all("install_wheel_state.became" in task["become"] for task in tasks)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ({}, False),
        ({"begun": {"failed": True}}, False),
        ({"begun": {"failed": True}, "state": {"counter": 3}}, False),  # of an earlier role
        ({"begun": {"writable": True}, "state": {"counter": 3}}, True),
        ({"begun": {"skipped": True}, "state": {"counter": 3}}, True),
        ({"begun": {"writable": False}, "state": {"failed": True}}, False),
        ({"begun": {"writable": True}, "state": {"counter": 0}}, False),
    ],
)
def test_a_role_ends_no_reservation_but_its_own(values: dict[str, Any], ends: bool) -> None:
    """Else root makes folders of a release that another user is to install."""
    (task,) = yaml.safe_load((ROLES / "install_wheel/tasks/end.yml").read_text())
    jinja = Environment(autoescape=False)  # noqa: S701 (no HTML)
    jinja.tests["failed"] = lambda result: result.get("failed", False)
    named = {f"install_wheel_{name}": value for name, value in values.items()}
    assert jinja.compile_expression(task["when"])(named) is ends
