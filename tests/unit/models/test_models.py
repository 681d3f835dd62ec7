"""The small questions that the nouns answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.errors import EXIT_PRECEDENCE, worst
from fleetbuild.models import (
    NodeResult,
    Python,
    Result,
    TargetLibc,
    WheelResult,
)
from tests.factories.plans import make_target, make_wheel


@pytest.mark.parametrize(
    ("sms", "family", "name"),
    [
        (("8.6",), "glibc", "sm86-avx2-cp311"),
        (("8.0", "9.0"), "glibc", "sm80.sm90-avx2-cp311"),
        ((), "glibc", "cpu-avx2-cp311"),
        ((), "musl", "cpu-avx2-cp311-musl"),
        (("12.0",), "glibc", "sm120-avx2-cp311"),
    ],
)
def test_a_group_is_named_by_its_target(sms: tuple[str, ...], family: str, name: str) -> None:
    libc = TargetLibc.model_validate({"family": family, "floor": "2.28"})
    assert make_target(sms=sms, libc=libc).name == name


@pytest.mark.parametrize(
    ("soabi", "tag"),
    [
        ("cpython-311-x86_64-linux-gnu", "cp311"),
        ("cpython-313t-x86_64-linux-gnu", "cp313t"),
        ("pypy310-pp73", "pypy310-pp73"),
    ],
)
def test_an_interpreter_knows_its_abi_tag(soabi: str, tag: str) -> None:
    assert Python(path="/usr/bin/python3", version="3.11.9", soabi=soabi).tag == tag


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(None, 14_400), (5.0, 14_400), (80.0, 14_400), (400.0, 72_000)]
)
def test_a_builds_time_limit_is_three_times_the_estimate(
    minutes: float | None, seconds: int
) -> None:
    assert make_wheel(minutes=minutes).timeout_seconds == seconds


@given(st.lists(st.sampled_from(EXIT_PRECEDENCE)))
def test_the_exit_code_is_the_most_serious_one(codes: list[int]) -> None:
    code = worst(codes)
    assert code in [*codes, 0]
    assert all(EXIT_PRECEDENCE.index(code) <= EXIT_PRECEDENCE.index(other) for other in codes)


def result(*states: str, wheels: tuple[WheelResult, ...] = ()) -> Result:
    nodes = tuple(
        NodeResult.model_validate({"node": f"n{number}", "state": state})
        for number, state in enumerate(states)
    )
    return Result(plan_digest="", nodes=nodes, wheels=wheels)


def test_a_complete_run_exits_0() -> None:
    assert result("installed", "up_to_date", "verified", "skipped").exit_code == 0


def test_a_failed_build_outranks_an_unreachable_node() -> None:
    failed = WheelResult(package="a", wheel_version="1", artifact_key="k", state="failed")
    assert result("unreachable").exit_code == 3
    assert result("unreachable", "verify_failed").exit_code == 7
    assert result("unreachable", wheels=(failed,)).exit_code == 5
