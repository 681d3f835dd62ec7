"""Archives of sources that write outside their folder, on the node that unpacks them."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.factories.role_modules import plugin

source_tree = plugin("module_utils.builder.source_tree")

Member = tuple[str, bytes, str]  # name, type, target of a link
TARS: dict[str, list[Member]] = {
    "an absolute name": [("/outside", tarfile.REGTYPE, "")],
    "a name with ..": [("x/../../outside", tarfile.REGTYPE, "")],
    "a link to a folder outside, then a file below it": [
        ("x", tarfile.SYMTYPE, ".."), ("x/outside", tarfile.REGTYPE, ""),
    ],
    "a link to a link outside": [
        ("a/b", tarfile.SYMTYPE, "../.."), ("a/b/outside", tarfile.REGTYPE, ""),
    ],
    "a chain of links that leads outside": [
        ("a", tarfile.DIRTYPE, ""), ("a/b", tarfile.SYMTYPE, "../a"),
        ("a/b/c", tarfile.SYMTYPE, "../../outside"),
    ],
    "a hard link to a link, which leads outside from there": [
        ("a/b/c/x", tarfile.SYMTYPE, "../../../outside"), ("a/y", tarfile.LNKTYPE, "a/b/c/x"),
    ],
    "a link that a later link leads outside": [
        ("a/b", tarfile.SYMTYPE, "c/../../outside"), ("a/c", tarfile.SYMTYPE, ".."),
    ],
    "an absolute link": [("x", tarfile.SYMTYPE, "/etc/passwd")],
    "a hard link to a file outside": [("x", tarfile.LNKTYPE, "../outside")],
    "a hard link to an absolute name": [("x", tarfile.LNKTYPE, "/etc/passwd")],
    "a device": [("x", tarfile.CHRTYPE, "")],
    "a pipe": [("x", tarfile.FIFOTYPE, "")],
}  # fmt: skip


def make_tar(path: Path, members: list[Member]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            info.size = 1 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"x"))
    return str(path)


@pytest.mark.parametrize("name", TARS)
def test_a_member_of_a_tar_file_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    box = tmp_path / "box"
    box.mkdir()
    archive = make_tar(tmp_path / "a.tar.gz", TARS[name])
    try:
        source_tree.lay_source(archive, str(box / "src"))
    except (source_tree.BuildFailed, OSError):
        refused = True
    else:
        refused = False
    inside = [path for path in (box / "src").rglob("*") if path.is_symlink()]
    assert refused or all(box / "src" in path.resolve().parents for path in inside)
    assert not (tmp_path / "outside").exists()
    assert not (box / "outside").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"box", "a.tar.gz"}


def test_a_link_is_not_taken_for_the_only_folder_of_an_archive(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", [("x", tarfile.SYMTYPE, ".")])
    source_tree.lay_source(archive, str(tmp_path / "src"))
    assert not (tmp_path / "src").is_symlink()


@pytest.mark.parametrize("name", ["/outside", "../outside", "a/../../outside", "..\\outside"])
def test_a_member_of_a_zip_file_that_leads_outside_stays_inside(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "x")
        archive.writestr("package/setup.py", "x")
    box = tmp_path / "box"
    box.mkdir()
    source_tree.lay_source(str(tmp_path / "a.zip"), str(box / "src"))
    assert {path.name for path in tmp_path.iterdir()} == {"box", "a.zip"}
    assert {path.name for path in box.iterdir()} == {"src"}


def test_a_link_in_a_zip_file_is_a_plain_file(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("package/x")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    source_tree.lay_source(str(tmp_path / "a.zip"), str(tmp_path / "src"))
    assert not (tmp_path / "src/x").is_symlink()
    assert (tmp_path / "src/x").read_text() == "/etc/passwd"


def test_a_program_in_a_tar_file_gets_no_rights_of_another_user(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("package/x")
        info.mode, info.size = 0o6777, 1
        archive.addfile(info, io.BytesIO(b"x"))
    source_tree.lay_source(str(tmp_path / "a.tar.gz"), str(tmp_path / "src"))
    assert not (tmp_path / "src/x").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
