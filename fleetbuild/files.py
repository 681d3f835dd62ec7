"""Hash files, and remove old ones."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_old(paths: Iterable[Path], days: float) -> tuple[Path, ...]:
    """Remove files and folders that were not changed for so many days; return their paths."""
    old = tuple(sorted(path for path in paths if _changed(path) < time.time() - days * 86400))
    for path in old:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return old


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # removed by another process meanwhile
        return time.time()
