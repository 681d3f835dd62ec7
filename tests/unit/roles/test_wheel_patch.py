"""A wheel is made from an earlier one and a patch, or is sent whole."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from uv import find_uv_bin

from fleetbuild.files import sha256_of
from tests.factories.files import make_wheel
from tests.factories.role_modules import plugin
from tests.unit.roles.test_install_at_once import Node
from tests.unit.roles.test_kept_wheels import kept

wheel_patch = plugin("module_utils.wheel_patch")
receiving = plugin("module_utils.release_receiving")
MOST = 1 << 30
needs_zstd = pytest.mark.skipif(not wheel_patch.find_zstd(), reason="no zstd 1.4.5 or newer")


def content(seed: int, size: int) -> bytes:
    chance = random.Random(seed)  # noqa: S311 (no secret)
    words = [chance.randbytes(chance.randrange(1, 12)) for _ in range(300)]
    return b"".join(chance.choice(words) for _ in range(size // 6))


class Unseekable(BytesIO):
    """What an archive is written to as to a pipe: sizes follow the data of each entry."""

    def seek(self, *_: Any) -> int:
        raise OSError("no")

    def tell(self) -> int:
        raise AttributeError


def archive(
    path: Path, entries: list[tuple[str, bytes, int | None]], *, piped: bool = False
) -> Path:
    """An archive of entries with their level; None for a stored one."""
    out: Any = Unseekable() if piped else BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data, level in entries:
            kind = zipfile.ZIP_STORED if level is None else zipfile.ZIP_DEFLATED
            entry = zipfile.ZipInfo(name)
            entry.compress_type = kind
            if level == 7:  # with the sizes of a file of more than 4 GB
                entry._compresslevel = 7
                with file.open(entry, "w", force_zip64=True) as large:
                    large.write(data)
            else:
                file.writestr(entry, data, kind, level)
    path.write_bytes(out.getvalue())
    return path


def unpacked(path: Path, *, exact: bool = True) -> Path:
    out = path.with_suffix(".raw")
    with out.open("w+b") as file:
        wheel_patch.unpack(str(path), file, MOST, exact)
    return out


def packed_again(path: Path, most: int = MOST) -> bytes:
    out = BytesIO()
    with path.open("rb") as file:
        sha256 = wheel_patch.pack(file, out, most)
    assert sha256 == hashlib.sha256(out.getvalue()).hexdigest()
    return out.getvalue()


@pytest.mark.parametrize("piped", [False, True])
def test_an_archive_is_the_same_after_both_ways(tmp_path: Path, piped: bool) -> None:
    levels = [6, 9, None, 1, 0, 3, 7, 6, None]
    entries = [(f"{n}", content(n, 70_000), level) for n, level in enumerate(levels)]
    entries += [("empty", b"", 6), ("folder/", b"", None), ("long", bytes(5 << 20), 9)]
    path = archive(tmp_path / "a.whl", entries, piped=piped)
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())  # offsets follow
    raw = unpacked(path)
    assert packed_again(raw) == path.read_bytes()
    assert raw.stat().st_size > 5 << 20
    # Each entry of one of zlib's levels is unpacked: its content is in there as it is.
    assert all(data in raw.read_bytes() for _, data, level in entries if level)


@pytest.mark.parametrize("seed", range(20))
def test_any_archive_is_the_same_after_both_ways(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (no secret)
    entries = [
        (f"{n}", content(chance.randrange(99), chance.choice([0, 1, 500, 9000, 70_000])),
         chance.choice([None, *range(10)]))
        for n in range(chance.randrange(12))
    ]  # fmt: skip
    path = archive(tmp_path / "a.whl", entries, piped=chance.random() < 0.3)
    assert packed_again(unpacked(path)) == path.read_bytes()


def test_an_entry_that_zlib_does_not_make_stays_as_it_is(tmp_path: Path) -> None:
    data = content(1, 50_000)
    path = archive(tmp_path / "a.whl", [("a", data, 6), ("b", content(2, 9000), 6)])
    right = path.read_bytes()
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_HUFFMAN_ONLY)
    odd = deflater.compress(data) + deflater.flush()
    start = right.index(b"a", 26) + 1
    with zipfile.ZipFile(path) as file:
        length = file.getinfo("a").compress_size
    # As another tool would write it; sizes are in the directory at the end.
    whole = bytearray(right[:start] + odd + right[start + length :])
    moved = len(odd) - length
    directory = whole.index(b"PK\1\2")
    whole[directory + 20 : directory + 24] = len(odd).to_bytes(4, "little")
    second = whole.index(b"PK\1\2", directory + 4)
    offset = int.from_bytes(whole[second + 42 : second + 46], "little") + moved
    whole[second + 42 : second + 46] = offset.to_bytes(4, "little")
    end = whole.index(b"PK\5\6")
    whole[end + 16 : end + 20] = directory.to_bytes(4, "little")
    path.write_bytes(whole)
    raw = unpacked(path)
    assert odd in raw.read_bytes()
    assert content(2, 9000) in raw.read_bytes()
    assert packed_again(raw) == path.read_bytes()


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", [("a", content(1, 90_000), 6)])
    whole = path.read_bytes()
    for damaged in (b"", whole[:-30], whole[:200] + bytes(500) + whole[700:]):
        path.write_bytes(damaged)
        with pytest.raises(wheel_patch.BROKEN):
            unpacked(path)


def test_output_is_bounded(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", [("zeros", bytes(30 << 20), 9)])
    with (tmp_path / "out").open("w+b") as out, pytest.raises(ValueError, match="more bytes"):
        wheel_patch.unpack(str(path), out, 1 << 20)
    assert (tmp_path / "out").stat().st_size < 3 << 20
    raw = unpacked(path)
    with pytest.raises(ValueError, match="more bytes"):
        packed_again(raw, 1 << 20)
    raw.write_bytes(wheel_patch._SEGMENT.pack(0, 0, 0) * 1000)  # segments without end
    with pytest.raises(ValueError, match="more bytes"):
        packed_again(raw, 5000)
    raw.write_bytes(wheel_patch._SEGMENT.pack(1000, 6, 8) + b"short")
    with pytest.raises(EOFError):
        packed_again(raw)
    raw.write_bytes(wheel_patch._SEGMENT.pack(5, 77, 200) + b"short")
    with pytest.raises(wheel_patch.BROKEN):
        packed_again(raw)


def patch_of(old: Path, new: Path, folder: Path) -> tuple[dict[str, Any], Path]:
    """What the controller makes of two wheels: what a node needs to know, and the file."""
    folder.mkdir()
    command = [sys.executable, "-I", "-S", wheel_patch.__file__, old, new, folder, str(MOST)]
    about = json.loads(subprocess.check_output(command))
    path = folder / f"{new.name}.zst"
    options = [f"--patch-from={folder}/old", f"{folder}/new", "-o", str(path)]
    subprocess.check_call(["zstd", *wheel_patch.OPTIONS, "-9", *options])
    about |= {"file": path.name, "path": str(path), "sha256": sha256_of(path)}
    return {**about, "source": sha256_of(old), "wheel": sha256_of(new)}, path


class Upgrade:
    """A node that serves version 1.0 of a wheel, and is to get 2.0, with a patch on offer."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.new = make_wheel(
            folder / "new", "small", "2.0", files={"small/__init__.py": b"def main(): print(2)\n",
            "small/data": content(1, 400_000)},
        )  # fmt: skip
        (old,) = kept(node).values()
        self.patch, self.file = patch_of(old, self.new, folder / "patches")
        self.wheel = {"file": self.new.name, "sha256": sha256_of(self.new)}
        node.params |= {
            "release_id": "r2", "wheels": [self.wheel], "patches": [self.patch],
            "manifest": {**node.params["manifest"], "id": "r2"},
        }  # fmt: skip

    def begin(self) -> Any:
        return self.node.begin()["missing"]

    def arrive(self, file: Path | None = None) -> Path:
        place = Path(receiving.sent(self.node.params, self.patch))
        shutil.copy(file or self.file, place)
        return place

    @property
    def folder(self) -> Path:
        return Path(receiving.staged(self.node.params, self.patch)).parent

    def take_whole(self) -> None:
        """The next run sends the wheel, and nothing of the attempt is left after it."""
        assert self.begin() == [self.wheel]
        shutil.copy(self.new, receiving.sent(self.node.params, self.wheel))
        assert self.node.install()["active"]
        assert not Path(self.node.params["staging"]).exists()


