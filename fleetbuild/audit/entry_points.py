"""Read a wheel's entry points, and refuse a file that installers could read differently.

In: an open archive. Out: entry points, or the reason why they have no single reading.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fleetbuild.audit.archive import Archive

COMMANDS = ("console_scripts", "gui_scripts")
_GROUP = re.compile(r"\[([^\s\[\]]+)\]")


class EntryPoint(NamedTuple):
    """One line of entry_points.txt."""

    group: str
    name: str
    value: str


class Unclear(ValueError):
    """Installers read this entry_points.txt in different ways, or not at all."""


def info_folder(archive: Archive) -> str:
    """Return the wheel's own .dist-info folder: the only one beside its packages, else ""."""
    folders = {name.split("/")[0] for name in archive.names}
    (folder, *others) = sorted(f for f in folders if f.endswith(".dist-info")) or [""]
    return "" if others else folder


def known_entry_points(archive: Archive) -> tuple[EntryPoint, ...]:
    """Return all entry points of a wheel; none if its audit refuses them."""
    try:
        return entry_points(archive)
    except Unclear:
        return ()


def entry_points(archive: Archive) -> tuple[EntryPoint, ...]:
    """Return all entry points of a wheel; raises Unclear."""
    name = f"{info_folder(archive)}/entry_points.txt"
    if name not in archive.names:
        return ()
    text = archive.text(name)
    if text is None:
        raise Unclear("it is too large or cannot be unpacked")
    return read_entry_points(text)


def read_entry_points(text: str) -> tuple[EntryPoint, ...]:
    """Return the entry points in a text; raises Unclear.

    Each line is `[group]`, `name = value`, a comment that begins with #, or empty. No installer
    reads such lines in another way.
    """
    found: dict[tuple[str, str], EntryPoint] = {}
    groups: set[str] = set()
    group, indent = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r").replace("\t", " ")
        words, before = line.strip(" "), indent
        if not words.isprintable():  # some installers end a line at other characters, too
            raise Unclear(f"line {number} has a control character")
        if not words or words[0] == "#":
            continue
        indent = len(line) - len(line.lstrip(" "))
        if match := _GROUP.fullmatch(words):
            group, indent = match[1], len(line)
            if group in groups:
                raise Unclear(f"it has the group {group} twice")
            groups.add(group)
            continue
        name, equals, value = (word.strip(" ") for word in words.partition("="))
        continued = indent > before
        if not (group and name and equals) or words[0] in "[;" or continued:
            raise Unclear(f"line {number} is neither a [group] nor NAME = VALUE")
        if (group, name) in found:
            raise Unclear(f"it has {name!r} twice in {group}")
        found[group, name] = EntryPoint(group, name, value)
    return tuple(found.values())
