"""The kinds of files that `fleetbuild emit` writes: one table of ours and of installed plug-ins.

In: entry points. Out: `EmitKind`s. A plug-in is a package with an entry point of the group
`fleetbuild.emitters`: its name is the kind, its value a function that takes an `Emission` and
returns `EmittedFiles`. Its keyword parameters are options of `fleetbuild emit NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import fleetbuild
from fleetbuild.errors import UsageError

ENTRY_POINTS = "fleetbuild.emitters"


@dataclass(frozen=True)
class EmitKind:
    """One kind of files, and the function that makes them."""

    entry_point: EntryPoint
    has_releases: bool = True  # groups that need a revoked wheel are left out
    has_wheels: bool = False  # the wheels are fetched, and copied beside the files

    @property
    def name(self) -> str:
        """Return the word after `fleetbuild emit`."""
        return self.entry_point.name

    def load(self) -> Callable[..., fleetbuild.EmittedFiles]:
        """Return the function that makes the files."""
        try:
            function = self.entry_point.load()
            if not callable(function):
                raise TypeError(f"{self.entry_point.value} is not a function")
        except Exception as problem:  # a plug-in may fail in any way
            package = self.entry_point.dist.name if self.entry_point.dist else "its package"
            raise UsageError(
                f"The plug-in for emit {self.name} cannot be loaded:"
                f" {type(problem).__name__}: {problem}.",
                f"Repair or uninstall {package}.",
            ) from problem
        loaded: Callable[..., fleetbuild.EmittedFiles] = function
        return loaded


def _own(name: str, *, has_releases: bool = True, has_wheels: bool = False) -> EmitKind:
    function = f"fleetbuild.emit.writers:{name}"
    return EmitKind(EntryPoint(name, function, ENTRY_POINTS), has_releases, has_wheels)


_OWN = (
    _own("k8s"),
    _own("labels", has_releases=False),
    _own("nfd", has_releases=False),
    _own("affinity"),
    _own("kustomize"),
    _own("helm"),
    _own("containers", has_wheels=True),
    _own("builds"),
    _own("nix", has_wheels=True),
    _own("flox", has_wheels=True),
    _own("dra", has_releases=False),
    _own("kueue", has_releases=False),
    _own("nodepools"),
    _own("rbac"),
    _own("labeller", has_releases=False),
    _own("policy"),
    _own("windows", has_releases=False),
)


def emit_kinds() -> dict[str, EmitKind]:
    """Return every kind by its name. A plug-in does not replace a kind of ours."""
    plug_ins = {
        entry_point.name: EmitKind(entry_point) for entry_point in entry_points(group=ENTRY_POINTS)
    }
    return {**plug_ins, **{kind.name: kind for kind in _OWN}}


def emit_kind(name: str) -> EmitKind:
    """Return the kind of this name."""
    kinds = emit_kinds()
    if name not in kinds:
        raise UsageError(
            f"fleetbuild emit does not know {name}.", f"Use one of: {', '.join(kinds)}."
        )
    return kinds[name]
