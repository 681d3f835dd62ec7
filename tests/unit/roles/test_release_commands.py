"""After an install, bin/ holds what the wheels announced, and Python's own commands as before."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE, plugin

# Makes an environment whose "pip" runs the command that the test is about, in bin/.
PYTHON = """#!/bin/sh
eval path=\\${{$#}}
mkdir -p "$path/bin" "$path/lib"
echo own >"$path/bin/activate"
printf '#!/bin/sh\\ncd "%s" && {command}\\n' "$path/bin" >"$path/bin/python"
chmod +x "$path/bin/python"
"""


def install(
    release: ModuleType, folder: Path, command: str, *announced: str | None, content: bytes = b""
) -> Path:
    root = release.Root(str(folder / "fb"))
    python = folder / "python"
    python.write_text(PYTHON.format(command=command))
    python.chmod(0o755)
    wheels = []
    for number, names in enumerate(announced):
        data = content or b"%d" % number
        wheel: dict[str, Any] = {
            "file": f"w{number}-1-py3-none-any.whl", "sha256": hashlib.sha256(data).hexdigest()
        }  # fmt: skip
        copied = folder / "staging" / wheel["sha256"] / wheel["file"]
        copied.parent.mkdir(parents=True)
        copied.write_bytes(data)
        wheels.append(wheel if names is None else {**wheel, "commands": names.split()})
    params = {
        **ALONE, "release_id": "a", "wheels": wheels, "staging": str(folder / "staging"),
        "python": str(python), "manifest": {"id": "a", "wheels": []},
    }  # fmt: skip
    release.make(root, params, False)
    return Path(root["a"])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("touch tool evil", "evil"),
        ("touch tool; echo evil >activate", "activate"),
        ("touch tool; rm -f activate", "activate"),
        ("touch tool; mkdir -p evil", "evil"),
        ("touch tool; ln -sf /bin/sh python3", "python3"),
    ],
)
def test_an_install_that_changes_another_command_leaves_no_release(
    release: ModuleType, tmp_path: Path, command: str, names: str
) -> None:
    with pytest.raises(release.Problem, match=f"changed {names} in bin/") as caught:
        install(release, tmp_path, command, "tool", "")
    assert caught.value.fix == ["leave-package-out"]
    assert not (tmp_path / "fb/releases/a").exists()


@pytest.mark.parametrize(
    ("command", "announced"),
    [
        ("touch tool; mkdir -p __pycache__", ["tool"]),
        ("touch tool other", ["tool", "other"]),
        ("touch pip pip3 pip3.11", ["pip"]),
        ("touch tool evil", ["tool", None]),  # a playbook of one's own says nothing
    ],
)
def test_announced_commands_are_installed(
    release: ModuleType, tmp_path: Path, command: str, announced: list[str | None]
) -> None:
    assert (install(release, tmp_path, command, *announced) / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("member", "refused"),
    [
        ("hook_x.py", True),
        ("hook_x/__init__.py", True),
        ("w0-1.data/purelib/hook_x.cpython-311-x86_64-linux-gnu.so", True),
        ("hook_xy.py", False),
        ("w0/hook_x.py", False),
    ],
)
def test_a_module_that_each_start_of_a_nodes_python_looks_for_is_refused(
    release: ModuleType, tmp_path: Path, member: str, refused: bool
) -> None:
    wheel = tmp_path / "w.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, "raise SystemExit")
    looks = 'echo "# trying $(dirname $PWD)/lib/python3/site-packages/hook_x.abi3.so" >&2'
    content = wheel.read_bytes()
    if not refused:
        assert install(release, tmp_path, looks, "", content=content)
        return
    with pytest.raises(release.Problem, match="would run at each start") as caught:
        install(release, tmp_path, looks, "", content=content)
    assert caught.value.fix == ["leave-package-out"]
    assert not (tmp_path / "fb/releases/a").exists()


def test_what_a_real_python_looks_for_at_each_start_is_found(
    release: ModuleType, tmp_path: Path
) -> None:
    """Debian's and Ubuntu's sitecustomize look for apport_python_hook; here a line does."""
    path = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    (site,) = path.glob("lib/python*/site-packages")
    (site / "a.pth").write_text("import importlib.util; importlib.util.find_spec('hook_x')\n")
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hook_x.py", "")
    with pytest.raises(release.Problem, match=r"w\.whl brings hook_x\.py"):
        plugin("module_utils.release_making").refuse_hooks(str(path), [(str(wheel), "")])
