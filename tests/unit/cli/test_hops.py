"""The way of an apply from its command to ansible-playbook, as a recorded stack shows it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from typer.testing import Result

import fleetbuild
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, group, plan

PACKAGE = Path(fleetbuild.__file__).parent
GROUPS = (group("avx", ["avx-1", "avx-2"]), group("avx2", ["avx2-1", "avx2-2"]))


def stations(frame: FrameType | None) -> list[str]:
    """Return the package's modules in a stack, the outermost first."""
    files = list[Path]()
    while frame:
        files.append(Path(frame.f_code.co_filename))
        frame = frame.f_back
    return [str(file.relative_to(PACKAGE)) for file in files[::-1] if PACKAGE in file.parents]


def without_repeats(names: list[str]) -> Iterator[str]:
    for before, name in zip(["", *names], names, strict=False):
        if name != before:
            yield name


def test_an_apply_of_two_groups_takes_the_hops_that_the_page_lists(
    run: Callable[..., Result], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "store").mkdir()
    nodes = {name: facts(each.target.isa) for each in GROUPS for name in each.nodes}
    (here / "hosts").write_text("".join(f"{name}\n" for name in nodes))
    made = with_digest(plan(*GROUPS, inventory=str(here / "hosts")))
    fleetbuild.save_plan(made, here / "p.json")
    fake, stacks = FakeFleet(facts=nodes, store=FakeStore(here / "store")), list[list[str]]()

    def tools(access: Any, *_: object) -> Any:
        def run_playbook(name: str, **given: Any) -> Any:
            played = access.playbooks.run if name == "install.yml" else fake.playbook
            return played(name, **given)

        return replace(fake.run(plan(*GROUPS), here).tools, run_playbook=run_playbook)

    def record(**_: object) -> NoReturn:
        both = (sys._current_frames()[threading.main_thread().ident or 0], sys._getframe())
        stacks.append([name for frame in both for name in stations(frame)])
        raise RuntimeError("recorded")

    monkeypatch.setattr("fleetbuild.apply.wiring.apply_tools", tools)
    monkeypatch.setattr("ansible_runner.run_command", record)
    result = run("apply", here / "p.json")
    assert stacks, result.output
    (stack,) = stacks
    way = list(without_repeats(stack[stack.index("cli/commands/apply.py") :]))
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^- `apply`: (.*(?:\n  .*)*)", page, re.MULTILINE)
    assert [*way, "ansible-playbook"] == re.findall(r"`([\w./-]+)`", listed)
