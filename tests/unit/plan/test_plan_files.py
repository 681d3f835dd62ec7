"""The last plan, as an apply keeps it."""

from __future__ import annotations

import json
from pathlib import Path

from fleetbuild.plan.document.files import keep_applied, last_plan
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
