"""The Python example of docs/python.md runs as it stands, on this machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


@pytest.mark.network
def test_the_python_example_runs(tmp_path: Path) -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "inventory.yml").write_text(
        "all: {hosts: {here: {ansible_connection: local, "
        f"ansible_python_interpreter: {sys.executable}}}}}}}\n"
    )
    (tmp_path / "fleetbuild.yml").write_text(
        f"packages: [xxhash==3.6.0]\ninstall: {{path: {tmp_path / 'opt'}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "changed: True exit code: 0" in done.stdout
    assert (tmp_path / "opt" / "current" / "manifest.json").is_file()