@pytest.fixture
def upgrade(release: ModuleType, tmp_path: Path) -> Upgrade:
    node = Node(release, tmp_path, Path(find_uv_bin()))
    node.install()
    return Upgrade(node, tmp_path)


@needs_zstd
def test_a_patch_arrives_in_place_of_the_wheel(upgrade: Upgrade) -> None:
    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive()
    assert upgrade.begin() == []
    assert upgrade.node.install()["active"]
    assert kept(upgrade.node)["r2"].read_bytes() == upgrade.new.read_bytes()
    assert kept(upgrade.node)["r2"].stat().st_mode & 0o777 == 0o644
    assert not Path(upgrade.node.params["staging"]).exists()


@needs_zstd
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone changes owners")
def test_another_user_sends_it(upgrade: Upgrade) -> None:
    upgrade.node.params |= {"became": True, "login_uid": 4711}
    assert upgrade.begin() == [upgrade.patch]
    os.chown(upgrade.arrive(), 4711, -1)
    assert upgrade.begin() == []
    assert upgrade.node.install()["active"]
    assert not Path(receiving.incoming(upgrade.node.params)).exists()
    assert not Path(upgrade.node.params["staging"]).exists()


@needs_zstd
@pytest.mark.parametrize(
    "lack", ["zstd", "old zstd", "memory", "disk", "zlib", "source", "damaged source"]
)
def test_the_wheel_is_sent_where_a_patch_cannot_be_used(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lack: str
) -> None:
    source = kept(upgrade.node)["r1"]
    if lack == "zstd":
        monkeypatch.setattr(wheel_patch, "_PATH", str(tmp_path))
    elif lack == "old zstd":
        program = tmp_path / "zstd"
        program.write_text("#!/bin/sh\necho '*** zstd command line interface 64-bits v1.4.4'\n")
        program.chmod(0o755)
        monkeypatch.setattr(wheel_patch, "_PATH", str(tmp_path))
    elif lack == "memory":
        monkeypatch.setattr(wheel_patch, "free_memory", lambda: 1 << 20)
    elif lack == "disk":
        disk = os.statvfs(tmp_path)
        free = disk.f_bavail * disk.f_frsize
        monkeypatch.setitem(upgrade.patch, "bytes", free)
        monkeypatch.setattr(wheel_patch, "free_memory", lambda: 2 * free)
    elif lack == "zlib":
        monkeypatch.setattr(wheel_patch, "SETTINGS", wheel_patch.SETTINGS[1:])
    elif lack == "source":
        source.unlink()
    else:
        source.write_bytes(source.read_bytes()[:-1])
    assert upgrade.begin() == [upgrade.wheel]


