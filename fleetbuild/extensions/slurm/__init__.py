"""Slurm: a feature for each group on the nodes that serve its release, and a job that asks for it.

In: a plan, and what serves on each node. Out: `fleetbuild emit slurm`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetbuild.extension import EmitKind, Extension


class Slurm(Extension):
    """See the module."""

    def emit_kinds(self) -> Sequence[EmitKind]:
        return (EmitKind("slurm", "fleetbuild.extensions.slurm.features:slurm"),)


extension = Slurm()
