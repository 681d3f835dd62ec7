"""A CUDA toolkit for tests that compile: this machine's, else one from PyPI. No GPU is needed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "13.0"
# Some 100 MB; kept for the next time.
_PACKAGES = [
    *("nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cuda-crt==13.0.88"),
    *("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cccl==13.0.85"),
]


def cuda_toolkit() -> Path:
    """The home of a CUDA toolkit of this version."""
    on_path = Path(os.path.realpath(shutil.which("nvcc") or "nvcc"))
    for home in (Path(f"/usr/local/cuda-{VERSION}"), Path("/usr/local/cuda"), on_path.parents[1]):
        if _version(home) == VERSION:
            return home.resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetbuild-cuda"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / "nvidia/cu13"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _version(home) != VERSION:
            pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
            subprocess.run(
                [*pip, "install", "--no-deps", "--target", cache, *_PACKAGES], check=True
            )
    return home


def _version(home: Path) -> str | None:
    nvcc = home / "bin/nvcc"
    if not nvcc.is_file():
        return None
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else None
