"""The kinds of files that `fleetbuild emit` writes, all of them by extensions.

In: extensions. Out: `EmitKind`s by name. The first extension that has a name keeps it.
"""

from __future__ import annotations

from fleetbuild.errors import UsageError
from fleetbuild.extension import EmitKind, extensions


def emit_kinds() -> dict[str, EmitKind]:
    """Return every kind by its name."""
    kinds = (kind for extension in reversed(extensions()) for kind in extension.emit_kinds())
    return {kind.name: kind for kind in kinds}


def emit_kind(name: str) -> EmitKind:
    """Return the kind of this name."""
    kinds = emit_kinds()
    if name not in kinds:
        raise UsageError(
            f"No kind of emit is called {name}.", f"Use one of: {', '.join(sorted(kinds))}."
        )
    return kinds[name]
