"""Files as everything knows them: by the hash of what is in them, and by their age."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_old(paths: Iterable[Path], days: float) -> tuple[Path, ...]:
    """Remove the files and folders that nothing has touched for so long; say which."""
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
    except FileNotFoundError:  # whoever made it has just taken it away
        return time.time()
