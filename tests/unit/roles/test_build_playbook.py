"""What the playbook asks of the roles, which are stood in for by some that only say it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from jinja2 import Template

from tests.factories.role_modules import CHECKOUT

PLAYBOOK = CHECKOUT / "playbooks" / "build.yml"


def said(tmp_path: Path, builds: list[dict[str, object]]) -> list[str]:
    """The sentences of the roles, in their order."""
    wanted = "{{ (toolchain_gccs + toolchain_libraries) | join(',') }}"
    for role, words in (
        ("toolchain", "{{ toolchain_python }} " + wanted),
        ("build_wheel", "{{ build_wheel_spec.package }} {{ build_wheel_spec.python }}"),
    ):
        tasks = tmp_path / "ansible_collections/fleetbuild/core/roles" / role / "tasks"
        tasks.mkdir(parents=True)
        task = {"ansible.builtin.debug": {"msg": f"{role}: {words}"}}
        (tasks / "main.yml").write_text(json.dumps([task]))
    ended = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", "n,", "-c", "local", str(PLAYBOOK)),
            *("-e", json.dumps({"fleetbuild_builds": {"n": builds}})),
        ],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_NOCOLOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return re.findall(r'"msg": "(.*)"', ended.stdout)


def test_a_builder_has_a_toolchain_for_each_python_that_it_builds_for(tmp_path: Path) -> None:
    names = ["wheel_version", "key", "source", "source_sha256", "dest"]
    about = dict.fromkeys(names, "x") | {
        "requirements": [], "environment": {}, "jobs": 1, "cache": "ccache", "gcc": "",
    }  # fmt: skip
    builds = [
        about | {"package": "a", "python": "/usr/bin/python3.11"},
        about | {"package": "b", "python": "/usr/bin/python3.11", "gcc": "12"},
        about | {"package": "c", "python": "/usr/bin/python3.12", "libraries": ["openblas"]},
    ]
    assert said(tmp_path, builds) == [
        "toolchain: /usr/bin/python3.11 12,openblas",
        "toolchain: /usr/bin/python3.12 12,openblas",
        "build_wheel: a /usr/bin/python3.11",
        "build_wheel: b /usr/bin/python3.11",
        "build_wheel: c /usr/bin/python3.12",
    ]


def test_files_travel_to_and_from_the_folder_that_the_controller_chose() -> None:
    """Ansible expands ~ as the login's home, and a module expands it as HOME; they can differ."""
    tasks = CHECKOUT / "roles" / "build_wheel" / "tasks"
    build = yaml.safe_load((tasks / "build.yml").read_text())
    sent = build[0]["fleetbuild.core.transfer"]
    fetched = yaml.safe_load((tasks / "fetch.yml").read_text())[0]["fleetbuild.core.transfer"]
    assert sent["folder"] == "{{ build_wheel_place }}/incoming"
    assert fetched["folder"] == "{{ build_wheel_place }}"


def test_a_build_has_ten_minutes_beyond_its_timeout() -> None:
    """Before ansible-core 2.19 a variable that a template makes is a text, numbers too."""
    tasks = yaml.safe_load((CHECKOUT / "roles/build_wheel/tasks/build.yml").read_text())
    start = next(task for task in tasks if "async" in task)
    wait = next(task for task in tasks if "retries" in task)
    for timeout in (3000, "3000"):
        values = {"build_wheel_timeout": timeout, "build_wheel_poll": "60"}
        said = [Template(text).render(values) for text in (start["async"], wait["retries"])]
        assert said == ["3600", "60"]


def test_a_build_in_a_container_installs_no_toolchain_on_the_node(tmp_path: Path) -> None:
    names = ["wheel_version", "key", "source", "source_sha256", "dest"]
    about = dict.fromkeys(names, "x") | {"container": "f" * 64, "gcc": ""}
    builds = [about | {"package": "a", "python": "/opt/python/cp311-cp311/bin/python3.11"}]
    assert said(tmp_path, builds) == ["build_wheel: a /opt/python/cp311-cp311/bin/python3.11"]
