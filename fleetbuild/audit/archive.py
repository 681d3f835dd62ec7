"""Read the members of a wheel within limits; the only module of the audit that reads files.

In: an open archive, or files of an environment. Out: names, texts, hashes, members mapped from a
temporary file. No member is held in memory as a whole, and the limits apply to the whole archive.
"""

from __future__ import annotations

import base64
import hashlib
import mmap
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from fleetbuild.audit.elf import DAMAGED

MIB = 1024 * 1024
MAX_MEMBERS = 200_000
MAX_TOTAL = 16 * 1024 * MIB  # the largest CUDA wheels unpack to 3 GiB
MAX_MEMBER = 4 * 1024 * MIB
MAX_TEXT = 16 * MIB  # METADATA, WHEEL, RECORD
SUSPICIOUS_SIZE = 64 * MIB
SUSPICIOUS_RATIO = 200
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CHUNK = MIB
_UTF8, _UNICODE_NAME = 0x800, 0x7075  # a flag of a member, and an extra field, since Python 3.12

# Exceptions for a damaged archive, or a damaged file in it.
BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, *DAMAGED,
)  # fmt: skip


class Archive:
    """The members of a wheel, with checked names and sizes."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        # Not info.is_dir(), which fails for a member without a name.
        members = (info for info in file.infolist() if not info.filename.endswith("/"))
        self._members = {info.filename: info for info in members}
        size = file.fp.seek(0, 2) if file.fp else 0
        self.problems = tuple(_problems(file.infolist(), size))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its files, in archive order."""
        return tuple(self._members)

    @property
    def installed_size(self) -> int:
        """Return the bytes of its unpacked files and of the bytecode that pip compiles."""
        sizes = {name: info.file_size for name, info in self._members.items()}
        return sum(size * (2 if name.endswith(".py") else 1) for name, size in sizes.items())

    def text(self, name: str) -> str | None:
        """Return a small text; None if it is missing, too large or unreadable."""
        info = self._members.get(name)
        if info is None or info.file_size > MAX_TEXT:
            return None
        try:
            return self._file.read(info).decode("utf-8", "replace")
        except BROKEN:
            return None

    def head(self, name: str) -> bytes:
        """Return the first four bytes of a member; empty if it cannot be read."""
        try:
            with self._file.open(self._members[name]) as member:
                return member.read(4)
        except BROKEN:
            return b""

    def packed(self, name: str) -> int:
        """Return the bytes that a member has in the archive."""
        return self._members[name].compress_size

    @contextmanager
    def mapped(self, name: str) -> Iterator[bytes]:
        """Yield a whole member, as memory that is backed by a file; raises one of BROKEN."""
        with self._file.open(self._members[name]) as member, tempfile.TemporaryFile() as file:
            shutil.copyfileobj(member, file, _CHUNK)
            file.flush()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield cast("bytes", data)  # it is sliced and searched in the same way

    def digest(self, name: str, algorithm: str) -> str:
        """Return a member's hash as in RECORD; raises one of BROKEN on failure."""
        digest = hashlib.new(algorithm)
        with self._file.open(self._members[name]) as member:
            while chunk := member.read(_CHUNK):
                digest.update(chunk)
        return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


@contextmanager
def opened_here(wheel: Path) -> Iterator[Archive]:
    """Open a wheel in this process, the separate one; raises one of BROKEN."""
    with zipfile.ZipFile(wheel) as file:
        yield Archive(file)


class Folder:
    """Files of a folder, read as the members of an archive are."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self.names = tuple(files)

    def head(self, name: str) -> bytes:
        """Return the first four bytes of a file; empty if it cannot be read."""
        try:
            with self._files[name].open("rb") as file:
                return file.read(4)
        except OSError:
            return b""

    def packed(self, name: str) -> int:
        """Return the size of a file."""
        return self._files[name].stat().st_size

    @contextmanager
    def mapped(self, name: str) -> Iterator[bytes]:
        """Yield a whole file, as memory; raises one of BROKEN."""
        with mapped_here(self._files[name]) as data:
            yield data


@contextmanager
def mapped_here(path: Path) -> Iterator[bytes]:
    """Yield a regular file as memory. A pipe or a device that somebody names may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:  # noqa: PTH123
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or not about.st_size:
            raise OSError(0, "it is empty, or not a regular file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield cast("bytes", data)


def is_bomb(size: int, packed: int) -> bool:
    """Return whether so few bytes unpack to so many that the file was made for it."""
    return size > SUSPICIOUS_SIZE and size > packed * SUSPICIOUS_RATIO


def _problems(members: list[zipfile.ZipInfo], size: int) -> Iterator[str]:
    if len(members) > MAX_MEMBERS:
        yield f"it has {len(members)} members; more than {MAX_MEMBERS} are not examined"
    total = sum(info.file_size for info in members)
    if total > MAX_TOTAL:
        yield f"it unpacks to {total // MIB} MiB; more than {MAX_TOTAL // MIB} are not examined"
    packed = sum(info.compress_size for info in members)
    if is_bomb(total, packed):
        yield f"it unpacks {packed} bytes to {total}"
    if packed > size:  # members that share bytes unpack them again and again
        yield f"its members have {packed} packed bytes, more than the {size} of the file"
    for name, times in Counter(info.filename for info in members).items():
        if times > 1:
            yield f"{name!r} is in it {times} times"
    for info in members:
        yield from _member_problems(info)


def _member_problems(info: zipfile.ZipInfo) -> Iterator[str]:
    name = info.filename
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
        yield f"{name!r} would be unpacked outside of its folder"
    if (info.external_attr >> 16) & 0o170000 == 0o120000:
        yield f"{name!r} is a symbolic link"
    if info.file_size > MAX_MEMBER or is_bomb(info.file_size, info.compress_size):
        yield f"{name!r} unpacks {info.compress_size} bytes to {info.file_size}"
    if info.compress_type not in METHODS:
        yield f"{name!r} is compressed by a method that wheels do not use"
    elif info.compress_size > info.file_size * 1.001 + 100:  # more than either needs
        # Python stops at the size that is stated; installers unpack the rest and only then fail.
        yield f"{name!r} has {info.compress_size} packed bytes and states only {info.file_size}"
    if info.flag_bits & 1:
        yield f"{name!r} is encrypted"
    if _has_other_name(info):
        yield f"{name!r} has another name for other installers"


def _has_other_name(info: zipfile.ZipInfo) -> bool:
    """Return whether a member's name is another one in other versions of Python, or for uv."""
    start = 0
    while start + 4 <= len(info.extra):
        kind, size = struct.unpack_from("<HH", info.extra, start)
        if kind == _UNICODE_NAME:
            return True
        start += 4 + size
    encoded = info.filename.isascii() or info.flag_bits & _UTF8
    return info.filename != info.orig_filename or not encoded
