"""Where the loader looks for the libraries of an ELF file, and who else can put libraries there.

In: the folders of RPATH and RUNPATH. Out: a sentence for each that other users could fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Folders in which every user of a node can write. Others, such as the lib folder that a Python of
# pyenv or conda puts into everything that it links, belong to one user.
_COMMON_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/var/lock")  # noqa: S108
_DEEPEST = 8  # folders above $ORIGIN; a release has no more


def search_path_problems(file: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each folder in which other users could put a library."""
    for folder in folders:
        if not _is_own(folder):
            where = repr(folder) if folder else "the working directory"
            yield (
                f"{file} looks for its libraries in {where} (RPATH),"
                " where others may put theirs: link it with $ORIGIN"
            )


def _is_own(path: str) -> bool:
    """Return whether no other user can put a library into a folder of RPATH."""
    first, *rest = path.split("/")
    if first in ("$ORIGIN", "${ORIGIN}"):
        return rest.count("..") <= _DEEPEST
    if not path.startswith("/") or ".." in rest:
        return False
    return not any(f"{path}/".startswith(f"{folder}/") for folder in _COMMON_FOLDERS)
