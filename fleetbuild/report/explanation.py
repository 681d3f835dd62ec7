"""How old the knowledge behind an explanation is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from fleetbuild.report.text import age


class Dated(Protocol):
    """Something that rests on a plan and, where it is known when, on a probe."""

    @property
    def planned(self) -> str: ...
    @property
    def probed(self) -> str | None: ...


def ages(story: Dated) -> str:
    """Planned 5 minutes ago; the facts were read 2 hours ago."""
    planned = f"Planned {_ago(story.planned)}"
    return (
        f"{planned}; the facts were read {_ago(story.probed)}." if story.probed else f"{planned}."
    )


def _ago(moment: str) -> str:
    return age((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
