"""After an install, bin/ holds what the wheels announced, and Python's own commands as before."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE

# Makes an environment whose "pip" runs the command that the test is about, in bin/.
PYTHON = """#!/bin/sh
eval path=\\${{$#}}
mkdir -p "$path/bin" "$path/lib"
echo own >"$path/bin/activate"
printf '#!/bin/sh\\ncd "%s" && {command}\\n' "$path/bin" >"$path/bin/python"
chmod +x "$path/bin/python"
"""


def install(release: ModuleType, folder: Path, command: str, *announced: str | None) -> Path:
    root = release.Root(str(folder / "fb"))
    python = folder / "python"
    python.write_text(PYTHON.format(command=command))
    python.chmod(0o755)
    wheels = []
    for number, names in enumerate(announced):
        data = b"%d" % number
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
