"""Text from a node, which may be anything: bounded, split, and fit to be shown."""

from __future__ import annotations

from fleetbuild.models import Capture

MAX_SECTION = 16 * 1024 * 1024  # characters; /proc/cpuinfo of 3,000 threads
MAX_LINES = 200_000
MAX_LINE = 16 * 1024


def too_long(capture: Capture) -> list[str]:
    """A warning for each section that is too long to be true, and so is not read at all."""
    return [
        f"{clean(section)} is longer than {MAX_SECTION // 1024**2} MB and is not read."
        for section, text in capture.items()
        if len(text) > MAX_SECTION
    ]


def lines(capture: Capture, section: str) -> list[str]:
    """The section's lines, without what does not print; none where it is missing or too long."""
    text = capture.get(section, "")
    if len(text) > MAX_SECTION:
        return []
    return [clean(line[:MAX_LINE]) for line in text.split("\n", MAX_LINES)[:MAX_LINES]]


def clean(text: str) -> str:
    """The printable characters; a tab or any other white space counts as one space."""
    if text.isprintable():
        return text.strip()
    kept = (" " if char.isspace() else char for char in text if char.isprintable() or char in "\t")
    return "".join(kept).strip()


def short(text: str, length: int = 200) -> str:
    """Text for a sentence: one line, not too long."""
    text = " ".join(clean(text.replace("\n", "\t")[: 4 * length]).split())
    return text if len(text) <= length else text[: length - 1] + "…"
