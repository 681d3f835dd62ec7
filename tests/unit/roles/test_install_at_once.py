"""One execution makes, verifies and switches; what the controller sent installs, else pip."""

from __future__ import annotations

import gzip
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from jinja2 import Template
from uv import find_uv_bin

from fleetbuild.apply import installers
from fleetbuild.files import sha256_of
from fleetbuild.models import Facts
from fleetbuild.models.facts import Libc
from tests.factories.files import make_wheel
from tests.factories.pythons import python_without
from tests.factories.role_modules import ALONE, ROLES, plugin

installer = plugin("module_utils.wheel_installer")
receiving = plugin("module_utils.release_receiving")
PACKED = gzip.compress(b"a stranger's program")
SCRIPT = b"[console_scripts]\nsmall = small:main\n"


class Node:
    """A node that has received one wheel, and a program to install it by."""

    def __init__(
        self, release: ModuleType, folder: Path, program: Path | None, file: str = "uv"
    ) -> None:
        self.release, self.root = release, release.Root(str(folder / "fb"))
        files = {"small/__init__.py": b"def main(): print('ran')\n"}
        files["small-1.0.dist-info/entry_points.txt"] = SCRIPT
        wheel = make_wheel(folder, "small", files=files)
        self.params: dict[str, Any] = {
            **ALONE,
            "release_id": "r1", "python": sys.executable, "keep": 2, "in_use": {}, "whole": False,
            "path": self.root.path, "staging": f"{self.root.path}/wheels", "activate": True,
            "wheels": [{"file": wheel.name, "sha256": sha256_of(wheel)}],
            "installer": {"file": file, "sha256": sha256_of(program)} if program else {},
            "manifest": {"id": "r1", "group": "cpu-avx2-cp311", "verified": False, "wheels": []},
            "verify": {"imports": ["small"]},
        }  # fmt: skip
        sent = ((wheel, self.params["wheels"][0]), (program, self.params["installer"]))
        for path, about in sent:
            if path:
                place = Path(self.params["staging"], about["sha256"])
                place.mkdir(parents=True)
                shutil.copy(path, place / about["file"])

    def install(self, **changed: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.release.install(self.root, {**self.params, **changed}, False)
        return found

    def begin(self) -> dict[str, Any]:
        found: dict[str, Any] = self.release.begin(self.root, self.params, False)
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.root["r1"], "manifest.json").read_text())
        return found


@pytest.fixture
def node(release: ModuleType, tmp_path: Path) -> Node:
    """It has received a uv."""
    return Node(release, tmp_path, Path(find_uv_bin()))


@pytest.fixture
def bare(release: ModuleType, tmp_path: Path) -> Node:
    """It has received its wheel alone."""
    return Node(release, tmp_path, None)


@pytest.fixture
def packed(release: ModuleType, tmp_path: Path, uv_sent: installers.Program) -> Node:
    """It has received the controller's own uv, packed."""
    return Node(release, tmp_path, Path(uv_sent["path"]), uv_sent["file"])


@pytest.fixture
def broken_uv(tmp_path: Path) -> Path:
    """A uv that this CPU does not run."""
    path = tmp_path / "broken-uv"
    path.write_text("#!/bin/sh\nkill -ILL $$\n")
    path.chmod(0o755)
    return path


def test_one_execution_makes_verifies_and_switches(node: Node) -> None:
    result = node.install()
    assert (result["made_by"], result["active"], result["changed"]) == ("uv", True, True)
    assert result["verification"]["ok"]
    assert node.manifest["verified"]
    assert node.root.serving() == "r1"
    folder = Path(node.root["r1"])
    assert subprocess.check_output([folder / "bin/small"]) == b"ran\n"
    assert list(folder.glob("lib/python3*/site-packages/small/__pycache__/*.pyc"))
    # uv is kept for the next release; of the rest nothing stays.
    assert Path(installer.kept_uv(node.root.path, node.params["installer"])).is_file()
    assert not Path(node.params["staging"]).exists()
    assert not [path for name in (".lock", ".cache") if (path := folder / name).exists()]
    assert node.release.look(node.root, node.params)["complete"]
    again = node.install(whole=True)
    assert (again["made_by"], again["changed"], again["active"]) == ("", False, True)


