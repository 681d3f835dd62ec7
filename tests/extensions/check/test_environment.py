"""A check of installed packages: a virtual environment, or an unpacked image, by its files."""

import csv
from pathlib import Path

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.extensions.check import environment
from fleetbuild.extensions.check.check_stack import check
from tests.factories.elf import make_elf

VPADDD_YMM, RET = bytes.fromhex("c5f5fec2c3"), bytes.fromhex("c3")


def install(place, name, version, files, *, record=None):
    """Write a package's files and its RECORD."""
    info = place / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    with (info / "RECORD").open("w") as file:
        csv.writer(file).writerows([path, "", ""] for path in (record or files))


@pytest.fixture
def env(tmp_path, monkeypatch):
    """An environment with a package that needs AVX2, one of pure Python, and a stray file."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    native = {"demo/_c.so": make_elf(VPADDD_YMM, symbol="PyInit__c"), "demo/__init__.py": b""}
    install(place, "demo", "1.0", native)
    install(
        place, "pure", "2.0", {"pure.py": b""}, record=["pure.py", "../../../etc/passwd", "/bin/sh"]
    )
    (place / "stray.so").write_bytes(make_elf(RET))
    return tmp_path / "env"


def rows(report):
    return {(row.name, row.version, row.kind): row.verdict for row in report.rows}


def test_installed_packages_are_judged_by_their_files(env):
    report = check(env=env, kinds=["IvyBridge", "zen3"])
    others = "stray.so (in no RECORD)"
    assert rows(report) == {
        ("demo", "1.0", "IvyBridge"): "dies-at-import",
        ("demo", "1.0", "zen3"): "runs",
        ("pure", "2.0", "IvyBridge"): "runs",
        ("pure", "2.0", "zen3"): "runs",
        (others, None, "IvyBridge"): "runs",
        (others, None, "zen3"): "runs",
    }
    assert report.exit_code == 7
    (dead,) = (row for row in report.rows if row.dies)
    assert dead.where.startswith("demo/_c.so uses avx2 in `PyInit__c`")


def test_files_are_read_once_and_again_when_they_change(env, monkeypatch):
    check(env=env, kinds=["zen3"])
    read = environment.read_installed
    again = []
    monkeypatch.setattr(environment, "read_installed", lambda f: again.append(list(f)) or read(f))
    check(env=env, kinds=["zen3"])
    assert again == []
    (env / "lib/python3.11/site-packages/demo/_c.so").write_bytes(make_elf(RET))
    assert check(env=env, kinds=["IvyBridge"]).exit_code == 0
    assert again == [["demo/_c.so"]]


def test_links_are_not_followed(env, tmp_path):
    outside = tmp_path / "outside.so"
    outside.write_bytes(make_elf(VPADDD_YMM))
    place = env / "lib/python3.11/site-packages"
    (place / "demo/_c.so").unlink()
    (place / "demo/_c.so").symlink_to(outside)
    (env / "usr").symlink_to("/usr")
    assert {row.verdict for row in check(env=env, kinds=["IvyBridge"]).rows} == {"runs"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"env": Path("missing")}, "is not a folder"),
        ({"env": Path()}, "no installed Python packages"),
        ({"requirements": ["demo"]}, "More than one"),
        ({"emulate": True}, "are read alone"),
        ({"env": None}, "Nothing to check"),
    ],
)
def test_other_folders_and_two_stacks_are_refused(tmp_path, env, monkeypatch, more, words):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match=words):
        check(**{"env": env, "kinds": ["zen3"], **more})
