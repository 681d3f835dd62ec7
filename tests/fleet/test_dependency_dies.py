"""A dependency that dies on the node's CPU, and that its package imports later: a real apply."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleetbuild import Fleet, load_config
from tests.factories import native
from tests.factories.files import make_wheel

pytestmark = pytest.mark.skipif(
    not (native.GXX and native.HEADERS.is_file()), reason="no g++ or no Python.h here"
)
DYING = (
    '__attribute__((constructor)) static void start() { asm volatile("ud2"); }'
    'extern "C" double work(double x) { return x; }'
)


@pytest.mark.parametrize(("source", "state"), [("plain", "installed"), ("dying", "failed")])
def test_no_release_serves_whose_dependency_dies_at_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, state: str
) -> None:
    monkeypatch.setitem(native.SOURCES, "dying", DYING)
    monkeypatch.chdir(tmp_path)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    index = native.native_wheel(tmp_path, source, "later").parent
    make_wheel(index, "top", files={"top/__init__.py": b""}, requires="later")
    node = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    Path("inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"here": node}}}))
    config = {
        "packages": ["top==1.0"],
        "index": [str(index)],
        "build": {"policy": "published"},
        "install": {"path": str(tmp_path / "opt")},
    }
    Path("fleetbuild.yml").write_text(yaml.safe_dump(config))
    fleet = Fleet("inventory.yml", config=load_config(Path("fleetbuild.yml")))
    (node_result,) = fleet.apply(fleet.plan()).nodes
    if state == "installed":
        assert node_result.state == "installed", node_result.reason
    else:
        assert node_result.state == "verify_failed"
        assert "cannot import later of later 1.0: illegal instruction" in str(node_result.reason)
    assert (tmp_path / "opt/current").exists() == (state == "installed")
