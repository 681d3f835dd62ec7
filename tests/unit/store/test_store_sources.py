"""What a source says of itself, and trees packed by content."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.store.sources import read_source, source_here
from tests.factories.files import make_sdist


def test_an_sdist_is_read_without_running_it(tmp_path):
    sdist = make_sdist(tmp_path, "pkg", "1.2", build='["setuptools", "numpy>=2"]')
    metadata = read_source(sdist)
    assert (metadata.name, metadata.version, metadata.backend) == ("pkg", "1.2", "none")
    assert metadata.build_requirements == ("setuptools", "numpy>=2")


def test_a_source_without_pyproject_builds_by_setuptools(tmp_path):
    (tmp_path / "PKG-INFO").write_text("Name: old\nVersion: 1.0\n")
    metadata = read_source(tmp_path)
    assert (metadata.name, metadata.version) == ("old", "1.0")
    assert metadata.backend == "setuptools.build_meta:__legacy__"
    assert "wheel" in metadata.build_requirements


def test_zips_are_sources_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x-1/pyproject.toml", '[project]\nname = "x"\ndynamic = ["version"]\n')
        archive.writestr("x-1/deeper/PKG-INFO", "Name: other\nVersion: 9\n")
    metadata = read_source(tmp_path / "x.zip")
    assert (metadata.name, metadata.version) == ("x", None)


def test_an_invalid_version_is_an_error(tmp_path):
    (tmp_path / "PKG-INFO").write_text("Name: old\nVersion: unknown!\n")
    assert read_source(tmp_path).version is None


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08broken"])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path, content):
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as a source archive"):
        read_source(tmp_path / "x.tar.gz")


def test_oversized_archives_are_refused(tmp_path, monkeypatch):
    sdist = make_sdist(tmp_path, "pkg")
    monkeypatch.setattr("fleetbuild.store.sources.MAX_BYTES", 10)
    with pytest.raises(ConfigError, match="too many files for a source"):
        source_here(sdist)


def test_oversized_and_odd_metadata_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr("fleetbuild.store.sources.MAX_TEXT", 50)
    (tmp_path / "PKG-INFO").write_text("Name: x\n" * 20)
    assert source_here(tmp_path).name is None
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        link = tarfile.TarInfo("x-1/PKG-INFO")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        big = tarfile.TarInfo("x-1/pyproject.toml")
        big.size = 60
        tar.addfile(big, io.BytesIO(b"#" * 60))
    assert source_here(tmp_path / "x.tar").name is None


def test_an_invalid_pyproject_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_source(tmp_path)
