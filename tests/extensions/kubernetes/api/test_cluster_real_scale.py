"""Two thousand Nodes of a real API server: requests to label them, to label again, and for status.

The times are printed (pytest -s); docs/verified.md has them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild.apply.serving import note_reply
from fleetbuild.extensions.kubernetes.api import Cluster
from fleetbuild.extensions.kubernetes.api.client import PAGE, Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.cluster_labels import label
from fleetbuild.extensions.kubernetes.labels.apply import Labelling, WantedLabels, label_nodes
from fleetbuild.extensions.kubernetes.show import labelled_lines
from fleetbuild.models import Config, Inventory, Login, Node
from fleetbuild.models.serving import as_planned
from fleetbuild.state import StateDir
from tests.factories import real_api
from tests.factories.plans import reused_plan
from tests.factories.real_api import RealApi

pytestmark = real_api.needed

MANY = 2000
NAMES = [f"n{number}" for number in range(1, MANY + 1)]
PAGES = MANY // PAGE


@pytest.fixture(scope="module")
def api(running: RealApi) -> RealApi:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(running.add, NAMES))
    return running


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests so far, by verb."""
    counted: Counter[str] = Counter()
    once = Client._once

    def counting(self: Client, credentials: Any, method: str, *rest: Any) -> Any:
        counted[method] += 1
        return once(self, credentials, method, *rest)

    monkeypatch.setattr(Client, "_once", counting)
    return counted


def test_two_thousand_nodes(api: RealApi, tmp_path: Path, asked: Counter[str]) -> None:
    plan = reused_plan(*NAMES)
    state = StateDir(tmp_path / "state").create()
    fleetbuild.save_plan(plan, state.plan_file)
    for name, manifest in as_planned(plan, NAMES).items():
        assert manifest
        note_reply(state, name, manifest)
    nodes = tuple(Node(name=name, login=Login(host=name)) for name in NAMES)
    fleet = fleetbuild.Fleet(
        Inventory(source="i.yml", nodes=nodes), config=Config(), state_dir=state.root,
        cluster=Cluster(api.kubeconfig(tmp_path)),
    )  # fmt: skip

    def measured(what: str, action: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        asked.clear()
        start = time.monotonic()
        done = action()
        sys.stdout.write(f"{what}: {time.monotonic() - start:.1f} s, {dict(asked)}\n")
        return done, dict(asked)

    done, requests = measured("label", lambda: label(fleet, plan=plan))
    assert labelled_lines(done) == [f"{MANY} nodes: {MANY} labelled."]
    assert requests == {"GET": PAGES, "PATCH": MANY + 1}  # first it asks whether it may
    done, requests = measured("label again", lambda: label(fleet, plan=plan))
    assert labelled_lines(done) == [f"{MANY} nodes: {MANY} labelled before."]
    assert requests == {"GET": PAGES}
    done, requests = measured("status", lambda: fleet.status(offline=True))
    assert not [name for name, node in done.items() if node.labels != "right"]
    assert requests == {"GET": PAGES}


def test_an_api_server_that_restarts_leaves_no_node_unlabelled(
    api: RealApi, tmp_path: Path
) -> None:
    """Away for 4 s in the middle, as in an upgrade of a control plane."""
    names = NAMES[:600]
    wanted = WantedLabels({}, {"restart.example.org/class": "cpu-avx2"})
    with Client(find_access(api.kubeconfig(tmp_path))) as client:
        nodes = list_nodes(client)
        restarting = threading.Timer(0.5, api.restart, [4])
        restarting.start()
        outcomes = label_nodes(
            client, nodes, dict.fromkeys(names, wanted), Labelling("restart.example.org")
        )
        restarting.join()
        after = list_nodes(client)
    assert len(api.server) == 2  # it was away
    # Unchanged: the server set the labels, and died before it said so.
    assert {outcome.state for outcome in outcomes.values()} <= {"labelled", "unchanged"}
    assert all("restart.example.org/class" in after[name].labels for name in names)
