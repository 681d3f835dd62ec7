"""CHANGELOG.md is built from the fragments in changelog.d/."""

import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[3]
changelog = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "changelog.py")))

TEXTS = {"1.fix.md": "One\nline.", "2.feature.md": "Two.", "x.y.fix.md": "Three."}
RELEASED = "## 0.1.0 (2026-11-01)\n\n### New\n\n- First.\n"


def test_every_fragment_has_a_kind_and_a_text() -> None:
    for name, text in changelog.fragments().items():
        assert name.split(".")[-2] in changelog.HEADINGS, name
        assert text, name


def test_fragments_are_listed_by_kind_and_released_sections_stay() -> None:
    before = f"{changelog.HEAD}\n{changelog.UNRELEASED}\n- old\n\n{RELEASED}"
    text = changelog.changelog(before, TEXTS)
    assert text == (
        f"{changelog.HEAD}\n## Unreleased\n\n### New\n\n- Two.\n\n"
        f"### Fixed\n\n- One\n  line.\n- Three.\n\n{RELEASED}"
    )
    assert changelog.changelog(text, TEXTS) == text


def test_a_release_gives_the_collection_its_version() -> None:
    galaxy = (ROOT / "galaxy.yml").read_text()
    assert "version: 0.9.1 # make" in changelog.with_version(galaxy, "0.9.1")


def test_a_release_takes_the_fragments_over() -> None:
    text = changelog.changelog(RELEASED, TEXTS, "## 0.2.0 (2026-12-01)\n")
    assert text.index("## 0.2.0") < text.index("- Two.") < text.index("## 0.1.0")
    assert "Unreleased" not in text
    assert changelog.changelog(text, {}) == f"{changelog.HEAD}\n{text[text.index('## 0.2.0') :]}"


def test_a_section_that_was_written_before_its_release_gets_the_fragments_and_the_date() -> None:
    before = f"{changelog.HEAD}\n## 0.1.0 (unreleased)\n\nThe first release.\n"
    collected = changelog.changelog(before, TEXTS)
    assert collected.index("## Unreleased") < collected.index("## 0.1.0 (unreleased)")
    released = changelog.changelog(collected, TEXTS, "## 0.1.0 (2026-12-01)\n")
    assert "nreleased" not in released
    assert released.count("## 0.1.0") == 1
    assert released.index("## 0.1.0 (2026-12-01)") < released.index("- Two.")
    assert released.endswith("- Three.\n\nThe first release.\n")
    assert "(2026-12-01)\n\nThe first" in changelog.changelog(before, {}, "## 0.1.0 (2026-12-01)\n")
