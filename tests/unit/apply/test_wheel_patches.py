"""The controller makes a patch for each pair of wheels that nodes have and are to get, once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fleetbuild.apply import wave, wheel_patches
from fleetbuild.apply.stages import carry_out
from fleetbuild.files import sha256_of
from fleetbuild.models import Event, LockedFile, Manifest, PlannedGroup, PlannedNode, PlannedTarget
from fleetbuild.models.plan import Installs
from fleetbuild.models.release import ManifestWheel
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, group, plan

pytestmark = pytest.mark.skipif(not shutil.which("zstd"), reason="no zstd")
SIZE = 300_000
COMMON = os.urandom(SIZE)
NODES = ("avx-1", "avx-2", "avx-3")


class Shelf(FakeStore):
    """A store with the folders of a real one."""

    def fetch(self, file: LockedFile, check_cancelled: Callable[[], None]) -> Path:
        super().fetch(file, check_cancelled)
        return self.folder / "files" / file.sha256 / file.file

    def find_served(self, manifest: Manifest, package: str) -> Sequence[Path]:
        return Store(self.folder).find_served(manifest, package)


class Fleet:
    """Nodes that serve a release with big==1.0, and a plan with 2.0."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Shelf(folder / "state" / "store")
        self.old, self.new = (self.download(version) for version in ("1.0", "2.0"))
        self.nodes = {name: facts("avx", release={"default": serving("1.0")}) for name in NODES}
        self.told: list[Event] = []

    def download(self, version: str, tag: str = "py3-none-any", data: bytes = COMMON) -> LockedFile:
        files = {"big/data": data, "big/__init__.py": version.encode()}
        made = make_wheel(self.folder / "made", "big", version, tag, files=files)
        home = self.store.folder / "files" / sha256_of(made)
        home.mkdir(parents=True)
        made.rename(home / made.name)
        return LockedFile(
            name="big", version=version, file=made.name, sha256=home.name, url="https://x/y.whl"
        )

    def path(self, file: LockedFile) -> Path:
        return self.store.folder / "files" / file.sha256 / file.file

    @property
    def group(self) -> PlannedGroup:
        return group("avx", list(NODES), dependencies=(self.new,))

    def apply(self, bandwidth: float | None = 10) -> list[list[str]]:
        """Apply; return the sources of the patches that each wave of nodes may get."""
        fleet = FakeFleet(facts=dict(self.nodes), store=self.store)
        self.told.clear()
        run = fleet.run(
            plan(self.group, bandwidth=bandwidth),
            self.folder / "state",
            self.told,
        )
        result = carry_out(run)
        assert result.exit_code == 0, result
        self.specs = [
            spec
            for variables in fleet.extravars
            for spec in variables.get("fleetbuild_installs", {}).values()
        ]
        return [[patch["source"] for patch in spec.get("patches", [])] for spec in self.specs]

    @property
    def warnings(self) -> list[str]:
        return [each.message for each in self.told if each.state == "warning"]


