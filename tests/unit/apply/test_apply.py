"""A whole apply, on nodes that do as the test says."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.apply.audit import _delivery_problem
from fleetbuild.apply.stages import carry_out
from fleetbuild.cli.show.result import next_command, result_lines
from fleetbuild.errors import BlockedError, InstallError, Interrupted, StalePlanError
from fleetbuild.files import sha256_of
from fleetbuild.models import (
    Event,
    Installs,
    Plan,
    PlannedNode,
    PlannedTarget,
    PlannedWheel,
    Requires,
    WheelResult,
)
from tests.factories.fleets import facts, locked
from tests.factories.runs import FakeFleet, fleet_of, group, plan, states_of, wheel

AVX = group("avx", ["avx-1", "avx-2"])
AVX2 = group("avx2", ["avx2-1", "avx2-2"])
PLAN = plan(AVX, AVX2)


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, AVX, AVX2)


def waves(fleet: FakeFleet, prefix: str) -> list[list[str]]:
    """The nodes of each install in one group, in order; groups share playbooks."""
    installs = [nodes for name, nodes in fleet.calls if name == "install.yml"]
    of_group = [[name for name in nodes if name.startswith(prefix)] for nodes in installs]
    return [names for names in of_group if names]


def test_what_a_builder_delivers_is_a_file_with_the_named_hash(tmp_path: Path) -> None:
    wheels = [tmp_path / f"{name}-1.whl" for name in "abc"]
    wheels[0].write_bytes(b"as named")
    wheels[1].symlink_to(wheels[0])
    result = WheelResult.model_construct(built_on="n1", sha256=sha256_of(wheels[0]))
    assert [_delivery_problem(wheel, result).rpartition(" ")[2] for wheel in wheels] == [
        "", "arrived.", "arrived.",
    ]  # fmt: skip
    wheels[0].write_bytes(b"another")
    assert "a-1.whl changed on the way from n1" in _delivery_problem(wheels[0], result)


def lost(reason: str = "no route") -> dict[str, Any]:
    return {"state": "unreachable", "reason": reason}


def test_builds_once_for_each_group_and_installs_the_weakest_first(fleet: FakeFleet) -> None:
    fleet.facts["avx-2"] = facts("x86-64-v2")  # weaker than what it is grouped with
    result = fleet.apply()
    assert fleet.calls[0] == ("build.yml", ["avx-1", "avx2-1"])
    assert waves(fleet, "avx-") == [["avx-2"], ["avx-1"]]
    assert waves(fleet, "avx2-") == [["avx2-1"], ["avx2-2"]]
    assert set(states_of(result).values()) == {"installed"}
    assert [(w.state, w.built_on) for w in result.wheels] == [
        ("built", "avx-1"),
        ("built", "avx2-1"),
    ]
    assert result.exit_code == 0
    assert result.changed
    assert sorted(fleet.store.fetched) == ["hnswlib", "numpy", "setuptools"]
    assert [Path(path).read_text() for path in result.manifests] == ["avx-1 avx-2", "avx2-1 avx2-2"]
    assert ("build", 1, 2) in [(e.stage, e.done, e.total) for e in fleet.told]
    assert fleet.told[-1].stage == "done"


def test_an_apply_leaves_how_long_its_steps_took_for_the_next_plan(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    fleet.apply()
    fleet.apply()  # it installs nothing
    run = fleet.run(PLAN, tmp_path / "state")
    assert run.journal.step_seconds(PLAN.package_names).keys() == {AVX.name, AVX2.name}
    assert run.journal.step_seconds(["another"]) == {}


def test_a_lost_manifest_is_written_again(fleet: FakeFleet) -> None:
    first = fleet.apply()
    Path(first.manifests[0]).unlink()
    assert fleet.apply().changed
    assert Path(first.manifests[0]).exists()


def test_manifests_of_removed_groups_are_deleted_after_a_successful_apply(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    gone = Path(fleet.apply().manifests[0])
    fleet.facts["avx2-2"] = fleet.facts["avx2-2"].model_copy(update=lost())
    fleet.apply(plan(AVX2))
    assert gone.exists()
    fleet.facts["avx2-2"] = fleet.facts["avx2-1"]
    (tmp_path / "state" / "manifests" / "mine.yml").write_text("mine")
    fleet.apply()
    fleet.apply(plan(AVX2))
    assert not gone.exists()
    assert (tmp_path / "state" / "manifests" / "mine.yml").exists()


def test_playbooks_get_the_planned_variables(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.apply()
    build = fleet.extravars[0]["fleetbuild_builds"]["avx-1"][0]
    key = wheel("avx").artifact_key
    assert build == {
        "toolkit_wheels": [],
        "package": "hnswlib",
        "wheel_version": "0.8.0+cpu.avx",
        "key": key,
        "source": str(tmp_path / "store" / "hnswlib-1.0-py3-none-any.whl"),
        "source_sha256": locked("hnswlib").sha256,
        "requirements": [
            {
                "path": str(tmp_path / "store" / "setuptools-1.0-py3-none-any.whl"),
                "sha256": locked("setuptools").sha256,
            }
        ],
        "environment": {"CFLAGS": "-O2", "CXXFLAGS": "-O2"},
        "config_settings": {},
        "files": {},
        "patches": [],
        "cuda": "",
        "gcc": "",
        "pins": [],
        "bundle": False,
        "jobs": 1,
        "timeout": 14400,
        "python": "/usr/bin/python3.11",
        "cache": "ccache",
        "isolation": "preferred",
        "container": "",
        "libraries": [],
        "tools": [],
        "dest": str(tmp_path / "state" / "incoming" / str(key)),
    }
    installs = [each["fleetbuild_installs"] for each in fleet.extravars[1:]]
    install = next(each["avx-1"] for each in installs if "avx-1" in each)
    assert install["release_id"] == AVX.release_id
    assert [Path(w["path"]).name for w in install["wheels"]] == [
        "hnswlib-0.8.0+cpu.avx-cp311-cp311-linux_x86_64.whl",
        "numpy-1.0-py3-none-any.whl",
    ]
    assert install["manifest"]["verified"] is False
    assert install["manifest"]["dependencies"] == ["numpy==1.0"]
    assert install["verify"]["imports"] == ["hnswlib"]
    assert install["verify"]["checks"] == ["import hnswlib"]


def native_dependency_check(fleet: FakeFleet) -> str:
    """The check of a release with a dependency that has machine code."""
    code = locked("native").model_copy(update={"file": "native-1.0-cp311-cp311-linux_x86_64.whl"})
    silent = group("avx", ["avx-1"]).model_copy(update={"dependencies": (locked("numpy"), code)})
    fleet.apply(plan(silent))
    (install,) = (each["fleetbuild_installs"]["avx-1"] for each in fleet.extravars[1:])
    own, check = install["verify"]["checks"]
    assert own == "import hnswlib"
    return str(check)


def run_check(check: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", check], check=False, capture_output=True, text=True
    )


def test_dependencies_with_machine_code_are_imported_before_a_release_serves(
    fleet: FakeFleet,
) -> None:
    check = native_dependency_check(fleet)
    assert check.startswith("# import the dependencies\n")
    assert "{'native': 'native 1.0'}" in check  # numpy's wheel is for any platform
    assert run_check(check).returncode == 0  # a missing module did not die


def test_a_dependency_that_dies_by_an_illegal_instruction_fails_its_node(fleet: FakeFleet) -> None:
    dying = "os; os.kill(os.getpid(), 4)"
    check = native_dependency_check(fleet).replace("'native':", f"{dying!r}:")
    ended = run_check(check)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("of native 1.0: illegal instruction.")
    slow = native_dependency_check(fleet).replace("'native':", "'time; time.sleep(9)':")
    assert run_check(slow.replace("+ 60", "+ 0")).returncode == 0


def test_modules_to_import_come_from_the_wheel_if_the_recipe_names_none(fleet: FakeFleet) -> None:
    silent = group("avx", ["avx-1"], wheels=(wheel("avx", import_names=()),))
    fleet.apply(plan(silent))
    assert fleet.extravars[1]["fleetbuild_installs"]["avx-1"]["verify"]["imports"] == ["hnswlib"]


def test_a_wheel_for_two_groups_is_built_once(fleet: FakeFleet) -> None:
    shared = group("avx2", AVX2.nodes, wheels=(wheel("avx"),))
    result = fleet.apply(plan(AVX, shared))
    assert fleet.calls[0] == ("build.yml", ["avx-1"])
    assert len(fleet.extravars[0]["fleetbuild_builds"]["avx-1"]) == 1
    assert set(states_of(result).values()) == {"installed"}


@pytest.mark.parametrize("trouble", ["failed", "silent", "unreachable", "toolchain"])
def test_a_failed_build_stops_its_group_alone(fleet: FakeFleet, trouble: str) -> None:
    for name in ("avx-1", "avx-2"):  # the fallback too
        fleet.trouble["build.yml", name] = trouble
    result = fleet.apply()
    assert states_of(result) == {
        "avx-1": "build_failed",
        "avx-2": "build_failed",
        "avx2-1": "installed",
        "avx2-2": "installed",
    }
    assert result.exit_code == 5
    failed = result.wheels[0]
    assert failed.state == "failed"
    assert failed.reason
    assert failed.fix


@pytest.mark.parametrize("trouble", ["changed", "vanished"])
def test_a_wheel_whose_hash_differs_from_the_nodes_answer_is_refused(
    fleet: FakeFleet, trouble: str
) -> None:
    fleet.trouble["build.yml", "avx-1"] = trouble
    result = fleet.apply()
    assert states_of(result)["avx-1"] == "verify_failed"
    assert states_of(result)["avx2-1"] == "installed"
    assert result.exit_code == 7
    assert wheel("avx").artifact_key not in fleet.store.shelf


def test_a_wheel_with_code_beyond_its_target_is_refused(fleet: FakeFleet) -> None:
    fleet.findings["0.8.0+cpu.avx"] = ["It holds vfmadd213ps, which is avx2."]
    result = fleet.apply()
    assert result.exit_code == 7
    assert result.wheels[0].state == "refused"
    assert "vfmadd213ps" in str(result.nodes[0].reason)


def test_a_wheel_that_takes_minutes_to_read_holds_up_no_other(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    told: list[Event] = []

    def audit(_path: Path, _plan: Plan, wheel: PlannedWheel) -> list[str]:
        ends = time.monotonic() + 10
        while wheel.wheel_version.endswith("avx") and time.monotonic() < ends:
            if any((event.stage, event.state) == ("audit", "ok") for event in told):
                return ["six/large.so takes more than 120 s to read"]
            time.sleep(0.01)
        return []

    run = fleet.run(PLAN, tmp_path / "state", told)
    result = carry_out(replace(run, tools=replace(run.tools, audit=audit)))
    assert {each.wheel_version: each.state for each in result.wheels} == {
        "0.8.0+cpu.avx": "refused",
        "0.8.0+cpu.avx2": "built",
    }
    assert "six/large.so takes more" in str(result.wheels[0].reason)
    assert states_of(result)["avx2-1"] == "installed"


@pytest.mark.parametrize(
    ("trouble", "state", "code"),
    [
        ("install", "install_failed", 6),
        ("silent", "install_failed", 6),
        ("unreachable", "unreachable", 3),
    ],
)
def test_a_failed_install_and_a_lost_node_have_different_results(
    fleet: FakeFleet, trouble: str, state: str, code: int
) -> None:
    fleet.trouble["install.yml", "avx-2"] = trouble
    result = fleet.apply()
    assert states_of(result)["avx-2"] == state
    assert states_of(result)["avx-1"] == "installed"
    assert result.exit_code == code
    assert all(node.reason and node.fix for node in result.nodes if node.state == state)


def test_a_stage_with_a_failure_ends_as_failed(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "install"
    fleet.apply()
    ended = [event for event in fleet.told if event.seconds is not None and not event.node]
    assert ("install", "failed") in [(event.stage, event.state) for event in ended]
    assert ("build", "ok") in [(event.stage, event.state) for event in ended]


@pytest.mark.parametrize(("bearable", "last"), [(0, "not_reached"), ("20%", "installed")])
def test_too_many_failures_stop_their_group_and_no_other(
    fleet: FakeFleet, bearable: int | str, last: str
) -> None:
    five = group("avx", [f"avx-{number}" for number in range(1, 6)])
    fleet.facts |= {name: facts("avx") for name in five.nodes}
    fleet.trouble["install.yml", "avx-2"] = "install"
    rollout = {"serial": 1, "max_fail": bearable}
    result = fleet.apply(plan(five, AVX2, rollout=rollout))
    assert states_of(result)["avx-2"] == "install_failed"
    assert states_of(result)["avx-5"] == last
    assert states_of(result)["avx2-2"] == "installed"
    assert result.exit_code == 6


def test_an_unreachable_node_is_left_out_and_a_fallback_builds(fleet: FakeFleet) -> None:
    whole = fleet.facts["avx-1"]
    fleet.facts["avx-1"] = whole.model_copy(update=lost())
    result = fleet.apply()
    assert fleet.calls[0] == ("build.yml", ["avx-2", "avx2-1"])
    assert states_of(result)["avx-1"] == "unreachable"
    assert states_of(result)["avx-2"] == "installed"
    assert result.exit_code == 3
    fleet.facts["avx-1"] = whole
    assert set(states_of(fleet.apply()).values()) == {"installed", "up_to_date"}
    assert fleet.calls[-1] == ("install.yml", ["avx-1"])


def test_a_fallback_with_a_newer_libc_does_not_build(fleet: FakeFleet) -> None:
    fleet.facts["avx-1"] = fleet.facts["avx-1"].model_copy(update=lost())
    fleet.facts["avx-2"] = facts("avx", libc="2.39")
    result = fleet.apply()
    assert states_of(result)["avx-2"] == "build_failed"
    assert "avx-2 has glibc 2.39, newer than the group's oldest, 2.36" in str(
        result.wheels[0].reason
    )
    assert result.exit_code == 5


def test_a_builder_without_space_in_its_build_folder_does_not_build(fleet: FakeFleet) -> None:
    fleet.facts["avx-1"] = facts("avx", disk_gb=0.4)
    assert fleet.apply().wheels[0].built_on == "avx-2"
    fleet.store.shelf.clear()
    fleet.facts["avx-1"] = fleet.facts["avx-2"] = facts("avx", disk_gb=0.4)
    result = fleet.apply()
    assert states_of(result)["avx-2"] == "build_failed"
    reason = "avx-1 has 0.4 GB free in its build folder, and the build needs 1 GB"
    assert reason in str(result.wheels[0].reason)
    assert "free space there" in str(result.wheels[0].fix)


def test_a_build_that_failed_goes_on_in_the_space_that_it_has_used(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "failed"
    assert fleet.apply().wheels[0].state == "failed"
    fleet.trouble.clear()
    fleet.facts["avx-1"] = fleet.facts["avx-2"] = facts("avx", disk_gb=0.4)
    short = "avx-1 has 0.4 GB free in its build folder, but the build needs 1 GB"
    again = plan(  # made after the failure
        AVX.model_copy(
            update={
                "wheels": tuple(
                    wheel.model_copy(
                        update={
                            "requires": wheel.requires.model_copy(update={"to_supply": (short,)})
                        }
                    )
                    for wheel in AVX.wheels
                )
            }
        )
    )
    assert fleet.apply(again).wheels[0].built_on == "avx-1"


def test_a_build_that_failed_moves_to_a_node_with_the_whole_space(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "failed"
    fleet.apply()
    fleet.trouble.clear()
    fleet.facts["avx-1"] = facts("avx", disk_gb=0.4)
    assert fleet.apply().wheels[0].built_on == "avx-2"


def test_a_disk_too_small_for_the_downloads_is_refused_before_the_first(fleet: FakeFleet) -> None:
    large = locked("numpy").model_copy(update={"size": 1 << 60})
    with pytest.raises(InstallError, match=r"has \d+ MB free, and the files .* need \d+ MB") as no:
        fleet.apply(plan(AVX.model_copy(update={"dependencies": (large,)})))
    assert "store gc" in no.value.fix
    assert fleet.store.fetched == fleet.calls == []


def test_an_install_names_its_controller_its_plan_and_the_space_it_needs(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    fleet.apply()
    (first, *others) = [
        one for given in fleet.extravars for one in given.get("fleetbuild_installs", {}).values()
    ]
    assert re.fullmatch(rf"\w+@\S+:{tmp_path}/state \([0-9a-f]{{8}}\)", first["controller"])
    assert {other["controller"] for other in others} == {first["controller"]}
    assert first["plan"] == PLAN.digest[:16]
    assert first["space"] > 40_000_000


def test_a_build_left_running_is_resumed_on_its_node(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "ctrl-c"
    whole = fleet.facts["avx-1"]
    fleet.facts["avx-1"] = whole.model_copy(update=lost())
    fleet.trouble["build.yml", "avx-2"] = "ctrl-c"
    with pytest.raises(Interrupted, match=r"new release\. Builds continue on .*avx-2"):
        fleet.apply()
    fleet.facts["avx-1"] = whole
    fleet.trouble.clear()
    assert set(states_of(fleet.apply()).values()) == {"installed"}
    assert fleet.calls[1] == ("build.yml", ["avx-2", "avx2-1"])


def test_a_plan_without_a_lock_is_refused(fleet: FakeFleet) -> None:
    with pytest.raises(BlockedError, match="no index answered") as caught:
        fleet.apply(plan(AVX, lock="missing", lock_problem="no index answered"))
    assert caught.value.exit_code == 4
    assert not fleet.calls


def test_a_changed_fleet_is_refused(fleet: FakeFleet) -> None:
    fleet.differences = ["avx-1: libc was 2.36 and is 2.39."]
    with pytest.raises(StalePlanError, match=r"avx-1: libc was 2\.36"):
        fleet.apply()
    assert not fleet.calls


def test_facts_that_were_just_read_are_taken_without_a_probe(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = dict(fleet.facts)
    monkeypatch.setattr(FakeFleet, "probe", None)
    result = fleet.apply(probed=known)
    assert set(states_of(result).values()) == {"installed"}
    answers = [(event.done, event.total) for event in fleet.told if event.stage == "probe"]
    assert answers == [(done, len(known)) for done in range(1, len(known) + 1)]


def test_a_node_that_left_the_inventory_makes_the_plan_stale(fleet: FakeFleet) -> None:
    del fleet.facts["avx-2"]
    with pytest.raises(StalePlanError, match="avx-2"):
        fleet.apply()


def test_missing_requirements_stop_the_run_before_the_first_build(fleet: FakeFleet) -> None:
    wants = Requires(compiler="gcc (present)", to_supply=("CUDA 12.6 is not there.",))
    needy = group("avx", ["avx-1"], wheels=(wheel("avx", requires=wants),))
    with pytest.raises(BlockedError, match=r"cpu-avx-cp311 \(hnswlib\): CUDA 12\.6"):
        fleet.apply(plan(needy, AVX2))
    assert not fleet.calls


def test_a_node_without_root_fails_before_the_first_build(
    fleet: FakeFleet,
) -> None:
    for name in ("avx-1", "avx-2", "avx2-1", "avx2-2"):
        fleet.facts[name] = facts(name.split("-")[0], needs_root={"default": 1000})
    fleet.trouble |= {("root.yml", "avx-1"): "failed", ("root.yml", "avx-2"): "failed"}
    result = fleet.apply()
    root, build = fleet.calls[:2]
    assert root == ("root.yml", ["avx-1", "avx-2", "avx2-1", "avx2-2"])
    assert build == ("build.yml", ["avx2-1"])  # nothing serves on the others
    assert states_of(result) == {
        **dict.fromkeys(AVX.nodes, "install_failed"),
        **dict.fromkeys(AVX2.nodes, "installed"),
    }
    assert result.exit_code == 6


def test_nodes_that_the_plan_leaves_out_keep_their_reason(fleet: FakeFleet) -> None:
    out = {
        "away": PlannedNode(state="unreachable", reason="no route"),
        "old": PlannedNode(state="blocked", reason="no venv", fix="Install python3-venv."),
        "mine": PlannedNode(state="skipped", reason="fleetbuild_skip is set"),
    }
    result = fleet.apply(plan(AVX2, nodes=out))
    by_name = {node.node: node for node in result.nodes}
    assert states_of(result) | {"away": "unreachable", "old": "blocked"} == states_of(result)
    assert by_name["old"].fix == "Install python3-venv."
    assert by_name["away"].fix
    assert by_name["mine"].state == "skipped"
    assert result.exit_code == 4


def test_a_group_with_a_blocked_wheel_is_blocked(fleet: FakeFleet) -> None:
    blocked = wheel("avx", action="blocked", reason="no wheel of numpy")
    result = fleet.apply(plan(group("avx", ["avx-1"], wheels=(blocked,)), AVX2))
    assert states_of(result)["avx-1"] == "blocked"
    assert result.exit_code == 4


@pytest.mark.parametrize(("lost_file", "state"), [("setuptools", "build"), ("numpy", "install")])
def test_a_file_that_cannot_be_fetched_stops_the_groups_that_need_it(
    fleet: FakeFleet, lost_file: str, state: str
) -> None:
    fleet.store.lost.add(lost_file)
    other = group(
        "avx2", AVX2.nodes, dependencies=(), wheels=(wheel("avx2", build_dependencies=()),)
    )
    result = fleet.apply(plan(AVX, other))
    assert states_of(result) == {
        "avx-1": f"{state}_failed",
        "avx-2": f"{state}_failed",
        "avx2-1": "installed",
        "avx2-2": "installed",
    }
    assert lost_file in str(result.nodes[0].reason)
    assert result.nodes[0].fix


def test_an_unverified_release_is_not_up_to_date(fleet: FakeFleet) -> None:
    fleet.apply()
    current = fleet.facts["avx-2"].release["default"].model_copy(update={"verified": False})
    fleet.facts["avx-2"] = fleet.facts["avx-2"].model_copy(update={"release": {"default": current}})
    assert states_of(fleet.apply())["avx-2"] == "installed"


def test_a_reply_for_a_build_of_another_node_is_ignored(fleet: FakeFleet) -> None:
    """A builder that says it built another's wheel is not believed."""
    foreign = wheel("avx2").artifact_key

    def lie(host: str, builds: Any, trouble: str, on_event: Any) -> Any:
        if host == "avx-1":
            builds = [dict(builds[0]) | {"key": foreign}]
        return honest(host, builds, trouble, on_event)

    honest = fleet._build
    fleet._build = lie
    fleet.trouble["build.yml", "avx2-1"] = "failed"
    result = fleet.apply()
    assert {w.state for w in result.wheels} == {"failed"}


