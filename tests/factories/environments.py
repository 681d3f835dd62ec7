"""Environments in which a test installs a wheel as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

# No configuration of this machine: the command alone says where the packages come from.
ALONE = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}


def installed_by(line: str, environment: Path, *, exists: bool = False) -> str:
    """Run `pip install …` or `uv pip install …` in an environment, a new one unless it exists;
    return its interpreter.

    This machine's pip installs there: an environment with its own takes five seconds to make.
    """
    uv = find_uv_bin()
    if not exists:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    python = str(environment / "bin" / "python")
    program, *words = line.replace("'", "").split()
    if program == "pip":
        command = [sys.executable, "-m", "pip", "--python", python, *words]
    else:
        command = [uv, *words, "--python", python, "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ALONE)
    assert done.returncode == 0, done.stderr
    return python


def output_of(python: str, code: str) -> str:
    """Return what this code prints."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
