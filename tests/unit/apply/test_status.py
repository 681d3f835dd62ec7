from pathlib import Path
from typing import Any

import pytest

from fleetbuild.apply.status import compare_releases
from fleetbuild.models import Facts, Manifest, ManifestWheel, NodeResult, NodeStatus, Result
from fleetbuild.state import StateDir
from tests.factories.fleets import facts

WHEEL = ManifestWheel(
    package="hnswlib", version="0.8.0+cpu.avx", artifact_key="0" * 32, sha256="0" * 64
)
MANIFEST = Manifest(
    release="default", id="r1", group="g", python="/p", wheels=(WHEEL,), verified=True
)
LEFT = Result(
    plan_digest="d",
    nodes=(NodeResult(node="a", group="g", state="installed", release_id="r1"),),
)


def one(found: Facts | None, last: Result | None = LEFT) -> NodeStatus:
    known = {"a": found} if found else {}
    left = {node.node: node for node in last.nodes} if last else {}
    ages = {"a": "2026-01-01"}
    return compare_releases(["a"], known, release="default", expected=left, probed=ages)["a"]


@pytest.mark.parametrize(
    ("changes", "drift", "word"),
    [
        ({}, "none", ""),
        ({"id": "r2"}, "different", "r2"),
        ({"verified": False}, "changed", "verified"),
        ({"group": "h"}, "changed", "group h"),
    ],
)
def test_each_kind_of_drift_is_found(changes: dict[str, Any], drift: str, word: str) -> None:
    status = one(facts("avx", release={"default": MANIFEST.model_copy(update=changes)}))
    assert status.drift == drift
    assert word in status.sentence
    assert status.packages == ("hnswlib==0.8.0+cpu.avx",)
    assert status.probed == "2026-01-01"


def test_a_rollback_by_fleetbuild_is_not_drift() -> None:
    back = NodeResult(node="a", group="g", state="rolled_back", release_id="r1")
    result = Result(plan_digest="d", nodes=(back,))
    there = facts("avx", release={"default": MANIFEST})
    status = one(there, last=result)
    assert (status.drift, status.sentence) == ("none", "It was rolled back to this release.")
    other = MANIFEST.model_copy(update={"id": "r2"})
    assert "a rollback left r1" in one(facts("avx", release={"default": other}), result).sentence


def test_a_node_that_a_later_apply_did_not_reach_is_still_known(tmp_path: Path) -> None:
    """A wiped node is drift, also if the last apply was about other nodes or another release."""
    state = StateDir(tmp_path)
    state.save_result(LEFT, started="1", release="default")
    away = NodeResult(node="a", state="unreachable")
    state.save_result(Result(plan_digest="e", nodes=(away,)), started="2", release="default")
    other = NodeResult(node="a", group="g", state="installed", release_id="r7")
    state.save_result(Result(plan_digest="f", nodes=(other,)), started="3", release="tools")
    saved = state.last_result()
    assert saved
    left = saved.left_there("default")
    assert left["a"].release_id == "r1"
    assert saved.left_there("tools")["a"].release_id == "r7"
    there = {"a": facts("avx")}
    status = compare_releases(["a"], there, release="default", expected=left, probed={})["a"]
    assert (status.drift, status.sentence) == (
        "missing", "The last apply left release r1, but no release is there now.",
    )  # fmt: skip
    back = NodeResult(node="a", group="g", state="rolled_back", release_id="r0")
    state.amend_result({"a": back}, started="4", release="default")
    amended = state.last_result()
    assert amended
    assert amended.left_there("default") == {"a": back}
    assert amended.left_there("tools")["a"].release_id == "r7"


def test_a_damaged_release_is_drift_whoever_installed_it() -> None:
    damaged = facts("avx", release={"default": MANIFEST}, damaged={"default": "x.so is missing"})
    for last in (LEFT, None):
        status = one(damaged, last)
        assert (status.drift, status.sentence) == (
            "damaged", "Its release is damaged: x.so is missing.",
        )  # fmt: skip


def test_a_removed_release_is_missing() -> None:
    status = one(facts("avx"))
    assert (status.drift, status.release_id) == ("missing", None)


def test_a_release_that_no_apply_installed_is_not_drift() -> None:
    status = one(facts("avx", release={"default": MANIFEST}), last=None)
    assert status.drift is None
    assert "no finished apply with this state directory" in status.sentence
    assert one(facts("avx"), last=None).sentence == ""


def test_an_unreachable_node_has_no_drift() -> None:
    status = one(Facts(state="unreachable", reason="no route"))
    assert (status.state, status.reason, status.drift) == ("unreachable", "no route", None)
    assert one(Facts(state="skipped", reason="It is ours to leave.")).state == "skipped"


def test_an_unreachable_node_keeps_its_fix() -> None:
    status = one(Facts(state="unreachable", reason="HOST KEY CHANGED", fix="ssh-keygen -R a"))
    assert (status.reason, status.fix) == ("HOST KEY CHANGED", "ssh-keygen -R a")


def test_the_fix_for_an_unknown_node_asks_it() -> None:
    found = compare_releases(["a"], {}, release="default", expected={}, probed={})
    assert found["a"].state == "unknown"
    assert found["a"].fix == "Ask it: fleetbuild status INVENTORY"
