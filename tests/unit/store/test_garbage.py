"""What store gc takes away, and what it leaves."""

import os
import time
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild.models import Manifest, ManifestWheel
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.probe.facts import keep
from fleetbuild.state import StateDir
from tests.factories.runs import group, plan

AVX = group("avx", ["a"])
PLAN = with_digest(plan(AVX))
KEY = "f" * 32
SERVED = Manifest(
    release="default", id="r1", group="g", python="/usr/bin/python3", verified=True,
    wheels=(ManifestWheel(package="x", version="1", sha256="0" * 64, artifact_key=KEY),),
)  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    fleetbuild.save_plan(PLAN, tmp_path / "plan.json")
    return StateDir(tmp_path)


def there(path: Path, days: float = 0) -> Path:
    """A folder that was left so many days ago."""
    path.mkdir(parents=True)
    (path / "file").touch()
    os.utime(path, (time.time() - days * 86400,) * 2)
    return path


def test_releases_on_nodes_outside_the_last_plan_are_kept(state: StateDir) -> None:
    keep(state, {"of-another-plan": {"release": SERVED.model_dump_json()}})
    kept, gone = (there(state.store / "wheels" / key) for key in (KEY, "e" * 32))
    assert fleetbuild.Fleet(state_dir=state.root).store.gc() == (gone,)
    assert kept.exists()
    assert not gone.exists()


def test_published_wheels_of_the_plan_are_kept(state: StateDir) -> None:
    wheel = AVX.wheels[0]
    made = wheel.model_copy(update={"published": wheel.source, "source": None})
    other = with_digest(plan(AVX.model_copy(update={"wheels": (made,)})))
    fleetbuild.save_plan(other, state.plan_file)
    assert wheel.source
    there(state.store / "files" / wheel.source.identity)
    assert fleetbuild.Fleet(state_dir=state.root).store.gc() == ()


def test_unfinished_files_are_removed_after_a_day(state: StateDir) -> None:
    needed = AVX.wheels[0].source
    assert needed
    home = there(state.store / "files" / needed.identity)
    there(state.store / ".part-new", 0.5)
    old = there(state.store / ".part-old", 1.5)
    half = home / ".part-x"
    half.touch()
    os.utime(half, (0, 0))
    assert set(fleetbuild.Fleet(state_dir=state.root).store.gc()) == {old, half}
    assert sorted(path.name for path in state.store.iterdir()) == [".part-new", "files"]
    assert [path.name for path in home.iterdir()] == ["file"]


def test_journals_logs_and_deliveries_are_removed_after_a_month(state: StateDir) -> None:
    old = {there(folder / "old", 31) for folder in (state.journal, state.runs, state.incoming)}
    young = {there(folder / "new", 29) for folder in (state.journal, state.runs, state.incoming)}
    assert set(fleetbuild.Fleet(state_dir=state.root).store.gc()) == old
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)
