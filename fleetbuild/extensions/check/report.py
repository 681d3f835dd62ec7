"""The report of a check: a row for each file and kind of machine."""

from __future__ import annotations

from typing import Any

from fleetbuild.models._base import Frozen
from fleetbuild.models.verdict import DEATHS, EvidenceName, VerdictName

_PUBLIC = ("name", "version", "file", "sha256", "kind", "verdict", "where", "evidence", "instead")


class CheckRow(Frozen):
    """The verdict about one file on one kind of machine."""

    name: str
    version: str | None = None  # None: no version of it has a wheel
    file: str | None = None
    sha256: str | None = None
    kind: str  # as --for named it
    verdict: VerdictName
    where: str | None = None  # the file and symbol at fault, or why it is not decided
    evidence: EvidenceName = "static"
    instead: tuple[str, ...] = ()  # name==version, or how to build it
    native: bool = True  # whether it has machine code; not in the document
    chooses: bool = False  # whether it has checked code beyond the kind; not in the document
    run_decides: bool = False  # whether only a run could decide; not in the document

    @property
    def dies(self) -> bool:
        """Whether it fails on this kind of machine."""
        return self.verdict in DEATHS


class CheckReport(Frozen):
    """All rows, and the kinds for which the requirements could not be resolved."""

    rows: tuple[CheckRow, ...] = ()
    kinds: dict[str, str] = {}  # name -> what it stands for, as a clause
    unresolved: dict[str, tuple[str, str]] = {}  # kind -> problem and fix
    places: dict[str, str] = {}  # package -> "FILE, line 3", which asks for it

    @property
    def exit_code(self) -> int:
        """Return 7 if something dies, 4 if a kind could not be judged, else 0."""
        if any(row.dies for row in self.rows):
            return 7
        return 4 if self.unresolved else 0

    def document(self) -> dict[str, Any]:
        """Return the document of `check --json`."""
        rows = [row.model_dump(mode="json", include=set(_PUBLIC)) for row in self.rows]
        return {"format_version": "1.0", "packages": rows}