@pytest.mark.parametrize("what", ["artifact_key", "source"])
def test_a_wheel_that_did_not_arrive_is_refused(fleet: FakeFleet, what: str) -> None:
    broken = group("avx", ["avx-1"], wheels=(wheel("avx", **{what: None}),))
    with pytest.raises(BlockedError, match="no locked source for hnswlib"):
        fleet.apply(plan(broken))


def test_a_wheel_to_be_reused_is_not_built_instead(fleet: FakeFleet) -> None:
    reused = group("avx", ["avx-1"], wheels=(wheel("avx", action="reuse"),))
    with pytest.raises(StalePlanError, match="the store no longer has an intact one"):
        fleet.apply(plan(reused))
    assert not fleet.calls


BASE = wheel("avx")
UPPER = wheel(
    "avx",
    package="vision",
    version="1.0",
    wheel_version="1.0+cpu.avx",
    artifact_key="b" * 32,
    built_against=(BASE.artifact_key,),
    cuda="13.0",
    config_settings={"cmake.args": "-G Ninja"},
    files={"a.cmake": "x"},
    patches={"2.patch": "two", "1.patch": "one"},
)
LEVELS = plan(group("avx", ["avx-1", "avx-2"], wheels=(UPPER, BASE), release_id="2" * 16))


