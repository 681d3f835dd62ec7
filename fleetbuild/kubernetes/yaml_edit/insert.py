"""Set a value in YAML text and leave every other byte unchanged.

In: text, a path and a value. Out: the changed text, or CannotEditError. A YAML library would write
the whole text in its own style. Here the text is parsed only for positions, and new lines are
inserted there. The changed text is parsed again and compared with the intended content, so a wrong
edit is never returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fleetbuild.kubernetes.yaml_edit.dump import Note, block, flow, scalar
from fleetbuild.kubernetes.yaml_edit.parse import (
    Alias,
    aliases,
    compose,
    content_of,
    is_null,
    to_write,
)

Path = tuple[str | int, ...]


class CannotEditError(Exception):
    """A value cannot be set without changing another one."""


def put(text: str, document: int, path: Path, value: object, why: str = "") -> str:
    """Return the text with this value at this path of a document.

    Missing mappings on the path are created; an index one past the end of a list appends to it.
    `why` becomes a comment above the value, except inside of brackets.
    """
    before = [content_of(root) for root in compose(text)]
    after = _put(text, document, path, Note(value, why) if why else value)
    said = content_of(compose(json.dumps(_strip_notes(value), ensure_ascii=False))[0])
    wanted = _with_value(before[document], path, said)
    expected = [*before[:document], wanted, *before[document + 1 :]]
    try:
        made = [content_of(root) for root in compose(after)]
    except yaml.YAMLError:
        made = []
    if made != expected:
        raise CannotEditError(".".join(map(str, path)))
    return after


def _put(text: str, document: int, path: Path, value: object) -> str:
    node = compose(text)[document]
    shared = aliases(node)
    for depth, step in enumerate(path):
        if others := _sharing_aliases(node, shared):
            return _put(_expand_alias(text, others[-1]), document, path, value)
        child = _child(node, step)
        if child is None and (inherited := _merged_value(node, step)) is not None:
            return _put(_append(text, node, step, to_write(inherited)), document, path, value)
        if child is None or is_null(child):
            return _insert_path(text, node, child, path[depth:], value)
        node = child
    if others := _sharing_aliases(node, shared):
        return _put(_expand_alias(text, others[-1]), document, path, value)
    return _replace_scalar(text, node, value)


def _sharing_aliases(node: Any, shared: Mapping[int, list[Alias]]) -> list[Alias]:
    """Return the aliases that share this node: a change here would change them too."""
    return [node] if isinstance(node, Alias) else shared.get(node.start_mark.index, [])


def _insert_path(text: str, node: Any, child: Any, rest: Path, value: object) -> str:
    """Insert the missing rest of a path below a node."""
    for step in reversed(rest[1:]):
        value = [value] if isinstance(step, int) else {step: value}
    if child is None:
        return _append(text, node, rest[0], value)
    return _fill_empty(text, node, child, value)


def _append(text: str, node: Any, step: str | int, value: object) -> str:
    """Append an entry to a mapping or list."""
    entry = value if isinstance(step, int) else {step: value}
    if node.flow_style:
        return _append_to_flow(text, node, entry)
    column = _indentation(text, node)
    lines = list(block([entry] if isinstance(step, int) else entry, " " * column))
    return _insert_lines(text, _end_of_content(text, node, column), lines)


def _append_to_flow(text: str, node: Any, entry: object) -> str:
    inner = flow(entry)
    if isinstance(node, yaml.MappingNode):
        inner = inner[1:-1]
    if node.value:
        last = node.value[-1]
        at = (last[1] if isinstance(last, tuple) else last).end_mark.index
        return f"{text[:at]}, {inner}{text[at:]}"
    at = node.end_mark.index - 1
    return text[:at].rstrip() + inner + text[at:]


def _fill_empty(text: str, parent: Any, child: Any, value: object) -> str:
    """Set the value of a key whose value is empty or null."""
    start, end = child.start_mark.index, child.end_mark.index
    bare = _without_note(value)
    one_line = isinstance(bare, str | int) or parent.flow_style
    if one_line or text[start:end]:  # it is written as null or ~
        return text[:start] + ("" if text[start:end] else " ") + flow(bare) + text[end:]
    lines = list(block(bare, " " * (_indentation(text, parent) + 2)))
    return _insert_lines(text, _end_of_line(text, start), lines)


def _replace_scalar(text: str, node: Any, value: object) -> str:
    """Replace a scalar; the new one is quoted in the same way."""
    if not isinstance(node, yaml.ScalarNode):
        raise CannotEditError(str(value))
    start, end = _start_of_text(text, node), node.end_mark.index
    word = str(_without_note(value))
    quoted = {"'": "'" + word.replace("'", "''") + "'", '"': json.dumps(word, ensure_ascii=False)}
    return text[:start] + quoted.get(node.style or "", scalar(word)) + text[end:]


def _expand_alias(text: str, alias: Alias) -> str:
    """Replace an alias by a copy of its anchor's value."""
    value = to_write(content_of(alias.target))
    start, end = alias.start_mark.index, alias.end_mark.index
    line = text.rfind("\n", 0, start) + 1
    key = text[line:start].rstrip()
    if not isinstance(value, dict | list) or not value or not key.endswith(":"):
        return text[:start] + flow(value) + text[end:]
    if any(bracket in text[line:start] for bracket in "[{"):
        return text[:start] + flow(value) + text[end:]
    indent = len(key) - len(key.lstrip(" -"))
    shorter = text[:start].rstrip(" ") + text[end:]
    lines = list(block(value, " " * (indent + 2)))
    return _insert_lines(shorter, _end_of_line(shorter, len(text[:start].rstrip(" "))), lines)


