"""A real Python whose standard library lacks packages, as distributions leave them out."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def python_without(folder: Path, *packages: str) -> Path:
    """Make a copy of this Python in a folder, without these packages; return its program."""
    library = Path(sysconfig.get_path("stdlib"))
    own, program = folder / "lib" / library.name, folder / "bin" / "python3"
    for new in (own, program.parent):
        new.mkdir(parents=True)
    for path in library.iterdir():
        if path.name not in (*packages, "site-packages"):
            (own / path.name).symlink_to(path)
    shutil.copy2(os.path.realpath(sys.executable), program)
    return program