def test_a_wheel_waits_for_the_wheels_that_it_is_built_against(fleet: FakeFleet) -> None:
    result = fleet.apply(LEVELS)
    assert [name for name, _ in fleet.calls] == ["build.yml"] * 2 + ["install.yml"] * 2
    first, second = (vars_["fleetbuild_builds"]["avx-1"] for vars_ in fleet.extravars[:2])
    assert [build["package"] for build in (*first, *second)] == ["hnswlib", "vision"]
    assert first[0]["pins"] == []
    build = second[0]
    assert build["pins"] == ["hnswlib==0.8.0+cpu.avx"]
    stored = fleet.store.shelf[str(BASE.artifact_key)]
    assert build["requirements"][0] == {"path": str(stored.path), "sha256": stored.sha256}
    assert (build["cuda"], build["files"]) == ("13.0", {"a.cmake": "x"})
    assert build["config_settings"] == {"cmake.args": "-G Ninja"}
    assert [patch["name"] for patch in build["patches"]] == ["2.patch", "1.patch"]
    assert set(states_of(result).values()) == {"installed"}
    assert [each.state for each in result.wheels] == ["built", "built"]


def test_a_wheel_can_be_built_against_a_stored_wheel(fleet: FakeFleet) -> None:
    fleet.apply(plan(group("avx", ["avx-1", "avx-2"])))
    fleet.calls.clear()
    result = fleet.apply(LEVELS)
    assert [name for name, _ in fleet.calls][:2] == ["build.yml", "install.yml"]
    assert {each.package: each.state for each in result.wheels} == {
        "hnswlib": "reused",
        "vision": "built",
    }