def _insert_lines(text: str, at: int, lines: Sequence[str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return text[:at] + "".join(newline + line for line in lines) + text[at:]


def _without_note(value: object) -> object:
    return value.value if isinstance(value, Note) else value


def _strip_notes(value: object) -> Any:
    """Return the value without its comments."""
    if isinstance(value, Note):
        return _strip_notes(value.value)
    if isinstance(value, Mapping):
        return {key: _strip_notes(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_strip_notes(item) for item in value]
    return value


def _indentation(text: str, node: Any) -> int:
    """Return the column of a block mapping's keys or a list's dashes."""
    if isinstance(node, yaml.MappingNode):
        return int(node.value[0][0].start_mark.column)
    first = node.value[0].start_mark.index
    dash = text.rindex("-", 0, max(first, 1))
    return dash - (text.rfind("\n", 0, dash) + 1)


def _end_of_content(text: str, node: Any, column: int) -> int:
    """Return the end of a node's last line, including the comments below that belong to it."""
    at = _end_of_line(text, _end_of_node(text, node))
    while at < len(text):
        following = text.find("\n", at) + 1
        end = _end_of_line(text, following)
        line = text[following:end]
        if not following or not line.lstrip().startswith("#"):
            break
        if len(line) - len(line.lstrip()) < column:
            break
        at = end
    return at


def _end_of_node(text: str, node: Any) -> int:
    """Return where the text of a node ends."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of_node(text, last[1] if isinstance(last, tuple) else last)
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return _end_of_block_scalar(text, node, end)
    return end


def _end_of_block_scalar(text: str, node: Any, end: int) -> int:
    """Return where a block scalar ends; only with `+` do the blank lines below belong to it."""
    head = text[node.start_mark.index : _end_of_line(text, node.start_mark.index)]
    body = text[:end]
    if body.endswith("\n"):
        body = body[:-1].removesuffix("\r")
    return len(body) if "+" in head.partition("#")[0] else len(body.rstrip())


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _start_of_text(text: str, node: Any) -> int:
    """Return where a scalar's text begins, after its anchor and tag."""
    at = int(node.start_mark.index)
    while text[at] in "&!":
        while not text[at].isspace():
            at += 1
        while text[at].isspace():
            at += 1
    return at


def _child(node: Any, step: str | int) -> Any:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    raise CannotEditError(str(step))


def _merged_value(node: Any, step: str | int) -> Any:
    """Return a value that a mapping has by a merge key (`<<`); None if it has none."""
    whole = content_of(node)
    return whole.get(step) if isinstance(whole, dict) else None


def _with_value(content: Any, path: Path, value: Any) -> Any:
    """Return the content with a value at a path."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items = content if isinstance(content, list) else []
        inner = items[step] if step < len(items) else None
        return [*items[:step], _with_value(inner, rest, value), *items[step + 1 :]]
    entries = content if isinstance(content, dict) else {}
    return {**entries, step: _with_value(entries.get(step), rest, value)}
