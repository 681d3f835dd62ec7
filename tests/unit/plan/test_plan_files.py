"""The last plan, as an apply keeps it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fleetbuild.models import Config
from fleetbuild.plan.document.files import changed_inputs, keep_applied, last_plan
from fleetbuild.plan.document.serialize import _digest, dump_plan, read_plan, with_digest
from fleetbuild.state import StateDir
from tests.factories.plans import make_plan


def test_an_applied_plan_of_an_older_version_can_be_read_again(tmp_path: Path) -> None:
    document = json.loads(dump_plan(make_plan()))
    del document["isolation"]  # a field that the older version did not have
    plan = read_plan(json.dumps({**document, "digest": _digest(document)}))
    state = StateDir(tmp_path)
    with keep_applied(plan, state):
        pass
    assert last_plan(state) == with_digest(plan)


def test_files_that_were_written_after_the_plan_are_named(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    names = ("fleetbuild.yml", "in.txt", "recipes/own.yml", "own.txt")
    source, listed, recipe, given = (tmp_path / name for name in names)
    for path in (source, listed, recipe, given):
        path.write_text("")
        os.utime(path, (1_700_000_000.9, 1_700_000_000.9))
    gone = str(tmp_path / "gone.txt")
    plan = make_plan(
        created="2023-11-14T22:13:20+00:00",  # in the same second
        options={"package": ("numpy",), "requirement": (str(given), gone)},
    )
    config = Config(requirements=("in.txt",))
    assert changed_inputs(plan, source, config, tmp_path) == []
    for path in (listed, recipe, given):
        os.utime(path, (1_700_000_001, 1_700_000_001))
    assert changed_inputs(plan, source, config, tmp_path) == [listed, recipe, given]
