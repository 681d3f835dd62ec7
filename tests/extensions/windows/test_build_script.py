"""`emit windows`: a script for each group, which a grammar of PowerShell parses.

No PowerShell is at hand where these tests run, so nothing runs the scripts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from fleetbuild.extensions.windows import build_script
from fleetbuild.extensions.windows.build_script import _literal
from fleetbuild.extensions.windows.probe import script
from fleetbuild.extensions.windows.show import windows_warnings
from fleetbuild.recipes import find_recipe
from tests.extensions.windows.captured import TORCH, plan_of
from tests.factories.fleets import package

GROUP = "sm35-avx-cp310-win"
PLACEHOLDER = re.compile(r"@(venv|files|cuda)@")


def files_of(*names: str, packages: Any = TORCH) -> dict[str, str]:
    return build_script.windows_files(plan_of(*names, packages=packages).groups)


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
    assert errors(script()) == []


@pytest.mark.parametrize("node", ["snb-k40c", "skl-6700hq", "nhm-w3520"])
def test_every_script_parses_and_is_ascii(node: str) -> None:
    made = files_of(node)
    (script,) = [text for name, text in made.items() if name.endswith("build.ps1")]
    assert script.isascii()
    assert errors(script.encode()) == []


def test_the_files_of_a_group_lie_beside_its_script() -> None:
    made = files_of("snb-k40c")
    assert {name.split("/")[0] for name in made} == {GROUP}
    script = made[f"{GROUP}/build.ps1"]
    assert "C_AVX2_FOUND FALSE" in made[f"{GROUP}/torch/files/levels.cmake"]
    for kind in ("patches", "files", "checks"):
        names = [name for name in made if f"/torch/{kind}/" in name]
        assert names
        if kind != "files":
            assert all(f"'{name.rsplit('/', 1)[1]}'" in script for name in names)


def test_each_check_is_python() -> None:
    for name, text in files_of("snb-k40c", "skl-6700hq").items():
        if "/checks/" in name:
            compile(text, name, "exec")


def test_the_script_knows_every_placeholder_that_a_value_has() -> None:
    script = files_of("snb-k40c")[f"{GROUP}/build.ps1"]
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


def test_without_windows_nodes_it_is_said() -> None:
    (warning,) = windows_warnings(plan_of())
    assert warning == "No node has ansible_shell_type: powershell, so no script is written."


def test_a_group_without_a_recipe_for_windows_is_left_out_and_it_is_said() -> None:
    plan = plan_of("skl-6700hq", packages=[package("numpy", "2.1.0")])
    assert build_script.windows_files(plan.groups) == {}
    (warning,) = [each for each in windows_warnings(plan) if "gets no script" in each]
    assert warning.startswith("cpu-avx2-cp311-win gets no script: The recipe numpy does not say")


def test_the_interpreters_line_has_the_abi_of_windows() -> None:
    text = script().decode()
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
