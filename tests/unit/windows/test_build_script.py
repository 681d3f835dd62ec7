"""`emit windows`: a script for each group, which a grammar of PowerShell parses.

No PowerShell is at hand where these tests run, so nothing runs the scripts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.emit.emission import Emission
from fleetbuild.kubernetes.manifests.options import Delivery
from fleetbuild.models import Plan
from fleetbuild.probe.probing import windows_script
from fleetbuild.recipes import find_recipe
from fleetbuild.store.wheels import Store
from fleetbuild.windows import windows_files, windows_warnings
from fleetbuild.windows.build_script import _literal
from tests.factories.data import windows_nodes
from tests.factories.fleets import facts, package, planned

GROUP = "sm35-avx-cp310-win"
TORCH = [package("torch", "2.0.1")]
PLACEHOLDER = re.compile(r"@(venv|files|cuda)@")


def plan_of(*names: str, packages: Any = TORCH) -> Plan:
    return planned({name: windows_nodes()[name] for name in names}, packages=packages)


def errors(text: bytes) -> list[bytes]:
    """What the grammar does not take."""
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_powershell")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    pending, wrong = [parser.parse(text).root_node], []
    while pending:
        found = pending.pop()
        if found.type == "ERROR" or found.is_missing:
            wrong.append(text[found.start_byte : found.end_byte])
        pending += found.children
    return wrong


def test_the_grammar_refuses_other_text() -> None:
    assert errors(b"if ($a { 1 }")


def test_the_probe_of_windows_parses() -> None:
    assert errors(windows_script()) == []


@pytest.mark.parametrize("node", ["snb-k40c", "skl-6700hq", "nhm-w3520"])
def test_every_script_parses_and_is_ascii(node: str) -> None:
    made = windows_files(plan_of(node))
    (script,) = [text for name, text in made.items() if name.endswith("build.ps1")]
    assert script.isascii()
    assert errors(script.encode()) == []


def test_the_files_of_a_group_lie_beside_its_script() -> None:
    made = windows_files(plan_of("snb-k40c"))
    assert {name.split("/")[0] for name in made} == {GROUP}
    script = made[f"{GROUP}/build.ps1"]
    for kind in ("patches", "files", "checks"):
        names = [name for name in made if f"/torch/{kind}/" in name]
        assert names
        if kind != "files":
            assert all(f"'{name.rsplit('/', 1)[1]}'" in script for name in names)


def test_each_check_is_python() -> None:
    for name, text in windows_files(plan_of("snb-k40c", "skl-6700hq")).items():
        if "/checks/" in name:
            compile(text, name, "exec")


def test_the_script_knows_every_placeholder_that_a_value_has() -> None:
    script = windows_files(plan_of("snb-k40c"))[f"{GROUP}/build.ps1"]
    head, body = script.split("# --- From here on")
    assert {match[0] for match in PLACEHOLDER.finditer(head)} == {"@venv@", "@files@", "@cuda@"}
    assert all(f"'{name}'" in body for name in ("@venv@", "@files@", "@cuda@"))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('it\'s $x `n "q"', "'it''s $x `n \"q\"'"),
        ("\u2019", "'\u2019\u2019'"),
        ("a\nb", "'a b'"),
        (("a", "b"), "@('a', 'b')"),
        ((), "@()"),
        ({}, "[ordered]@{}"),
        (True, "$true"),
    ],
)
def test_values_are_literal_in_powershell(value: object, written: str) -> None:
    assert _literal(value) == written


def test_a_value_with_quotes_still_parses() -> None:
    value = _literal({"a": ("it\u2019s", "$(1)"), "b": {}})
    assert errors(f"$x = {value}".encode()) == []


def test_without_windows_nodes_nothing_is_written_and_it_is_said() -> None:
    plan = planned({"linux": facts()}, packages=[package()])
    assert windows_files(plan) == {}
    assert windows_warnings(plan) == (
        "The plan has no group of Windows nodes, so no script is written.",
    )


def test_a_group_without_a_recipe_for_windows_is_left_out_and_it_is_said() -> None:
    plan = plan_of("skl-6700hq", packages=[package("numpy", "2.1.0")])
    assert windows_files(plan) == {}
    (warning,) = windows_warnings(plan)
    assert warning.startswith("cpu-avx2-cp311-win gets no script: The recipe numpy does not say")


def test_emit_windows_needs_no_store(tmp_path: Path) -> None:
    emission = Emission(
        plan=plan_of("snb-k40c"),
        serving={},
        delivery=Delivery(),
        store=Store(tmp_path / "store"),
    )
    emitted = emission.write("windows")
    assert f"{GROUP}/build.ps1" in emitted.files
    assert emitted.warnings == ()


def test_the_interpreters_line_has_the_abi_of_windows() -> None:
    text = windows_script().decode()
    found = re.search(r"\$about = @'\n(.*?)\n'@", text, re.S)
    assert found
    program = (
        "import sysconfig\n"
        "sysconfig.get_config_var = {'EXT_SUFFIX': '.cp311-win_amd64.pyd'}.get\n" + found[1]
    )
    said = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    major = f"{sys.version_info[0]}{sys.version_info[1]}"
    assert said[2] == f"cpython-{major}-win_amd64"
    assert '"' not in found[1]


def test_the_patches_for_windows_touch_only_what_they_name() -> None:
    recipe = find_recipe("torch")
    assert recipe.windows
    for patch in recipe.windows.patches:
        removed = [line for line in patch.text.splitlines() if re.match(r"-[^-]", line)]
        added = [line for line in patch.text.splitlines() if re.match(r"\+[^+]", line)]
        assert len(removed) == len(added) > 0


def test_the_body_of_the_script_is_in_the_package() -> None:
    assert files("fleetbuild.windows").joinpath("data/build.ps1").is_file()
