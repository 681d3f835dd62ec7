"""Builds that fail because of their machine go to the next fallback; other failures do not."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.ansible import HostRun
from fleetbuild.ansible.role_results import BuildReply
from fleetbuild.apply.build_failures import failure_before_reply, machine_failure
from fleetbuild.cli.show.result import result_lines
from fleetbuild.errors import FleetbuildError, Interrupted
from tests.factories.runs import (
    PYTHON,
    FakeFleet,
    ended,
    event,
    fleet_of,
    group,
    plan,
    states_of,
    wheel,
)

KILLED = "The compiler was killed for lack of memory, with 2 jobs and again with one job at a time."
REBOOTED = "The build was killed, by a restart or for lack of memory."
FULL = "cc1plus: error: /tmp/x.s: No space left on device"
THREE = ["avx-1", "avx-2", "avx-3"]


def three(isa: str = "avx", **changes: Any) -> Any:
    """A wheel with two fallbacks."""
    names = [f"{isa}-{number}" for number in (1, 2, 3)]
    values = {"fallbacks": tuple(names[1:]), "build_pythons": dict.fromkeys(names, PYTHON)}
    return wheel(isa, **{**values, **changes})


AVX = group("avx", THREE, wheels=(three(),))
AVX2 = group("avx2", ["avx2-1", "avx2-2"])
PLAN = plan(AVX, AVX2)


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    made = fleet_of(tmp_path, AVX, AVX2)
    made.build_failures = {
        "disk": {"reason": f"The build failed.\n{FULL}", "kind": "code"},
        "memory": {"reason": KILLED, "kind": "machine"},
        "rebooted": {"reason": REBOOTED, "kind": "machine"},
    }
    return made


def builds(fleet: FakeFleet) -> list[list[str]]:
    return [nodes for name, nodes in fleet.calls if name == "build.yml"]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("lost", "No answer for 60 s while building."),
        ("unreachable", "No answer for 60 s while installing."),
        ("silent", "Ansible stopped there without giving a reason."),
        ("toolchain", "gcc is missing."),
        ("disk", f"Its disk is full: {FULL}"),
        ("memory", KILLED),
        ("rebooted", REBOOTED),
    ],
)
def test_a_build_that_fails_by_its_machine_is_built_by_the_next_fallback(
    fleet: FakeFleet, trouble: str, why: str
) -> None:
    fleet.trouble["build.yml", "avx-1"] = trouble
    result = fleet.apply()
    assert builds(fleet) == [["avx-1", "avx2-1"], ["avx-2"]]
    assert set(states_of(result).values()) == {"installed"}
    assert result.exit_code == 0
    built = result.wheels[0]
    assert (built.state, built.built_on) == ("built", "avx-2")
    assert [(each.node, each.reason) for each in built.failed_on] == [("avx-1", why)]
    (moved,) = [event for event in fleet.told if event.state == "warning"]
    assert (moved.stage, moved.group, moved.node) == ("build", AVX.name, "avx-1")
    assert moved.message == f"hnswlib was not built on avx-1: {why} avx-2 builds it."
    assert not [event for event in fleet.told if event.state == "failed"]
    assert f"  not on avx-1: {why}" in result_lines(result)


def test_a_build_that_fails_by_its_code_is_not_repeated(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "failed"
    result = fleet.apply()
    assert builds(fleet) == [["avx-1", "avx2-1"]]
    assert states_of(result)["avx-3"] == "build_failed"
    assert (result.exit_code, result.wheels[0].failed_on) == (5, ())


def test_fallbacks_build_in_the_plans_order_until_none_is_left(fleet: FakeFleet) -> None:
    for name, trouble in zip(THREE, ("lost", "disk", "memory"), strict=True):
        fleet.trouble["build.yml", name] = trouble
    result = fleet.apply()
    assert builds(fleet)[1:] == [["avx-2"], ["avx-3"]]
    failed = result.wheels[0]
    assert (failed.state, failed.built_on, failed.reason) == ("failed", "avx-3", KILLED)
    assert [each.node for each in failed.failed_on] == ["avx-1", "avx-2"]
    assert result.exit_code == 5
    assert [(e.stage, e.node) for e in fleet.told if e.state == "failed" and e.package] == [
        ("build", "avx-3")
    ]


def test_a_builder_that_does_not_answer_afterwards_is_unreachable_and_no_canary(
    fleet: FakeFleet,
) -> None:
    fleet.trouble["build.yml", "avx-1"] = "lost"
    gone = fleet.facts["avx-1"].model_copy(update={"state": "unreachable", "reason": "no route"})

    def leave(name: str) -> None:
        if name == "build.yml":
            fleet.later = {"avx-1": gone}

    fleet.during = leave
    result = fleet.apply()
    assert states_of(result) == {
        "avx-1": "unreachable",
        **dict.fromkeys(["avx-2", "avx-3", "avx2-1", "avx2-2"], "installed"),
    }
    assert result.exit_code == 3
    assert result.nodes[0].reason == (
        "No answer for 60 s while building. It does not answer now: no route"
    )
    assert result.nodes[0].fix
    assert [event.node for event in fleet.told if event.state == "unreachable"] == ["avx-1"]
    assert not [nodes for name, nodes in fleet.calls if name == "install.yml" and "avx-1" in nodes]


def test_a_fallback_builds_while_the_other_builds_still_run(fleet: FakeFleet) -> None:
    began = threading.Event()

    def look(_: str) -> None:
        if builds(fleet)[1:] == [["avx-2"]]:
            began.set()

    fleet.during = look
    fleet.trouble["build.yml", "avx-1"] = "lost"
    slow = fleet._build

    def build(host: str, jobs: Any, trouble: str, on_event: Any) -> Any:
        if host == "avx2-1":
            assert began.wait(20), "the fallback waits for the other group"
        return slow(host, jobs, trouble, on_event)

    fleet._build = build
    assert fleet.apply().exit_code == 0


def test_a_fallback_that_builds_for_its_own_group_does_so_first(fleet: FakeFleet) -> None:
    helper = three(fallbacks=("avx2-1",), build_pythons={"avx-1": PYTHON, "avx2-1": PYTHON})
    fleet.trouble["build.yml", "avx-1"] = "lost"
    at_work, most = [0], [0]
    whole = fleet._build

    def build(host: str, jobs: Any, trouble: str, on_event: Any) -> Any:
        if host == "avx2-1":
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            threading.Event().wait(0.5)
            at_work[0] -= 1
        return whole(host, jobs, trouble, on_event)

    fleet._build = build
    result = fleet.apply(plan(group("avx", ["avx-1"], wheels=(helper,)), AVX2))
    assert [each.built_on for each in result.wheels] == ["avx2-1", "avx2-1"]
    assert most == [1]


def test_a_build_that_waits_for_a_busy_node_moves_on_if_that_node_fails(fleet: FakeFleet) -> None:
    names = ("avx2-1", "avx-3")
    waiting = three(fallbacks=names, build_pythons=dict.fromkeys(("avx-1", *names), PYTHON))
    fleet.trouble["build.yml", "avx-1"] = "lost"
    fleet.trouble["build.yml", "avx2-1"] = "memory"
    whole = fleet._build

    def build(host: str, jobs: Any, trouble: str, on_event: Any) -> Any:
        if host == "avx2-1":
            threading.Event().wait(0.5)
        return whole(host, jobs, trouble, on_event)

    fleet._build = build
    result = fleet.apply(plan(group("avx", THREE, wheels=(waiting,)), AVX2))
    assert builds(fleet)[1:] == [["avx-3", "avx2-2"]]  # not on avx2-1
    assert result.wheels[0].built_on == "avx-3"
    assert [failed.node for failed in result.wheels[0].failed_on] == ["avx-1", "avx2-1"]


def test_a_playbook_that_cannot_start_stops_no_other_build(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.trouble["build.yml", "avx-1"] = "lost"
    whole = fleet.playbook

    def run_playbook(name: str, *, limit: Any, **more: Any) -> Any:
        if (name, list(limit)) == ("build.yml", ["avx-2"]):
            raise FleetbuildError("ansible-playbook stopped before its first task.", "See its log.")
        return whole(name, limit=limit, **more)

    monkeypatch.setattr(fleet, "playbook", run_playbook)
    result = fleet.apply()
    assert {wheel.package: wheel.state for wheel in result.wheels[1:]} == {"hnswlib": "built"}
    assert {states_of(result)[name] for name in AVX2.nodes} == {"installed"}
    assert (result.wheels[0].state, result.wheels[0].built_on) == ("built", "avx-3")


def test_wheels_that_wait_for_a_lost_machine_are_built_by_their_fallbacks(fleet: FakeFleet) -> None:
    second = three(package="vision", wheel_version="1.0+cpu.avx", artifact_key="b" * 32)
    upper = three(
        package="upper",
        wheel_version="2.0+cpu.avx",
        artifact_key="c" * 32,
        built_against=("b" * 32,),
    )
    fleet.trouble["build.yml", "avx-1"] = "disk"
    result = fleet.apply(plan(group("avx", THREE, wheels=(three(), second, upper))))
    assert {each.package: each.built_on for each in result.wheels} == {
        "hnswlib": "avx-2",
        "vision": "avx-2",
        "upper": "avx-2",  # a node that failed builds nothing more in this run
    }
    assert result.exit_code == 0


def test_a_build_uses_the_jobs_that_fit_its_node(fleet: FakeFleet) -> None:
    sized = three(jobs=8, build_jobs={"avx-1": 8, "avx-2": 2})
    fleet.trouble["build.yml", "avx-1"] = "lost"
    fleet.apply(plan(group("avx", THREE, wheels=(sized,))))
    given = [each["fleetbuild_builds"] for each in fleet.extravars if "fleetbuild_builds" in each]
    assert [next(iter(each.values()))[0]["jobs"] for each in given] == [8, 2]


def test_a_build_that_the_next_plan_does_not_need_is_ended_on_its_node(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    fleet.trouble["build.yml", "avx-1"] = "ctrl-c"
    with pytest.raises(Interrupted) as stopped:
        fleet.apply()
    assert "Builds continue on avx-1, avx2-1; an apply of another" in stopped.value.message
    fleet.trouble.clear()
    fleet.extravars.clear()
    other = three(artifact_key="a" * 32)
    assert fleet.apply(plan(group("avx", THREE, wheels=(other,)))).exit_code == 0
    (old,) = AVX.wheels
    (build,) = fleet.extravars[0]["fleetbuild_builds"]["avx-1"]
    assert (build["key"], build["abandoned"]) == ("a" * 32, [old.artifact_key])
    (warning,) = (each for each in fleet.told if each.state == "warning")
    assert warning.node == "avx-1"
    assert "is ended there if it still runs" in warning.message
    # The journal keeps what runs on a node that this plan gave no build.
    assert fleet.run(PLAN, tmp_path / "state").journal.left_running() == {
        AVX2.wheels[0].artifact_key: "avx2-1"
    }


def test_a_build_that_the_next_plan_still_needs_goes_on(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "ctrl-c"
    with pytest.raises(Interrupted):
        fleet.apply()
    fleet.trouble.clear()
    fleet.extravars.clear()
    assert fleet.apply().exit_code == 0
    (builds,) = (each["fleetbuild_builds"] for each in fleet.extravars[:1])
    assert all("abandoned" not in build for each in builds.values() for build in each)
    assert not [each for each in fleet.told if each.state == "warning"]


@pytest.mark.parametrize(
    ("output", "by_machine"),
    [
        ("The build failed.\nx.cpp:1: error: expected ';'", False),
        (KILLED, False),  # words decide nothing
        ("The build failed.\ng++: fatal error: Killed signal terminated program cc1plus", True),
        ("The build failed.\ninternal compiler error: Segmentation fault", False),
        ("Failed.\nThe bug is not reproducible, so it is likely a hardware or OS problem.", True),
        ("[Errno 28] No space left on device: 'x'", True),
        ("[Errno 122] Disk quota exceeded", True),
    ],
)  # fmt: skip
def test_compilers_and_systems_name_failures_of_the_machine(
    output: str, by_machine: bool, tmp_path: Path
) -> None:
    failed = BuildReply(ok=False, reason=output, kind="code")
    why = machine_failure(failed, tmp_path / "no log")
    assert (why is not None) == by_machine
    assert "\n" not in (why or "")


@pytest.mark.parametrize(
    ("kind", "by_machine"), [("machine", True), ("code", False), ("input", False), ("", False)]
)
def test_the_kind_of_a_failure_decides_not_its_words(
    kind: Any, by_machine: bool, tmp_path: Path
) -> None:
    failed = BuildReply(ok=False, reason="Any words.\nAn error", kind=kind)
    assert machine_failure(failed, tmp_path / "no log") == ("Any words." if by_machine else None)


def test_the_log_can_name_the_machines_failure(tmp_path: Path) -> None:
    failed = BuildReply(ok=False, reason="The build failed.")
    full = "ld: a.o: No space left on device"
    log = tmp_path / "build.log"
    log.write_text(f"{full}\n")
    assert machine_failure(failed, log) == f"Its disk is full: {full}"


def test_a_node_that_ended_well_without_a_reply_has_not_failed_by_its_machine() -> None:
    assert failure_before_reply(HostRun("ok"), None) is None
    assert failure_before_reply(None, None) is None


def test_a_full_disk_of_the_controller_is_not_the_builders(
    fleet: FakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "state"))
    seen = []

    def check(folder: Path) -> None:
        seen.append(folder)
        raise full

    whole = fleet._build

    def build(host: str, jobs: Any, trouble: str, on_event: Any) -> Any:
        if host != "avx-1":
            return whole(host, jobs, trouble, on_event)
        said = "[Errno 28] No space left on device: b'/state/incoming/x.whl'"
        on_event(event(host, "build_wheel : Fetch the wheel and the log", {}, "failed", said))
        return ended("failed")

    fleet._build = build
    monkeypatch.setattr("fleetbuild.apply.build.raise_if_folder_is_full", check)
    with pytest.raises(OSError, match="No space left") as caught:
        fleet.apply()
    assert (caught.value, seen) == (full, [tmp_path / "state"])
    assert builds(fleet) == [["avx-1", "avx2-1"]]
    monkeypatch.setattr("fleetbuild.apply.build.raise_if_folder_is_full", lambda _: None)
    fleet.calls.clear()
    result = fleet.apply()
    assert next(each for each in result.wheels if each.failed_on).built_on == "avx-2"