@pytest.mark.parametrize(
    ("own", "file", "limits"),
    [
        ("0::/a/b\n", "./{}/memory.max", {"a": "5000000\n", "a/b": "max\n"}),
        ("0::/\n", "./{}/memory.max", {"": "5000000\n"}),
        ("3:cpu:/c\n2:hugetlb,memory:/a\n0::/\n", "memory/{}/memory.limit_in_bytes",
         {"": "9223372036854771712\n", "a": "5000000\n"}),
        ("2:memory:/of/the/host\n", "memory/{}/memory.limit_in_bytes", {"": "5000000\n"}),
    ],
)  # fmt: skip
def test_free_memory_is_at_most_what_a_cgroup_may_use(
    own: str, file: str, limits: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(wheel_patch, "_OWN_CGROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(wheel_patch, "_CGROUPS", str(tmp_path))
    assert wheel_patch.free_memory() > 5_000_000
    for name, limit in limits.items():
        path = tmp_path / file.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit)
    assert wheel_patch.free_memory() == 5_000_000


@needs_zstd
def test_other_bytes_fail_the_node_and_the_next_run_sends_the_wheel(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a zlib that passes the sample, and compresses something else in another way."""
    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive()
    with monkeypatch.context() as patched:
        patched.setattr(wheel_patch, "_deflate", lambda pieces, *_: pieces)
        with pytest.raises(upgrade.node.release.Problem, match="from a patch") as failed:
            upgrade.node.install()
    assert failed.value.fix == ["run-to-copy"]
    assert upgrade.node.root.serving() == "r1"
    assert [path.name for path in upgrade.folder.iterdir()] == ["tried"]
    upgrade.take_whole()


@needs_zstd
def test_after_a_failure_the_next_run_uses_no_other_patch_either(
    upgrade: Upgrade, tmp_path: Path
) -> None:
    """Neither of the same wheel from another source, nor of another wheel that has arrived."""
    other = {**upgrade.patch, "sha256": "1" * 64}
    new = make_wheel(tmp_path / "new", "second", "2.0", files={"second/data": b"2"})
    wheel = {"file": new.name, "sha256": sha256_of(new)}
    patch = {**upgrade.patch, "wheel": wheel["sha256"], "sha256": sha256_of(upgrade.file)}
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"no patch")
    upgrade.patch["sha256"] = sha256_of(foreign)
    upgrade.node.params |= {
        "wheels": [upgrade.wheel, wheel], "patches": [upgrade.patch, other, patch]
    }  # fmt: skip
    assert upgrade.begin() == [upgrade.patch, patch]
    upgrade.arrive(foreign)
    shutil.copy(upgrade.file, receiving.sent(upgrade.node.params, patch))
    with pytest.raises(upgrade.node.release.Problem, match="from a patch"):
        upgrade.node.install()
    assert upgrade.begin() == [upgrade.wheel, wheel]
    for file, path in ((upgrade.wheel, upgrade.new), (wheel, new)):
        shutil.copy(path, receiving.sent(upgrade.node.params, file))
    assert upgrade.node.install()["active"]
    assert not Path(upgrade.node.params["staging"]).exists()


@needs_zstd
@pytest.mark.parametrize("how", ["patch", "source"])
def test_a_damaged_patch_or_source_is_not_used(upgrade: Upgrade, how: str) -> None:
    assert upgrade.begin() == [upgrade.patch]
    place = upgrade.arrive()
    path = place if how == "patch" else kept(upgrade.node)["r1"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(upgrade.node.release.Problem, match=r"arrived damaged|from a patch"):
        upgrade.node.install()
    assert upgrade.begin() == [upgrade.patch if how == "patch" else upgrade.wheel]


@needs_zstd
def test_a_patch_of_other_bytes_is_refused(upgrade: Upgrade, tmp_path: Path) -> None:
    """The hash of the wheel decides, whatever the patch holds; zstd's errors do not go further."""
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"no patch")
    upgrade.patch["sha256"] = sha256_of(foreign)
    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive(foreign)
    with pytest.raises(upgrade.node.release.Problem, match="from a patch"):
        upgrade.node.install()
    upgrade.take_whole()


@needs_zstd
def test_a_run_that_was_killed_leaves_nothing(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive()
    with monkeypatch.context() as patched:
        patched.setattr(wheel_patch, "pack", killed)
        patched.setattr(wheel_patch, "forget_attempt", lambda _: None)
        with pytest.raises(Killed):
            upgrade.node.install()
    assert (upgrade.folder / "unpacked").exists()
    assert upgrade.begin() == [upgrade.wheel]
    assert not (upgrade.folder / "unpacked").exists()
    upgrade.take_whole()


@needs_zstd
def test_a_zstd_that_does_not_end_is_ended(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the programs that it started, which would keep the output open."""
    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive()
    program = tmp_path / "zstd"
    program.write_text(
        "#!/bin/sh\nif [ $1 = --version ]; then echo v1.5.4; else /bin/sleep 60; fi\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(wheel_patch, "_PATH", str(tmp_path))
    monkeypatch.setattr(wheel_patch, "_PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(upgrade.node.release.Problem, match="from a patch"):
        upgrade.node.install()
    assert time.monotonic() - began < 30
    assert [path.name for path in upgrade.folder.iterdir()] == ["tried"]


@needs_zstd
def test_a_full_disk_is_named_and_left_no_fuller(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    assert upgrade.begin() == [upgrade.patch]
    upgrade.arrive()
    with monkeypatch.context() as patched:
        patched.setattr(wheel_patch, "pack", full)
        with pytest.raises(OSError, match="No space left"):
            upgrade.node.install()
    wheel = Path(receiving.staged(upgrade.node.params, upgrade.wheel))
    assert not wheel.exists()
    assert not (upgrade.folder / "unpacked").exists()
    upgrade.take_whole()
