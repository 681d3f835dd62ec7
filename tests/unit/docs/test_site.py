"""The documentation site is complete, builds without a warning and needs no network."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "fleetbuild"


def build_site(folder: Path, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run mkdocs with the options that `make docs` gives it."""
    options = re.findall(r"/mkdocs build ([^>\n]*)", (ROOT / "Makefile").read_text())
    assert len(options) == 1
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options[0].split(), "--site-dir", folder],
        cwd=where, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build_site(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\ntheme: mkdocs\nplugins: []\n")
    done = build_site(tmp_path / "site", where=tmp_path)
    assert done.returncode != 0
    assert "gone.md" in done.stderr


def test_the_site_builds_and_has_every_page(site: Path) -> None:
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    pages = (path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md"))
    missing = {page for page in pages if page.name != "README"} - built
    assert missing == set()
    assert {Path("index"), Path("contributing"), Path("roles/build_wheel")} <= built


def test_blocks_have_the_classes_that_the_style_sheet_names(site: Path) -> None:
    """It takes the button from output, and wraps commands before theirs."""
    classes = set(re.findall(r"\.(language-\w+)", (site / "site.css").read_text("utf-8")))
    page = (site / "first-wheel.html").read_text("utf-8")
    assert classes == {"language-text", "language-sh"}
    assert {name for name in classes if f'class="{name} highlight"' not in page} == set()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\"?(https?:)?//|url\((https?:)?//")
    styles = re.compile(r"<link[^>]*rel=\"?(?:stylesheet|preconnect)\"?[^>]*href=\"?(?:https?:)?//")
    for page in [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]:
        text = page.read_text(encoding="utf-8")
        assert not loads.search(text), page
        assert not styles.search(text), page


def test_every_module_says_what_it_does() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__main__.py" and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_every_module_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+\.py)`", page))
    paths = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    unknown = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in paths)}
    assert unknown == set()


def test_the_stations_of_the_architecture_page_exist_and_are_counted() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("fleetbuild/**/*.py"))
    rows = re.findall(r"^\| a (?:node|wheel), (\d+) \| (.+) \|$", page, re.M)
    assert len(rows) == 2
    for number, names in rows:
        stations = re.findall(r"`(\w+)`", names)
        assert len(stations) == int(number)
        assert [name for name in stations if not re.search(rf"^class {name}\b", code, re.M)] == []


def test_the_architecture_page_counts_the_hops_that_it_lists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Hops")[2]
    counted = [int(number) for number in re.findall(r"\| (\d+) \|", page)]
    lists = re.findall(r"^- `\w+`: (.*(?:\n  .*)*)", page, re.MULTILINE)
    stations = [re.findall(r"`([\w./-]+)`", listed) for listed in lists]
    assert counted == [len(names) - 1 for names in stations]
    modules = {name for names in stations for name in names} - {"ansible-playbook"}
    assert [name for name in sorted(modules) if not (PACKAGE / name).is_file()] == []
