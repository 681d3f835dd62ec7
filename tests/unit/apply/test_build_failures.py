"""Every known failure is recognized in a text that was really printed, and no text takes long."""

from __future__ import annotations

import string
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.ansible import ansible_dir
from fleetbuild.apply.build_failures import explain_failure
from fleetbuild.apply.stages import carry_out
from fleetbuild.models import Event
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, group, plan, wheel

TABLE: list[dict[str, Any]] = yaml.safe_load(
    (ansible_dir() / "plugins/plugin_utils/known_failures.yml").read_text("utf-8")
)["known_failures"]
DATA = Path(__file__).parents[1] / "data"
CPU = wheel("avx").target
GPU = CPU.model_copy(update={"sms": ("8.0", "8.6")})

TEXTS = [
    (row["known_failure"], row["text"], row["says"])
    for row in yaml.safe_load((DATA / "failures.yml").read_text("utf-8"))
]


def during(name: str) -> Any:
    return next(row for row in TABLE if row["name"] == name)["during"][-1]


@pytest.mark.parametrize(("name", "text", "says"), TEXTS)
def test_a_known_text_is_explained_with_its_fix(name: str, text: str, says: str) -> None:
    around = f"some line before\n{text}\nsome line after\n"
    reason, fix = explain_failure(around, "gpu-1", "g1", GPU, during=during(name))
    assert says in reason
    own = next(row for row in TABLE if row["name"] == name)
    assert fix.startswith(own["fix"].partition("{")[0])
    assert fix.endswith(".")
    assert "{" not in reason + fix


def test_every_known_failure_has_a_text_or_is_a_signal() -> None:
    untold = {row["name"] for row in TABLE} - {name for name, _, _ in TEXTS}
    assert untold == {row["name"] for row in TABLE if "patterns" not in row}
    assert len({row["name"] for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("text", ["", "ValueError: last words", "a {1} {node} {nobody} %s"])
def test_an_unknown_text_stays_as_it_is(text: str) -> None:
    assert explain_failure(text, "n", "g", CPU) == (text, "")


def test_only_failures_of_this_stage_count() -> None:
    text = "ModuleNotFoundError: No module named 'torch'"
    building, _ = explain_failure(text, "n", "g", CPU, during="build")
    running, _ = explain_failure(text, "n", "g", CPU, during="run")
    assert "build requirements" in building
    assert "not in the release" in running


def test_a_target_without_gpus_is_shown_as_no_gpu() -> None:
    text = "AssertionError: Torch not compiled with CUDA enabled"
    assert "(no GPU)" in explain_failure(text, "n", "g", CPU, during="run")[0]


def test_text_from_a_node_is_never_a_template() -> None:
    text = "ModuleNotFoundError: No module named 'x{node.__class__}'"
    assert explain_failure(text, "n{1}", "g", CPU)[0].endswith(
        "module x, and it is not among its build requirements."
    )


@pytest.mark.parametrize("name", sorted({name for name, _, _ in TEXTS}))
def test_a_longer_text_takes_longer_in_proportion(name: str) -> None:
    """Beginnings of what a pattern looks for, over and over: what makes a bad pattern back up."""
    texts = [text.partition("\n")[0] for told, text, _ in TEXTS if told == name]
    pieces = [text[:cut] for text in texts for cut in range(4, len(text), 13)]
    for piece in [*pieces, "a", "a-", "lib", ".so", "lib.so", "a.", "_", " ", "/a.h", "\n"]:
        short, long = (seconds(piece * (size // len(piece)), name) for size in (2**11, 2**14))
        # Eight times the text: 64 times as long where a pattern backs up.
        assert long < 24 * short + 0.01, piece


def seconds(text: str, name: str) -> float:
    """What it costs to look for everything in this text."""
    began = time.process_time()
    explain_failure(text, "n", "g", CPU, during=during(name))
    return time.process_time() - began


@given(st.text(string.printable + "\x1b`'", max_size=400))
def test_any_text_gives_a_reason(text: str) -> None:
    reason, fix = explain_failure(text, "n", "g", CPU)
    assert (reason == text) == (fix == "")


@pytest.mark.parametrize(
    ("log", "reason", "fix"),
    [
        (
            "nvcc error: #error -- unsupported GNU version! gcc versions later than 11 are not "
            "supported!\n" + "more\n" * 20_000 + "ninja: build stopped\n",
            "the compiler failed",  # too far from the end
            "Read the log, fix the error, then apply again.",
        ),
        (
            "more\n" * 20_000 + "a.c:1:10: fatal error: Python.h: No such file or directory\n",
            "The headers of Python are missing on avx-1.",
            next(row["fix"] for row in TABLE if row["name"] == "python-headers-missing"),
        ),
        (None, "the compiler failed", "Read the log, fix the error, then apply again."),
    ],
)
def test_a_failed_build_is_explained_by_the_end_of_its_log(
    tmp_path: Path, log: str | None, reason: str, fix: str
) -> None:
    (tmp_path / "store").mkdir()
    fleet = FakeFleet({"avx-1": facts("avx")}, FakeStore(tmp_path / "store"))
    fleet.trouble["build.yml", "avx-1"] = "failed"

    def build(_: str) -> None:
        (order,) = fleet.extravars[-1]["fleetbuild_builds"]["avx-1"]
        Path(order["dest"]).mkdir(parents=True)
        if log is not None:
            (Path(order["dest"]) / "build.log").write_text(log)

    fleet.during = build
    told: list[Event] = []
    result = carry_out(fleet.run(plan(group("avx", ["avx-1"])), tmp_path / "state", told))
    assert (result.wheels[0].reason, result.wheels[0].fix) == (reason, fix)
    assert reason in [event.message for event in told if event.state == "failed"]


def test_a_build_after_a_failed_one_says_that_it_was_not_started(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    fleet = FakeFleet({"avx-1": facts("avx")}, FakeStore(tmp_path / "store"))
    fleet.trouble["build.yml", "avx-1"] = "failed"
    second = wheel("avx", package="second", artifact_key="2" * 32)
    both = group("avx", ["avx-1"], wheels=(wheel("avx"), second))
    first, after = carry_out(fleet.run(plan(both), tmp_path / "state")).wheels
    assert first.reason == "the compiler failed"
    assert after.reason == "Not started: hnswlib, which is built before it on avx-1, failed."
    assert after.fix == "Read the log of hnswlib, fix the error, then apply again."
