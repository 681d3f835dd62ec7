"""Count the forms that the rules of wording exclude (CONTRIBUTING.md, "How fleetbuild speaks").

It reads strings, docstrings and comments of Python, the whole text of YAML, shell and Jinja files,
the Makefile, Markdown without inline code, and the names of tests. `python -m tests.wording` lists
every place; `--record` writes the counts to tests/wording.yml, provided that no count has risen.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "wording.yml"
FOLDERS = ("fleetbuild", "roles", "playbooks", "plugins", "docs", "tests")
ENDINGS = {".py", ".md", ".yml", ".yaml", ".sh", ".j2"}
LEFT_OUT = (
    "CHANGELOG.md",  # it repeats changelog.d/, whose released sentences stay as they were
    "tests/unit/data",  # what others wrote
    "tests/wording.py",  # the excluded forms themselves, and their examples
    "tests/wording.yml",
    "tests/unit/docs/test_wording.py",
)
FORMS = {
    "is none": r"\b(?:is|are|was|were) none\b",
    "is no NOUN": r"\b(?:is|are|was|were) no (?!longer\b|more\b|route\b|such\b)[a-z]+",
    "mend": r"\b[Mm]end(?:s|ed|ing)?\b",
    "come to be": r"\b(?:come|came|comes) to (?:be|it|that)\b",
    "makes no sense": r"\bmakes? no sense\b",
    "to be had": r"\bto be had\b",
    "whom": r"\bwhom\b",
    "unless told": r"\b[Uu]nless told\b",
    "fate": r"\b[Ff]ates?\b",
    "errand, ailment": r"\b(?:[Ee]rrand|[Aa]ilment)s?\b",
    "doubt": r"\bdoubt(?:s|ed)?\b",
    "rid of, found finished": r"\brid of\b|\bfound finished\b",
    "that of, those that": r"\b(?:that of|those of|those that|those which|one that is)\b",
    "as it may be, what is had": r"\bas it may be\b|\bwhat is had\b",
    "is told": r"\b(?:is|are|was|were|be) told\b",
    "what is": r"\b[Ww]hat (?:is|are|was|were)\b",
    "where there is": r"\b[Ww]here (?:there|one|none|nothing|no|nobody)\b",
    "the one, the other": r"\bthe one\b[^.]{0,60}\bthe other\b",
    # The label of emit policy is a name: "wants", fleetbuild.dev/wants, variables.wants.
    "wants": r"(?<![/\"'`.-])\bwants\b(?![-.'\"`])",
    "anew, and its kin": r"\banew\b|\b(?:its|their) kin\b",
}


class Hit(NamedTuple):
    """A place where an excluded form stands."""

    form: str
    place: str
    text: str


def hits(root: Path = ROOT) -> Iterator[Hit]:
    """Yield every place of an excluded form."""
    for path in _files(root):
        names = _test_names(path) if path.is_relative_to(root / "tests") else ()
        for line, text in (*_texts(path), *names):
            for form, pattern in FORMS.items():
                for _ in re.finditer(pattern, text):
                    place = f"{path.relative_to(root)}:{line}"
                    yield Hit(form, place, text.strip()[:100])


def recorded() -> dict[str, int]:
    """Return the count of each form that tests/wording.yml allows."""
    counts: dict[str, int] = yaml.safe_load(RECORD.read_text())
    return counts


def _files(root: Path) -> list[Path]:
    below = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    files = [path for path in (*root.glob("*.md"), *below) if path.suffix in ENDINGS]
    left_out = {root / name for name in LEFT_OUT}
    makefiles = root.glob("Makefile")
    return sorted(
        path
        for path in (*files, *makefiles)
        if path.is_file() and not left_out & {path, *path.parents}
    )


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"`[^`\n]*`", "``", text)  # code and names are not prose
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


def _test_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names of a file's tests as sentences."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if name := re.match(r"\s*def test_(\w+)", line):
            yield number, name[1].replace("_", " ")


def main(arguments: list[str]) -> int:
    """Print every place and the counts; with --record, write the counts that have not risen."""
    roots = [Path(each) for each in arguments if not each.startswith("-")]
    found = list(hits(roots[0] if roots else ROOT))
    counts = Counter(hit.form for hit in found)
    lines = [f"{hit.place}: {hit.form}: {hit.text}" for hit in found]
    lines += [f"{counts[form]:5} {form}" for form in FORMS] + [f"{counts.total():5} in all"]
    sys.stdout.write("\n".join(lines) + "\n")
    if "--record" not in arguments:
        return 0
    old = recorded() if RECORD.exists() else {}
    risen = [form for form in FORMS if counts[form] > old.get(form, counts[form])]
    if risen:
        sys.stderr.write(f"Not recorded, because these have risen: {', '.join(risen)}\n")
        return 1
    lines = "".join(f"{form}: {counts[form]}\n" for form in FORMS)
    RECORD.write_text(
        f"---\n# Written by `python -m tests.wording --record`. A count may only fall.\n{lines}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
