"""Text from a node, which may be anything: bounded, split, and fit to be shown."""

from __future__ import annotations

from fleetbuild.models import Capture

MAX_SECTION = 16 * 1024 * 1024  # characters; /proc/cpuinfo of 3,000 threads
MAX_RELEASE = 4 * 1024 * 1024
MAX_OTHER = 1024 * 1024
MAX_LINES = 200_000
MAX_LINE = 16 * 1024
_MAX = {"cpuinfo": MAX_SECTION, "release": MAX_RELEASE}


def is_too_long(section: str, text: str) -> bool:
    """Whether a section is longer than any real one, and so is not read at all."""
    return len(text) > _MAX.get(section, MAX_OTHER)


def too_long(capture: Capture) -> list[str]:
    """A warning for each section that is too long to be read."""
    return [
        f"{short(section, 40)} is longer than {_MAX.get(section, MAX_OTHER) // 1024**2} MB and is"
        " not read."
        for section, text in capture.items()
        if is_too_long(section, text)
    ]


def lines(
    capture: Capture, section: str, most: int = MAX_LINES, longest: int = MAX_LINE
) -> list[str]:
    """The section's first lines, without what does not print; none where it is missing or too
    long. Every parser says how much it reads, so that no text costs it more than that."""
    text = capture.get(section, "")
    if is_too_long(section, text):
        return []
    return [clean(line[:longest]) for line in text.split("\n", most)[:most]]


def clean(text: str) -> str:
    """The printable characters; a tab or any other white space counts as one space."""
    text = text.replace("\t", " ")
    return (text if text.isprintable() else "".join(filter(str.isprintable, text))).strip()


def short(text: str, length: int = 200) -> str:
    """Text for a sentence: one line, not too long."""
    text = " ".join(clean(text[: 4 * length].replace("\n", "\t")).split())
    return text if len(text) <= length else text[: length - 1] + "…"
