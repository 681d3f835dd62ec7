import errno
import json
import subprocess
from pathlib import Path

import pytest

from fleetbuild.ansible import find_program
from fleetbuild.ansible._runner import capture, stream
from fleetbuild.ansible.playbooks import as_literal
from fleetbuild.ansible.settings import interpreter_for_modules
from fleetbuild.errors import FleetbuildError
from fleetbuild.models import Facts, Login, Node, Python

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "<{{ given[inventory_hostname][0].python }}>"
"""


def test_a_machine_without_pseudo_terminals_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # the kernel's words

    monkeypatch.setattr("os.openpty", none_left)
    with pytest.raises(FleetbuildError, match="gives no pseudo-terminal") as caught:
        stream("ansible-playbook", [], private=tmp_path, on_event=lambda _: None)
    assert "sysctl kernel.pty" in caught.value.fix


def test_plain_values_stay_as_they_are() -> None:
    value = {"a": ["b", 1, None, True], "c": {"d": ()}}
    assert as_literal(value) == {"a": ["b", 1, None, True], "c": {"d": []}}


def test_text_from_a_node_is_never_evaluated_as_a_template(tmp_path: Path) -> None:
    """A template from a node would run on the controller."""
    (tmp_path / "play.yml").write_text(PLAY)
    evil = {"a": [{"python": "/usr/bin/python{{ 20 + 3 }}"}]}
    (tmp_path / "vars.json").write_text(json.dumps({"given": as_literal(evil)}))
    said = subprocess.run(
        [find_program("ansible-playbook"), "-i", "a,", "-e", "@vars.json", "play.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "</usr/bin/python{{ 20 + 3 }}>" in said.stdout


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (["/usr/bin/python3.11"], "/usr/bin/python3.11"),
        (["/usr/bin/python{{ 1 }}", "/opt/python"], "/opt/python"),
        (["/usr/bin/py thon"], None),
        ([], None),
    ],
)
def test_an_interpreter_path_with_other_characters_is_not_used(
    paths: list[str], chosen: str | None
) -> None:
    soabi = "cpython-311-x86_64-linux-gnu"
    known = tuple(Python(path=path, version="3.11.2", soabi=soabi) for path in paths)
    node = Node(name="a", login=Login(host="a"))
    assert interpreter_for_modules(node, Facts(pythons=known)) == chosen


def test_a_program_that_a_signal_ends_has_an_exit_code(tmp_path: Path) -> None:
    program = tmp_path / "killed"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    assert stream(str(program), [], private=tmp_path, on_event=lambda _: None) == -1


@pytest.mark.parametrize("value", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_ansible_starts_under_a_locale_that_is_not_utf_8(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", value)
    ended = capture("ansible-inventory", ["-i", "h1,", "--list"], private=tmp_path)
    assert '"h1"' in ended.out, ended.err