def test_a_python_without_ensurepip_gets_a_release(packed: Node, tmp_path: Path) -> None:
    """Debian and Ubuntu have such a Python without python3-venv."""
    bare = python_without(tmp_path / "bare", "ensurepip")
    result = packed.install(python=str(bare))
    assert (result["made_by"], result["active"]) == ("uv", True)
    assert subprocess.check_output([Path(packed.root["r1"]) / "bin/small"]) == b"ran\n"


def test_a_release_that_fails_does_not_serve(node: Node) -> None:
    result = node.install(verify={"imports": ["small"], "checks": ["assert 0, 'no'"]})
    assert not result["ok"]
    assert "AssertionError: no" in result["verification"]["reason"]
    assert not node.manifest["verified"]
    assert node.root.serving() == ""
    assert node.install(whole=True)["active"]
    # What served and fails now loses its mark, which a probe would trust.
    assert not node.install(whole=True, verify={"checks": ["1/0"]})["ok"]
    assert not node.manifest["verified"]


def test_a_run_whose_lease_is_taken_while_it_verifies_does_not_switch(
    bare: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.params |= {"controller": "me", "counter": bare.begin()["counter"]}
    verify = bare.release.verify_made

    def overtaken(*about: Any) -> Any:
        lease = bare.release.Lease(bare.root.path)
        lease.end(bare.params["counter"])  # as if it had expired
        lease.take("another", "", "r2")
        return verify(*about)

    monkeypatch.setattr(bare.release, "verify_made", overtaken)
    with pytest.raises(bare.release.Problem, match="Another run, of another has changed"):
        bare.install()
    assert bare.root.serving() == ""


FILES = {
    "both/__init__.py": b"from both.other import value\n",
    "both/other.py": b"value = 1\n",
    "{}.data/scripts/tool": b"#!python\nprint('tool ran')\n",
    "{}.data/headers/both.h": b"// a header\n",
    "{}.data/data/share/both.txt": b"data\n",
}

FILE_NAMES = {"both_sides": "Both.Sides-1.0-py3-none-any.whl"}  # spelled otherwise than its .data


def test_all_that_a_wheel_may_hold_is_installed(packed: Node, tmp_path: Path) -> None:
    """A script, a command, headers, data, a file of another wheel."""
    for name in ("both_sides", "again"):
        files = {place.format(f"{name}-1.0"): content for place, content in FILES.items()}
        add(packed, make_wheel(tmp_path, name, files=files, file_name=FILE_NAMES.get(name)))
    assert packed.install()["made_by"] == "uv"
    made = Path(packed.root["r1"])
    assert subprocess.check_output([made / "bin/small"]) == b"ran\n"
    assert subprocess.check_output([made / "bin/tool"]) == b"tool ran\n"
    assert list(made.rglob("both.h"))
    assert (made / "share/both.txt").read_bytes() == b"data\n"
    assert not Path(packed.params["staging"]).exists()


@pytest.mark.parametrize("long", [100, 300])
def test_commands_run_below_a_long_path(
    release: ModuleType, uv_sent: installers.Program, long: int
) -> None:
    """Linux reads 255 bytes of a script's first line, or 127."""
    with TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short, *(letter * 50 for letter in "abcdef"[: long // 50]))
        folder.mkdir(parents=True, exist_ok=True)
        node = Node(release, folder, Path(uv_sent["path"]), uv_sent["file"])
        files = {place.format("both-1.0"): content for place, content in FILES.items()}
        add(node, make_wheel(folder, "both", files=files))
        assert node.install()["active"]
        for name, said in (("small", b"ran\n"), ("tool", b"tool ran\n")):
            command = Path(node.root["r1"], "bin", name)
            assert (len(str(command)) > 255) == (long == 300)
            assert subprocess.check_output([command]) == said


def add(node: Node, wheel: Path) -> None:
    """Have another wheel in the release of a node, received."""
    node.params["wheels"].append({"file": wheel.name, "sha256": sha256_of(wheel)})
    place = Path(node.params["staging"], sha256_of(wheel))
    place.mkdir()
    shutil.copy(wheel, place)


@pytest.mark.parametrize(
    ("tag", "files", "said"),
    [
        ("py3-none-any", {"other-1.0.data/scripts/python3": b"#!x"}, "reserved name"),
        ("py3-none-any", {"other-1.0.data/data/bin/python": b"#!x"}, "reserved name"),
        ("py3-none-any", {"other-1.0.data/nowhere/file": b""}, "Unknown wheel data type"),
        (
            "py3-none-any",
            {"other-1.0.dist-info/entry_points.txt": b"[console_scripts]\na = m\n"},
            "invalid console script",
        ),
        ("cp36-cp36m-linux_x86_64", {}, "no wheels with a matching Python"),
        ("cp399-abi3-linux_x86_64", {}, "compatible with CPython 3.99"),
    ],
)  # fmt: skip
def test_a_wheel_that_does_not_fit_the_environment_is_refused(
    packed: Node, tmp_path: Path, tag: str, files: dict[str, bytes], said: str
) -> None:
    add(packed, make_wheel(tmp_path, "other", tag=tag, files=files))
    for wheel, commands in zip(packed.params["wheels"], (["small"], []), strict=True):
        wheel["commands"] = commands  # as `apply` announces them
    with pytest.raises(packed.release.Problem, match=said) as why:
        packed.install()
    assert str(why.value).startswith("error: ")
    assert why.value.fix == ["plan-for-python"]
    assert packed.root.serving() == ""


def test_a_wheel_writes_no_file_outside_of_the_release(packed: Node, tmp_path: Path) -> None:
    add(packed, make_wheel(tmp_path, "other", files={"../../../../../outside.py": b"x = 1"}))
    assert packed.install()["active"]
    assert not list(tmp_path.rglob("outside.py"))


def test_uv_is_not_run_for_an_older_python(packed: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "OLDEST", 99)
    assert packed.install()["made_by"] == "pip"


def test_pip_installs_where_uv_does_not_run(
    release: ModuleType, tmp_path: Path, broken_uv: Path
) -> None:
    node = Node(release, tmp_path, broken_uv)
    assert node.install()["made_by"] == "pip"
    assert node.root.serving() == "r1"
    found = {path.name for path in Path(node.root["r1"]).glob("lib/python3*/site-packages/*")}
    assert "pip" not in found  # it ran from the wheel of ensurepip


def test_a_program_that_arrived_damaged_is_sent_again(
    packed: Node, uv_sent: installers.Program
) -> None:
    """As a wheel: pip in its place is slower, and its warning says no reason."""
    uv = packed.params["installer"]
    copied = Path(packed.params["staging"], uv["sha256"], uv["file"])
    copied.write_bytes(copied.read_bytes()[:-1])
    with pytest.raises(packed.release.Problem, match=r"uv\.gz arrived damaged") as why:
        packed.install()
    assert why.value.fix == ["run-to-copy"]
    assert not copied.exists()
    assert packed.begin()["missing"] == [uv]
    shutil.copy(uv_sent["path"], copied)
    assert packed.install()["made_by"] == "uv"


def test_another_version_of_uv_is_kept_until_nobody_has_used_it_for_a_month(tmp_path: Path) -> None:
    """Each of two release names may be installed by a fleetbuild of another version."""
    folder, now = str(tmp_path), time.time()
    own, other, old = ({"sha256": letter * 64, "file": "uv"} for letter in "abc")
    for uv, days in ((own, 90), (other, 29), (old, 31)):
        received = tmp_path / "received"
        received.write_text("a program")
        installer.keep_uv(folder, uv, str(received))
        place = Path(installer.kept_uv(folder, uv)).parent
        os.utime(place, (now - days * 86400,) * 2)
    installer.forget_uv(folder, own)
    assert [Path(installer.kept_uv(folder, uv)).is_file() for uv in (own, other, old)] == [
        True, True, False,
    ]  # fmt: skip
    installer.forget_uv(folder, other)  # the use of the first one has been noted
    assert Path(installer.kept_uv(folder, own)).is_file()


@pytest.mark.parametrize("mode", [0o666, 0o600])
def test_a_wheel_has_its_mode_whatever_the_umask_of_who_sent_it(node: Node, mode: int) -> None:
    node.begin()
    (file,) = node.params["wheels"]
    sent = Path(receiving.staged(node.params, file))
    assert sent.parent.stat().st_mode & 0o777 == 0o700  # nobody else opens it while it arrives
    sent.chmod(mode)
    assert node.install()["active"]
    (kept,) = Path(node.root.wheels).iterdir()
    assert kept.stat().st_mode & 0o777 == 0o644


def test_the_node_asks_for_uv_once(node: Node) -> None:
    uv = node.params["installer"]
    shutil.rmtree(node.params["staging"])
    assert node.begin()["missing"] == [*node.params["wheels"], uv]
    kept = Path(installer.kept_uv(node.root.path, uv))
    kept.parent.mkdir(parents=True)
    shutil.copy(find_uv_bin(), kept)
    assert node.begin()["missing"] == node.params["wheels"]


def test_a_user_who_cannot_write_sends_to_folders_from_which_root_takes_the_files(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [*node.params["wheels"], node.params["installer"]]
    shutil.move(node.params["staging"], tmp_path / "sent")
    with monkeypatch.context() as user:
        user.setattr(node.release, "writable", lambda *_: False)
        node.params["became"] = False
        began = node.begin()
        assert (began["counter"], began["writable"]) == (0, False)
        assert not Path(began["incoming"]).exists()
    user = os.geteuid() or 4711
    node.params |= {"became": True, "login_uid": user}
    began = node.begin()
    incoming = Path(began["incoming"])
    assert (bool(began["counter"]), began["missing"], began["for_login"]) == (True, files, True)
    owners = {path.name: path.stat().st_uid for path in incoming.iterdir()}
    assert owners == dict.fromkeys((file["sha256"] for file in files), user)
    for file in files:
        shutil.copy(tmp_path / "sent" / file["sha256"] / file["file"], incoming / file["sha256"])
    (incoming / files[0]["sha256"] / files[0]["file"]).write_bytes(b"cut off")
    assert node.begin()["missing"] == files[:1]  # a killed run had not sent all of it
    with pytest.raises(node.release.Problem, match="arrived damaged"):
        node.install()
    assert node.begin()["missing"] == files[:1]
    wheel = files[0]["sha256"]
    shutil.copy(tmp_path / "sent" / wheel / files[0]["file"], incoming / wheel)
    assert node.install()["made_by"] == "uv"
    assert not incoming.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")
def test_folders_for_another_login_user_are_made_again(bare: Node) -> None:
    shutil.rmtree(bare.params["staging"])
    (file,) = bare.params["wheels"]
    for user in (4711, 4712):
        bare.params["login_uid"] = user
        folder = Path(bare.begin()["incoming"])
        assert [path.name for path in folder.iterdir()] == [file["sha256"]]
        assert (folder / file["sha256"]).stat().st_uid == user
        assert folder.stat().st_uid == 0
        assert not any((folder / file["sha256"]).iterdir())
        (folder / file["sha256"] / file["file"]).write_bytes(b"of the first user")
    bare.params["wheels"] = []  # a clean-up asks for none
    assert not Path(bare.begin()["incoming"]).exists()
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(bare.release.Problem, match="can be written by other users"):
        bare.root.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")
def test_what_another_login_user_sent_is_sent_again(bare: Node, tmp_path: Path) -> None:
    shutil.move(bare.params["staging"], tmp_path / "sent")
    (file,) = bare.params["wheels"]
    for user in (4711, 4712):
        bare.params["login_uid"] = user
        began = bare.begin()
        assert began["missing"] == [file]
        folder = Path(began["incoming"], file["sha256"])
        shutil.copy(tmp_path / "sent" / file["sha256"] / file["file"], folder)
        assert bare.begin()["missing"] == []
    assert bare.install()["active"]


@pytest.mark.parametrize(
    ("mode", "user", "enters"),
    [(0o755, 4711, True), (0o711, 4711, True), (0o750, 4711, False), (0o700, os.geteuid(), True)],
)
def test_a_login_user_who_cannot_enter_the_path_is_known(
    mode: int, user: int, enters: bool
) -> None:
    with TemporaryDirectory(dir="/tmp") as shared:  # pytest's own folders are private
        folder = Path(shared)
        folder.chmod(0o755)
        (folder / "apps").mkdir(mode)
        (folder / "link").symlink_to("apps")
        for name in ("apps", "apps/fb", "link/fb"):
            assert receiving.can_enter(str(folder / name), user) is enters


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders for others")
def test_a_login_user_who_cannot_enter_the_path_gets_no_folders_there(
    bare: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {**bare.params, "state": "begun", "spec": {"release": "default", "login_uid": 4711}}
    for enters in (True, False):
        monkeypatch.setattr(bare.release, "can_enter", lambda *_, enters=enters: enters)
        params = bare.release.complete(about)
        began = bare.release.begin(bare.root, params, False)
        assert began["for_login"] is enters
        assert Path(began["incoming"]).name == (".incoming" if enters else "wheels")


@pytest.mark.parametrize(
    ("needs_root", "for_login", "become"),
    [(False, False, "omitted"), (True, True, "omitted"), (True, False, "True")],
)
def test_files_pass_through_another_folder_where_the_login_user_has_none(
    needs_root: bool, for_login: bool, become: str
) -> None:
    """As where `ansible_become_user` is not root: it can make no folders of the login user's."""
    tasks = yaml.safe_load((ROLES / "install_wheel/tasks/main.yml").read_text())
    (copy,) = (task for task in tasks if task["name"] == "Copy wheels")
    state = {"became": needs_root, "for_login": for_login}
    assert Template(copy["become"]).render(omit="omitted", install_wheel_state=state) == become


def test_what_a_login_user_sent_is_removed_once_root_logs_in(bare: Node) -> None:
    folder = Path(bare.root.path, ".incoming")
    shutil.copytree(bare.params["staging"], folder)
    bare.begin()
    assert not folder.exists()


def test_a_copy_that_a_full_disk_cut_short_is_made_again(bare: Node) -> None:
    shutil.copytree(bare.params["staging"], Path(bare.root.path, ".incoming"))
    (file,) = bare.params["wheels"]
    Path(bare.params["staging"], file["sha256"], file["file"]).write_bytes(b"cut off")
    assert bare.install(login_uid=os.geteuid() or 4711)["active"]


def test_nothing_stays_of_a_copy_that_fills_the_disk(bare: Node) -> None:
    (file,) = bare.params["wheels"]
    shutil.move(bare.params["staging"], Path(bare.root.path, ".incoming"))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(OSError, match="too large"):
            bare.install(login_uid=4711)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not Path(receiving.staged(bare.params, file)).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")
def test_sent_files_need_no_space_again(
    bare: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = bare.params["wheels"]
    shutil.move(bare.params["staging"], tmp_path / "sent")
    bare.params["login_uid"] = 4711
    folder = Path(bare.begin()["incoming"], file["sha256"])
    wheel = Path(shutil.copy(tmp_path / "sent" / file["sha256"] / file["file"], folder))
    disk = SimpleNamespace(f_bavail=100, f_frsize=512)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    bare.params["space"] = 512 * 100 + wheel.stat().st_size
    assert bare.begin()["missing"] == []
    bare.params["space"] += 1
    with pytest.raises(bare.release.Problem, match="MB free, and the release needs"):
        bare.begin()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_file_that_was_sent_as_something_else_is_not_taken_and_does_not_stay(
    bare: Node, kind: str
) -> None:
    incoming = Path(bare.root.path, ".incoming")
    shutil.move(bare.params["staging"], incoming)
    (file,) = bare.params["wheels"]
    sent = incoming / file["sha256"] / file["file"]
    user = os.geteuid() or 4711
    os.chown(sent.parent, user, -1)
    whole = sent.rename(bare.root.path + "/whole")  # a link to it is one to anything
    if kind == "link":
        sent.symlink_to(whole)
    elif kind == "pipe":
        os.mkfifo(sent)
    else:
        (sent / "x").mkdir(parents=True)  # sftp would put the file into it
    assert not receiving.is_sent({**bare.params, "login_uid": user}, file)
    with pytest.raises(bare.release.Problem, match="arrived damaged"):
        bare.install(login_uid=user)
    assert not os.path.lexists(sent)
    assert not [path for path in Path(bare.root.path).rglob("*.whl") if path.is_file()]


def test_a_copy_of_root_that_was_cut_short_is_missing(
    bare: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: str) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(receiving, "open_sent", unreadable)
    assert bare.begin()["missing"] == bare.params["wheels"]


def test_the_controllers_uv_goes_to_nodes_of_its_kind(own_uv: Path) -> None:
    machine, glibc = platform.machine(), Libc(family="glibc", version="2.36")
    found = installers.installer_for(Facts(arch=machine, libc=glibc), own_uv)
    assert found["file"] == "uv.gz"
    packed = Path(found["path"])
    assert (found["sha256"], found["size"]) == (sha256_of(packed), packed.stat().st_size)
    assert packed.parent == own_uv
    assert gzip.decompress(Path(found["path"]).read_bytes()) == Path(find_uv_bin()).read_bytes()
    musl = Libc(family="musl", version="1.2")
    for other in (Facts(arch="other", libc=glibc), Facts(arch=machine, libc=musl)):
        assert installers.installer_for(other, own_uv) == {}


@pytest.fixture(scope="session")
def uv_sent(tmp_path_factory: pytest.TempPathFactory) -> installers.Program:
    """The packed uv, as an apply sends it."""
    return installers.own_uv(tmp_path_factory.mktemp("installer"))


@pytest.fixture
def own_uv(tmp_path: Path) -> Path:
    """The folder of the packed uv, which is not there yet."""
    return tmp_path / "installer"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small program in place of the uv of 38 MB, where it is packed and not run."""
    path = tmp_path / "program"
    path.write_bytes(bytes(range(256)) * 40)
    monkeypatch.setattr(installers, "bundled_uv", lambda: str(path))
    return path


def test_each_state_directory_keeps_the_packed_program_until_it_is_another_one(
    own_uv: Path, program: Path
) -> None:
    first = installers.own_uv(own_uv)
    packed = Path(first["path"])
    written = packed.stat().st_ino
    installers.own_uv.cache_clear()
    assert installers.own_uv(own_uv) == first
    assert packed.stat().st_ino == written
    program.write_bytes(b"another version")
    installers.own_uv.cache_clear()
    other = Path(installers.own_uv(own_uv)["path"])
    assert list(own_uv.iterdir()) == [other]
    assert gzip.decompress(other.read_bytes()) == b"another version"


@pytest.mark.parametrize(
    "content",
    [b"", PACKED, PACKED[:-9], PACKED[:10] + b"\xff" * 20],
    ids=["empty", "another program", "cut short", "damaged"],
)  # fmt: skip
@pytest.mark.usefixtures("program")
def test_a_file_that_does_not_hold_the_program_is_packed_again(
    own_uv: Path, content: bytes
) -> None:
    first = installers.own_uv(own_uv)
    Path(first["path"]).write_bytes(content)
    installers.own_uv.cache_clear()
    assert installers.own_uv(own_uv) == first
    assert sha256_of(Path(first["path"])) == first["sha256"]


def test_a_packed_uv_is_unpacked_where_it_is_kept(packed: Node) -> None:
    assert packed.install()["made_by"] == "uv"
    kept = Path(installer.kept_uv(packed.root.path, packed.params["installer"]))
    assert kept.read_bytes() == Path(find_uv_bin()).read_bytes()
    assert os.listdir(kept.parent) == ["uv"]


def test_a_uv_that_does_not_fit_unpacked_leaves_nothing(tmp_path: Path) -> None:
    received = tmp_path / "uv.gz"
    received.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    uv = {"sha256": "a" * 64, "file": "uv.gz"}
    with pytest.raises(EOFError):
        installer.keep_uv(str(tmp_path), uv, str(received))
    assert os.listdir(Path(installer.kept_uv(str(tmp_path), uv)).parent) == []
    assert not (tmp_path / "uv").exists()


def test_pip_installs_if_the_packed_uv_is_damaged(release: ModuleType, tmp_path: Path) -> None:
    """As from a controller with a bad disk, which computes the hash of the damaged file."""
    packed = tmp_path / "uv.gz"
    packed.write_bytes(PACKED[:10] + b"\xff" * 20)
    assert Node(release, tmp_path, packed, "uv.gz").install()["made_by"] == "pip"


def test_two_release_names_unpack_uv_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds the lock of its own name, and a run that is killed leaves what it wrote."""
    uv = {"sha256": "a" * 64, "file": "uv.gz"}
    first, second = (tmp_path / name / "uv.gz" for name in ("a", "b"))
    for received in (first, second):
        received.parent.mkdir()
        received.write_bytes(gzip.compress(b"a program"))
    copy, killed = installer.shutil.copyfileobj, []

    def killed_meanwhile(packed: Any, there: Any, size: int) -> None:
        if killed:
            raise KeyboardInterrupt
        killed.append(second)
        copy(packed, there, size)
        there.flush()
        with pytest.raises(KeyboardInterrupt):
            installer.keep_uv(str(tmp_path), uv, str(second))

    monkeypatch.setattr(installer.shutil, "copyfileobj", killed_meanwhile)
    installer.keep_uv(str(tmp_path), uv, str(first))
    kept = Path(installer.kept_uv(str(tmp_path), uv))
    assert kept.read_bytes() == b"a program"
    assert os.listdir(kept.parent) == ["uv"]
    assert not first.exists()  # the wheels need the space


@pytest.mark.parametrize(
    "folder",
    ["wheels", "/opt/../etc", "/opt/.", "/-o", "/opt/x y", "/opt/'", "/opt\n!sh", "~x"],
)
def test_a_folder_that_is_not_a_plain_path_gets_no_file(folder: str) -> None:
    action = plugin("action.transfer").ActionModule.__new__(plugin("action.transfer").ActionModule)
    action._task = SimpleNamespace(
        args={"folder": folder, "files": [{"path": "/x", "sha256": "a"}]},
        check_mode=False, async_val=0, action="fleetbuild.core.transfer",
    )  # fmt: skip
    action._connection = SimpleNamespace(
        _shell=SimpleNamespace(tmpdir="/x"), become=None, transport="local"
    )
    action._transfer_file = None  # a call fails
    found = action.run(None, {"inventory_hostname": "h1"})
    assert found["failed"]
    assert "a folder that is not a plain path" in found["msg"]


def test_a_run_removes_nothing_that_another_name_has_received(bare: Node) -> None:
    about = {**bare.params, "state": "present", "spec": {"release": "other", "login_uid": 0}}
    other = bare.release.complete(about)
    root = bare.release.Root(other["root"])
    for file in bare.release.begin(root, other, False)["missing"]:
        path = Path(receiving.staged(other, file))
        shutil.copy(Path(receiving.staged(bare.params, file)), path)
    bare.install()
    assert bare.release.install(root, other, False)["active"]
