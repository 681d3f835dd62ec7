"""Read YAML so that it can be written again with every scalar as its author spelled it.

In: text. Out: the content of each document, with aliases and merge keys (`<<`) written out.
"""

from __future__ import annotations

from typing import Any

import yaml

from fleetbuild.kubernetes.manifests.yaml_dump import Verbatim

_MOST = 100_000  # values in a document, so that nested aliases cannot fill the memory
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Keep the text of scalars without quotes: to another reader 0644 or 1e3 is another value."""

    def compose_scalar_node(self, anchor: Any) -> Any:
        read_event: Any = self.peek_event
        event = read_event()
        node = super().compose_scalar_node(anchor)
        node.is_bare = event.implicit[0] and "\n" not in node.value  # type: ignore[attr-defined]
        return node

    def text(self, node: Any) -> str:
        value = str(self.construct_scalar(node))
        return Verbatim(value) if node.is_bare or not node.tag.endswith(":str") else value

    def refuse(self, node: Any) -> Any:
        raise yaml.constructor.ConstructorError(
            None, None, f"{node.tag} has no meaning in Kubernetes", node.start_mark
        )


for _name in ("str", "bool", "int", "float", "timestamp", "value"):
    _Loader.add_constructor(_TAG + _name, _Loader.text)
for _name in ("binary", "set", "omap", "pairs"):
    _Loader.add_constructor(_TAG + _name, _Loader.refuse)


def load_documents(text: str) -> list[Any]:
    """Return the content of each document that is not empty."""
    loader: Any = _Loader(text)
    documents = []
    try:
        while loader.check_data():
            documents.append(_written_out(loader.get_data(), [_MOST]))
    finally:
        loader.dispose()
    return [document for document in documents if document is not None]


def _written_out(value: Any, left: list[int]) -> Any:
    """Return a copy in which no two parts are one object."""
    left[0] -= 1
    if left[0] < 0:
        raise yaml.YAMLError("its aliases stand for too many values")
    if isinstance(value, dict):
        return {_key(key): _written_out(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [_written_out(item, left) for item in value]
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise yaml.YAMLError("the key of an entry is not a text")
    return key
