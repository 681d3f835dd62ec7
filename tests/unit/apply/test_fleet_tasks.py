from pathlib import Path
from typing import Any

from fleetbuild.ansible.role_results import VerifyReply
from fleetbuild.apply.fleet_task import FleetTask, run_fleet_task
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.apply.verify import Checks, repair_damaged, verify_task
from fleetbuild.extension import Follower
from fleetbuild.models import (
    Event,
    Facts,
    Inventory,
    Login,
    Manifest,
    Node,
    NodeResult,
    Plan,
    Result,
)
from fleetbuild.state import StateDir
from tests.factories.fleets import facts
from tests.factories.plans import reused_plan
from tests.factories.runs import LOG, answer, ended, event

MANIFEST = Manifest(
    release="default", id="r1", group="cpu-avx-cp311", python="/usr/bin/python3", wheels=()
)
CHECKS = Checks(imports=("hnswlib",), snippets=("import hnswlib",))
VERIFY = verify_task("/opt/fleetbuild", "default", lambda _: CHECKS)


class Fleet:
    def __init__(self, tmp_path: Path, **replies: dict[str, Any] | str) -> None:
        self.state = StateDir(tmp_path)
        self.replies = replies
        self.asked: dict[str, Any] = {}
        self.left: dict[str, str] = {}
        self.told: list[Event] = []
        self.facts: dict[str, Facts] = {
            name: facts("avx", release={"default": MANIFEST}) for name in replies
        }

    def playbook(self, name: str, *, limit: Any, extravars: Any, on_event: Any) -> Any:
        (jobs,) = extravars.values()
        assert list(limit) == sorted(jobs)
        self.asked = {name: jobs}
        hosts = {}
        for host in jobs:
            reply = self.replies[host]
            if isinstance(reply, str):
                hosts[host] = ended(reply)
            else:
                answer(on_event, host, reply, "install" if name == "rollback.yml" else "verify")
                if not reply["ok"]:
                    on_event(event(host, "Stop", {"fix": "?"}, "failed", "Stopped."))
                    hosts[host] = ended("failed")
        return hosts

    def run(self, task: FleetTask) -> Result:
        nodes = tuple(Node(name=name, login=Login(host=name)) for name in self.facts)
        return run_fleet_task(
            task,
            Inventory(source="i", nodes=nodes),
            release="default",
            expected=self.left,
            state=self.state,
            probe=lambda nodes, _: {node.name: self.facts[node.name] for node in nodes},
            run_playbook=self.playbook,
            on_event=self.told.append,
            follower=Follower(),
        )


def test_verify_checks_the_serving_release(tmp_path: Path) -> None:
    fleet = Fleet(
        tmp_path,
        good={"ok": True, "release_id": "r1"},
        bad={"ok": False, "reason": "A check failed.", "output": "Traceback\nIllegal instruction"},
        away="unreachable",
        mute="silent",
    )
    fleet.facts["down"] = Facts(state="unreachable", reason="no route")
    fleet.facts["bare"] = facts("avx")
    fleet.facts["left"] = Facts(state="skipped", reason="The inventory says fleetbuild_skip.")
    result = fleet.run(VERIFY)
    assert {node.node: node.state for node in result.nodes} == {
        "good": "verified",
        "bad": "verify_failed",
        "away": "unreachable",
        "mute": "install_failed",
        "down": "unreachable",
        "bare": "skipped",
        "left": "skipped",
    }
    assert "Illegal instruction" in str(result.nodes[1].reason)
    assert all(node.fix for node in result.nodes if node.node not in ("good", "bare", "left"))
    assert not result.changed
    assert fleet.asked["verify.yml"]["good"] == {
        "path": "/opt/fleetbuild",
        "release": "default",
        "imports": ["hnswlib"],
        "checks": ["import hnswlib"],
    }
    states = [event.state for event in fleet.told]
    assert states == ["started", "ok", "failed", "unreachable", "failed"]
    assert fleet.told[0].nodes == ("good", "bad", "away", "mute")
    failed = {node.node for node in result.nodes if node.log == LOG}
    assert failed == {"bad", "away", "mute"}


def test_a_release_without_checks_is_skipped_and_not_called_verified(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, a={"ok": True})
    result = fleet.run(verify_task("/opt/fleetbuild", "default", lambda _: Checks()))
    assert result.nodes[0].state == "skipped"
    assert not fleet.asked


