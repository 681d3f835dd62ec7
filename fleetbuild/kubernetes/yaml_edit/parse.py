"""Parse YAML text: the content of each document, and the position of every node.

In: text. Out: nodes in which an alias stays an alias, and content in which aliases and merge keys
(`<<`) are resolved.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import yaml

_NULL = "tag:yaml.org,2002:null"
_STRING = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


class Alias:
    """A `*name`; the usual loader would replace it by its anchor's node."""

    def __init__(self, target: Any, event: Any) -> None:
        self.target = target
        self.start_mark, self.end_mark = event.start_mark, event.end_mark


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        peek: Any = self.peek_event
        event = peek() if self.check_event(yaml.AliasEvent) else None
        node = super().compose_node(parent, index)
        return Alias(node, event) if event else node


class _RawScalar:
    """The text of a scalar that is not a string, to be written without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


@lru_cache(maxsize=2)  # one text is parsed for many questions in a row
def compose(text: str) -> tuple[Any, ...]:
    """Return the root node of each document. The nodes are cached: do not change them."""
    loader = _Loader(text)
    try:
        roots = []
        while loader.check_node():
            roots.append(loader.get_node())
        return tuple(roots)
    finally:
        loader.dispose()


@lru_cache(maxsize=2)
def read(text: str) -> tuple[Any, ...]:
    """Return the content of each document, with scalars as their text and null as None."""
    return tuple(without_tags(content_of(root)) for root in compose(text))


def aliases(root: Any) -> dict[int, list[Alias]]:
    """Return the aliases of each anchored node, by the node's position."""
    found: dict[int, list[Alias]] = {}
    for node in _walk(root):
        if isinstance(node, Alias):
            found.setdefault(node.target.start_mark.index, []).append(node)
    return found


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for each in child if isinstance(child, tuple) else (child,):
            yield from _walk(each)


def is_null(node: Any) -> bool:
    """Return whether a node is an empty or null value."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def content_of(node: Any) -> Any:
    """Return a node as mappings, lists and (tag, text), with aliases and merge keys resolved."""
    if isinstance(node, Alias):
        return content_of(node.target)
    if isinstance(node, yaml.SequenceNode):
        return [content_of(item) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return (node.tag, node.value)
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.YAMLError("a key is not a scalar")
        if key.tag == _MERGE:
            below = content_of(value)
            for each in reversed(below if isinstance(below, list) else [below]):
                if not isinstance(each, dict):
                    raise yaml.YAMLError("the value of `<<` is not a mapping")
                merged.update(each)
        else:
            own[str(without_tags(content_of(key)))] = content_of(value)
    return {**merged, **own}


def without_tags(content: Any) -> Any:
    """Return content without its tags."""
    if isinstance(content, dict):
        return {key: without_tags(value) for key, value in content.items()}
    if isinstance(content, list):
        return [without_tags(item) for item in content]
    tag, text = content
    return None if tag == _NULL else text


def to_write(content: Any) -> Any:
    """Return content for the dumper: it quotes strings if needed, and other scalars never."""
    if isinstance(content, dict):
        return {key: to_write(value) for key, value in content.items()}
    if isinstance(content, list):
        return [to_write(item) for item in content]
    tag, text = content
    return text if tag == _STRING else _RawScalar(text)
