import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from inspect import isclass, isfunction
from pathlib import Path
from typing import get_type_hints

import pytest

import fleetbuild
from fleetbuild import Config, Fleet
from fleetbuild.apply.context import Run
from fleetbuild.apply.fleet_task import FleetTask
from fleetbuild.apply.wiring import checks_by_manifest
from fleetbuild.errors import (
    FleetbuildError,
    Interrupted,
    PlanFileError,
    StalePlanError,
    UsageError,
)
from fleetbuild.models import (
    Facts,
    Inventory,
    Login,
    Manifest,
    ManifestWheel,
    Node,
    NodeResult,
    Plan,
    Result,
    Summary,
    Unreachable,
)
from fleetbuild.models.role_parameters import ReleaseSpec
from fleetbuild.plan.document.serialize import read_plan as plan_of_text
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.probe.facts import keep
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store
from tests.factories.runs import group, plan, wheel

PLAN = with_digest(plan(group("avx", ["a", "b"])))
FLEET = Inventory(
    source="i.yml", nodes=tuple(Node(name=name, login=Login(host=name)) for name in "ab")
)
CAPTURE = {"uname": "Linux 6.1 x86_64\n", "cpuinfo": "processor : 0\nflags : sse sse2\n"}


def test_every_public_name_exists_and_is_documented() -> None:
    for name in set(fleetbuild.__all__) - {"OnEvent"}:
        assert getattr(fleetbuild, name).__doc__
    assert set(fleetbuild.__all__) <= set(dir(fleetbuild))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fleetbuild.nonsense


def public_callables() -> Iterator[tuple[str, object]]:
    """Yield public functions, classes and methods; not the methods that pydantic brings."""
    for name in fleetbuild.__all__:
        public = getattr(fleetbuild, name)
        if isfunction(public) or isclass(public):
            yield name, public
        for key, member in vars(public).items() if isclass(public) else ():
            function = getattr(member, "fget", None) or getattr(member, "func", member)
            function = getattr(function, "__func__", function)
            is_public = key == "__init__" or not key.startswith("_")
            if is_public and isfunction(function) and function.__module__.startswith("fleetbuild."):
                yield f"{name}.{key}", function


def test_documentation_tools_can_look_up_the_types_of_public_names() -> None:
    unresolved = {}
    for name, public in public_callables():
        try:
            get_type_hints(public)
        except NameError as error:
            unresolved[name] = str(error)
    assert not unresolved


