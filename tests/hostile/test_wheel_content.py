"""Wheels that hold what they may not: refused when built, when downloaded, and by `audit`."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zipfile
import zlib
from copy import copy
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fleetbuild.apply.stages import carry_out
from fleetbuild.audit import audit_wheel, check_wheel
from fleetbuild.audit.downloads import audit_download, contents_of
from fleetbuild.audit.ownership import owners
from fleetbuild.audit.wheel import audit_here
from fleetbuild.cli import app
from fleetbuild.errors import AuditError, InstallError
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile
from fleetbuild.store.fetch_locked import lacking
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store
from tests.factories import runs
from tests.factories.elf import make_elf
from tests.factories.files import demo_wheel, make_wheel
from tests.factories.fleets import facts, locked
from tests.factories.plans import make_target
from tests.factories.runs import FakeFleet, FakeStore

RUNS = "would run in every Python of the release"
VPXORD_ZMM = bytes.fromhex("62f17d48efc0c3")
NO_SINGLE = "has no single reading"
COMMAND = "would replace a command of the release"
OTHER = "would describe another package"
COMPILED = "compiled code of a module that the wheel does not bring"
REPLACES = "would replace a file of the release"

ATTACKS = {
    "demo.pth": RUNS,
    "demo-1.0.data/purelib/zz.pth": RUNS,
    "demo-1.0.data/platlib/zz.pth": RUNS,
    "zz.egg-link": RUNS,
    "demo.start": RUNS,  # of Python 3.15
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
    "demo-1.0.data/scripts/uv": COMMAND,
    "numpy-2.0.dist-info/METADATA": "exactly one .dist-info folder",
    "demo-1.0.data/purelib/numpy-2.0.dist-info/METADATA": OTHER,
    "demo-1.0.data/purelib/demo-1.0.dist-info/entry_points.txt": "replace what the wheel says",
    "numpy-2.0.egg-info/PKG-INFO": OTHER,
    "numpy-2.0.Dist-Info/METADATA": OTHER,
    "numpy-2.0.egg/EGG-INFO/PKG-INFO": OTHER,
    "__pycache__/six.cpython-311.pyc": COMPILED,
    "demo/__pycache__/other.cpython-311.pyc": COMPILED,
    "numpy/__pycache__/__init__.cpython-311.pyc": COMPILED,
    "demo-1.0.data/purelib/__pycache__/six.cpython-311.pyc": COMPILED,
    "__pycache__/x/y.pyc": COMPILED,
    "demo-1.0.data/data/__pycache__": COMPILED,
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
    ["demo/a.pth", "demo/json.py", "demo/__pycache__/__init__.cpython-311.pyc", "demo/é.py",
     "demo.libs/libx.so", "json.libs/libx.so", "demo-1.0.data/data/share/demo/x",
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
        ("no section\n[", NO_SINGLE),
        ("a = demo:main\n", NO_SINGLE),
        ("[console_scripts]\n= demo:main\n", NO_SINGLE),
        ("[console_scripts]\na = demo:main\n[console_scripts]\nb = demo:main\n", NO_SINGLE),
        # pip takes an indented line for an entry point, configparser for a continuation.
        ("[console_scripts]\na = demo:main\n  python3 = demo:main\n", NO_SINGLE),
        ("[console_scripts]\n;python3 = demo:main\n", NO_SINGLE),  # and this for a comment
        ("[x]\na = b\x0b[console_scripts]\x0bpython3 = demo:main\n", NO_SINGLE),
        ("[x]\na = b\u2028[console_scripts]\u2028python3 = demo:main\n", NO_SINGLE),
        ("[console_scripts]\na = demo:main\na = demo:other\n", NO_SINGLE),
        ("\ufeff[console_scripts]\npython3 = demo:main\n", NO_SINGLE),
        ("[console_scripts]\npython3\n", NO_SINGLE),
        ("#" * (17 << 20) + "\n[console_scripts]\npython3 = demo:main\n", NO_SINGLE),
    ],
)
def test_entry_points_of_such_a_name_are_refused(tmp_path, text, words):
    wheel = make_wheel(tmp_path, files={"demo-1.0.dist-info/entry_points.txt": text.encode()})
    assert any(words in problem for problem in audit_wheel(wheel).problems)
    assert contents_of(wheel).names


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
    points = b"# Ours\n[console_scripts]\ndemo = demo:main\npip = demo:main\n"
    names = ["demo.py", "demo.libs/x.so", "other.py", "demo.pth", "__pycache__/demo.cpy.pyc"]
    files = {"demo-1.0+cpu.avx.dist-info/entry_points.txt": points, **dict.fromkeys(names, b"")}
    wheel = demo_wheel(tmp_path, files=files)
    about = {"target": make_target("avx"), "package": "demo", "wheel_version": "1.0+cpu.avx"}
    found = check_wheel(wheel, **about, top_level=["demo"])
    assert any("'other.py' is not below demo, the names of demo" in text for text in found)
    assert [text.split("'")[1] for text in found] == ["other.py", "demo.pth", "pip"]
    assert check_wheel(wheel, **about, allowed=["demo.pth", "entry point pip"]) == ()


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
    with zipfile.ZipFile(wheel, "a") as archive:
        for number in range(26):  # the directory names the one member again and again
            again = copy(archive.getinfo("demo/a"))
            again.filename = f"demo/{number}"
            archive.filelist.append(again)
        archive._didModify = True
    assert any("packed bytes, more than" in text for text in audit_wheel(wheel).problems)


def test_bytes_that_a_member_does_not_state_are_refused(tmp_path):
    path = make_wheel(tmp_path, files={"demo/x.py": bytes(1 << 20)})
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("demo/x.py")
    said = struct.pack("<III", info.CRC, info.compress_size, info.file_size)
    less = struct.pack("<III", zlib.crc32(bytes(10)), info.compress_size, 10)
    assert path.read_bytes().count(said) == 2
    path.write_bytes(path.read_bytes().replace(said, less))
    for problems in (audit_wheel(path).problems, audit_download(path, "demo", "1.0")):
        assert "packed bytes and states only 10" in "".join(problems)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_whose_bytes_unpack_without_a_bound_is_refused(tmp_path, method):
    path = make_wheel(tmp_path)
    with zipfile.ZipFile(path, "a", method) as archive:
        archive.writestr("demo/x.py", bytes(1000))
    assert "by a method that wheels do not use" in "".join(audit_wheel(path).problems)


@pytest.mark.parametrize("bytes_", [b"demo/x.py", b"demo\0x.py", b"demo/\xe9.py"])
def test_a_member_whose_name_depends_on_the_installer_is_refused(tmp_path, bytes_):
    wheel = make_wheel(tmp_path, files={"demo/__init__.py": b""})
    member = zipfile.ZipInfo("demo/x.py")
    if bytes_ == b"demo/x.py":  # its name for the zipfile of Python 3.12 and newer
        name = struct.pack("<BI", 1, zlib.crc32(bytes_)) + b"zz.pth"
        member.extra = struct.pack("<HH4xHH", 0x5455, 4, 0x7075, len(name)) + name
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(member, b"")
    wheel.write_bytes(wheel.read_bytes().replace(b"demo/x.py", bytes_))
    for found in (audit_wheel(wheel).problems, audit_download(wheel, "demo", "1.0")):
        assert any("has another name for other installers" in problem for problem in found), found


def test_a_refusal_quotes_little_of_a_wheel(tmp_path):
    requires = f"torch {'x' * (4 << 20)}"
    files = {f"demo/{n}.so": make_elf(VPXORD_ZMM, symbol="x" * 4000) for n in range(100)}
    wheel = demo_wheel(tmp_path, files=files, requires=requires)
    about = {"package": "demo", "wheel_version": "1.0+cpu.avx", "pins": ["torch==2.13.0"]}
    found = check_wheel(wheel, target=make_target(), **about)
    assert (len(found), found[-1]) == (21, "and 81 more problems")
    assert sum(map(len, found)) < 10_000


def test_a_large_member_is_not_held_in_memory(tmp_path):
    wheel = make_wheel(tmp_path, files={"demo/x.so": b"\x7fELF" + bytes(60 << 20)})
    tracemalloc.start()
    audit_here(wheel)  # in this process, which is measured
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20


def test_a_vendored_dist_info_does_not_hide_the_entry_points(tmp_path):
    entry = b"[console_scripts]\npython3 = demo:main\n"
    files = {
        "demo/_vendor/x-1.dist-info/METADATA": b"Name: x\n",
        "demo-1.0.dist-info/entry_points.txt": entry,
    }
    assert any(
        "'python3'" in text for text in audit_wheel(make_wheel(tmp_path, files=files)).problems
    )


def two(tmp_path, one, other, **more):
    return [
        make_wheel(tmp_path, "one", files=one),
        make_wheel(tmp_path, "two", files=other, **more),
    ]


def test_two_wheels_of_a_release_may_not_share_a_file(tmp_path):
    same = {"ns/__init__.py": DECLARED[0]}
    assert owners(two(tmp_path, same, same), {})[0] == ()
    other = {"ns/__init__.py": b"print('two')"}
    assert owners(two(tmp_path, same, other), {})[0][0] == (
        "ns/__init__.py belongs to one-1.0-py3-none-any.whl and to two-1.0-py3-none-any.whl"
    )
    hidden = {"two-1.0.data/platlib/ns/__init__.py": b"print('two')"}
    assert "ns/__init__.py belongs to" in owners(two(tmp_path, same, hidden), {})[0][0]
    entry = b"[console_scripts]\ntool = x:main\n"
    commands = [{f"{name}-1.0.dist-info/entry_points.txt": entry} for name in ("one", "two")]
    (problem,) = owners(two(tmp_path, *commands), {})[0]
    assert problem.startswith("bin/tool belongs to")
    script = {"one-1.0.data/scripts/tool": b"#!python\n"}
    (problem,) = owners(two(tmp_path, script, commands[1]), {})[0]
    assert problem.startswith("bin/tool belongs to")


DECLARED = [
    b"__import__('pkg_resources').declare_namespace(__name__)  # pragma: no cover\n",
    b"from pkgutil import extend_path\n\n__path__ = extend_path(__path__, __name__)\n",
    b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)  # type: ignore\n",
    (
        b"# License\ntry:\n    import pkg_resources\n\n    pkg_resources.declare_namespace(__name__)\n"  # noqa: E501
        b"except ImportError:\n    import pkgutil\n\n"
        b"    __path__: List[str] = pkgutil.extend_path(__path__, __name__)\n"
    ),
]


@pytest.mark.parametrize(
    ("owner", "other", "name"),
    [
        ({"torch/__init__.py": b"x = 1"}, {"torch/backends/evil.py": b""}, "torch"),
        ({"torch/__init__.py": b"x = 1"}, {"torch/lib/libevil.so": b""}, "torch"),
        ({"torch/__init__.py": b""}, {"torch/__init__.py": b"", "torch/evil.py": b""}, "torch"),
        ({"torch/__init__.py": b"x = 1"}, {"two-1.0.data/purelib/torch/evil.py": b""}, "torch"),
        ({"six.py": b"x = 1"}, {"six/__init__.py": b"evil"}, "six"),
        ({"six.py": b"x = 1"}, {"six.cpython-311-x86_64-linux-gnu.so": b"evil"}, "six"),
        ({"six.py": b"x = 1"}, {"six/data.txt": b"x"}, "six"),
        ({"ns/a/__init__.py": b"x = 1"}, {"ns/a/evil.py": b""}, "ns.a"),
        ({"ns/__init__.py": DECLARED[1], "ns/a.py": b""}, {"ns/a/__init__.py": b"evil"}, "ns.a"),
        ({"ns/a.py": b""}, {"ns/__init__.py": DECLARED[1] + b"import evil\n"}, "ns"),
    ],
)
def test_an_import_name_has_one_owner(tmp_path, owner, other, name):
    words = f"the import name {name} belongs to "
    assert any(words in text for text in owners(two(tmp_path, owner, other), {})[0])
    assert any(words in text for text in owners(two(tmp_path, owner, other)[::-1], {})[0])


@pytest.mark.parametrize("init", [None, *DECLARED])
def test_a_namespace_is_shared(tmp_path, init):
    both = {"ns/__init__.py": init} if init else {}
    one, other = {**both, "ns/a/__init__.py": b"x = 1"}, {**both, "ns/b/__init__.py": b"x = 2"}
    assert owners(two(tmp_path, one, other), {})[0] == ()
    assert owners(two(tmp_path, one, {"ns/b/__init__.py": b"x = 2"}), {})[0] == ()
    one, other = {"nvidia/__init__.py": b"", "nvidia/a/x.so": b"1"}, {"nvidia/b/x.so": b"2"}
    assert owners(two(tmp_path, one, other), {})[0] == ()


def test_a_package_may_add_to_another_if_it_is_allowed_to(tmp_path):
    wheels = two(tmp_path, {"torch/__init__.py": b"x = 1"}, {"torch/extra.py": b"x = 2"})
    assert owners(wheels, {})[0]
    assert owners(wheels, {"two": ["torch/extra*"]})[0] == ()


def test_what_another_package_loads_by_itself_is_named(tmp_path):
    entry = b"[torch.backends]\nevil = two:start\n"
    files = {"two-1.0.dist-info/entry_points.txt": entry}
    torch = make_wheel(tmp_path, "torch", files={"torch/__init__.py": b"x = 1"})
    one, other = two(tmp_path, {"one.py": b""}, files)
    assert owners([torch, one, other], {})[1] == (
        "two-1.0-py3-none-any.whl is loaded by torch by itself (entry points torch.backends)",
    )
    assert owners([one, other], {})[1] == ()


def test_an_apply_warns_of_what_another_package_loads(tmp_path):
    store = FakeStore(tmp_path / "store")
    entry = {"two-1.0.dist-info/entry_points.txt": b"[pytest11]\nevil = two\n"}
    make_wheel(tmp_path / "store", "pytest", files={"pytest/__init__.py": b"x = 1"})
    make_wheel(tmp_path / "store", "two", files=entry)
    group = runs.group("avx2", ["avx2-1"], dependencies=(locked("pytest"), locked("two")))
    fleet = FakeFleet(facts={name: facts("avx2") for name in group.nodes}, store=store)
    events = []
    run = replace(fleet.run(runs.plan(group), tmp_path / "state"), on_event=events.append)
    assert carry_out(run).exit_code == 0
    (warning,) = (each for each in events if each.state == "warning")
    assert "two-1.0-py3-none-any.whl is loaded by pytest" in warning.message


def test_a_wheel_that_takes_no_bill_of_materials_holds_up_no_other(tmp_path, monkeypatch):
    """As of a builder that leaves its own program out, and puts RECORD first."""
    fleet = runs.fleet_of(tmp_path, *(runs.group(isa, [f"{isa}-1"]) for isa in ("avx", "avx2")))
    add = FakeStore.add

    def picky(store, path, wheel, **about):
        if wheel.target.isa == "avx":
            raise AuditError(f"{path.name} takes no bill of materials.")
        return add(store, path, wheel, **about)

    monkeypatch.setattr(FakeStore, "add", picky)
    result = fleet.apply()
    assert [wheel.state for wheel in result.wheels] == ["refused", "built"]
    assert {node.node: node.state for node in result.nodes}["avx2-1"] == "installed"


def test_the_commands_of_a_wheel_are_announced(tmp_path):
    entry = b"[console_scripts]\ntool = x:main\n[gui_scripts]\nshow = x:main\n[x]\ny = z\n"
    files = {
        "demo-1.0.dist-info/entry_points.txt": entry,
        "demo-1.0.data/scripts/run.py": b"",
        "demo-1.0.data/data/bin/other": b"",
    }
    assert contents_of(make_wheel(tmp_path, files=files)).commands == (
        "other", "run.py", "show", "tool",
    )  # fmt: skip


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
    with pytest.raises(InstallError):  # a kept file is checked again
        Store(tmp_path / "store").fetch(file)


def test_a_refused_dependency_ends_an_apply_with_7(tmp_path):
    class Auditing(FakeStore):
        def fetch(self, file):
            if file.name == "one":
                raise AuditError(f"{file.file} is not used: one.pth would run.", "Look into it.")
            return super().fetch(file)

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
    assert "should be dep 1.0" in audit_download(wheel, "dep", "1.0")[0]


def test_a_wheels_size_counts_its_unpacked_and_compiled_files(tmp_path):
    path = tmp_path / "demo.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("demo/core.so", bytes(1 << 20))
        file.writestr("demo/__init__.py", "#" * 1000)
    assert contents_of(path).size == (1 << 20) + 2 * 1000
    assert path.stat().st_size < 5000
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"PK")
    assert contents_of(broken).size == 0
