"""Names that the Kubernetes API accepts, made from any text, the same each time.

A text changed in more than a `+` or a dot gets a hash of the original, so that two texts never get
one name. In: also a kind and a name; out: the head of an object.
"""

from __future__ import annotations

import hashlib
import re

LABEL_LIMIT = 63
SUBDOMAIN_LIMIT = 253

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_SHORTENED = re.compile(r"-[0-9a-f]{8}")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)


def is_label_value(text: str) -> bool:
    """Return whether the API accepts it as a label's value, or as the name in a label's key."""
    return len(text) <= LABEL_LIMIT and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether the API accepts it as a node's name, or as a label's prefix."""
    return len(text) <= SUBDOMAIN_LIMIT and all(map(is_dns_label, text.split(".")))


def is_dns_label(text: str) -> bool:
    """Return whether the API accepts it as a namespace's name."""
    return len(text) <= LABEL_LIMIT and _DNS_LABEL.fullmatch(text) is not None


def label_value(text: str) -> str:
    """Return the text as a label value: `0.8.0+cpu.avx2` becomes `0.8.0_cpu.avx2`."""
    # A normalised version has no underscore, so this exchange can be undone.
    value = text.replace("+", "_") if "_" not in text else text
    if is_label_value(value):
        return value
    return _shortened(re.sub(r"[^A-Za-z0-9_.-]", "-", value), text, LABEL_LIMIT)


def object_head(version: str, kind: str, **names: str) -> dict[str, object]:
    """Return the head of an object that fleetbuild writes: kind, name and managed-by label."""
    labels = {"app.kubernetes.io/managed-by": "fleetbuild"}
    return {"apiVersion": version, "kind": kind, "metadata": {**names, "labels": labels}}


def label_part(text: str, limit: int) -> str:
    """Return the text as the end of a label's name. Two texts never get the same one."""
    if len(text) <= limit and is_label_value(text) and not _SHORTENED.fullmatch(text[-9:]):
        return text
    return _shortened(re.sub(r"[^A-Za-z0-9_.-]", "-", text), text, limit)


def dns_label(text: str, limit: int = LABEL_LIMIT) -> str:
    """Return the text as an object's name: lower case letters, digits and dashes."""
    # Dots become dashes without a hash: no two groups differ in that alone.
    name = text.replace(".", "-")
    if len(name) <= limit and _DNS_LABEL.fullmatch(name):
        return name
    return _shortened(re.sub(r"[^a-z0-9-]", "-", name.lower()), text, limit)


def _shortened(plain: str, original: str, limit: int) -> str:
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    head = plain[: limit - 1 - len(digest)].strip("-_.")
    return f"{head}-{digest}" if head else digest
