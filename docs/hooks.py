"""Hooks of mkdocs: pages of the repository outside docs/ become pages of the site.

A link to such a page leads to the page. A link to any other file of the repository becomes its
text, because that file is not in the site. A link to nothing is left alone and fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROLES = sorted(path.parent.name for path in ROOT.glob("roles/*/README.md"))
# Path in the repository -> path in the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "vulnerabilities.md",
    "playbooks/README.md": "playbooks.md",
    "tests/lab/README.md": "lab.md",
    **{f"roles/{role}/README.md": f"roles/{role}.md" for role in ROLES},
}
# Links in code are examples. The text of a link may be code.
_CODE_OR_LINK = re.compile(
    r"^```.*?^```|`[^`\n]*`|(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", re.DOTALL | re.MULTILINE
)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links from places in the repository to places in the site."""
    site = page.file.src_uri
    source = next((name for name, target in PAGES.items() if target == site), f"docs/{site}")
    return _CODE_OR_LINK.sub(lambda found: _relinked(found, source, site), markdown)


def _relinked(link: re.Match[str], source: str, site: str) -> str:
    image, text, target, anchor = link.groups(default="")  # all "" in code
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if place in PAGES:
        found = PAGES[place]
    elif place.startswith("docs/"):
        found = place.removeprefix("docs/")
    elif (ROOT / place).exists():
        return text if text.startswith("`") else f"{text} (`{place}`)"
    else:
        return link[0]
    return f"{image}[{text}]({posixpath.relpath(found, posixpath.dirname(site) or '.')}{anchor})"
