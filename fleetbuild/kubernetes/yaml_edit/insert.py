"""Changes to YAML text that leave every other byte of it alone.

A YAML library that writes back what it read gives every list one indentation and every line its own
blanks. Here the text is read only to learn where things stand; a change is an insertion there. What
the new text says is compared with what it should say, so an insertion that went wrong is no result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fleetbuild.kubernetes.yaml_edit.dump import Note, block, flow, scalar
from fleetbuild.kubernetes.yaml_edit.parse import Alias, aliases, compose, is_null, meaning, written

Path = tuple[str | int, ...]


class CannotSpliceError(Exception):
    """This place cannot be changed without changing what stands elsewhere."""


def put(text: str, document: int, path: Path, value: object, why: str = "") -> str:
    """The text with this value at this place.

    A missing mapping is made with all that leads to it; an index one past the end of a list adds to
    it. `why` becomes a comment where there is room for one.
    """
    before = [meaning(root) for root in compose(text)]
    after = _put(text, document, path, Note(value, why) if why else value)
    said = meaning(compose(json.dumps(_bare(value), ensure_ascii=False))[0])
    wanted = _with(before[document], path, said)
    expected = [*before[:document], wanted, *before[document + 1 :]]
    try:
        made = [meaning(root) for root in compose(after)]
    except yaml.YAMLError:
        made = []
    if made != expected:
        raise CannotSpliceError(".".join(map(str, path)))
    return after


def _put(text: str, document: int, path: Path, value: object) -> str:
    node = compose(text)[document]
    shared = aliases(node)
    for depth, step in enumerate(path):
        if others := _others(node, shared):
            return _put(_expanded(text, others[-1]), document, path, value)
        child = _child(node, step)
        if child is None and (inherited := _inherited(node, step)) is not None:
            return _put(_added(text, node, step, written(inherited)), document, path, value)
        if child is None or is_null(child):
            return _grown(text, node, child, path[depth:], value)
        node = child
    if others := _others(node, shared):
        return _put(_expanded(text, others[-1]), document, path, value)
    return _replaced(text, node, value)


def _others(node: Any, shared: Mapping[int, list[Alias]]) -> list[Alias]:
    """The aliases that stand in the way: a change at either end would be one at both."""
    return [node] if isinstance(node, Alias) else shared.get(node.start_mark.index, [])


def _grown(text: str, node: Any, child: Any, rest: Path, value: object) -> str:
    """The rest of the path below a node in which it is not there yet."""
    for step in reversed(rest[1:]):
        value = [value] if isinstance(step, int) else {step: value}
    if child is None:
        return _added(text, node, rest[0], value)
    return _filled(text, node, child, value)


def _added(text: str, node: Any, step: str | int, value: object) -> str:
    """A new entry at the end of a mapping or list."""
    entry = value if isinstance(step, int) else {step: value}
    if node.flow_style:
        return _added_to_flow(text, node, entry)
    column = _column(text, node)
    lines = list(block([entry] if isinstance(step, int) else entry, " " * column))
    return _inserted(text, _end_of_content(text, node, column), lines)


def _added_to_flow(text: str, node: Any, entry: object) -> str:
    inner = flow(entry)
    if isinstance(node, yaml.MappingNode):
        inner = inner[1:-1]
    if node.value:
        last = node.value[-1]
        at = (last[1] if isinstance(last, tuple) else last).end_mark.index
        return f"{text[:at]}, {inner}{text[at:]}"
    at = node.end_mark.index - 1
    return text[:at].rstrip() + inner + text[at:]


def _filled(text: str, parent: Any, child: Any, value: object) -> str:
    """A value for a key that has none."""
    start, end = child.start_mark.index, child.end_mark.index
    bare = _without_note(value)
    one_line = isinstance(bare, str | int) or parent.flow_style
    if one_line or text[start:end]:  # `null` or `~`
        return text[:start] + ("" if text[start:end] else " ") + flow(bare) + text[end:]
    lines = list(block(bare, " " * (_column(text, parent) + 2)))
    return _inserted(text, _end_of_line(text, start), lines)


def _replaced(text: str, node: Any, value: object) -> str:
    """Another scalar in place of one, quoted in the same way."""
    if not isinstance(node, yaml.ScalarNode):
        raise CannotSpliceError(str(value))
    start, end = _behind_properties(text, node), node.end_mark.index
    word = str(_without_note(value))
    quoted = {"'": "'" + word.replace("'", "''") + "'", '"': json.dumps(word, ensure_ascii=False)}
    return text[:start] + quoted.get(node.style or "", scalar(word)) + text[end:]


def _expanded(text: str, alias: Alias) -> str:
    """The text with what an alias stands for in its place."""
    value = written(meaning(alias.target))
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
    return _inserted(shorter, _end_of_line(shorter, len(text[:start].rstrip(" "))), lines)


def _inserted(text: str, at: int, lines: Sequence[str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return text[:at] + "".join(newline + line for line in lines) + text[at:]


def _without_note(value: object) -> object:
    return value.value if isinstance(value, Note) else value


def _bare(value: object) -> Any:
    """The value without its comments."""
    if isinstance(value, Note):
        return _bare(value.value)
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_bare(item) for item in value]
    return value


def _column(text: str, node: Any) -> int:
    """How far the entries of a block mapping, or the dashes of a list, are indented."""
    if isinstance(node, yaml.MappingNode):
        return int(node.value[0][0].start_mark.column)
    first = node.value[0].start_mark.index
    dash = text.rindex("-", 0, max(first, 1))
    return dash - (text.rfind("\n", 0, dash) + 1)


def _end_of_content(text: str, node: Any, column: int) -> int:
    """The end of the last line of a node, comments that belong to it included."""
    at = _end_of_line(text, _last(text, node))
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


def _last(text: str, node: Any) -> int:
    """Where the last thing that is written in a node ends."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last(text, last[1] if isinstance(last, tuple) else last)
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return _last_of_block(text, node, end)
    return end


def _last_of_block(text: str, node: Any, end: int) -> int:
    """A block scalar ends where the next line begins; only `+` keeps the blank lines below it."""
    head = text[node.start_mark.index : _end_of_line(text, node.start_mark.index)]
    body = text[:end]
    if body.endswith("\n"):
        body = body[:-1].removesuffix("\r")
    return len(body) if "+" in head.partition("#")[0] else len(body.rstrip())


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _behind_properties(text: str, node: Any) -> int:
    """Where a scalar begins, behind its anchor and its tag."""
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
    raise CannotSpliceError(str(step))


def _inherited(node: Any, step: str | int) -> Any:
    """What a mapping has by `<<` and not by itself."""
    whole = meaning(node)
    return whole.get(step) if isinstance(whole, dict) else None


def _with(meant: Any, path: Path, value: Any) -> Any:
    """The meant with a value at a path."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items = meant if isinstance(meant, list) else []
        inner = items[step] if step < len(items) else None
        return [*items[:step], _with(inner, rest, value), *items[step + 1 :]]
    entries = meant if isinstance(meant, dict) else {}
    return {**entries, step: _with(entries.get(step), rest, value)}
