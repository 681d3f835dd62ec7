from typing import Any

import pytest
from engine_fakes import facts

from fleetbuild.engine.status import compare
from fleetbuild.models import Facts, Manifest, ManifestWheel, NodeResult, NodeStatus, Result

WHEEL = ManifestWheel(package="hnswlib", version="0.8.0+cpu.avx", artifact_key="k", sha256="s")
MANIFEST = Manifest(
    release="default", id="r1", group="g", python="/p", wheels=(WHEEL,), verified=True
)
LEFT = Result(
    plan_digest="d",
    nodes=(NodeResult(node="a", group="g", state="installed", release_id="r1"),),
)


def one(found: Facts | None, last: Result | None = LEFT) -> NodeStatus:
    known = {"a": found} if found else {}
    return compare(["a"], known, release="default", last=last, probed={"a": "2026-01-01"})["a"]


@pytest.mark.parametrize(
    ("changes", "drift", "word"),
    [
        ({}, "none", ""),
        ({"id": "r2"}, "different", "r2"),
        ({"verified": False}, "changed", "verified"),
        ({"group": "h"}, "changed", "group h"),
    ],
)
def test_drift(changes: dict[str, Any], drift: str, word: str) -> None:
    status = one(facts("avx", release={"default": MANIFEST.model_copy(update=changes)}))
    assert status.drift == drift
    assert word in status.sentence
    assert status.packages == ("hnswlib==0.8.0+cpu.avx",)
    assert status.probed == "2026-01-01"


def test_a_release_that_is_gone_is_missing() -> None:
    status = one(facts("avx"))
    assert (status.drift, status.release_id) == ("missing", None)


def test_nothing_is_said_of_what_no_apply_left() -> None:
    status = one(facts("avx", release={"default": MANIFEST}), last=None)
    assert status.drift is None
    assert "left no release" in status.sentence
    assert one(facts("avx"), last=None).sentence == ""


def test_a_node_out_of_reach_has_no_drift() -> None:
    status = one(Facts(state="unreachable", reason="no route"))
    assert (status.state, status.reason, status.drift) == ("unreachable", "no route", None)
    assert one(None).state == "unknown"
