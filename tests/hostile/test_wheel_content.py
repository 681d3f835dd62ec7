"""Wheels that hold what they may not: refused when built, when downloaded, and by `audit`."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
import zlib

import pytest
from typer.testing import CliRunner

from fleetbuild.apply.stages import carry_out
from fleetbuild.audit import audit_wheel, check_wheel
from fleetbuild.audit.downloads import audit_download, installed_size, shared_files
from fleetbuild.cli import app
from fleetbuild.errors import AuditError, InstallError
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile
from fleetbuild.store import IndexSettings, Store
from fleetbuild.tasks.publish.export import release_files
from fleetbuild.tasks.wheels.store_fetch import lacking
from tests.factories import runs
from tests.factories.files import demo_wheel, make_wheel
from tests.factories.fleets import facts, locked
from tests.factories.plans import make_target
from tests.factories.runs import FakeFleet, FakeStore

RUNS = "would run in every Python of the release"
COMMAND = "would replace a command of the release"
REPLACES = "would replace a file of the release"

ATTACKS = {
    "demo.pth": RUNS,
    "demo-1.0.data/purelib/zz.pth": RUNS,
    "demo-1.0.data/platlib/zz.pth": RUNS,
    "zz.egg-link": RUNS,
    "sitecustomize.py": RUNS,
    "sitecustomize/__init__.py": RUNS,
    "usercustomize.cpython-311-x86_64-linux-gnu.so": RUNS,
    "json/__init__.py": "would replace a module of the standard library",
    "demo-1.0.data/purelib/ssl.py": "would replace a module of the standard library",
    "pip/__init__.py": "belongs to pip, not to demo",
    "_distutils_hack/__init__.py": "belongs to setuptools, not to demo",
    "demo-1.0.data/scripts/python3": COMMAND,
    "demo-1.0.data/scripts/pip": COMMAND,
    "demo-1.0.data/data/bin/python3.11": COMMAND,
    "demo-1.0.data/scripts/activate": COMMAND,
    "demo-1.0.data/scripts/fleetbuild-sanity": COMMAND,
    "demo-1.0.data/scripts/a b": "is not a plain command name",
    "demo-1.0.data/scripts/x/y": "is not a plain command name",
    "demo-1.0.data/data/pyvenv.cfg": REPLACES,
    "demo-1.0.data/data/manifest.json": REPLACES,
    "demo-1.0.data/data/lib/python3.11/site-packages/zz.pth": REPLACES,
    "demo-1.0.data/data/lib64/python3.11/os.py": REPLACES,
    "demo-1.0.data/headers/../../x": "would be unpacked outside of its folder",
    "demo//x.py": "is not a plain file name",
    "./demo/x.py": "is not a plain file name",
    "demo/\x1b[31m.py": "is not a plain file name",
}


@pytest.mark.parametrize("file", ATTACKS)
def test_a_file_that_takes_over_a_release_is_named(tmp_path, file):
    wheel = make_wheel(tmp_path, files={"demo/__init__.py": b"", file: b"x = 1\n"})
    for found in (audit_wheel(wheel).problems, audit_download(wheel, "demo", "1.0")):
        assert any(ATTACKS[file] in problem for problem in found), found


@pytest.mark.parametrize(
    "file",
    ["demo/a.pth", "demo/json.py", "demo.libs/libx.so", "demo-1.0.data/data/share/demo/x",
     "demo-1.0.data/scripts/demo", "demo-1.0.data/scripts/pip-demo", "_demo.so",
     "demo-1.0.data/data/lib/libmkl.so", "demo-1.0.data/headers/demo.h"],
)  # fmt: skip
def test_files_of_ordinary_wheels_are_allowed(tmp_path, file):
    wheel = make_wheel(tmp_path, files={"demo/__init__.py": b"", file: b""})
    assert audit_wheel(wheel).problems == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[console_scripts]\npython3 = demo:main\n", "'python3' would replace a command"),
        ("[gui_scripts]\nPIP = demo:main\n", "'PIP' would replace a command"),
        ("[console_scripts]\n../../x = demo:main\n", "is not a plain command name"),
        ("[console_scripts]\na/b = demo:main\n", "is not a plain command name"),
        ("no section\n[", "is not a plain command name"),
    ],
)
def test_entry_points_of_such_a_name_are_refused(tmp_path, text, words):
    wheel = make_wheel(tmp_path, files={"demo-1.0.dist-info/entry_points.txt": text.encode()})
    assert any(words in problem for problem in audit_wheel(wheel).problems)


@pytest.mark.parametrize(
    "tag", ["jy27-none-any", "py3-evil-any", "cp311-cp311-win_amd64", "py3-none-linux"]
)
def test_odd_tags_are_refused(tmp_path, tag):
    wheel = make_wheel(tmp_path, tag=tag)
    assert any("for no Python on Linux" in problem for problem in audit_wheel(wheel).problems)


def test_tags_that_multiply_are_not_expanded(tmp_path):
    many = ".".join(f"cp{number}" for number in range(3000))
    about = f"Wheel-Version: 1.0\nTag: {many}-{many}-{many}\n"
    wheel = make_wheel(tmp_path, replace={"{info}/WHEEL": about.encode()})
    assert any("WHEEL says no tags" in problem for problem in audit_wheel(wheel).problems)


def test_a_recipe_limits_names_and_allows_files(tmp_path):
    wheel = demo_wheel(tmp_path, files={"demo/__init__.py": b"", "other.py": b"", "demo.pth": b""})
    about = {"target": make_target("avx"), "package": "demo", "wheel_version": "1.0+cpu.avx"}
    found = check_wheel(wheel, **about, top_level=["demo"])
    assert any("'other.py' is not below demo, the names of demo" in text for text in found)
    assert any("demo.pth" in text for text in found)
    assert check_wheel(wheel, **about, allowed=["demo.pth"]) == ()


def test_the_command_names_forbidden_files_and_exits_7(tmp_path):
    wheel = make_wheel(tmp_path, files={"sitecustomize.py": b""})
    for more in ([], ["--json"]):
        ended = CliRunner().invoke(app, ["audit", str(wheel), *more])
        assert ended.exit_code == 7
        assert "sitecustomize.py" in ended.stdout
    assert RUNS in json.loads(ended.stdout)["problems"][0]


def test_a_bomb_of_many_members_is_counted_as_a_whole(tmp_path):
    files = {f"demo/{number}": bytes(8 << 20) for number in range(10)}  # each is below the limit
    wheel = make_wheel(tmp_path, files=files)
    (problem,) = audit_wheel(wheel).problems
    assert "it unpacks" in problem
    assert wheel.stat().st_size < 1 << 20


def test_members_that_share_bytes_are_counted(tmp_path):
    wheel = make_wheel(tmp_path, files={"demo/a": bytes(range(256)) * 4096})
    data = wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        (info,) = (each for each in archive.infolist() if each.filename == "demo/a")
        start = archive.start_dir
    # The directory names the one member a hundred times.
    entry = data[start:].split(b"PK\x01\x02")[1]
    entries = b"".join(
        b"PK\x01\x02" + entry.replace(b"demo/a", b"demo/%c" % letter) for letter in range(65, 91)
    )
    end = bytearray(data[data.rindex(b"PK\x05\x06") :])
    old = int.from_bytes(end[10:12], "little")
    end[8:10] = end[10:12] = (old + 26).to_bytes(2, "little")
    end[12:16] = (int.from_bytes(end[12:16], "little") + len(entries)).to_bytes(4, "little")
    rest = data[start : data.rindex(b"PK\x05\x06")]
    wheel.write_bytes(data[:start] + rest + entries + bytes(end))
    assert any("packed bytes, more than" in text for text in audit_wheel(wheel).problems)
    assert info.compress_size > 100


def test_a_large_member_is_not_held_in_memory(tmp_path):
    elf = b"\x7fELF" + zlib.crc32(b"").to_bytes(4, "big") + bytes(60 << 20)
    wheel = make_wheel(tmp_path, files={"demo/x.so": elf})
    del elf
    tracemalloc.start()
    audit_wheel(wheel)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20


def two(tmp_path, one, other, **more):
    return [
        make_wheel(tmp_path, "one", files=one),
        make_wheel(tmp_path, "two", files=other, **more),
    ]


def test_two_wheels_of_a_release_may_not_share_a_file(tmp_path):
    same = {"ns/__init__.py": b""}
    assert shared_files(two(tmp_path, same, same)) == ()
    other = {"ns/__init__.py": b"print('two')"}
    assert shared_files(two(tmp_path, same, other)) == (
        "ns/__init__.py belongs to one-1.0-py3-none-any.whl and to two-1.0-py3-none-any.whl",
    )
    hidden = {"two-1.0.data/platlib/ns/__init__.py": b"print('two')"}
    assert len(shared_files(two(tmp_path, same, hidden))) == 1
    entry = b"[console_scripts]\ntool = x:main\n"
    commands = [{f"{name}-1.0.dist-info/entry_points.txt": entry} for name in ("one", "two")]
    (problem,) = shared_files(two(tmp_path, *commands))
    assert problem.startswith("bin/tool belongs to")


def test_a_release_whose_wheels_share_files_is_not_installed(tmp_path):
    store = FakeStore(tmp_path / "store")
    two(tmp_path / "store", {"ns/__init__.py": b""}, {"ns/__init__.py": b"print('two')"})
    group = runs.group("avx2", ["avx2-1", "avx2-2"], dependencies=(locked("one"), locked("two")))
    fleet = FakeFleet(facts={name: facts("avx2") for name in group.nodes}, store=store)
    result = carry_out(fleet.run(runs.plan(group), tmp_path / "state"))
    assert {node.state for node in result.nodes} == {"install_failed"}
    assert "ns/__init__.py belongs to one-1.0" in result.nodes[0].reason
    assert result.nodes[0].fix
    assert result.exit_code == 6
    assert "install.yml" not in [name for name, _ in fleet.calls]


def test_a_dependency_is_audited_once_and_remembered(tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path / "index", "dep", files={"dep.pth": b"import os"})
    file = LockedFile(name="dep", version="1.0", file=wheel.name, sha256=sha256_of(wheel),
                      url=wheel.as_uri())  # fmt: skip
    with pytest.raises(InstallError, match=r"dep.pth' would run") as caught:
        Store(tmp_path / "store").fetch(file)
    assert "allow_files: {dep: [PATTERN]}" in caught.value.fix
    store = Store(tmp_path / "store", IndexSettings(allow_files={"dep": ("dep.pth",)}))
    path = store.fetch(file)
    monkeypatch.setattr("fleetbuild.store.wheels.audit_download", None)
    assert store.fetch(file) == path
    monkeypatch.undo()
    with pytest.raises(InstallError):  # what was allowed is not allowed any more
        Store(tmp_path / "store").fetch(file)


def test_a_refused_dependency_ends_an_apply_with_7(tmp_path):
    class Auditing(FakeStore):
        def fetch(self, file, check_cancelled):
            if file.name == "one":
                raise AuditError(f"{file.file} is not used: one.pth would run.", "Look into it.")
            return super().fetch(file, check_cancelled)

    (tmp_path / "store").mkdir()
    store = Auditing(tmp_path / "store")
    group = runs.group("avx2", ["avx2-1", "avx2-2"], dependencies=(locked("one"),))
    fleet = FakeFleet(facts={name: facts("avx2") for name in group.nodes}, store=store)
    result = carry_out(fleet.run(runs.plan(group), tmp_path / "state"))
    assert {node.state for node in result.nodes} == {"verify_failed"}
    assert result.exit_code == 7
    assert "install.yml" not in [name for name, _ in fleet.calls]


def test_a_release_of_cluster_builds_whose_wheels_share_files_is_not_delivered(tmp_path):
    one, other = two(tmp_path, {"ns/__init__.py": b""}, {"ns/__init__.py": b"print('two')"})
    files = tuple(
        LockedFile(name=name, version="1.0", file=path.name, sha256=sha256_of(path),
                   url=path.as_uri())
        for name, path in (("one", one), ("two", other))
    )  # fmt: skip
    store = Store(tmp_path / "store")
    for file in files:
        store.fetch(file)
    group = runs.group("avx2", ["avx2-1"], dependencies=files).model_copy(update={"wheels": ()})
    plan = runs.plan(group)
    assert release_files(plan, store)
    in_cluster = plan.model_copy(update={"build_image": "python:3.12-bookworm"})
    assert not release_files(in_cluster, store)
    assert "ns/__init__.py belongs to one-1.0" in "".join(lacking(in_cluster, store).values())


def test_a_dependency_that_is_another_package_is_refused(tmp_path):
    wheel = make_wheel(tmp_path, "other")
    assert "not dep 1.0" in audit_download(wheel, "dep", "1.0")[0]


def test_a_wheels_size_counts_its_unpacked_and_compiled_files(tmp_path):
    path = tmp_path / "demo.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("demo/core.so", bytes(1 << 20))
        file.writestr("demo/__init__.py", "#" * 1000)
    assert installed_size(path) == (1 << 20) + 2 * 1000
    assert path.stat().st_size < 5000
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"PK")
    assert installed_size(broken) == 0
