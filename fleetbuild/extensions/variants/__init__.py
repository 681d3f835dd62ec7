"""Wheel variants (PEP 825, as uv reads it): stock uv takes each machine's wheel from one folder.

In: the last plan and its store. Out: `fleetbuild store variants DIR`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetbuild.extension import Extension


class Variants(Extension):
    """See the module."""

    def commands(self) -> Sequence[Callable[..., None]]:
        from fleetbuild.extensions.variants.commands import store_variants

        return (store_variants,)


extension = Variants()
