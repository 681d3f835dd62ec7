"""The documentation site is complete, builds without a warning and needs no network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "fleetbuild"
ROOM = re.compile(r"^### `([\w/]*)/`", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_and_has_every_page(site: Path) -> None:
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    pages = (path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md"))
    missing = {page for page in pages if page.name != "README"} - built
    assert missing == set()
    assert {Path("index"), Path("contributing"), Path("roles/build_wheel")} <= built


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\"?(https?:)?//|url\((https?:)?//")
    styles = re.compile(r"<link[^>]*rel=\"?(?:stylesheet|preconnect)\"?[^>]*href=\"?(?:https?:)?//")
    for page in [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]:
        text = page.read_text(encoding="utf-8")
        assert not loads.search(text), page
        assert not styles.search(text), page


def modules_by_room() -> dict[str, set[str]]:
    rooms: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            room = path.parent.relative_to(ROOT).as_posix()
            rooms.setdefault(room, set()).add(path.name)
    return rooms


def test_the_architecture_page_names_every_module_in_its_room() -> None:
    parts = ROOM.split((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    told = {
        room: set(re.findall(r"`(\w+\.py)`", text.partition("\n## ")[0]))
        for room, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert told == modules_by_room()


def test_every_folder_has_about_a_dozen_modules_at_most() -> None:
    crowded = {room: len(names) for room, names in modules_by_room().items() if len(names) > 14}
    assert crowded == {}


def test_the_architecture_page_counts_the_modules_of_each_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("Modules per folder:")[2].partition("\nHops:")[0]
    counted = {
        room: int(number) for room, number in re.findall(r"`([\w/]+)/` \| (\d+) \|\n", table)
    }
    rooms = {room.removeprefix("fleetbuild/"): names for room, names in modules_by_room().items()}
    assert counted == {room: len(rooms[room]) for room in counted}
    assert f"| largest folder | {max(map(len, rooms.values()))} |" in table
