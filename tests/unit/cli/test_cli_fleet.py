"""Facts and plans from captures, as a user sees them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from fleetbuild import Fleet
from fleetbuild.errors import UsageError
from fleetbuild.models import Facts
from fleetbuild.store.wheels import Store
from tests.factories import plans
from tests.factories.files import make_wheel

DATA = Path(__file__).parents[1] / "data"
FLEET = DATA / "fleet.yml"
CAPTURES = DATA / "fleet"
Run = Callable[..., Result]
PLAN = ("plan", FLEET, "--facts", CAPTURES, "--package", "hnswlib==0.8.0")


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans group and show without an index; these tests need none."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")


def test_facts_are_shown_as_a_table(run: Run) -> None:
    result = run("facts", FLEET, "--facts", CAPTURES)
    assert result.exit_code == 3
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert "avx512vnni" in rows["avx512-b"]
    assert "8.6" in rows["avx2-gpu"]
    assert result.stdout.splitlines()[-1].endswith("4 ok.")


def test_facts_json_is_one_document(run: Run) -> None:
    result = run("facts", FLEET, "--facts", CAPTURES, "--json")
    document = json.loads(result.stdout)
    assert document["format_version"] == "1.0"
    assert {name: node["isa"] for name, node in document["nodes"].items()} == {
        "avx-old": "avx", "avx2-gpu": "avx2", "avx512-a": "avx512vnni", "avx512-b": "avx512vnni",
        "gone": None,
    }  # fmt: skip
    for node in document["nodes"].values():
        Facts.model_validate(node)


@pytest.mark.usefixtures("no_index")
def test_plan_json_is_exactly_the_saved_plan(run: Run, here: Path) -> None:
    result = run(*PLAN, "--json", "--out", "p.json")
    assert result.exit_code == 3
    assert result.stdout == (here / "p.json").read_text()
    assert [group["name"] for group in json.loads(result.stdout)["groups"]] == [
        "cpu-avx-cp311", "cpu-avx2-cp311", "cpu-avx512-cp311",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_index")
def test_plan_reports_missing_supplies_and_saves(run: Run, here: Path) -> None:
    result = run(*PLAN)
    assert "unreachable: gone" in result.stdout
    assert "its dependencies are not locked" in result.stdout
    assert "Next: make the index or source reachable" in result.stdout.splitlines()[-1]
    assert (here / ".fleetbuild" / "plan.json").exists()
    explained = run("explain", "avx512-a", "--facts", CAPTURES)
    assert explained.exit_code == 0
    assert "avx512vnni" in explained.stdout
    assert "Planned just now" in explained.stdout
    assert run("explain", "nobody").exit_code == 2
    group = json.loads(run("explain", "cpu-avx-cp311", "--json").stdout)
    assert group["name"] == "cpu-avx-cp311"


@pytest.mark.usefixtures("no_index")
def test_plan_exits_with_the_documented_codes(run: Run) -> None:
    assert run(*PLAN, "--limit", "avx-old").exit_code == 0
    assert run(*PLAN, "--limit", "avx-old", "--detailed-exitcode").exit_code == 10
    assert run(*PLAN, "--detailed-exitcode").exit_code == 3


def test_status_shows_nodes_that_were_never_probed(run: Run) -> None:
    result = run("status", FLEET, "--offline")
    assert result.exit_code == 0
    assert "unknown" in result.stdout
    assert set(json.loads(run("status", FLEET, "--offline", "--json").stdout)["nodes"]) == {
        "avx-old", "avx2-gpu", "avx512-a", "avx512-b", "gone",
    }  # fmt: skip


@pytest.mark.usefixtures("no_index")
def test_commands_on_nodes_take_the_inventory_of_the_last_plan(run: Run) -> None:
    before = run("status", "--offline", "--json")
    assert list(json.loads(before.stdout)["nodes"]) == ["localhost"]
    assert before.stderr.endswith("none is here: taking this machine (localhost,).\n")
    run(*PLAN, "--limit", "avx512-*,gone")
    after = run("status", "--offline", "--json")
    assert after.stderr == (
        f"No inventory is named: taking the last plan's, {FLEET} --limit 'avx512-*,gone'.\n"
    )
    assert set(json.loads(after.stdout)["nodes"]) == {"avx512-a", "avx512-b", "gone"}
    other = run("status", "--offline", "--json", "--limit", "avx-old")
    assert list(json.loads(other.stdout)["nodes"]) == ["avx-old"]
    refused = run("rollback", "--limit", "gone")
    assert refused.exit_code == 2
    assert f"fleetbuild rollback {FLEET} --yes --limit gone" in refused.stderr
    refused = run("remove", "--yes")
    assert refused.exit_code == 2
    assert f"fix: Name it: fleetbuild remove {FLEET} --limit 'avx512-*,gone'\n" in refused.stderr


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_list_of_packages_is_read_before_any_node_is_asked(run: Run, command: str) -> None:
    refused = run(command, "no-inventory.yml", "-r", "none.txt")
    assert refused.exit_code == 2
    assert "none.txt does not exist" in refused.stderr


def test_a_damaged_wheel_is_named_and_removed(run: Run, here: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "built", "pkg", "1.0+cpu.avx2", "cp311-cp311-linux_x86_64")
    planned = plans.make_wheel("pkg", "1.0+cpu.avx2", plans.make_target(), artifact_key="a" * 32)
    store = Store(here / ".fleetbuild" / "store")
    stored = store.add(wheel, planned, built_on="a", seconds=1)
    stored.path.write_bytes(b"x" + stored.path.read_bytes()[1:])
    checked = run("store", "check")
    assert checked.exit_code == 7
    assert f"Damaged and removed: {stored.path}" in checked.stdout.replace("\n", "")
    assert run("store", "check", "--json").exit_code == 0
    store.add(wheel, planned, built_on="a", seconds=1)
    assert "Removed" in run("store", "rm", "pkg").stdout
    assert store.list() == ()


@pytest.mark.usefixtures("no_index")
def test_an_apply_reads_the_configuration_that_its_plan_was_made_with(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "elsewhere").mkdir()
    config = here / "elsewhere" / "fleet.yml"
    config.write_text("packages: [hnswlib==0.8.0]\nmirrors: {https://a/: file:///srv/}\n")
    run("plan", FLEET, "--facts", CAPTURES, "--config", config)
    seen = []

    def apply(fleet: Fleet, *_: object, **__: object) -> None:
        seen.append(fleet.config.mirrors)
        raise UsageError("Far enough.", "Nothing.")

    monkeypatch.setattr(Fleet, "apply", apply)
    assert "changed after" not in run("apply").stderr
    assert seen == [{"https://a/": "file:///srv/"}]
    # Calls that name no inventory, such as `fleetbuild store fetch`, read it too.
    assert Fleet(state_dir=here / ".fleetbuild").config.mirrors == seen[0]
    later = config.stat().st_mtime + 60
    os.utime(config, (later, later))
    assert run("apply").stderr.splitlines()[0] == (
        f"warning: {config} changed after this plan was made, and the plan is applied as it is."
        f" To plan again: fleetbuild plan {FLEET} --config {config}"
    )
    assert "changed after" not in run("apply", here / ".fleetbuild" / "plan.json").stderr
