"""Bound, split and clean untrusted text from a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import TypeVar

from fleetbuild.models import Capture

T = TypeVar("T")

MAX_SECTION = 16 * 1024 * 1024  # characters; /proc/cpuinfo of 3,000 threads
MAX_RELEASE = 4 * 1024 * 1024
MAX_OTHER = 1024 * 1024
MAX_LINES = 200_000
MAX_LINE = 16 * 1024
_MAX = {"cpuinfo": MAX_SECTION, "release": MAX_RELEASE}
_KEPT, MAX_KEPT = 64, 256 * 1024  # texts that a parser keeps, and the characters of each


def is_too_long(section: str, text: str) -> bool:
    """Return whether a section is too long to be real; such a section is not read."""
    return len(text) > _MAX.get(section, MAX_OTHER)


def too_long(capture: Capture) -> list[str]:
    """Return a warning for each section that is too long."""
    return [
        f"{short(section, 40)} is longer than {_MAX.get(section, MAX_OTHER) // 1024**2} MB and is"
        " not read."
        for section, text in capture.items()
        if is_too_long(section, text)
    ]


def lines(
    capture: Capture, section: str, most: int = MAX_LINES, longest: int = MAX_LINE
) -> list[str]:
    """Return the first printable lines of a section; empty if it is missing or too long.

    Each parser sets limits, so that reading any text has bounded cost.
    """
    text = capture.get(section)
    if not text or is_too_long(section, text):
        return []
    text = text.replace("\t", " ")
    split = text.split("\n", most)[:most]
    # Most sections are printable as a whole, and asking once is faster than for each line.
    if text.replace("\n", "").isprintable():
        return [line[:longest].strip() for line in split]
    return [clean(line[:longest]) for line in split]


def once_per_text(*sections: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let a parser read each text of these sections once: the nodes of a fleet have few texts.

    The parser sees no other section, and whole texts are compared, so the value of one node
    depends on that node alone. It returns an immutable value, which nodes share.
    """

    def wrap(parse: Callable[..., T]) -> Callable[..., T]:
        @lru_cache(maxsize=_KEPT)
        def kept(texts: tuple[str | None, ...], *others: Hashable) -> T:
            named = zip(sections, texts, strict=True)
            return parse({name: text for name, text in named if text is not None}, *others)

        @wraps(parse)
        def read(capture: Capture, *others: Hashable) -> T:
            texts = tuple(map(capture.get, sections))
            short_enough = sum(map(len, filter(None, texts))) <= MAX_KEPT
            return kept(texts, *others) if short_enough else parse(capture, *others)

        return read

    return wrap


def clean(text: str) -> str:
    """Return the printable characters; a tab or other white space becomes a space."""
    text = text.replace("\t", " ")
    return (text if text.isprintable() else "".join(filter(str.isprintable, text))).strip()


def short(text: str, length: int = 200) -> str:
    """Return text for a sentence: one line, bounded in length."""
    text = " ".join(clean(text[: 4 * length].replace("\n", "\t")).split())
    return text if len(text) <= length else text[: length - 1] + "…"
