"""The lease: one run at a time changes a node's releases; a run that lost it changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import ALONE, plugin
from tests.unit.roles.test_release import make

HERS, HIS = "ann@one:/srv/state (1a)", "bob@two:/srv/state (2b)"


@pytest.fixture(scope="module")
def leases() -> ModuleType:
    return plugin("module_utils.release_lease")


@pytest.fixture
def root(release: ModuleType, tmp_path: Path) -> Any:
    root = release.Root(str(tmp_path / "fb"))
    for age, name in enumerate(("a", "b", "c")):
        make(root, name, age)
    return root


@pytest.fixture
def begin(release: ModuleType, root: Any) -> Callable[..., dict[str, Any]]:
    def begin(controller: str, name: str, **more: Any) -> dict[str, Any]:
        asked = {**ALONE, "controller": controller, "plan": "0f3c", "release_id": name, **more}
        found: dict[str, Any] = release.begin(root, asked, False)
        return {name: found[name] for name in ("changed", "counter", "took_over")}

    return begin


def params(controller: str, counter: int, name: str, keep: int = 9) -> dict[str, Any]:
    return {**ALONE, "controller": controller, "counter": counter, "release_id": name,
            "keep": keep, "in_use": {}}  # fmt: skip


def test_another_controller_is_refused_by_name_until_the_switch(
    release: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    began = begin(HERS, "a")
    with pytest.raises(
        release.Problem, match=r"A run of ann@one:.* \(plan 0f3c\) is changing"
    ) as no:
        begin(HIS, "b")
    assert no.value.fix == ["wait-for-run", 30, f"{root.path}/.lease"]
    for step in (release.activate, release.go_back):
        with pytest.raises(release.Problem, match="is changing these releases"):
            step(root, params(HIS, 0, "b"), False)
    assert root.serving() == ""
    release.activate(root, params(HERS, began["counter"], "a"), False)
    assert root.serving() == "a"
    with pytest.raises(release.Problem, match="changed these releases since this run looked"):
        begin(HIS, "b", replaces="c")
    now = begin(HIS, "b", replaces="a")
    assert now == {"changed": True, "counter": began["counter"] + 1, "took_over": ""}


def test_a_run_whose_lease_was_taken_over_cannot_switch(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    lost = begin(HERS, "a")["counter"]
    expire(leases, root)
    taken = begin(HIS, "b")
    assert taken["took_over"] == f"Took over the expired lease of a run of {HERS} (plan 0f3c)."
    with pytest.raises(release.Problem, match=r"Another run, of bob@two.* has changed"):
        release.activate(root, params(HERS, lost, "a"), False)
    with pytest.raises(release.Problem, match="changed these releases since"):
        release.make(root, {**params(HERS, lost, "a"), "manifest": {}}, False)
    release.end_lease(root, params(HERS, lost, "a"), False)  # not hers any more
    release.activate(root, params(HIS, taken["counter"], "b"), False)
    assert root.serving() == "b"
    with pytest.raises(release.Problem, match=r"^Another run has changed these releases"):
        release.activate(root, params(HERS, lost, "a"), False)


def expire(leases: ModuleType, root: Any) -> None:
    path = Path(root.path, ".lease")
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "until": found["until"] - leases.SECONDS}))


def test_files_that_cannot_be_read_for_their_depth_count_as_absent(
    leases: ModuleType, root: Any
) -> None:
    Path(root.path, ".lease").write_text("[" * 9999)
    assert leases.Lease(root.path).leased() == ""
    for text in ("[" * 9999, "[]"):
        Path(root["a"], "manifest.json").write_text(text)
        assert root.manifest("a") is None


def test_an_expired_lease_that_nobody_took_is_still_good(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    counter = begin(HERS, "a")["counter"]
    expire(leases, root)
    release.activate(root, params(HERS, counter, "a"), False)
    assert root.serving() == "a"


def test_a_run_whose_lease_was_removed_by_hand_cannot_switch(
    release: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    lost = begin(HERS, "a")["counter"]
    Path(root.path, ".lease").unlink()
    assert begin(HIS, "b")["counter"] != lost
    with pytest.raises(release.Problem, match=r"Another run, of bob@two.* has changed"):
        release.activate(root, params(HERS, lost, "a"), False)


def test_the_next_run_of_the_same_controller_goes_on_at_once(
    begin: Callable[..., dict[str, Any]],
) -> None:
    first = begin(HERS, "a")["counter"]
    assert begin(HERS, "a") == {"changed": True, "counter": first + 1, "took_over": ""}


def test_a_lease_lasts_as_long_as_its_run_asked_for_after_each_step(
    leases: ModuleType, root: Any
) -> None:
    now = [1000.0]
    lease = leases.Lease(root.path, clock=lambda: now[0])
    counter = lease.take(HERS, "0f3c", "a", 6000)[0]
    now[0] += 5999
    assert lease.leased() == "a"
    lease.renew(counter)
    now[0] += 5999
    assert lease.leased() == "a"
    now[0] += 2
    assert lease.leased() == ""


def test_the_next_run_removes_the_wheels_that_a_dead_run_copied_and_keeps_its_own(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    staging = Path(root.path, "wheels")
    common, old, foreign = ("c" * 64, "0" * 64, "f" * 64)
    for sha256 in (common, old, foreign):
        (staging / sha256).mkdir(parents=True)
    wheels = [{"sha256": sha256, "file": "a.whl"} for sha256 in (common, old)]
    first = begin(HERS, "a", staging=str(staging), wheels=wheels)
    release.end_lease(root, params(HERS, first["counter"], "a"), False)
    leases.Lease(root.path).take(HERS, "", "b")  # a rollback, which copies nothing
    begin(HERS, "b", staging=str(staging), wheels=wheels[:1])
    assert {path.name for path in staging.iterdir()} == {common, foreign}


def test_no_lease_lasts_longer_than_a_day(leases: ModuleType, root: Any) -> None:
    now = [1000.0]
    lease = leases.Lease(root.path, clock=lambda: now[0])
    lease.take(HERS, "0f3c", "a", 10**9)
    now[0] += leases.LONGEST + 1
    assert lease.leased() == ""


def test_a_restart_of_the_machine_ends_a_lease_and_its_wall_clock_does_not(
    leases: ModuleType,
    root: Any,
    begin: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(HERS, "a")
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert leases.Lease(root.path).leased() == "a"
    monkeypatch.setattr(leases, "_boot", lambda: "another")
    assert leases.Lease(root.path).leased() == ""


def test_a_failed_run_ends_its_lease_and_a_damaged_file_is_ignored(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    counter = begin(HERS, "a")["counter"]
    assert release.end_lease(root, params(HERS, counter, "a"), False)
    assert json.loads(Path(root.path, ".lease").read_text()) == {"counter": counter}
    for text in ("", "[]", '{"counter": "9", "until": "x"}', '{"until": NaN, "release_id": "a"}'):
        Path(root.path, ".lease").write_text(text)
        assert leases.Lease(root.path).leased() == ""


def test_a_leased_release_is_not_removed(root: Any) -> None:
    root.switch("b", ["b"])
    assert root.outdated(1) == ["a", "c"]
    assert root.outdated(1, "c") == ["a"]


def test_a_rollback_makes_a_run_that_began_before_it_lose(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    for name in ("a", "b"):
        release.activate(root, params(HERS, 0, name), False)
    counter = begin(HERS, "c")["counter"]
    expire(leases, root)
    assert release.go_back(root, params(HIS, 0, ""), False)["release_id"] == "a"
    with pytest.raises(release.Problem, match="changed these releases"):
        release.activate(root, params(HERS, counter, "c"), False)
    assert root.serving() == "a"


def test_a_disk_that_is_too_small_is_refused_before_anything_is_copied(
    release: ModuleType, leases: ModuleType, root: Any, begin: Callable[..., dict[str, Any]]
) -> None:
    disk = os.statvfs(root.path)
    more = disk.f_bavail * disk.f_frsize + (1 << 30)
    with pytest.raises(release.Problem, match=r"has \d+ MB free, and the release needs \d+ MB"):
        begin(HERS, "a", space=more)
    assert leases.Lease(root.path).leased() == ""
    begin(HERS, "a", space=1)