def test_nothing_is_built_against_a_wheel_that_failed_to_build(fleet: FakeFleet) -> None:
    fleet.trouble["build.yml", "avx-1"] = "hnswlib failed"
    result = fleet.apply(LEVELS)
    assert [name for name, _ in fleet.calls] == ["build.yml"]
    reasons = {each.package: each.reason for each in result.wheels}
    assert reasons["vision"] == (
        "Skipped: it is built against hnswlib 0.8.0+cpu.avx, which failed to build."
    )
    assert {node.reason for node in result.nodes} == {"hnswlib 0.8.0+cpu.avx: the compiler failed"}
    assert (result.exit_code, set(states_of(result).values())) == (5, {"build_failed"})
    assert any(event.package == "vision" and event.state == "failed" for event in fleet.told)


def test_nothing_is_built_against_a_wheel_that_was_refused(fleet: FakeFleet) -> None:
    fleet.findings["0.8.0+cpu.avx"] = ["it uses avx2"]
    result = fleet.apply(LEVELS)
    assert {each.package: each.state for each in result.wheels} == {
        "hnswlib": "refused",
        "vision": "failed",
    }


def targets_plan(**changes: Any) -> Plan:
    """A plan for two named targets, which have no nodes; avx-1 and avx2-1 build."""
    alone = {"nodes": (), "installs": Installs()}
    groups = [each.model_copy(update={**alone, **changes}) for each in (AVX, AVX2)]
    builders = {
        name: PlannedNode(state="skipped", reason="only builds") for name in ("avx-1", "avx2-1")
    }
    targets = {each.name: PlannedTarget(state="ok", group=each.name) for each in groups}
    return plan(*groups, nodes=builders, targets=targets)


