"""Read a wheel's entry points as pip does, and refuse a file that installers read differently.

In: an open archive. Out: entry points, or the reason why they have no single reading.
"""

from __future__ import annotations

import configparser
from importlib.metadata import Distribution
from typing import NamedTuple

from fleetbuild.audit.archive import Archive

COMMANDS = ("console_scripts", "gui_scripts")


class EntryPoint(NamedTuple):
    """One line of entry_points.txt."""

    group: str
    name: str
    value: str


class Unclear(ValueError):
    """Installers read this entry_points.txt in different ways, or not at all."""


def info_folder(archive: Archive) -> str:
    """Return the wheel's own .dist-info folder: the only one beside its packages, else ""."""
    folders = {name.split("/")[0] for name in archive.names if "/" in name}
    (folder, *others) = sorted(f for f in folders if f.endswith(".dist-info")) or [""]
    return "" if others else folder


def entry_points(archive: Archive) -> tuple[EntryPoint, ...]:
    """Return all entry points of a wheel; raises Unclear."""
    name = f"{info_folder(archive)}/entry_points.txt"
    if name not in archive.names:
        return ()
    text = archive.text(name)
    if text is None:
        raise Unclear("it is too large or cannot be unpacked")
    found = _as_pip(text)
    if sorted(found) != sorted(_as_configparser(text)):
        raise Unclear("importlib.metadata and configparser read it differently")
    return found


def _as_pip(text: str) -> tuple[EntryPoint, ...]:
    try:
        found = _Text(text).entry_points
    except (ValueError, TypeError) as error:  # such as a line without "="
        raise Unclear("importlib.metadata does not read it") from error
    return tuple(EntryPoint(each.group, each.name, each.value) for each in found)


def _as_configparser(text: str) -> list[EntryPoint]:
    """Read it as older installers do; a name that is listed twice is an error."""
    parser = configparser.RawConfigParser(delimiters=("=",), default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError) as error:  # AttributeError: an odd continuation
        raise Unclear("configparser does not read it") from error
    return [
        EntryPoint(group, name, value)
        for group in parser.sections()
        for name, value in parser.items(group)
    ]


class _Text(Distribution):
    """A distribution of which only entry_points.txt is known."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "entry_points.txt" else None

    def locate_file(self, path: object) -> None:  # type: ignore[override]
        raise NotImplementedError
