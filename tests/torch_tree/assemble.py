"""Puts a source tree of torch together from Debian's source packages: see tree.yml.

python -m tests.torch_tree.assemble FOLDER [CACHE]
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
LEAN = HERE / "lean.yml"  # the recipe for this tree


def assemble(tree: Path, cache: Path) -> Path:
    """The tree, from archives that are fetched once into the cache."""
    table: dict[str, Any] = yaml.safe_load((HERE / "tree.yml").read_text())
    cache.mkdir(parents=True, exist_ok=True)
    rows = table["packages"]
    with ThreadPoolExecutor(4) as pool:
        archives = list(pool.map(lambda row: fetch(table["mirror"], row, cache), rows.values()))
    for folder, archive in zip(rows, archives, strict=True):
        unpack(archive, tree / folder)
    for name in table["placeholders"]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    for name, text in table["files"].items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name, replacements in table["edits"].items():
        _edit(tree / name, replacements)
    return tree


def _edit(path: Path, replacements: list[list[str]]) -> None:
    text = path.read_text()
    for old, new in replacements:
        if text.count(old) != 1:
            raise SystemExit(f"{path.name}: {old!r} is there {text.count(old)} times, not once")
        text = text.replace(old, new)
    path.write_text(text)


def fetch(mirror: str, row: dict[str, str], cache: Path) -> Path:
    """One archive, checked by its hash."""
    path = cache / Path(row["file"]).name
    if not path.is_file() or _sha256(path) != row["sha256"]:
        with urllib.request.urlopen(mirror + row["file"], timeout=120) as answer:  # noqa: S310
            path.write_bytes(answer.read())
    if _sha256(path) != row["sha256"]:
        raise SystemExit(f"{path.name} is not what tree.yml names")
    return path


def unpack(archive: Path, folder: Path) -> None:
    """The archive's content in this folder, without its own top folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "--extract", archive, scratch], check=True)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="tar")
        inside = list(Path(scratch).iterdir())
        top = inside[0] if len(inside) == 1 else Path(scratch)
        shutil.copytree(top, folder, symlinks=True, dirs_exist_ok=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else ".cache/torch"))