def test_a_package_and_its_modules_keep_their_names() -> None:
    code = (
        "import sys, fleetbuild\n"
        "assert 'pydantic' not in sys.modules\n"
        "from fleetbuild import Fleet\n"
        "from fleetbuild import apply, probe\n"
        "assert apply.__name__ == 'fleetbuild.apply' and probe.__name__ == 'fleetbuild.probe'\n"
        "assert type(fleetbuild).__name__ == 'module'\n"
        "assert fleetbuild.__version__.count('.') >= 1\n"
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


def test_captures_replace_a_probe_and_status_shows_their_age(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    keep(state, {"a": CAPTURE, "b": Unreachable(reason="no route")})
    fleet = Fleet(FLEET, state_dir=tmp_path)
    facts = fleet.probe(captures=state.facts)
    assert (facts["a"].arch, facts["b"].state) == ("x86_64", "unreachable")
    found = fleet.status(offline=True)
    assert found["a"].probed
    assert (found["b"].state, found["b"].probed) == ("unknown", None)


def test_offline_status_without_a_probe_is_unknown(tmp_path: Path) -> None:
    found = Fleet(FLEET, state_dir=tmp_path / "none").status(offline=True)
    assert {node.state for node in found.values()} == {"unknown"}


def test_configuration_and_inventory_come_from_files_or_the_last_plan(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yml"
    inventory.write_text("all: {hosts: {a: , b: }}\n")
    beside = tmp_path / "fleetbuild.yml"
    beside.write_text("release: beside\n")
    (tmp_path / "other.yml").write_text("release: other\n")
    assert Fleet(inventory).config.release == "beside"
    assert Fleet(inventory, config=tmp_path / "other.yml").config.release == "other"
    assert Fleet(inventory, config=Config(release="given")).config.release == "given"
    beside.unlink()
    assert Fleet(inventory).config == Config()

    saved = PLAN.model_copy(update={"inventory": str(inventory), "limit": "b"})
    Fleet(state_dir=tmp_path).save_plan(with_digest(saved))
    fleet = Fleet(state_dir=tmp_path)
    assert [node.name for node in fleet.inventory.nodes] == ["b"]
    assert fleet.inventory is fleet.inventory
    assert fleet.last_plan() == with_digest(saved)


@pytest.mark.parametrize(
    ("end", "kept"), [(None, True), (Interrupted("x"), True), (StalePlanError("x"), False)]
)
def test_an_applied_plan_is_the_last_plan_of_later_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Exception | None, kept: bool
) -> None:
    def carry_out(*_: object) -> Result:
        if end:
            raise end
        return Result(plan_digest=PLAN.digest)

    monkeypatch.setattr("fleetbuild.apply.stages.carry_out", carry_out)
    earlier = with_digest(PLAN.model_copy(update={"limit": "b"}))
    Fleet(FLEET, state_dir=tmp_path).save_plan(earlier)
    with suppress(FleetbuildError):
        Fleet(FLEET, state_dir=tmp_path).apply(PLAN)
    assert Fleet(FLEET, state_dir=tmp_path).last_plan() == (PLAN if kept else earlier)


@pytest.mark.parametrize(("given", "taken"), [(None, 90), (20, 20)])
def test_an_apply_takes_the_timeout_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: float | None, taken: float
) -> None:
    timeouts: list[float] = []

    def carry_out(run: Run, *_: object) -> Result:
        timeouts.append(run.tools.probe.__self__.timeout)  # type: ignore[attr-defined]
        return Result(plan_digest=PLAN.digest)

    monkeypatch.setattr("fleetbuild.apply.stages.carry_out", carry_out)
    Fleet(FLEET, state_dir=tmp_path, timeout=given).apply(PLAN.model_copy(update={"timeout": 90}))
    assert timeouts == [taken]


@pytest.mark.parametrize(
    ("seconds", "how", "reused"),
    [
        (59, "planned", True),
        (61, "planned", False),  # such as after a question that waited
        (1, "saved", False),
        (1, "of other facts", False),
        (1, "applied before", False),
    ],
)
def test_the_facts_of_a_plan_serve_its_apply_if_they_are_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, how: str, reused: bool
) -> None:
    applied: list[Run] = []
    clock = [1000.0]

    def probe(nodes: Sequence[Node], **_: object) -> dict[str, Facts]:
        return {node.name: facts_of(CAPTURE) for node in nodes}

    def carry_out(run: Run, *_: object) -> Result:
        applied.append(run)
        return Result(plan_digest=run.plan.digest)

    monkeypatch.setattr("fleetbuild.apply.wiring.probe_nodes", probe)
    monkeypatch.setattr("fleetbuild.fleet.monotonic", lambda: clock[0])
    monkeypatch.setattr("fleetbuild.apply.stages.carry_out", carry_out)
    monkeypatch.setenv("UV_OFFLINE", "1")
    fleet = Fleet(FLEET, state_dir=tmp_path)
    facts = fleet.probe()
    made = fleet.plan(["six==1.0"], facts=dict(facts) if how == "of other facts" else facts)
    if how == "applied before":
        fleet.apply(made)
    clock[0] += seconds
    (Fleet(FLEET, state_dir=tmp_path) if how == "saved" else fleet).apply(made)
    assert applied[-1].probed == (facts if reused else None)


def test_a_fleet_without_inventory_and_plan_says_what_to_do(tmp_path: Path) -> None:
    fleet = Fleet(state_dir=tmp_path)
    assert fleet.last_plan() is None
    with pytest.raises(PlanFileError) as caught:
        _ = fleet.inventory
    assert "fleetbuild plan INVENTORY" in caught.value.fix


