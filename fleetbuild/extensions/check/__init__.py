"""Check: what of a stack runs on each kind of machine, what dies there, and what to take instead.

In: requirements or a lock, and kinds of machines; wheels of a plan. Out: a report, and verdicts by
the code of files and by runs of them under QEMU. Nothing is built, and no node is changed. Read
`check_stack.py` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.extension import Evidence, Extension

if TYPE_CHECKING:
    from fleetbuild.models import LockedFile


class Check(Extension):
    """See the module."""

    def commands(self) -> Sequence[Callable[..., None]]:
        from fleetbuild.extensions.check import commands

        return (commands.check,)

    def evidence(self, fetch: Callable[[LockedFile], Path] | None) -> Evidence:
        from fleetbuild.extensions.check.evidence import KnownFiles

        return KnownFiles(fetch)


extension = Check()
