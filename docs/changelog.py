"""Build CHANGELOG.md from the fragments in changelog.d/.

`python docs/changelog.py` rewrites the section of unreleased changes. With `--release VERSION` that
section becomes the one of VERSION, the fragments are removed, and galaxy.yml gets VERSION. The
package takes its version from the tag.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGELOG, FRAGMENTS = ROOT / "CHANGELOG.md", ROOT / "changelog.d"
GALAXY = ROOT / "galaxy.yml"
HEADINGS = {"feature": "New", "change": "Changed", "fix": "Fixed", "removal": "Removed"}
HEAD = """# Changelog

What users of fleetbuild notice, newest first. Built from `changelog.d/` by `make docs`.
"""
UNRELEASED = "## Unreleased\n"


def fragments(folder: Path = FRAGMENTS) -> dict[str, str]:
    """Return the text of each fragment by file name."""
    found = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    return {path.name: path.read_text(encoding="utf-8").strip() for path in found}


def section(texts: Mapping[str, str], title: str) -> str:
    """Return the section that these fragments make, one list item each, ordered by kind."""
    parts = [title]
    for kind, heading in HEADINGS.items():
        items = [text for name, text in texts.items() if name.split(".")[-2] == kind]
        if items:
            parts.append(f"### {heading}\n")
            parts += ["- " + item.replace("\n", "\n  ") for item in items]
            parts.append("")
    return "\n".join(parts)


def changelog(before: str, texts: Mapping[str, str], title: str = UNRELEASED) -> str:
    """Return the whole changelog: released sections stay, the unreleased section is replaced.

    A version's section that was written by hand before its release gets the fragments at its head.
    """
    released = re.search(r"^## (?!Unreleased)", before, re.M)
    tail = before[released.start() :] if released else ""
    if tail.split(maxsplit=2)[:2] == title.split()[:2]:
        return f"{HEAD}\n{section(texts, title)}\n{tail.partition(chr(10))[2].lstrip()}"
    return "\n".join(part for part in (HEAD, section(texts, title) if texts else "", tail) if part)


def with_version(galaxy: str, version: str) -> str:
    """Return the text of galaxy.yml with another version of the collection."""
    return re.sub(r"^version: \S+", f"version: {version}", galaxy, flags=re.M)


def main(arguments: list[str]) -> None:
    """Write CHANGELOG.md."""
    title, texts = UNRELEASED, fragments()
    if arguments[:1] == ["--release"]:
        title = f"## {arguments[1]} ({datetime.now(UTC):%Y-%m-%d})\n"
    before = CHANGELOG.read_text(encoding="utf-8") if CHANGELOG.exists() else ""
    CHANGELOG.write_text(changelog(before, texts, title), encoding="utf-8")
    if title != UNRELEASED:
        for name in texts:
            (FRAGMENTS / name).unlink()
        GALAXY.write_text(with_version(GALAXY.read_text(), arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
