import subprocess
import sys
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild.errors import PlanFileError, UsageError
from fleetbuild.models import (
    Inventory,
    Login,
    Manifest,
    ManifestWheel,
    Node,
    NodeResult,
    Plan,
    Result,
    Unreachable,
)
from fleetbuild.planner.facts import keep
from fleetbuild.planning import read_plan as plan_of_text
from fleetbuild.planning.document.serialize import with_digest
from fleetbuild.state.directory import StateDir
from fleetbuild.store import Store
from fleetbuild.wiring import checks_by_manifest
from tests.factories.runs import group, plan, wheel

PLAN = with_digest(plan(group("avx", ["a", "b"])))
FLEET = Inventory(
    source="i.yml", nodes=tuple(Node(name=name, login=Login(host=name)) for name in "ab")
)
CAPTURE = {"uname": "Linux 6.1 x86_64\n", "cpuinfo": "processor : 0\nflags : sse sse2\n"}


def test_everything_promised_is_there() -> None:
    for name in fleetbuild.__all__:
        assert getattr(fleetbuild, name).__doc__
    assert set(fleetbuild.__all__) <= set(dir(fleetbuild))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fleetbuild.nonsense


def test_probe_is_a_call_whatever_was_imported_first() -> None:
    code = (
        "import sys, fleetbuild\n"
        "assert 'pydantic' not in sys.modules\n"
        "from fleetbuild.probe.parsing.facts import facts_of\n"
        "from fleetbuild import probe\n"
        "assert callable(probe) and callable(fleetbuild.probe)\n"
        "from fleetbuild.probe import captures\n"
        "assert captures.load_captures\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    fleetbuild.save_plan(PLAN, tmp_path / "deep" / "plan.json")
    assert fleetbuild.read_plan(tmp_path / "deep" / "plan.json") == PLAN


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{}", b"nothing"])
def test_a_file_that_is_not_a_plan_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanFileError, match=r"plan\.json") as caught:
        fleetbuild.read_plan(path)
    assert caught.value.fix


def test_a_plan_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlanFileError, match="cannot be saved"):
        fleetbuild.save_plan(PLAN, tmp_path / "file" / "plan.json")


def test_manifests_are_of_the_nodes_that_a_result_says_work(tmp_path: Path) -> None:
    result = Result(
        plan_digest=PLAN.digest,
        nodes=(
            NodeResult(node="a", state="installed", release_id=PLAN.groups[0].release_id),
            NodeResult(node="b", state="verify_failed"),
        ),
    )
    given = fleetbuild.render_manifests(PLAN, result, kind="labels")
    assert set(given) == {"labels.sh", "nodes.yaml"}
    labelled = [line for line in given["labels.sh"].splitlines() if "/release=" in line]
    assert ["node a " in line for line in labelled] == [True], given["labels.sh"]
    files = fleetbuild.render_manifests(PLAN, result, kind="nfd")
    assert {name: "/release=" in text for name, text in files.items()} == {
        "a": True,
        "b": False,
        "nodefeaturerule.yaml": False,
    }
    unverified = fleetbuild.render_manifests(PLAN, kind="nfd")
    assert not any("/release=" in text for text in unverified.values())
    assert set(fleetbuild.render_manifests(PLAN, kind="affinity")) == {
        "affinity.yaml",
        "affinity-nfd.yaml",
    }
    StateDir(tmp_path).save_result(result, started="2026-01-01T00:00:00+00:00")
    by_plan = fleetbuild.render_manifests(PLAN, kind="labels")
    assert fleetbuild.render_manifests(PLAN, kind="labels", state_dir=tmp_path) == by_plan


def test_captures_serve_in_place_of_nodes_and_status_knows_their_age(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    keep(state, {"a": CAPTURE, "b": Unreachable(reason="no route")})
    facts = fleetbuild.probe(FLEET, captures=state.facts)
    assert (facts["a"].arch, facts["b"].state) == ("x86_64", "unreachable")
    found = fleetbuild.status(FLEET, offline=True, state_dir=tmp_path)
    assert found["a"].probed
    assert (found["b"].state, found["b"].probed) == ("unknown", None)


def test_offline_status_without_any_probe_knows_nothing(tmp_path: Path) -> None:
    found = fleetbuild.status(FLEET, offline=True, state_dir=tmp_path / "none")
    assert {node.state for node in found.values()} == {"unknown"}


def manifest(package: str, key: str) -> Manifest:
    one = ManifestWheel(package=package, version="1", artifact_key=key, sha256="0" * 64)
    return Manifest(release="default", id="r", group="g", python="/p", wheels=(one,))


def test_checks_come_from_the_plan_else_from_the_recipe(tmp_path: Path) -> None:
    planned = wheel("avx", checks=("planned",), import_names=("one",))
    the_plan = plan(group("avx", ["a"], wheels=(planned,)))
    store = Store(tmp_path)
    of_plan = checks_by_manifest(the_plan, store, [])
    assert of_plan(manifest("hnswlib", str(planned.artifact_key))).snippets == ("planned",)
    of_recipe = checks_by_manifest(None, store, [])(manifest("hnswlib", "f" * 32))
    assert of_recipe.imports == ("hnswlib",)
    assert of_recipe.snippets
    nobody = checks_by_manifest(None, store, [])(manifest("unheard-of", "f" * 32))
    assert not nobody.imports
    assert not nobody.snippets


@pytest.mark.parametrize("captures", [True, False])
@pytest.mark.parametrize("name", ["a/cpuinfo", "n" * 300, "c"])
def test_a_name_that_is_not_in_the_plan_cannot_be_explained(
    tmp_path: Path, name: str, captures: bool
) -> None:
    state = StateDir(tmp_path)
    keep(state, {"a": CAPTURE})
    with pytest.raises(UsageError, match="The plan has no node or group"):
        fleetbuild.explain(
            PLAN, name, captures=state.facts if captures else None, state_dir=tmp_path
        )


@pytest.mark.parametrize("task", ["verify", "rollback"])
def test_verify_and_rollback_read_the_plan_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    fleetbuild.save_plan(PLAN, tmp_path / "plan.json")
    done = Result(
        plan_digest=PLAN.digest, nodes=(NodeResult(node="a", state="installed", release_id="r1"),)
    )
    StateDir(tmp_path).save_result(done, started="2026-01-01T00:00:00+00:00")
    read: list[str] = []
    left: list[dict[str, str]] = []

    def reading(text: str, name: str) -> Plan:
        read.append(name)
        return plan_of_text(text, name)

    def sent(*_: object, **given: dict[str, str]) -> Result:
        left.append(given["left"])
        return done

    monkeypatch.setattr("fleetbuild.planner.plan_files.plan_of_text", reading)
    monkeypatch.setattr("fleetbuild.wiring.run_fleet_task", sent)
    getattr(fleetbuild, task)(FLEET, state_dir=tmp_path)
    assert read == [str(tmp_path / "plan.json")]
    assert left == [{"a": "r1"}]
