"""Pack a source tree into one file; the same content gives the same bytes.

In: a folder. Out: a tar file.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path

# Left out of a working tree; in a submodule, .git is a file.
_NOT_SOURCE = {
    ".git", ".hg", ".svn", ".bzr", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".fleetbuild",
}  # fmt: skip
_NOT_SOURCE_AT_TOP = {"build", "dist"}
_EPOCH = 315_619_200  # 1980-01-02: a wheel is a zip, which knows nothing earlier


def pack_tree(tree: Path, dest: Path, root: str, *, whole: bool = False) -> None:
    """Pack a working tree as an sdist whose folder is `root`; or a fresh checkout, as a whole."""
    left_out, at_top = ({".git"}, set[str]()) if whole else (_NOT_SOURCE, _NOT_SOURCE_AT_TOP)
    # Not compressed, because zlib's output differs between versions.
    with (
        dest.open("wb") as raw,
        gzip.GzipFile("", fileobj=raw, mode="wb", compresslevel=0, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(_files(tree, left_out, at_top)):
            _add(tar, path, f"{root}/{path.relative_to(tree).as_posix()}")


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = _EPOCH
    if path.is_symlink():
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(member)
        return
    member.size = path.stat().st_size
    member.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    with path.open("rb") as content:
        tar.addfile(member, content)


def _files(tree: Path, left_out: Collection[str], at_top: Collection[str]) -> Iterator[Path]:
    for path in tree.iterdir():
        if path.name in left_out or path.name in at_top:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path, left_out, ())
        elif path.is_symlink() or path.is_file():
            yield path
