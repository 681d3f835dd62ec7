"""`fleetbuild emit windows`: asks the Windows nodes of an inventory, and writes their scripts."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetbuild import read_inventory
from fleetbuild.cli import app
from fleetbuild.extensions.windows.facts import SECTIONS, windows_facts
from fleetbuild.extensions.windows.probe import _read, powershell_command, probe_windows, script
from fleetbuild.models import Become, Login, Unreachable
from fleetbuild.probe.captures import load_captures, save_captures
from fleetbuild.probe.transport.base import Answer, NoAnswer
from tests.extensions.windows.captured import DATA, HERE
from tests.unit.probe.transport.test_hostile_server import servers

EXAMPLES = HERE.parents[2] / "examples"


def emit(*words: str, state: Path) -> tuple[int, dict[str, list[str]]]:
    """The exit code and document of a call."""
    done = CliRunner().invoke(app, ["emit", "windows", *words, "--state-dir", str(state), "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_the_script_goes_to_standard_input_and_the_command_fits_cmd() -> None:
    command, stdin = powershell_command(None, script(), ("fleetbuild-" + "0" * 32,))
    assert stdin == script()
    assert script().isascii()  # Windows reads it in its own encoding
    assert len(command) < 2000
    assert re.fullmatch(r"[A-Za-z0-9 .+/=-]+", command)


def test_arguments_are_literal_in_powershell_and_nobody_is_become() -> None:
    command, _ = powershell_command(Become(), b"", ("it's; $x",))
    assert base64.b64decode(command.split()[-1]).decode("utf-16-le").endswith(" 'it''s; $x'")
    assert command == powershell_command(None, b"", ("it's; $x",))[0]


def test_windows_nodes_are_asked_over_ssh() -> None:
    with servers("windows") as (node,):
        found = probe_windows([node], timeout=60)[node.name]
    assert not isinstance(found, Unreachable)
    facts = windows_facts(found)
    assert (facts.state, facts.isa) == ("ok", "avx")


def test_a_node_without_powershell_names_the_setting() -> None:
    answer = Answer(127, b"", b"bash: line 1: powershell.exe: command not found")
    with pytest.raises(NoAnswer, match=r"it has no powershell\.exe") as refused:
        _read(answer, Login(host="w"), nonce="n")
    assert "remove ansible_shell_type" in refused.value.fix


def test_captures_keep_the_sections_of_windows(tmp_path: Path) -> None:
    found = load_captures(DATA, ["snb-k40c"], SECTIONS)
    save_captures(tmp_path / "facts", found, SECTIONS)
    assert load_captures(tmp_path / "facts", ["snb-k40c"], SECTIONS) == found


def test_the_example_gets_a_script_from_captures_and_the_other_node_a_reason(
    tmp_path: Path,
) -> None:
    source = EXAMPLES / "windows-kepler" / "inventory.yml"
    code, document = emit(str(source), "--facts", str(DATA), state=tmp_path)
    assert code == 0
    (written,) = [file for file in document["files"] if file.endswith("build.ps1")]
    assert Path(written) == tmp_path / "manifests/windows/sm35-avx-cp310-win/build.ps1"
    assert Path(written).is_file()
    assert any(each.startswith("adl-3080: ") and "3.13" in each for each in document["warnings"])


def test_packages_of_the_command_line_replace_the_configuration(tmp_path: Path) -> None:
    words = [str(HERE / "inventory.yml"), "--facts", str(DATA), "--package", "hnswlib==0.8.0"]
    code, document = emit(*words, state=tmp_path)
    groups = {Path(file).parent.name for file in document["files"] if file.endswith("build.ps1")}
    assert code == 0
    assert groups == {
        "cpu-avx-cp310-win", "cpu-avx-cp38-win", "cpu-avx2-cp311-win", "cpu-avx2-cp313-win",
        "cpu-x86-64-v2-cp310-win",
    }  # fmt: skip


def test_a_node_that_does_not_answer_is_named(tmp_path: Path) -> None:
    words = [str(HERE / "inventory.yml"), "--facts", str(tmp_path), "--limit", "snb-k40c"]
    code, document = emit(*words, state=tmp_path / "state")
    assert code == 3
    assert document["files"] == []
    assert document["warnings"][0].startswith("snb-k40c: no capture in ")


def test_the_inventory_of_these_tests_names_every_captured_node() -> None:
    nodes = read_inventory(HERE / "inventory.yml").nodes
    assert {node.name for node in nodes if node.login.is_windows} == {
        folder.name for folder in DATA.iterdir()
    }
