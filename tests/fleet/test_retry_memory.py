"""A build that really runs out of memory, on a node that has little of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.ansible import Playbooks, TaskEvent
from fleetbuild.files import sha256_of
from tests.lab import Lab

SOURCE = Path(__file__).parent / "hungry"  # each of its large objects needs some 290 MB
OBJECTS = {*(f"light_{n}.o" for n in (1, 2, 3)), *(f"heavy_{n}.o" for n in (1, 2, 3, 4))}


@pytest.fixture(scope="module")
def lab(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    return make_lab({"nodes": {"small": {"memory": "450m"}, "tiny": {"memory": "250m"}}})


def build(lab: Lab, node: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What the role says of a build with two jobs, and the build's log."""
    source = shutil.make_archive(str(folder / "hungry"), "gztar", SOURCE.parent, SOURCE.name)
    wheel = {
        "package": "hungry",
        "wheel_version": "1.0+cpu.x8664",
        "key": f"{node}0123456789abcdef",
        "source": source,
        "source_sha256": sha256_of(Path(source)),
        "requirements": [],
        "environment": {"CXXFLAGS": "-O1"},
        "jobs": 2,
        "python": "/usr/bin/python3",
        "cache": "ccache",
        "dest": str(folder / "out"),
    }
    facts: dict[str, Any] = {}

    def listen(event: TaskEvent) -> None:
        facts.update(event.result.get("ansible_facts") or {})

    Playbooks(inventory=str(lab.inventory), state_dir=folder).run(
        "build.yml",
        limit=[node],
        extravars={"fleetbuild_builds": {node: [wheel]}},
        on_event=listen,
    )
    return facts["build_wheel_result"], (folder / "out/build.log").read_text()


def finished(log: str) -> list[str]:
    return re.findall(r"^\s*finished (\S+)$", log, re.M)


def test_a_killed_build_finishes_with_half_the_jobs(lab: Lab, tmp_path: Path) -> None:
    result, log = build(lab, "small", tmp_path)
    assert result["ok"], log[-3000:]
    first, again = log.split("# Out of memory. Once more with one job at a time")
    assert "Killed" in first
    assert len(finished(first)) >= 3  # the small ones, at least
    # Nothing that was finished is done again, and the rest is.
    assert sorted(finished(first) + finished(again)) == sorted(OBJECTS)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert wheel.name == "hungry-1.0+cpu.x8664-py3-none-linux_x86_64.whl"


def test_a_build_that_needs_more_memory_than_one_job_has_fails_with_a_reason(
    lab: Lab, tmp_path: Path
) -> None:
    result, log = build(lab, "tiny", tmp_path)
    assert not result["ok"]
    why = (
        "The compiler was killed for lack of memory, with 2 jobs and again with one job at a time."
    )
    assert f"says: {why}" in result["reason"]
    assert "more memory" in result["fix"]
    assert log.count("Once more with") == 1
