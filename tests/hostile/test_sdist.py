"""No code of a package runs on the controller: an sdist whose build would touch and connect."""

from __future__ import annotations

import io
import socket
import tarfile
from pathlib import Path

import pytest

from fleetbuild.plan.plan_fleet import plan_fleet
from tests.factories.files import make_wheel
from tests.factories.fleets import facts, inventory

PYPROJECT = """\
[build-system]
requires = []
build-backend = "setup"
backend-path = ["."]
"""
SETUP = """\
import pathlib, socket

pathlib.Path({marker!r}).write_text("ran")
socket.create_connection(("127.0.0.1", {port}), timeout=2)
"""


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


@pytest.fixture
def site(tmp_path, monkeypatch, listener):
    """A folder of files that serves as the index, with the hostile sdist in it."""
    home = tmp_path / "home"
    home.mkdir()
    marker = tmp_path / "marker"
    text = SETUP.format(port=listener.getsockname()[1], marker=str(marker))
    files = tmp_path / "files"
    make_wheel(files, "dep")
    write_sdist(
        files / "evil-1.0.tar.gz",
        {
            "pyproject.toml": PYPROJECT,
            "setup.py": text,
            "PKG-INFO": "Metadata-Version: 2.1\nName: evil\n",
        },
    )
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nno-index = true\nfind-links = {files}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_sdist(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


def plan(*packages):
    fleet = {"a": facts()}
    return plan_fleet(inventory(fleet), fleet, packages=packages)


def untouched(site: Path, listener: socket.socket) -> bool:
    with pytest.raises(TimeoutError):
        listener.accept()
    return not (site / "marker").exists()


def test_a_source_that_names_its_requirements_by_code_blocks_and_runs_nothing(site, listener):
    made = plan("evil==1.0")
    assert made.nodes["a"].state == "blocked"
    assert "no code of a package runs on this controller" in made.nodes["a"].reason
    assert "recipes/evil.yml" in made.nodes["a"].fix
    assert "'requires: [NAME, ...]'" in made.nodes["a"].fix
    assert untouched(site, listener)

    recipe = site / "recipes" / "evil.yml"
    recipe.parent.mkdir()
    recipe.write_text("extends: generic\nname: evil\npackages: [evil]\nrequires: [dep]\n")
    made = plan("evil==1.0")
    assert made.lock == "complete", made.nodes
    assert [file.name for file in made.groups[0].dependencies] == ["dep"]
    assert untouched(site, listener)


def test_a_published_wheel_of_the_same_version_states_the_requirements_of_the_source(
    site, listener
):
    make_wheel(site / "files", "evil", requires="dep")
    made = plan("evil==1.0")
    assert [file.name for file in made.groups[0].dependencies] == ["dep"]
    assert untouched(site, listener)


def test_a_wheel_on_the_index_does_not_state_the_requirements_of_a_local_source(site):
    make_wheel(site / "files", "evil", requires="foreign")
    made = plan("evil==1.0 @ files/evil-1.0.tar.gz")
    assert "only when its build runs" in made.nodes["a"].reason
