"""The kinds of files that `fleetbuild emit` writes: the core's table, and the kinds of extensions.

In: extensions. Out: `EmitKind`s by name. An extension does not replace a kind of the table.
"""

from __future__ import annotations

from fleetbuild.errors import UsageError
from fleetbuild.extension import EmitKind, extensions


def _own(name: str, *, has_releases: bool = True, has_wheels: bool = False) -> EmitKind:
    return EmitKind(name, f"fleetbuild.emit.writers:{name}", has_releases, has_wheels)


_OWN = (
    _own("k8s"),
    _own("labels", has_releases=False),
    _own("nfd", has_releases=False),
    _own("affinity"),
    _own("kustomize"),
    _own("helm"),
    _own("containers", has_wheels=True),
    _own("builds"),
    _own("dra", has_releases=False),
    _own("kueue", has_releases=False),
    _own("nodepools"),
    _own("rbac"),
    _own("labeller", has_releases=False),
    _own("policy"),
)


def emit_kinds() -> dict[str, EmitKind]:
    """Return every kind by its name."""
    added = (kind for extension in extensions() for kind in extension.emit_kinds())
    return {kind.name: kind for kind in (*added, *_OWN)}


def emit_kind(name: str) -> EmitKind:
    """Return the kind of this name."""
    kinds = emit_kinds()
    if name not in kinds:
        raise UsageError(
            f"fleetbuild emit does not know {name}.", f"Use one of: {', '.join(kinds)}."
        )
    return kinds[name]
