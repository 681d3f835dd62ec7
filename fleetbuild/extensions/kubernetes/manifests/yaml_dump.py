"""Write YAML: the same value always gives the same bytes; comments explain entries.

In: a value. Out: text. A string is quoted if any YAML reader could take it for another type: a
release id such as `12e45678` is a number to Go's reader and a string to Python's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*", re.ASCII)
_WIDTH = 100
_NOT_STRINGS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


@dataclass(frozen=True)
class Note:
    """A value with a comment above it."""

    value: object
    why: str


@dataclass(frozen=True)
class FlowStyle:
    """A list or mapping in flow style, on as few lines as possible."""

    value: Sequence[object] | Mapping[str, object]


def dump(value: object, header: str = "") -> str:
    """Return one YAML document, with a comment on top."""
    return "\n".join([*comment(header), *block(value)]) + "\n"


def comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield comment lines for any text."""
    for line in text.splitlines():
        printable = "".join(char if char.isprintable() else "?" for char in line)
        yield f"{indent}# {printable}".rstrip()


def block(value: object, indent: str = "") -> Iterator[str]:
    """Yield the lines of a value, in the style that people write."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{indent}{scalar(key)}:", item, indent)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            yield from _item(item, indent)
    else:
        yield f"{indent}{scalar(value)}"


def _entry(key: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Note):
        yield from comment(value.why, indent)
        value = value.value
    if isinstance(value, str) and _is_block(value):
        yield f"{key} |"
        yield from (f"{indent}  {line}".rstrip() for line in value.splitlines())
    elif isinstance(value, FlowStyle):
        yield from _row(key, value.value, indent)
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value:
        yield key
        yield from block(value, indent + "  ")
    else:
        yield f"{key} {scalar(value)}"


def _row(key: str, value: Sequence[object] | Mapping[str, object], indent: str) -> Iterator[str]:
    whole = f"{key} {flow(value)}"
    if len(whole) <= _WIDTH:
        yield whole
        return
    start, *items, end = _flow_parts(value)
    yield f"{key} {start}"
    line = ""
    for item in items:
        if line and len(f"{indent}  {line} {item},") > _WIDTH:
            yield f"{indent}  {line}"
            line = ""
        line += f" {item}," if line else f"{item},"
    yield from (f"{indent}  {line}", f"{indent}{end}")


def _item(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Note):
        yield from comment(value.why, indent)
        value = value.value
    if isinstance(value, str) and _is_block(value):
        yield from _entry(f"{indent}-", value, indent)
        return
    if isinstance(value, FlowStyle):
        yield from _row(f"{indent}-", value.value, indent)
        return
    first, *rest = block(value, indent + "  ")
    yield f"{indent}- {first[len(indent) + 2 :]}"
    yield from rest


def flow(value: object) -> str:
    """Return a value on one line, without comments."""
    if isinstance(value, Note):
        return flow(value.value)
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        start, *items, end = _flow_parts(value)
        return start + ", ".join(items) + end
    return scalar(value)


def _flow_parts(value: Sequence[object] | Mapping[str, object]) -> list[str]:
    if isinstance(value, Mapping):
        return ["{", *(f"{scalar(key)}: {flow(item)}" for key, item in value.items()), "}"]
    return ["[", *map(flow, value), "]"]


def scalar(value: object) -> str:
    """Return a value without parts, quoted if a reader could misread it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if isinstance(value, Mapping):
        return "{}"
    return "[]" if isinstance(value, Sequence) else str(value)


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NOT_STRINGS


def _is_block(text: str) -> bool:
    """Return whether the text can be written as a block scalar (`|`)."""
    lines = text.split("\n")
    return (
        len(lines) > 1
        and not lines.pop()  # ends with a newline
        and all(line.isascii() and line.isprintable() and line == line.rstrip() for line in lines)
        and bool(lines[0] and lines[-1])
        and not lines[0].startswith(" ")
    )


def _quoted(text: str) -> str:
    return yaml.dump(text, Dumper=yaml.SafeDumper, default_style='"', width=2**31).rstrip("\n")
