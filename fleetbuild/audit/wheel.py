"""Audit one wheel file: its identity, its requirements, its problems."""

from __future__ import annotations

import errno
import gc
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.archive import BROKEN, Archive, Folder, opened_here
from fleetbuild.audit.content import content_problems, tag_problems
from fleetbuild.audit.elf import MAGIC, Elf
from fleetbuild.audit.fatbin import gpu_needs, kernels_of, sm_of
from fleetbuild.audit.functions import Functions
from fleetbuild.audit.level_names import is_dispatcher
from fleetbuild.audit.limited_process import (
    FILE_SECONDS,
    SECONDS,
    TooMuchError,
    read_apart,
    seconds_for,
    too_much,
    turn,
)
from fleetbuild.audit.metadata import read_metadata
from fleetbuild.audit.models import ElfAudit, FeatureUse, Kernels, WheelAudit, When
from fleetbuild.audit.pieces import Found, Piece
from fleetbuild.audit.search_paths import search_path_problems
from fleetbuild.errors import UsageError
from fleetbuild.files import sha256_of
from fleetbuild.text import first_few

_Reader = Callable[[bytes, Iterable[Piece]], Iterator[Found]]
_ORDER: dict[When, int] = {"load": 0, "default": 1, "guarded": 2}
_MANY = 20  # exported functions; one compiled for a level would be among them
ENOUGH = 20  # problems that are listed one by one
_READERS: dict[str, _Reader] = {
    "x86_64": x86.used_features,
    "aarch64": aarch64.used_features,
}


def audit_wheel(
    path: Path | str, *, allowed: Iterable[str] = (), top_level: Collection[str] = (),
    read_code: bool = True, published: bool = False,
) -> WheelAudit:  # fmt: skip
    """Audit a wheel; its defects are in `problems`. Raises only if the file cannot be read.

    `allowed` are patterns of files that it may hold beyond the rules of content.py, and
    `top_level` the only names that it may bring. To read its code takes most of the time. A
    published wheel may have another METADATA, WHEEL and RECORD: its index names it.
    """
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # such as a pipe, which waits for a writer
            raise OSError(errno.EINVAL, "it is not a file.")
        path.open("rb").close()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "Name a wheel: a file that ends in .whl."
        ) from error
    document = read_apart(
        audit_here, path, allowed=tuple(allowed), top_level=tuple(top_level), read_code=read_code,
        published=published,
    )  # fmt: skip
    if document is None:
        problems = (f"it {too_much(seconds_for(path.stat().st_size, SECONDS))}",)
        return WheelAudit(file=path.name, sha256=sha256_of(path), problems=problems)
    return WheelAudit.model_validate(document)


def audit_here(
    path: Path,
    allowed: Iterable[str] = (),
    top_level: Collection[str] = (),
    read_code: bool = True,
    published: bool = False,
) -> WheelAudit:
    """Audit a wheel in this process, the separate one."""
    audit = WheelAudit(file=path.name, sha256=sha256_of(path), **_file_name(path.name))
    elfs: tuple[ElfAudit, ...] = ()
    try:
        with opened_here(path) as archive:
            problems = [*audit.problems, *archive.problems]
            if not archive.problems:  # else do not unpack it: it may be hostile
                audit = audit if published else read_metadata(archive, audit)
                problems = [*audit.problems, *tag_problems(audit.tags)]
                problems += content_problems(
                    archive, audit.file_name or "", allowed=allowed, top_level=top_level
                )
                elfs = tuple(read_elfs(archive, problems, read_code=read_code))
    except BROKEN as error:
        problems = [*audit.problems, f"it is not a zip archive: {error}"]
    for elf in elfs:
        if not any(fnmatchcase(elf.path, pattern) for pattern in allowed):
            problems += search_path_problems(elf.path, elf.search_paths)
    return audit.model_copy(update={"elfs": elfs, "problems": first_few(problems, ENOUGH)})


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


def read_elfs(
    archive: Archive | Folder, problems: list[str], *, read_code: bool = True
) -> Iterator[ElfAudit]:
    """Yield what each ELF file of an archive needs; add a sentence for each that is damaged.

    Without its code, only what a file links is read, and a damaged one is left out.
    """
    for name in archive.names:
        if archive.head(name) != MAGIC:
            continue
        seconds = seconds_for(archive.packed(name), FILE_SECONDS)
        try:
            with turn(seconds), archive.mapped(name) as data:
                elf = audit_elf(name, data) if read_code else _links(name, Elf(data))
            yield elf
        except (TooMuchError, MemoryError):
            problems.append(f"{name} {too_much(seconds)}")
            gc.collect()  # a large file may fill the memory of the next
        except BROKEN as error:
            problems += [f"{name} cannot be read: {error}"] if read_code else []


def _links(path: str, elf: Elf) -> ElfAudit:
    return ElfAudit(path=path, arch=elf.arch, needed=elf.needed, search_paths=elf.search_paths)


def audit_elf(path: str, data: bytes) -> ElfAudit:
    """Return what an ELF file needs; raises one of DAMAGED."""
    elf = Elf(data)
    gpu = gpu_needs(data, elf.gpu_sections)
    sm = sm_of(data)
    own = (Kernels(codes=(sm,), names=tuple(sorted(kernels_of(data)))),) if sm else ()
    audit = ElfAudit(
        path=path,
        arch=elf.arch,
        needed=elf.needed,
        libc=elf.libc,
        glibc=elf.highest("GLIBC"),
        glibcxx=elf.highest("GLIBCXX"),
        search_paths=elf.search_paths,
        sms=(sm, *gpu.sms) if sm else gpu.sms,
        ptx=gpu.ptx,
        kernels=(*own, *gpu.kernels),
        unread=gpu.unread,
    )
    if elf.arch not in _READERS:
        return audit
    functions = Functions(elf)
    found = list(_READERS[elf.arch](data, functions.pieces()))
    unknown = [
        f"the unknown instruction {use.instruction} at {use.address:#x}"
        for use, _ in found
        if use.feature == x86.UNKNOWN and use.when != "guarded"
    ]
    found = [(use, local) for use, local in found if use.feature != x86.UNKNOWN]
    uses = [
        use.model_copy(update={"symbol": functions.name_at(use.address)})
        for use in _chosen(found, functions, path)
    ]
    uses.sort(key=lambda use: (use.feature, _ORDER[use.when]))
    return audit.model_copy(
        update={
            "features": tuple(uses),
            "checks_cpu": functions.asks_cpu,
            "unknown": tuple(unknown[:1]),
        }
    )


def _chosen(found: list[Found], functions: Functions, path: str) -> Iterator[FeatureUse]:
    """Yield the uses, each feature once for each `when`.

    In a known library that chooses through tables, a feature that none of its exported functions
    uses is guarded. A file that is compiled for a level as a whole uses it in these as well. So are
    the features of a library that is linked in, and whose functions have no names.
    """
    known = functions.behind_known_checks
    by_table = functions.asks_cpu and is_dispatcher(path) and functions.exported >= _MANY
    plain = {use.feature for use, local in found if use.when == "default" and not local}
    seen = set()
    for use, _ in found:
        behind = by_table or use.feature in known
        guarded = behind and use.when == "default" and use.feature not in plain
        chosen = use.model_copy(update={"when": "guarded"}) if guarded else use
        if (chosen.feature, chosen.when) not in seen:
            seen.add((chosen.feature, chosen.when))
            yield chosen
