import json
import subprocess
from pathlib import Path

from fleetbuild.ansible import find_program
from fleetbuild.engine.playbooks import literally

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "<{{ given[inventory_hostname][0].python }}>"
"""


def test_plain_values_stay_as_they_are() -> None:
    value = {"a": ["b", 1, None, True], "c": {"d": ()}}
    assert literally(value) == {"a": ["b", 1, None, True], "c": {"d": []}}


def test_what_a_node_says_is_never_a_template(tmp_path: Path) -> None:
    """A template from a node would run on the controller."""
    (tmp_path / "play.yml").write_text(PLAY)
    evil = {"a": [{"python": "/usr/bin/python{{ 20 + 3 }}"}]}
    (tmp_path / "vars.json").write_text(json.dumps({"given": literally(evil)}))
    said = subprocess.run(
        [find_program("ansible-playbook"), "-i", "a,", "-e", "@vars.json", "play.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "</usr/bin/python{{ 20 + 3 }}>" in said.stdout
