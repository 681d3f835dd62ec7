"""fleetbuild's command line, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_fleetbuild(
    *words: str | Path, here: Path, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; it must end with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "fleetbuild", *map(str, words)],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
