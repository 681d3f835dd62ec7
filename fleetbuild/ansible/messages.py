"""From what Ansible prints to one sentence a person can act on."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LABEL = re.compile(r"^(?:\[?(?:ERROR|WARNING)\]?:?|ERROR!)\s*")
_LONGEST = 500


def plain(text: str) -> str:
    """Without colours and other control characters."""
    return "".join(c for c in _ANSI.sub("", text) if c.isprintable() or c in "\n\t")


def messages(text: str) -> list[str]:
    """What Ansible said, one message a line; it wraps them, and starts each with a label."""
    found: list[str] = []
    for line in plain(text).splitlines():
        if _LABEL.match(line):
            found.append(_LABEL.sub("", line).strip())
        elif found and line.strip():
            found[-1] += " " + line.strip()
    return found


def sentence(text: str) -> str:
    """The first thing that matters in what Ansible printed, bounded."""
    said = messages(text) or [" ".join(plain(text).split())]
    return said[0][:_LONGEST].rstrip(" .:") or "it did not say why"
