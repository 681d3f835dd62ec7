"""Windows: write build scripts for Windows nodes, on which the core neither builds nor installs.

In: an inventory. Out: a folder for each group of Windows nodes, with a PowerShell script that
builds the wheels by hand. Read `planning.py` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetbuild.extension import Extension


class Windows(Extension):
    """See the module."""

    def commands(self) -> Sequence[Callable[..., None]]:
        from fleetbuild.extensions.windows.commands import emit_windows

        return (emit_windows,)


extension = Windows()