def test_a_missing_release_fails_verification(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, a={"ok": True}, b={"ok": True})
    fleet.facts |= {"a": facts("avx"), "b": facts("avx")}
    fleet.left = {"a": "r1"}
    result = fleet.run(VERIFY)
    assert [node.state for node in result.nodes] == ["verify_failed", "skipped"]
    assert "left release r1" in str(result.nodes[0].reason)
    assert result.nodes[0].fix == "Install it again: fleetbuild verify INVENTORY --repair"
    assert result.exit_code == 7


def test_a_fix_names_a_command(tmp_path: Path) -> None:
    said = {"ok": False, "reason": "?", "fix": "Install it again: verify INVENTORY --repair"}
    fleet = Fleet(tmp_path, a=said | {"damaged": True}, b={"ok": False, "reason": "?"})
    fleet.facts["c"] = facts("avx", damaged={"default": "x.so is missing"})
    verify = verify_task("/opt/fleetbuild", "default", lambda _: CHECKS)
    assert [node.fix for node in fleet.run(verify).nodes] == [
        "Install it again: fleetbuild verify INVENTORY --repair",
        "Go back with: fleetbuild rollback INVENTORY --limit b",
        "Install it again: fleetbuild verify INVENTORY --repair",
    ]


def test_rollback_switches_to_the_previous_release(tmp_path: Path) -> None:
    there = {"release_id": "r0", "packages": ["p==1.0+cpu.avx", "six==1.17.0"]}
    fleet = Fleet(tmp_path, a={"ok": True, **there}, b={"ok": False})
    result = fleet.run(rollback_task("/opt/fleetbuild", "default", "me"))
    assert [(node.state, node.release_id) for node in result.nodes] == [
        ("rolled_back", "r0"),
        ("install_failed", "r1"),
    ]
    assert result.nodes[0].reason == (
        "from release r1 to r0: p none → 1.0+cpu.avx, six none → 1.17.0"
    )
    assert result.changed
    assert all(map(fleet.state.is_changing, "ab"))  # this probe keeps nothing
    assert result.exit_code == 6


def test_the_end_of_a_traceback_is_shown_once() -> None:
    told = {"ok": False, "output": "Traceback\nAssertionError: too big"}
    once = "`f()`: AssertionError: too big"
    assert VerifyReply(reason=once, **told).why == once
    assert VerifyReply(reason="It failed.", **told).why.endswith("d. AssertionError: too big")
    assert VerifyReply(ok=False, reason="It failed.").why == "It failed."


def test_only_damaged_nodes_of_the_same_release_are_repaired(tmp_path: Path) -> None:
    plan = reused_plan("a", "b", "c")
    group = plan.groups[0]
    state, release = StateDir(tmp_path), str(group.release_id)
    names = group.nodes
    old = NodeResult(node="other", state="installed", release_id="r9")
    state.save_result(
        Result(plan_digest=plan.digest, nodes=(
            old, *(NodeResult(node=name, state="installed", release_id=release) for name in names),
        )), started="2026-01-01",
    )  # fmt: skip
    bad = {"state": "verify_failed", "damaged": True}
    verified = Result(plan_digest="", nodes=(
        NodeResult(node=names[0], release_id=release, **bad),  # type: ignore[arg-type]
        NodeResult(node=names[1], release_id="another", **bad),  # type: ignore[arg-type]
        old,
    ))  # fmt: skip
    asked: list[Plan] = []

    def carry_out(part: Plan) -> Result:
        asked.append(part)
        mended = NodeResult(node=names[0], state="installed", release_id=release)
        result = Result(plan_digest=part.digest, nodes=(mended,), changed=True)
        state.save_result(result, started="2026-02-02")
        return result

    result = repair_damaged(verified, plan, state, carry_out)
    (part,) = asked
    assert (list(part.nodes), part.groups[0].nodes) == ([names[0]], (names[0],))
    assert [node.state for node in result.nodes] == ["installed", "verify_failed", "installed"]
    last = state.last_result()
    assert last
    assert last.result.plan_digest == plan.digest
    assert {node.node for node in last.result.nodes} == {"other", *names}
    assert "Plan and apply" in str(result.nodes[1].fix)
    assert repair_damaged(verified, None, state, carry_out).nodes[0].state == "verify_failed"
    assert len(asked) == 1
