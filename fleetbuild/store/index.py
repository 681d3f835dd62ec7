"""Write a simple index (PEP 503 and 691) for one group.

In: files of a release. Out: a folder. Each group has its own, since local versions win.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name

from fleetbuild.files import sha256_of
from fleetbuild.models import ReleaseFile


def write_index(folder: Path, files: Iterable[ReleaseFile]) -> Path:
    """Write the index of these files to `folder`/simple, replacing an old one atomically.

    The files are copied into the folder and links are relative, so that it can be moved and any
    web server can serve it.
    """
    packages: dict[str, list[ReleaseFile]] = {}
    for file in files:
        packages.setdefault(canonicalize_name(file.name), []).append(file)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as temporary:
        part = Path(temporary) / "simple"
        part.mkdir()
        _write_root(part, packages)
        for name, mine in sorted(packages.items()):
            home = folder / "simple" / name
            links = {file.path.name: _link(file, folder, home) for file in mine}
            _write_package(part / name, name, mine, links)
        shutil.rmtree(folder / "simple", ignore_errors=True)
        part.rename(folder / "simple")
    return folder / "simple"


def _link(file: ReleaseFile, folder: Path, home: Path) -> str:
    path = folder / "files" / file.path.name
    path.parent.mkdir(exist_ok=True)
    if not (path.is_file() and sha256_of(path) == file.sha256):
        _copy(file.path, path)
    for beside in file.path.parent.iterdir():  # what extensions wrote about the wheel
        if beside.name.startswith(f"{path.name}.") and beside.parent != path.parent:
            _copy(beside, path.with_name(beside.name))
    return quote(os.path.relpath(path, home))


def _copy(source: Path, dest: Path) -> None:
    """Copy a file so that a reader of the index never sees a part of it."""
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=".part-") as temporary:
        part = Path(temporary) / dest.name
        shutil.copyfile(source, part)
        part.replace(dest)


def _write_root(part: Path, packages: Iterable[str]) -> None:
    names = sorted(packages)
    anchors = "\n".join(f'<a href="{name}/">{name}</a><br>' for name in names)
    document = {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in names]}
    _write(part, "Simple index", anchors, document)


def _write_package(
    part: Path, name: str, files: Iterable[ReleaseFile], links: Mapping[str, str]
) -> None:
    part.mkdir()
    ordered = sorted(files, key=lambda file: file.path.name)
    anchors = "\n".join(
        f'<a href="{links[file.path.name]}#sha256={file.sha256}">'
        f"{html.escape(file.path.name)}</a><br>"
        for file in ordered
    )
    document = {
        "meta": {"api-version": "1.1"},
        "name": name,
        "versions": sorted({file.path.name.split("-")[1] for file in ordered}),
        "files": [
            {
                "filename": file.path.name,
                "url": links[file.path.name],
                "hashes": {"sha256": file.sha256},
                "size": file.path.stat().st_size,
            }
            for file in ordered
        ],
    }
    _write(part, f"Links for {name}", anchors, document)


def _write(folder: Path, title: str, body: str, document: object) -> None:
    """Write a page of links, and the document with the same."""
    page = (
        '<!DOCTYPE html>\n<html><head><meta name="pypi:repository-version" content="1.1">'
        f"<title>{title}</title></head><body>\n{body}\n</body></html>\n"
    )
    (folder / "index.html").write_text(page, "utf-8")
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    (folder / "index.json").write_text(text, "utf-8")
