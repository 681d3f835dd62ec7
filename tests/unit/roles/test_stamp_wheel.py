"""A wheel gets its local version, and stays a valid wheel."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

METADATA = "Metadata-Version: 2.1\nName: My.Pack-age\nVersion: 1.2\n\nVersion: not this one\n"
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder: Path, file: str = "My.Pack_age-1.2-py3-none-any.whl") -> Path:
    name, version = file.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    path = folder / file
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", METADATA)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("my_package/__init__.py", "ANSWER = 42\n")
        wheel.writestr('my_package/odd, "name".txt', "x")
        wheel.writestr(f"{name}-{version}.data/scripts/answer", "#!python\nprint(42)\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr(f"{info}/RECORD.jws", "{}")
    return path


@pytest.fixture
def stamped(stamp_wheel: ModuleType, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    return Path(stamp_wheel.stamp(str(make_wheel(tmp_path)), "1.2+cpu.avx", str(out)))


def test_names_and_metadata_agree(stamped: Path) -> None:
    assert stamped.name == "my_pack_age-1.2+cpu.avx-py3-none-any.whl"
    with zipfile.ZipFile(stamped) as wheel:
        text = wheel.read("my_pack_age-1.2+cpu.avx.dist-info/METADATA").decode()
        names = wheel.namelist()
    assert "\nVersion: 1.2+cpu.avx\n" in text
    assert text.endswith("\n\nVersion: not this one\n")
    assert "my_pack_age-1.2+cpu.avx.data/scripts/answer" in names
    assert not [name for name in names if name.endswith(".jws")]


def test_record_lists_every_file_with_its_hash(stamped: Path) -> None:
    with zipfile.ZipFile(stamped) as wheel:
        record = next(name for name in wheel.namelist() if name.endswith("/RECORD"))
        rows = list(csv.reader(wheel.read(record).decode().splitlines()))
        assert sorted(row[0] for row in rows) == sorted(wheel.namelist())
        for path, hashed, size in rows:
            if path == record:
                assert (hashed, size) == ("", "")
                continue
            data = wheel.read(path)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (hashed, size) == (f"sha256={digest}", str(len(data)))


def test_the_same_wheel_makes_the_same_bytes(
    stamp_wheel: ModuleType, stamped: Path, tmp_path: Path
) -> None:
    (tmp_path / "again").mkdir()
    again = stamp_wheel.stamp(str(make_wheel(tmp_path)), "1.2+cpu.avx", str(tmp_path / "again"))
    assert Path(again).read_bytes() == stamped.read_bytes()


def test_another_public_version_is_refused(stamp_wheel: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(stamp_wheel.StampError, match=r"made My.Pack_age 1.2, but 1.3 was wanted"):
        stamp_wheel.stamp(str(make_wheel(tmp_path)), "1.3+cpu", str(tmp_path))


@pytest.mark.parametrize("file", ["thing.zip", "a-b.whl", "a-1-2-3-4-5-6.whl"])
def test_a_file_that_is_not_a_wheel_is_refused(stamp_wheel: ModuleType, file: str) -> None:
    with pytest.raises(stamp_wheel.StampError, match="is not the name of a wheel"):
        stamp_wheel.stamp(file, "1", ".")


def test_a_wheel_without_dist_info_is_refused(stamp_wheel: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("a.py", "")
    with pytest.raises(stamp_wheel.StampError, match=r"has 0 \.dist-info folders instead of one"):
        stamp_wheel.stamp(str(path), "1.0+x", str(tmp_path))


def test_metadata_without_a_version_is_refused(stamp_wheel: ModuleType) -> None:
    with pytest.raises(stamp_wheel.StampError, match="has no Version"):
        stamp_wheel.with_version(b"Name: a\n\nVersion: 1\n", "1+x")


def test_exact_versions_replace_ranges(stamp_wheel: ModuleType) -> None:
    said = (
        b"Metadata-Version: 2.1\nName: vision\nVersion: 1.0\n"
        b"Requires-Dist: numpy\nRequires-Dist: Torch (>=2)\n"
        b'Requires-Dist: torch[opt,all]>=2; extra == "all"\nRequires-Dist: torch-other>=1\n'
        b"\nRequires-Dist: torch, says the description\n"
    )
    pins = ["torch==2.13.0+cpu.avx2", "triton.kernels==1.0+cpu.avx2"]
    head, _, body = stamp_wheel.with_pins(said, pins).decode().partition("\n\n")
    assert [line for line in head.split("\n") if line.startswith("Requires")] == [
        "Requires-Dist: numpy",
        "Requires-Dist: torch-other>=1",
        "Requires-Dist: torch[all,opt]==2.13.0+cpu.avx2",
        "Requires-Dist: triton.kernels==1.0+cpu.avx2",
    ]
    assert body == "Requires-Dist: torch, says the description\n"
    bare = stamp_wheel.with_pins(b"Name: a\nRequires-Dist: b>1\n", ["b==1+x"])
    assert bare == b"Name: a\nRequires-Dist: b==1+x\n"


def test_a_wheel_of_the_wanted_version_is_also_pinned(
    stamp_wheel: ModuleType, stamped: Path
) -> None:
    pinned = stamp_wheel.stamp(str(stamped), "1.2+cpu.avx", str(stamped.parent), ["a==1+x"])
    assert pinned == str(stamped)
    with zipfile.ZipFile(pinned) as wheel:
        assert wheel.testzip() is None
        text = wheel.read("my_pack_age-1.2+cpu.avx.dist-info/METADATA").decode()
    assert "\nRequires-Dist: a==1+x\n\n" in text


def test_pip_installs_the_stamped_wheel(stamped: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check"]
    offline = ["install", "-q", "--no-index", "--no-deps", "--target"]
    subprocess.run([*pip, *offline, target, stamped], check=True)
    ask = (
        "import my_package as p, importlib.metadata as m; print(p.ANSWER, m.version('my.pack-age'))"
    )
    said = subprocess.run(
        [sys.executable, "-c", ask],
        env={"PYTHONPATH": str(target)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == ["42", "1.2+cpu.avx"]
