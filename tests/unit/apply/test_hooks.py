"""`rollout.before` and `rollout.after` run around the switch of each node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetbuild.apply.stages import carry_out
from fleetbuild.cli.show.result import next_command, result_lines
from fleetbuild.errors import BlockedError, Interrupted
from fleetbuild.models import NodeResult, Plan, PlannedNode, Result
from fleetbuild.models.hooks import HookCall, HookFailure
from tests.factories.runs import PYTHON, FakeFleet, fleet_of, group, plan

THREE = group("avx", ["avx-1", "avx-2", "avx-3"])
BOTH = {"before": {"playbook": "cordon.yml"}, "after": {"playbook": "uncordon.yml"}}
ROLLOUT = {"serial": 2, "max_fail": 0, **BOTH}


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, THREE)


def made(**rollout: object) -> Plan:
    return plan(THREE, rollout={**ROLLOUT, **rollout})


def apply(fleet: FakeFleet, the_plan: Plan | None = None, **options: bool) -> Result:
    fleet.calls.clear()
    fleet.extravars.clear()
    return fleet.apply(the_plan or made(), **options)


def of(result: Result, name: str) -> NodeResult:
    return next(node for node in result.nodes if node.node == name)


def states(result: Result) -> list[str]:
    return [node.state for node in result.nodes]


def calls(fleet: FakeFleet) -> list[tuple[str, list[str]]]:
    return [call for call in fleet.calls if call[0] != "build.yml"]


def test_hooks_run_around_the_switch_of_verified_nodes_and_nowhere_else(fleet: FakeFleet) -> None:
    result = apply(fleet)
    wave = lambda *names: [  # noqa: E731
        ("install.yml", [*names]),
        ("rollout.before", [*names]),
        ("install.yml", [*names]),
        ("rollout.after", [*names]),
    ]
    assert calls(fleet) == [*wave("avx-1"), *wave("avx-2", "avx-3")]
    steps = [each["fleetbuild_installs"]["avx-1"] for each in fleet.extravars[1:3]]
    assert [s.get("activate") for s in steps] == [False, None]
    assert [bool(s["verify"]) for s in steps] == [True, False]
    assert (states(result), result.exit_code) == (["installed"] * 3, 0)
    assert apply(fleet).exit_code == 0
    assert calls(fleet) == []  # nothing changes, so nothing is drained


def test_without_hooks_a_wave_is_one_playbook(fleet: FakeFleet) -> None:
    apply(fleet, plan(THREE, rollout={"canary": 0, "serial": "100%"}))
    assert calls(fleet) == [("install.yml", list(THREE.nodes))]
    install = fleet.extravars[1]["fleetbuild_installs"]["avx-1"]
    assert "activate" not in install
    assert install["verify"]


def test_a_node_that_cannot_be_verified_is_not_drained(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "verify"
    result = apply(fleet)
    assert states(result) == ["verify_failed", "not_reached", "not_reached"]
    assert calls(fleet) == [("install.yml", ["avx-1"])]


def test_a_node_whose_before_fails_does_not_switch_and_is_undrained(fleet: FakeFleet) -> None:
    fleet.trouble["before", "avx-2"] = "it did not end within 300 s."
    result = apply(fleet)
    assert states(result) == ["installed", "install_failed", "installed"]
    assert of(result, "avx-2").reason == (
        "Not switched, because rollout.before failed: it did not end within 300 s."
    )
    assert calls(fleet)[-3:] == [
        ("install.yml", ["avx-3"]),
        ("rollout.after", ["avx-2", "avx-3"]),
        ("install.yml", ["avx-2"]),  # ends the lease
    ]
    lease = fleet.extravars[-1]["fleetbuild_installs"]["avx-2"]
    assert (lease["verify"], lease["activate"]) == ({}, False)
    assert "default" not in fleet.facts["avx-2"].release
    assert result.exit_code == 6
    assert [e.node for e in fleet.told if e.state == "failed" and e.node] == ["avx-2"]
    fleet.trouble.clear()
    again = apply(fleet)
    assert (states(again)[1], again.exit_code) == ("installed", 0)
    assert calls(fleet)[1] == ("rollout.before", ["avx-2"])


def test_failures_of_before_count_as_failures(fleet: FakeFleet) -> None:
    fleet.trouble["before", "avx-1"] = "exit code 1."
    result = apply(fleet)
    assert states(result) == ["install_failed", "not_reached", "not_reached"]


def test_after_runs_although_the_switch_failed(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-1"] = "switch"
    result = apply(fleet)
    assert states(result)[0] == "install_failed"
    assert calls(fleet)[-1] == ("rollout.after", ["avx-1"])


def test_a_node_whose_after_fails_serves_and_is_an_error_until_after_works(
    fleet: FakeFleet,
) -> None:
    fleet.trouble["after", "avx-1"] = "exit code 1: no such node."
    result = apply(fleet)
    assert states(result) == ["installed", "not_reached", "not_reached"]
    failed = of(result, "avx-1")
    assert failed.hook_failed
    assert failed.reason == "rollout.after failed: exit code 1: no such node."
    assert result.exit_code == 6
    lines = result_lines(result)
    assert "installed: avx-1: rollout.after failed: exit code 1: no such node." in lines
    assert next_command(made(), result).endswith("run again: fleetbuild apply")
    fleet.trouble.clear()
    again = apply(fleet)
    assert (states(again)[0], again.exit_code) == ("up_to_date", 0)
    assert calls(fleet)[-1] == ("rollout.after", ["avx-1"])
    apply(fleet)
    assert calls(fleet) == []


@pytest.mark.parametrize("when", [("before", "avx-2"), ("after", "avx-2")])
def test_an_interrupted_apply_names_the_drained_nodes_and_the_next_one_ends_it(
    fleet: FakeFleet, when: tuple[str, str]
) -> None:
    fleet.trouble[when] = "ctrl-c"
    with pytest.raises(Interrupted, match=r"rollout.after has not run for avx-\[2-3\]"):
        apply(fleet)
    fleet.trouble.clear()
    result = apply(fleet)
    assert result.exit_code == 0
    afters = [nodes for name, nodes in calls(fleet) if name == "rollout.after"]
    assert afters == [["avx-2", "avx-3"]]


def test_a_plan_without_after_says_which_nodes_an_earlier_run_drained(fleet: FakeFleet) -> None:
    fleet.trouble["after", "avx-1"] = "ctrl-c"
    with pytest.raises(Interrupted):
        apply(fleet)
    apply(fleet, plan(THREE))
    warned = [event for event in fleet.told if event.state == "warning"]
    assert [event.node for event in warned] == ["avx-1"]
    assert "rollout.before" in warned[0].message


def test_only_after_runs_too(fleet: FakeFleet) -> None:
    apply(fleet, made(before=None))
    assert [name for name, _ in calls(fleet)][:3] == ["install.yml", "install.yml", "rollout.after"]


def test_a_rollback_has_hooks_around_its_switch(fleet: FakeFleet) -> None:
    fleet.trouble["install.yml", "avx-3"] = "install"
    result = apply(fleet, rollback_on_failure=True)
    assert states(result) == ["rolled_back", "rolled_back", "install_failed"]
    assert calls(fleet)[-3:] == [
        ("rollout.before", ["avx-1", "avx-2"]),
        ("rollback.yml", ["avx-1", "avx-2"]),
        ("rollout.after", ["avx-1", "avx-2"]),
    ]


def test_a_node_that_cannot_be_drained_again_keeps_the_new_release_and_that_is_said(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = fleet.hook

    def fails_again(call: HookCall) -> Mapping[str, HookFailure]:
        if ("rollout.after", ["avx-1", "avx-2"]) in calls(fleet):
            fleet.trouble["before", "avx-2"] = "exit code 1."
        return hook(call)

    monkeypatch.setattr(fleet, "hook", fails_again)
    fleet.trouble["install.yml", "avx-3"] = "install"
    result = apply(fleet, made(canary=0), rollback_on_failure=True)
    assert states(result) == ["rolled_back", "install_failed", "install_failed"]
    assert of(result, "avx-2").reason == (
        "The rollback failed, so the new release may still serve: Not switched, because"
        " rollout.before failed: exit code 1."
    )


def test_the_call_names_the_node_as_kubernetes_does(fleet: FakeFleet) -> None:
    seen = []
    whole = fleet.hook
    fleet.hook = lambda call: seen.append(call) or whole(call)  # type: ignore[method-assign]
    named = PlannedNode(state="ok", group=THREE.name, python=PYTHON, kubernetes_node="worker-1")
    apply(fleet, plan(THREE, rollout=ROLLOUT, nodes={"avx-1": named}))
    assert seen[0].release == "default"
    assert seen[0].nodes["avx-1"].model_dump() == {
        "group": THREE.name, "release_id": THREE.release_id, "kubernetes_node": "worker-1",
    }  # fmt: skip


def test_a_missing_playbook_stops_the_run_before_anything_changes(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    run = fleet.run(made(before={"playbook": "/nowhere.yml"}), tmp_path / "state")
    tools = run.tools.__class__(**{**vars(run.tools), "hook_exists": lambda _: False})
    with pytest.raises(BlockedError, match=r"the playbook /nowhere.yml, which does not exist"):
        carry_out(run.__class__(**{**vars(run), "tools": tools}))
    assert not fleet.calls
