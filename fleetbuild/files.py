"""Hash files, write them atomically, remove old ones, and tell a full disk from other failures."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from secrets import token_hex


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ansible_dir() -> Path:
    """Return the collection's folder: in the installed package, or the checkout around it."""
    package = Path(__file__).parent
    installed = package / "_ansible"
    return installed if installed.is_dir() else package.parent


def is_there(path: str | Path) -> bool:
    """Return whether the path exists. It does not if it is too long, as a list of hosts may be."""
    return os.path.exists(path)  # noqa: PTH110 (Path.exists raises an error then)


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file so that a reader or a crash sees either the old or the new content."""
    make_folder(path.parent)
    replace_file(f"{path.parent}/{path.name}", text.encode(), mode=mode)


def make_folder(folder: str | Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it, if it is missing."""
    if not os.path.isdir(folder):  # noqa: PTH112 (Path takes longer)
        Path(folder).mkdir(mode=mode, parents=True, exist_ok=True)


def read_input(
    path: str | Path, most: int = 1 << 20, check: Callable[[os.stat_result], None] = lambda _: None
) -> bytes:
    """Return the bytes of a file that somebody named, which may be anything; it is opened once.

    Raise OSError unless it is a regular file of at most so many bytes: a pipe may never end, and
    files of the kernel, such as /proc/self/environ, hold secrets. `check` may refuse its status.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:  # noqa: PTH123
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        check(about)
        content = b"" if about.st_size > most else file.read(most + 1)
        if max(about.st_size, len(content)) > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MB, the most that is read")
        if len(content) > about.st_size:
            raise OSError(errno.EINVAL, "it has no size, or grew while it was read")
        return content


def replace_file(path: str, content: bytes, *, mode: int = 0o600, lasting: bool = True) -> None:
    """Put a new file in the place of the one at this path, if any, in one step.

    If `lasting`, the content is on the disk before. Paths are text: Path takes longer than a write.
    """
    folder, _, name = path.rpartition("/")
    fresh = f"{folder}/.{name}.{token_hex(4)}"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            os.fchmod(handle, mode)
            left = content
            while left:
                left = left[os.write(handle, left) :]
            if lasting:
                os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(fresh, path)  # noqa: PTH105
    except BaseException as error:
        Path(fresh).unlink(missing_ok=True)
        if isinstance(error, OSError):  # of a file that is open, it has no name
            error.filename = path
        raise


def is_disk_full(error: BaseException) -> bool:
    """Return whether a disk or the user's quota on this machine is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def raise_if_full(error: BaseException) -> None:
    """Raise this error again if a disk is full: another sentence about it would hide that."""
    if is_disk_full(error):
        raise error


def raise_if_folder_is_full(folder: Path) -> None:
    """Raise OSError if this folder does not take another megabyte."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        try:
            file.write(bytes(1 << 20))
            file.flush()
        except OSError as error:
            error.filename = str(folder)
            raise


def own_cache(name: str) -> Path:
    """Return a folder in this user's cache; ask `is_own` before reading its files."""
    return own_folder("CACHE", ".cache") / "fleetbuild" / name


def own_folder(kind: str, below_home: str) -> Path:
    """Return this user's folder of a kind, as the XDG base directories say."""
    named = Path(os.environ.get(f"XDG_{kind}_HOME") or "")
    return named if named.is_absolute() else Path.home() / below_home


def make_cache(folder: Path) -> None:
    """Make a folder of `own_cache` for this user alone; raise if another user can replace it."""
    above = filter(Path.exists, folder.resolve().parents)
    if not all(map(_stays, above)):  # such as a user's home, for root: root's folders stay out
        raise PermissionError(f"Another user can replace {folder}.")
    for each in (folder.parents[1], folder.parent, folder):  # the umask would decide of `parents`
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(folder):
        raise PermissionError(f"Another user can replace {folder}.")


def _stays(folder: Path) -> bool:
    """Return whether no other user can rename folders in this one."""
    about = folder.stat()
    shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
    return about.st_uid in (0, os.geteuid()) and not shared


def is_own(folder: Path) -> bool:
    """Return whether this is a folder in which no other user can put a file, pipe or link."""
    about = folder.lstat()
    return (
        stat.S_ISDIR(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


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
