"""`ansible-galaxy collection install` is all that a playbook of the user's own needs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from tests.factories.role_modules import CHECKOUT, PLUGINS, ROLES

Run = Callable[..., str]
MODULES = sorted(f"fleetbuild.core.{path.stem}" for path in PLUGINS.glob("modules/*.py"))
BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("greeting.py", "WORDS = 'built by the collection'\\n")
        wheel.writestr("greeting-1.0.dist-info/METADATA",
                       "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        wheel.writestr("greeting-1.0.dist-info/WHEEL",
                       "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("greeting-1.0.dist-info/RECORD", "")
    return name
"""
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: fleetbuild.core.build_wheel}
      vars:
        build_wheel_poll: 1
        build_wheel_spec:
          package: greeting
          wheel_version: 1.0+cpu.mine
          source: "{{ playbook_dir }}/greeting.zip"
          source_sha256: "{{ source_sha256 }}"
          python: "{{ python }}"
          cache: none
          workspace: "{{ playbook_dir }}/workspace"
          dest: "{{ playbook_dir }}/wheels"
    - ansible.builtin.include_role: {name: fleetbuild.core.install_wheel}
      vars:
        install_wheel_spec:
          path: "{{ playbook_dir }}/opt"
          python: "{{ python }}"
          wheels:
            - path: "{{ build_wheel_result.file }}"
              file: "{{ build_wheel_result.file | basename }}"
              sha256: "{{ build_wheel_result.sha256 }}"
"""


@pytest.mark.usefixtures("installed")
def test_a_playbook_builds_and_installs_a_wheel(ansible: Run, home: Path) -> None:
    with zipfile.ZipFile(home / "greeting.zip", "w") as source:
        source.writestr("backend.py", BACKEND)
        source.writestr(
            "pyproject.toml",
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        )
    (home / "site.yml").write_text(PLAY)
    sha256 = hashlib.sha256((home / "greeting.zip").read_bytes()).hexdigest()
    python = {"python": sys.executable, "ansible_python_interpreter": sys.executable}
    ansible(
        "ansible-playbook",
        "-i",
        "localhost,",
        "site.yml",
        "-e",
        json.dumps({**python, "source_sha256": sha256}),
    )
    code = "import greeting; print(greeting.WORDS)"
    command = [str(home / "opt/current/bin/python"), "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "built by the collection\n"

    verifies = {"localhost": {"path": str(home / "opt"), "imports": ["greeting"]}}
    given = json.dumps({"fleetbuild_verifies": verifies, **python})
    local = ("-i", "localhost,", "-c", "local", "-e", given)
    ansible("ansible-playbook", *local, "fleetbuild.core.verify")
    assert json.loads((home / "opt/current/manifest.json").read_text())["verified"] is True


def test_the_archive_holds_the_collection_and_nothing_else(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        files = [member.name for member in tar if member.isfile()]
    top = {name.split("/")[0] for name in files}
    about = {"FILES.json", "MANIFEST.json", "LICENSE", "README.md", "docs", "meta", "tests"}
    assert top == {*about, "playbooks", "plugins", "roles"}
    assert {name for name in files if name.startswith(("docs/", "meta/"))} == {
        "docs/roles.md", "meta/runtime.yml",
    }  # fmt: skip
    assert not [name for name in files if "molecule" in name or "/." in name or "__pyc" in name]
    assert {name.split("/")[1] for name in files if name.startswith("tests/")} == {"sanity"}


def test_collection_and_package_have_the_same_version() -> None:
    """Of the same release; between two releases, the package has a development version."""
    collection = Version(yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"])
    package = Version(version("fleetbuild"))
    assert collection == package or package.is_devrelease


@pytest.fixture(scope="session")
def documents(ansible: Run, installed: Path) -> dict[str, Any]:
    assert installed.is_dir()
    found: dict[str, Any] = json.loads(ansible("ansible-doc", "-j", *MODULES))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_documentation(documents: dict[str, Any], module: str) -> None:
    about = documents[module]
    assert about["doc"]["short_description"]
    assert f"{module}:" in about["examples"]
    assert about["return"]
    (examples,) = yaml.safe_load_all(about["examples"])
    known = about["doc"]["options"]
    for task in examples:
        assert set(task.get(module, {})) <= set(known)


@pytest.mark.usefixtures("installed")
def test_every_role_has_documentation(ansible: Run) -> None:
    roles = [f"fleetbuild.core.{path.parent.name}" for path in ROLES.glob("*/meta")]
    found = json.loads(ansible("ansible-doc", "-t", "role", "-j", *roles))
    assert set(found) == set(roles)
    assert {"main", "activate", "rollback", "remove"} == set(
        found["fleetbuild.core.install_wheel"]["entry_points"]
    )
