"""From what Ansible prints to one sentence a person can act on."""

from __future__ import annotations

import re
import shlex

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LABEL = re.compile(r"^(?:\[?(?:ERROR|WARNING)\]?:?|ERROR!)\s*")
_LONGEST = 500
_REMOVE = re.compile(r"-R \\?[\"']([A-Za-z0-9._:\[\]-]{1,255})\\?[\"']")


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


def unreachable_reason(text: str) -> str:
    """Why ssh did not reach a node, from what Ansible prints; with the fix for a changed host key,
    which ssh buries in a banner."""
    if "HOST IDENTIFICATION HAS CHANGED" not in text:
        return text
    known = _REMOVE.search(text)
    return (
        "HOST KEY CHANGED: another machine may be answering. Find out why; only if the node is"
        f" really new: ssh-keygen -R {shlex.quote(known[1]) if known else 'HOST'}"
    )


def sentence(text: str) -> str:
    """The first thing that matters in what Ansible printed, bounded."""
    said = messages(text) or [" ".join(plain(text).split())]
    return said[0][:_LONGEST].rstrip(" .:") or "it did not say why"
