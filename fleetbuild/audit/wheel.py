"""Audit one wheel file: its identity, its requirements, its problems."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.archive import BROKEN, Archive
from fleetbuild.audit.content import content_problems, tag_problems
from fleetbuild.audit.elf import MAGIC, BrokenElf, Elf, needed_by, read_elf
from fleetbuild.audit.fatbin import BrokenFatbin, gpu_code
from fleetbuild.audit.metadata import Metadata, read_metadata
from fleetbuild.audit.models import ElfAudit, FeatureUse, WheelAudit
from fleetbuild.errors import UsageError
from fleetbuild.files import sha256_of
from fleetbuild.hardware.gpus import sm_order

_Reader = Callable[[bytes, int, frozenset[str]], Iterator[FeatureUse]]
_ENOUGH = 20  # problems that are listed one by one
_READERS: dict[str, _Reader] = {
    "x86_64": x86.used_features,
    "aarch64": aarch64.used_features,
}


def audit_wheel(
    path: Path | str, *, allowed: Iterable[str] = (), top_level: Collection[str] = ()
) -> WheelAudit:
    """Audit a wheel; its defects are in `problems`. Raises only if the file cannot be read.

    `allowed` are patterns of files that it may hold beyond the rules of content.py, and
    `top_level` the only names that it may bring.
    """
    path = Path(path)
    try:
        audit = WheelAudit(file=path.name, sha256=sha256_of(path), **_file_name(path.name))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "Name a wheel: a file that ends in .whl."
        ) from error
    try:
        with zipfile.ZipFile(path) as file:
            return _look_into(Archive(file), audit, allowed, top_level)
    except BROKEN as error:
        return audit.model_copy(
            update={"problems": (*audit.problems, f"it is not a zip archive: {error}")}
        )


def file_names(path: Path) -> frozenset[str]:
    """Return the file names in a wheel, without folders; empty if it is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            return frozenset(PurePosixPath(name).name for name in file.namelist())
    except BROKEN:
        return frozenset()


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Return the linked libraries that a wheel does not contain; empty if it is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            archive = Archive(file)
            needed: set[str] = set()
            for name in archive.names:
                if archive.head(name) == MAGIC:
                    with archive.mapped(name) as data:
                        needed.update(needed_by(data))
    except (*BROKEN, BrokenElf):
        return ()
    return tuple(sorted(needed - file_names(path)))


def _file_name(name: str) -> dict[str, object]:
    try:
        distribution, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        return {"problems": (f"its file name is not a wheel's: {error}",)}
    return {
        "file_name": str(distribution),
        "file_version": str(version),
        "tags": tuple(sorted(map(str, tags))),
    }


def _look_into(
    archive: Archive, audit: WheelAudit, allowed: Iterable[str], top_level: Collection[str]
) -> WheelAudit:
    if archive.problems:  # do not unpack a possibly hostile archive
        return audit.model_copy(update={"problems": (*audit.problems, *archive.problems[:_ENOUGH])})
    metadata: Metadata = read_metadata(archive, audit)
    problems = [
        *audit.problems,
        *metadata.problems,
        *tag_problems(audit.tags),
        *content_problems(archive, metadata.name or "", allowed=allowed, top_level=top_level),
    ]
    elfs = tuple(_elfs(archive, problems))
    if len(problems) > _ENOUGH:
        problems[_ENOUGH:] = [f"and {len(problems) - _ENOUGH} more problems"]
    return audit.model_copy(
        update={
            "name": metadata.name,
            "version": metadata.version,
            "requires": metadata.requires,
            "elfs": elfs,
            "problems": tuple(problems),
        }
    )


def _elfs(archive: Archive, problems: list[str]) -> Iterator[ElfAudit]:
    for name in archive.names:
        if archive.head(name) != MAGIC:
            continue
        try:
            with archive.mapped(name) as data:
                yield audit_elf(name, data)
        except (BrokenElf, BrokenFatbin) as error:
            problems.append(f"{name} is damaged: {error}")
        except BROKEN as error:
            problems.append(f"{name} cannot be unpacked: {error}")


def audit_elf(path: str, data: bytes) -> ElfAudit:
    """Return what an ELF file needs; raises BrokenElf or BrokenFatbin if it is damaged."""
    elf = read_elf(data)
    pieces = {piece for section in elf.fatbins for piece in gpu_code(section)}
    return ElfAudit(
        path=path,
        arch=elf.arch,
        needed=elf.needed,
        libc=elf.libc,
        glibc=elf.highest("GLIBC"),
        glibcxx=elf.highest("GLIBCXX"),
        text_bytes=sum(len(code.data) for code in elf.code),
        features=tuple(sorted(_features(elf), key=lambda use: use.feature)),
        sms=tuple(sorted({p.sm for p in pieces if not p.ptx}, key=sm_order)),
        ptx=tuple(sorted({p.sm for p in pieces if p.ptx}, key=sm_order)),
    )


def _features(elf: Elf) -> Iterator[FeatureUse]:
    reader = _READERS.get(elf.arch)
    known: set[str] = set()
    for code in elf.code if reader else ():
        for use in reader(code.data, code.address, frozenset(known)) if reader else ():
            known.add(use.feature)
            yield use.model_copy(update={"symbol": elf.symbol_at(use.address)})
