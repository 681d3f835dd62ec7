"""fleetbuild's command line, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_fleetbuild(
    *words: str | Path, here: Path, code: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; it must end with this exit code, if one is given."""
    done = subprocess.run(
        [sys.executable, "-m", "fleetbuild", *map(str, words)],
        cwd=here,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done