def test_a_limit_for_nodes_that_were_read_already_is_refused() -> None:
    with pytest.raises(UsageError, match="no limit"):
        Fleet(FLEET, limit="a")


@pytest.mark.parametrize("call", ["verify", "rollback", "status"])
def test_tasks_use_install_path_and_release_of_the_last_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    asked: list[tuple[str, str]] = []

    def task(task: FleetTask, *_: object, release: str, **__: object) -> Result:
        given = task.job("a", manifest("hnswlib", "f" * 32))
        assert isinstance(given, ReleaseSpec)
        asked.append((given.path, release))
        return Result(plan_digest="")

    def probed(*_: object, install_path: str, **__: object) -> dict[str, Facts]:
        asked.append((install_path, "special"))
        return {node.name: facts_of(CAPTURE) for node in FLEET.nodes}

    monkeypatch.setattr("fleetbuild.apply.wiring.run_fleet_task", task)
    monkeypatch.setattr("fleetbuild.apply.wiring.probe_nodes", probed)
    special = PLAN.model_copy(
        update={"inventory": FLEET.source, "install_path": "/srv", "release": "special"}
    )
    fleet = Fleet(FLEET, state_dir=tmp_path)
    fleet.save_plan(with_digest(special))
    getattr(fleet, call)()
    assert asked == [("/srv", "special")]


def test_the_exit_codes_of_a_plan() -> None:
    def of(**numbers: int) -> tuple[int, int]:
        made = Plan.model_copy(PLAN, update={"summary": Summary(**numbers)})
        return made.exit_code, made.detailed_exit_code

    assert of() == (0, 0)
    assert of(nodes_to_change=1) == (0, 10)
    assert of(nodes_to_change=1, nodes_unreachable=1) == (3, 3)
    assert of(nodes_blocked=1, nodes_unreachable=1) == (4, 4)


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
    with pytest.raises(UsageError, match="The plan has no node, target or group"):
        Fleet(state_dir=tmp_path).explain(
            name, plan=PLAN, captures=state.facts if captures else None
        )


@pytest.mark.parametrize("task", ["verify", "rollback"])
def test_verify_and_rollback_read_the_plan_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    fleetbuild.save_plan(PLAN, tmp_path / "plan.json")
    done = Result(
        plan_digest=PLAN.digest, nodes=(NodeResult(node="a", state="installed", release_id="r1"),)
    )
    started = "2026-01-01T00:00:00+00:00"
    StateDir(tmp_path).save_result(done, started=started, release=PLAN.release)
    read: list[str] = []
    left: list[dict[str, str]] = []

    def reading(text: str, name: str) -> Plan:
        read.append(name)
        return plan_of_text(text, name)

    def sent(*_: object, **given: dict[str, str]) -> Result:
        left.append(given["expected"])
        return done

    monkeypatch.setattr("fleetbuild.plan.document.files.plan_of_text", reading)
    monkeypatch.setattr("fleetbuild.apply.wiring.run_fleet_task", sent)
    getattr(Fleet(FLEET, state_dir=tmp_path), task)()
    assert read == [str(tmp_path / "plan.json")]
    assert left == [{"a": "r1"}]


def test_a_damaged_plan_does_not_stop_status_verify_and_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.json").write_text('{"half')
    (tmp_path / "result.json").write_text("null")
    events = []
    fleet = Fleet(FLEET, config=Config(packages=["x"]), state_dir=tmp_path)
    monkeypatch.setattr(Fleet, "_run_task", lambda *_: Result(plan_digest=""))
    fleet.rollback(on_event=events.append)
    warnings = [each.message for each in events if each.state == "warning"]
    assert "plan.json" in warnings[0]
    assert "result.json, cannot be read" in warnings[1]
    fleet.status(offline=True)
    events.clear()
    assert fleet.verify(repair=True, on_event=events.append) == Result(plan_digest="")
    (warning,) = [each for each in events if each.state == "warning"]
    assert "plan.json" in warning.message
    assert "checks from recipes" in warning.message
    assert "fleetbuild plan" in warning.fix
    with pytest.raises(PlanFileError):
        fleet.apply()
