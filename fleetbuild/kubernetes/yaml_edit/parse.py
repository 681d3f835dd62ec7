"""What YAML text says, and where: aliases are seen as aliases, and merges are followed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import yaml

_NULL = "tag:yaml.org,2002:null"
_STRING = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


class Alias:
    """A `*name`, which the loader would replace by what it stands for."""

    def __init__(self, target: Any, event: Any) -> None:
        self.target = target
        self.start_mark, self.end_mark = event.start_mark, event.end_mark


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        peek: Any = self.peek_event
        event = peek() if self.check_event(yaml.AliasEvent) else None
        node = super().compose_node(parent, index)
        return Alias(node, event) if event else node


class _Word:
    """A scalar that is no string, as it was written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


@lru_cache(maxsize=2)  # a text is asked for many things before the next one takes its place
def compose(text: str) -> tuple[Any, ...]:
    """The node at the top of each document; not to be changed."""
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
    """What each document says, all scalars as the text that they are written with, null as None."""
    return tuple(plain(meaning(root)) for root in compose(text))


def aliases(root: Any) -> dict[int, list[Alias]]:
    """The aliases of each anchored node, by where that node stands."""
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
    """Is there a key, and nothing behind it?"""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def meaning(node: Any) -> Any:
    """A node as mappings, lists and (tag, text), with aliases and merges followed."""
    if isinstance(node, Alias):
        return meaning(node.target)
    if isinstance(node, yaml.SequenceNode):
        return [meaning(item) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return (node.tag, node.value)
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.YAMLError("a key is no plain text")
        if key.tag == _MERGE:
            below = meaning(value)
            for each in reversed(below if isinstance(below, list) else [below]):
                if not isinstance(each, dict):
                    raise yaml.YAMLError("`<<` stands before something that is no mapping")
                merged.update(each)
        else:
            own[str(plain(meaning(key)))] = meaning(value)
    return {**merged, **own}


def plain(meant: Any) -> Any:
    """A meaning without its tags."""
    if isinstance(meant, dict):
        return {key: plain(value) for key, value in meant.items()}
    if isinstance(meant, list):
        return [plain(item) for item in meant]
    tag, text = meant
    return None if tag == _NULL else text


def written(meant: Any) -> Any:
    """What to write for a meaning: strings are quoted where they must be, other scalars never."""
    if isinstance(meant, dict):
        return {key: written(value) for key, value in meant.items()}
    if isinstance(meant, list):
        return [written(item) for item in meant]
    tag, text = meant
    return text if tag == _STRING else _Word(text)