def serving(*versions: str, **more: object) -> Manifest:
    values = {"release": "default", "id": "r0", "group": "g", "python": "/usr/bin/python3"}
    names = tuple(f"Big=={version}" for version in versions)
    return Manifest.model_validate({**values, "wheels": (), "dependencies": names, **more})


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(wheel_patches, "_SMALLEST", SIZE // 2)
    (tmp_path / "state/store").mkdir(parents=True)
    return Fleet(tmp_path)


def test_each_node_may_get_the_patch_which_is_made_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.apply() == [[fleet.old.sha256]] * 3
    (patch,) = fleet.specs[0]["patches"]
    assert patch["wheel"] == fleet.new.sha256
    assert patch["sha256"] == sha256_of(Path(patch["path"]))
    assert patch["size"] == Path(patch["path"]).stat().st_size
    assert Path(patch["path"]).stat().st_size < SIZE / 20
    assert {path.suffix for path in Path(patch["path"]).parent.iterdir()} == {".zst", ".json"}
    assert [each.message for each in fleet.told if each.state == "progress"][-1:] == [
        f"making the patch of {fleet.new.file}"
    ]
    monkeypatch.setattr(wheel_patches, "_make", None)
    assert fleet.apply() == [[fleet.old.sha256]] * 3
    Path(patch["path"]).write_bytes(b"cut off")  # is made again
    monkeypatch.undo()
    monkeypatch.setattr(wheel_patches, "_SMALLEST", SIZE // 2)
    assert fleet.apply() == [[fleet.old.sha256]] * 3
    assert patch["sha256"] == sha256_of(Path(patch["path"]))


def test_none_is_made_over_a_fast_link_or_without_zstd_or_for_a_small_wheel(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    none: list[list[str]] = [[], [], []]
    assert fleet.apply(bandwidth=None) == none
    # Three times 0.3 MB take 0.01 s at 500 Mbit/s, and a patch takes some 0.03 s of the CPUs.
    assert fleet.apply(bandwidth=500) == none
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        assert fleet.apply() == none
    monkeypatch.setattr(wheel_patches, "_SMALLEST", 2 * SIZE)
    assert fleet.apply() == none
    assert not (fleet.store.folder / "patches").exists()
    assert fleet.warnings == []


@pytest.mark.parametrize("says", ["echo '*** zstd v1.4.4 ***'", "echo odd", "sleep 3"])
def test_an_old_or_broken_zstd_is_like_none(
    says: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "zstd"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    run = wheel_patches.run_program
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(
        wheel_patches, "run_program", lambda words, **more: run(words, **{**more, "within": 1})
    )
    assert fleet.apply() == [[], [], []]
    assert fleet.warnings == []


def test_a_named_target_gets_no_patch(fleet: Fleet) -> None:
    """Its dependencies are not fetched."""
    alone = fleet.group.model_copy(update={"nodes": (), "installs": Installs()})
    made = plan(
        alone,
        bandwidth=10,
        nodes={"avx-1": PlannedNode(state="skipped", reason="only builds")},
        targets={alone.name: PlannedTarget(state="ok", group=alone.name)},
    )
    run = FakeFleet(facts=dict(fleet.nodes), store=fleet.store).run(made, fleet.folder / "state")
    assert carry_out(run).exit_code == 0
    assert not (fleet.store.folder / "patches").exists()


def test_a_patch_that_is_hardly_smaller_is_not_used(fleet: Fleet) -> None:
    fleet.new = fleet.download("3.0", data=os.urandom(SIZE))
    assert fleet.apply() == [[], [], []]
    (about,) = (fleet.store.folder / "patches").iterdir()
    assert about.read_text() == "{}"  # so that it is not made again
    assert fleet.apply() == [[], [], []]
    assert fleet.warnings == []


def test_sources_are_what_most_nodes_have_for_their_python_and_machine(fleet: Fleet) -> None:
    versions = ("1.1", "1.2", "1.3", "1.4")
    others = [fleet.download(version).sha256 for version in versions]
    fleet.download("1.0", "cp39-cp39-manylinux_2_17_x86_64")
    fleet.nodes["avx-1"] = facts("avx", release={"default": serving("1.0", *versions[:3])})
    fleet.nodes["avx-2"] = facts("avx", release={"default": serving("1.0", "1.1", "2.0")})
    fleet.nodes["avx-3"] = facts("avx")
    found = fleet.apply()[0]
    assert set(found[:2]) == {fleet.old.sha256, others[0]}
    assert len(found) == 3
    assert fleet.new.sha256 not in found


@pytest.mark.parametrize("damaged", ["old", "new"])
def test_a_damaged_wheel_of_the_store_makes_no_patch(fleet: Fleet, damaged: str) -> None:
    path = fleet.path(getattr(fleet, damaged))
    path.write_bytes(path.read_bytes() + b"x")
    assert fleet.apply() == [[], [], []]
    why = "a wheel in the store is damaged (fleetbuild store check)"
    warning = f"{fleet.new.file} is sent whole: its patch could not be made: {why}"
    assert fleet.warnings == [warning]


def test_a_failure_of_zstd_is_one_line_and_leaves_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "zstd"
    program.write_text(
        "#!/bin/sh\necho v1.5.4; echo first >&2; echo 'zstd: no memory' >&2; [ $1 = --version ]\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert fleet.apply() == [[], [], []]
    assert [text.rpartition(": ")[2] for text in fleet.warnings] == ["no memory"]
    assert list((fleet.store.folder / "patches").iterdir()) == []


def test_a_wheel_is_sent_whole_if_its_patch_takes_too_long(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_patches, "_SECONDS", -1)
    assert fleet.apply() == [[], [], []]
    assert [text.rpartition(": ")[2] for text in fleet.warnings] == [
        "all patches together take more than -1 s"
    ]


def test_a_patch_that_alone_takes_too_long_is_not_begun_in_each_run(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "zstd"
    program.write_text("#!/bin/sh\necho v1.5.4\n[ $1 = --version ] || exec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(wheel_patches, "_SECONDS", 2)
    assert fleet.apply() == [[], [], []]
    assert len(fleet.warnings) == 1
    (about,) = (fleet.store.folder / "patches").iterdir()
    assert about.read_text() == "{}"
    assert fleet.apply() == [[], [], []]
    assert fleet.warnings == []


def test_what_a_killed_run_left_is_removed_and_old_patches_too(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fleet.store.folder / "patches"
    (folder / ".part-x").mkdir(parents=True)
    (folder / ".part-x/old").write_text("unpacked")
    (folder / "unused.zst").write_text("x")
    os.utime(folder / "unused.zst", (0, 0))
    fleet.apply()
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".zst"]
    monkeypatch.setattr(wheel_patches, "_KEPT", 10)
    wheel_patches._remove_unused(folder)
    assert [path.suffix for path in folder.iterdir()] == [".json"]


def test_the_store_finds_built_and_downloaded_wheels_and_gc_removes_patches(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key, sha256 = "a" * 32, "b" * 64
    built = ManifestWheel(package="Big_Name", version="1", artifact_key=key, sha256=sha256)
    manifest = serving(wheels=(built,), dependencies=("big-name==2.0", "other==2.0"))
    paths = [
        tmp_path / "wheels" / key / sha256 / "big_name-1-py3-none-any.whl",
        tmp_path / "files" / ("c" * 64) / "Big.Name-2.0-py3-none-any.whl",
        tmp_path / "files" / ("d" * 64) / "big_name-3.0-py3-none-any.whl",
        tmp_path / "files" / ("e" * 64) / "other-2.0-py3-none-any.whl",
        tmp_path / "patches" / "x.zst",
    ]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    assert store.find_served(manifest, "big-name") == paths[:2]
    assert store.find_served(serving(), "big-name") == []
    assert store.gc({key}, {"c" * 64, "d" * 64, "e" * 64}) == (tmp_path / "patches",)


def test_a_node_that_names_thousands_of_versions_costs_one_look_at_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    glob = Path.glob

    def look(path: Path, pattern: str) -> object:
        looks.append(pattern)
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", look)
    assert Store(tmp_path).find_served(serving(*map(str, range(5000))), "big") == []
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, ""),
        ({"patches": 0}, ""),
        ({"patches": 1}, "wheels copied, 1 as a patch"),
        ({"patches": 2}, "wheels copied, 2 as patches"),
        ({"patches": 2, "given_by": "n1"}, "from n1, 2 as patches"),
    ],
)
def test_how_files_came_is_said(result: dict[str, object], expected: str) -> None:
    assert wave._arrival(result) == expected
