"""Save and load captures: one folder per node, one file per section, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleetbuild.errors import CaptureError
from fleetbuild.files import make_folder, raise_if_full, replace_file
from fleetbuild.models import Capture, Unreachable
from fleetbuild.probe.parsing.framing import SECTIONS
from fleetbuild.probe.parsing.text import MAX_SECTION


def save_captures(
    directory: Path,
    captures: Mapping[str, Capture | Unreachable],
    sections: Sequence[str] = SECTIONS,
) -> None:
    """Write a folder for each captured node.

    Old sections that a node no longer has are removed; an unreachable node keeps its old capture.
    """
    for name in captures:
        _check(name)
    with _report_os_errors(directory, "written"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, capture in captures.items():
            if not isinstance(capture, Unreachable):
                _save(directory / name, capture, sections)


def load_captures(
    directory: Path, names: Iterable[str], sections: Iterable[str] = SECTIONS
) -> dict[str, Capture | Unreachable]:
    """Return the captures of these nodes; a node without a folder counts as unreachable."""
    if not directory.is_dir():
        what = "is not a folder" if directory.exists() else "does not exist"
        raise CaptureError(
            f"The captures in {directory} cannot be read: it {what}.",
            "Name a folder that `fleetbuild facts INVENTORY --save DIR` wrote.",
        )
    with _report_os_errors(directory, "read"):
        return {name: _load(directory, name, tuple(sections)) for name in names}


def save_section(directory: Path, name: str, section: str, text: str) -> None:
    """Replace one section of a node's capture, and leave the others."""
    _check(name)
    with _report_os_errors(directory, "written"):
        folder = f"{directory}/{name}"
        make_folder(folder, 0o700)
        _write(folder, section, text)


def _save(folder: Path, capture: Capture, sections: Sequence[str]) -> None:
    if folder.is_symlink():  # a link to another node's folder, which must not change
        folder.unlink()
    folder.mkdir(mode=0o700, exist_ok=True)
    for section in sections:
        if section in capture:
            _write(str(folder), section, capture[section])
        else:
            (folder / section).unlink(missing_ok=True)


def _write(folder: str, section: str, text: str) -> None:
    """Write a section in one step, readable only by its owner. A crash may lose it."""
    replace_file(f"{folder}/{section}", text.encode("utf-8", "surrogateescape"), lasting=False)


def _load(directory: Path, name: str, sections: Iterable[str]) -> Capture | Unreachable:
    folder = f"{directory}/{name}"
    if not _is_folder_name(name) or not os.path.isdir(folder):  # noqa: PTH112 (Path takes longer)
        return Unreachable(
            reason=f"no capture in {directory}",
            fix=f"Write one with `fleetbuild facts INVENTORY --limit {name} --save {directory}`.",
        )
    with os.scandir(folder) as entries:  # one call, in place of a question for each section
        files = {entry.name: entry.path for entry in entries if entry.is_file()}
    return {section: _read(files[section]) for section in sections if section in files}


def _read(file: str) -> str:
    """Return the text; of a file that is too long, only enough to show that."""
    # A file object makes twice as many system calls, and there are a hundred thousand sections.
    handle = os.open(file, os.O_RDONLY)
    try:
        # Python takes memory for all that it is asked for, and gives most of it back.
        most, content = min(os.fstat(handle).st_size, MAX_SECTION) + 1, b""
        while part := os.read(handle, most - len(content)):
            content += part
    finally:
        os.close(handle)
    return content.decode("utf-8", "surrogateescape")


def _check(name: str) -> None:
    if not _is_folder_name(name):
        raise CaptureError(
            f"The capture of {name!r} cannot be saved: the name is not valid for a folder.",
            "Give the host a name without slashes in the inventory.",
        )


def _is_folder_name(name: str) -> bool:
    return name not in ("", os.curdir, os.pardir) and not {"/", "\0"} & set(name)


@contextmanager
def _report_os_errors(directory: Path, done: str) -> Iterator[None]:
    """Turn an OSError into an error with a fix."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise CaptureError(
            f"The captures in {directory} cannot be {done}: {error.filename} is not a folder.",
            "Name another folder.",
        ) from error
    except OSError as error:
        where = error.filename = error.filename or str(directory)
        raise_if_full(error)
        raise CaptureError(
            f"The captures in {directory} cannot be {done}: {where}: {error.strerror}.",
            f"Check the owner and permissions of {where}.",
        ) from error