def test_wheels_for_named_targets_are_built_and_stored_and_nothing_is_installed(
    fleet: FakeFleet,
) -> None:
    made = targets_plan()
    result = fleet.apply(made)
    assert fleet.calls == [("build.yml", ["avx-1", "avx2-1"])]
    assert [wheel.state for wheel in result.wheels] == ["built", "built"]
    assert len(fleet.store.shelf) == 2
    assert (result.nodes, result.manifests, result.exit_code) == ((), (), 0)
    assert sorted(fleet.store.fetched) == ["hnswlib", "setuptools"]  # no dependency of a release
    assert "2 wheels built. Nothing installed." in result_lines(result)[-1]
    assert next_command(made, result) == "Next: fleetbuild store export DIR"
    again = fleet.apply(made)
    assert len(fleet.calls) == 1
    assert [wheel.state for wheel in again.wheels] == ["reused", "reused"]
    assert "every wheel is in the store." in result_lines(again)[-1]


def test_a_node_that_builds_nothing_for_a_named_target_is_not_asked(fleet: FakeFleet) -> None:
    made = targets_plan()
    idle = PlannedNode(state="skipped", reason="only builds")
    made = made.model_copy(update={"nodes": {**made.nodes, "idle": idle}})
    assert fleet.apply(made).exit_code == 0


def test_a_failed_build_for_a_named_target_fails_the_run(fleet: FakeFleet) -> None:
    fleet.facts["avx-1"] = fleet.facts["avx-1"].model_copy(update=lost())
    fleet.facts["avx-2"] = fleet.facts["avx-2"].model_copy(update=lost())
    made = targets_plan()
    result = fleet.apply(made)
    assert "then run again: fleetbuild apply;" in next_command(made, result)
    assert [wheel.state for wheel in result.wheels] == ["failed", "built"]
    assert "avx-1 is unreachable" in str(result.wheels[0].reason)
    assert result.exit_code == 5
    nothing = result.model_copy(update={"wheels": result.wheels[:1]})
    assert result_lines(nothing)[-1].endswith(": nothing built.")
