"""Two builds of a wheel are compared by their content."""

from __future__ import annotations

import zipfile
from pathlib import Path

from fleetbuild.audit.check import differences
from tests.factories.files import make_wheel


def test_the_same_files_in_another_archive_are_the_same_content(tmp_path: Path) -> None:
    one = make_wheel(tmp_path / "a", files={"x/a.py": b"1", "x/b.so": b"2"})
    other = tmp_path / "b.whl"
    with zipfile.ZipFile(one) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_STORED) as new:
        for name in reversed(old.namelist()):
            new.writestr(zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6)), old.read(name))
    assert one.read_bytes() != other.read_bytes()
    assert differences(one, other) == ()


def test_each_file_that_differs_is_named(tmp_path: Path) -> None:
    one = make_wheel(tmp_path / "a", files={"a.py": b"1", "b.so": b"22", "c.so": b"3"})
    other = make_wheel(tmp_path / "b", files={"a.py": b"1", "b.so": b"23", "d.so": b"3", "e": b""})
    assert differences(one, other) == (
        "only the first build has c.so",
        "only the second build has d.so",
        "only the second build has e",
        "b.so differs (2 bytes each)",
    )
    longer = make_wheel(tmp_path / "c", files={"a.py": b"1", "b.so": b"222", "c.so": b"3"})
    assert differences(one, longer) == ("b.so differs (2 and 3 bytes)",)


def test_a_damaged_wheel_is_not_the_same(tmp_path: Path) -> None:
    one = make_wheel(tmp_path / "a", files={"a.py": b"1"})
    (tmp_path / "b.whl").write_bytes(b"PK")
    assert "cannot be read" in differences(one, tmp_path / "b.whl")[0]
