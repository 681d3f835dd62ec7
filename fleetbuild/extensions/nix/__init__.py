"""Nix and Flox: what installs each group's wheels by hash, or builds its target from nixpkgs.

In: a plan and the files of each group's release. Out: `fleetbuild emit nix` and `emit flox`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetbuild.extension import EmitKind, Extension


class Nix(Extension):
    """See the module."""

    def emit_kinds(self) -> Sequence[EmitKind]:
        return (
            EmitKind("nix", "fleetbuild.extensions.nix.nix:nix", has_wheels=True),
            EmitKind("flox", "fleetbuild.extensions.nix.flox:flox", has_wheels=True),
        )


extension = Nix()
