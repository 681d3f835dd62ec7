"""Recalled wheels: refused in plans, the store, exports, emits and on nodes, until taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetbuild import Emission, EmittedFiles, Fleet
from fleetbuild.apply.audit import audit_findings
from fleetbuild.apply.rollback import rollback_task
from fleetbuild.apply.serving import serving_now
from fleetbuild.apply.stages import carry_out
from fleetbuild.apply.status import compare_releases
from fleetbuild.apply.verify import Checks, verify_task
from fleetbuild.cli import app
from fleetbuild.errors import BlockedError, StalePlanError, UsageError
from fleetbuild.extension import EmitKind, Extension, extensions
from fleetbuild.extensions.supply.revoke import revoke, revoked_wheels, take_back
from fleetbuild.models import Manifest, ManifestWheel, Plan
from fleetbuild.models.revocation import Revocation, Revocations
from fleetbuild.models.stored import StoredWheel
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.plan.plan_fleet import _refuse_revoked
from fleetbuild.probe.facts import keep
from fleetbuild.state import StateDir
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store
from tests.factories import plans
from tests.factories.files import make_wheel
from tests.factories.fleets import HNSWLIB, facts, locked, planned
from tests.factories.runs import FakeFleet, FakeStore, group, plan

KEY = "0123456789abcdef0123456789abcdef"
VERSION = "0.8.0+cpu.avx2"
WHY = "built on a compromised node"


def wheel_of_plan(**changes: object):
    return plans.make_wheel(artifact_key=KEY, **changes)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state").create()


@pytest.fixture
def stored(state: StateDir, tmp_path: Path) -> StoredWheel:
    built = make_wheel(tmp_path / "built", "hnswlib", VERSION, "cp311-cp311-linux_x86_64")
    return Store(state.store).add(built, wheel_of_plan(), built_on="a", seconds=1)


def manifest(sha256: str, *, key: str = KEY, verified: bool = True) -> Manifest:
    wheel = ManifestWheel(package="hnswlib", version=VERSION, artifact_key=key, sha256=sha256)
    return Manifest(
        release="default", id=plans.RELEASE_ID, group="g", python="/p", wheels=(wheel,),
        dependencies=("numpy==2.0",), verified=verified,
    )  # fmt: skip


def on_node(state: StateDir, name: str, served: Manifest) -> None:
    """A node whose last answer was that it serves this."""
    text = served.model_dump_json() + "\n"
    keep(state, {name: {"uname": "Linux 6.1 x86_64\n", "release": text}})


def a_plan(**changes: object) -> Plan:
    made = plans.make_group(wheels=(wheel_of_plan(action="reuse"),), **changes)
    return with_digest(plans.make_plan((made,), inventory="i.yml"))


@pytest.mark.parametrize(
    ("what", "covered"),
    [
        ("a" * 64, True),
        ("b" * 64, False),
        ("hnsw-lib==0.8.0", True),
        ("hnsw-lib==0.8.0+cpu.avx2", True),
        ("hnsw-lib==0.8.0+cpu.avx", False),
        ("hnsw-lib==0.8", False),
        ("other==0.8.0", False),
    ],
)
def test_what_a_revocation_covers(what: str, covered: bool) -> None:
    entry = Revocation(what=what, reason=WHY, time="t")
    assert entry.covers("HNSW_lib", VERSION, "a" * 64) is covered


def test_a_revoked_wheel_is_never_taken_from_the_store(
    state: StateDir, stored: StoredWheel
) -> None:
    store = Store(state.store)
    assert store.find(wheel_of_plan())
    revoked = revoke(stored.sha256[:12], WHY, StateDir(state.root))
    assert revoked.revocation.what == stored.sha256
    assert revoked.revocation.artifact_key == KEY
    assert revoked.wheels == (stored.path.name,)
    assert store.find(wheel_of_plan()) is None
    assert store.floors() == {}
    assert store.list()[0].revoked == f"hnswlib {VERSION} is revoked: {WHY}."
    assert not release_files(a_plan(), store)


def test_its_bytes_are_refused_from_a_builder_too(state: StateDir, stored: StoredWheel) -> None:
    revoke(stored.sha256, WHY, StateDir(state.root))
    revocations = Store(state.store).revocations
    delivered = state.root.parent / "built" / stored.path.name  # without the bill of materials
    for path in (stored.path, delivered):
        problems = audit_findings(path, a_plan(), wheel_of_plan(), revocations)
        assert problems[0] == f"hnswlib {VERSION} is revoked: {WHY}."


def test_the_next_plan_builds_it_with_another_key_and_replaces_it() -> None:
    fleet = {"a": facts("avx2")}
    before = planned(fleet).groups[0]
    key, sha256 = str(before.wheels[0].artifact_key), "a" * 64
    served = manifest(sha256, key=key).model_copy(update={"id": before.release_id})
    fleet = {"a": facts("avx2", release={"default": served})}
    assert planned(fleet).groups[0].installs.up_to_date == ("a",)
    entry = Revocation(what=sha256, reason=WHY, time="t", artifact_key=key)
    after = planned(fleet, revoked=Revocations(entries=(entry,))).groups[0]
    assert after.wheels[0].artifact_key not in (None, key)
    assert after.wheels[0].action == "build"
    assert after.release_id != before.release_id
    assert after.installs.upgrade == ("a",)
    again = Revocation(
        what="b" * 64, reason=WHY, time="t", artifact_key=after.wheels[0].artifact_key
    )
    third = planned(fleet, revoked=Revocations(entries=(entry, again))).groups[0]
    assert third.wheels[0].artifact_key not in (key, after.wheels[0].artifact_key)


def test_a_plan_that_needs_a_revoked_version_is_blocked() -> None:
    def revoked(what: str) -> Revocations:
        return Revocations(entries=(Revocation(what=what, reason=WHY, time="t"),))

    made = planned({"a": facts("avx2")}, revoked=revoked("hnswlib==0.8.0+cpu.avx2"))
    assert made.nodes["a"].state == "blocked"
    assert WHY in str(made.nodes["a"].reason)
    assert "--undo" in str(made.nodes["a"].fix)
    assert planned({"a": facts("avx2")}, revoked=revoked("numpy==2.0")).exit_code == 4
    with pytest.raises(BlockedError, match="is revoked: built on"):
        _refuse_revoked([HNSWLIB], revoked("hnswlib==0.8.0"))


def test_another_version_of_a_dependency_is_taken() -> None:
    entries = (
        Revocation(what="numpy==2.0", reason=WHY, time="t"),
        Revocation(what="a" * 64, reason=WHY, time="t"),
    )
    assert Revocations(entries=entries).exclusions == ("numpy!=2.0",)


@pytest.mark.parametrize("what", ["hnswlib==0.8.0", "numpy==1.0", "setuptools==1.0", "key"])
def test_an_older_plan_that_uses_it_is_stale(tmp_path: Path, what: str) -> None:
    made = plan(group("avx", ["a"]))
    key = made.wheels[0].artifact_key if what == "key" else None
    what = "c" * 64 if key else what
    entry = Revocation(what=what, reason=WHY, time="t", artifact_key=key)
    fleet = FakeFleet({"a": facts("avx")}, FakeStore(tmp_path))
    run = fleet.run(made, tmp_path / "state")
    object.__setattr__(run.tools, "revoked", Revocations(entries=(entry,)).in_plan)
    with pytest.raises(StalePlanError, match=WHY):
        carry_out(run)
    assert not fleet.calls


def test_a_node_that_serves_it_is_drift_and_fails_verification(
    state: StateDir, stored: StoredWheel
) -> None:
    served = manifest(stored.sha256)
    on_node(state, "a", served)
    on_node(state, "b", manifest("f" * 64))
    revoked = revoke(stored.sha256, WHY, StateDir(state.root))
    assert revoked.nodes == ("a",)
    known = Store(state.store).revocations
    found = compare_releases(
        ["a"],
        {"a": facts("avx2", release={"default": served})},
        release="default",
        expected={},
        probed={},
        revoked=known,
    )["a"]
    assert (found.drift, found.sentence) == (
        "revoked",
        f"hnswlib {VERSION} is revoked: {WHY}.",
    )
    checks = Checks(imports=("hnswlib",))
    result = verify_task("/opt", "default", lambda _: checks, known).job("a", served)
    assert (result.state, WHY in result.reason) == ("verify_failed", True)  # type: ignore[union-attr]
    serving = serving_now(plans.make_plan(), state)
    assert [serving[name].verified for name in "ab"] == [False, True]  # type: ignore[union-attr]


def test_a_rollback_names_what_nodes_must_pass_over() -> None:
    job = rollback_task("/opt", "default", "me", ["a" * 64]).job("a", manifest("b" * 64))
    assert job.model_dump()["revoked"] == ("a" * 64,)


class Names(Extension):
    """Another extension, with a kind of emit."""

    def emit_kinds(self) -> Sequence[EmitKind]:
        return [EmitKind("names", f"{__name__}:names")]


def names(emission: Emission) -> EmittedFiles:
    """Write a file for each group."""
    return EmittedFiles({f"{group.name}.txt": "" for group in emission.plan.groups})


def test_nothing_of_it_is_emitted(
    state: StateDir, stored: StoredWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetbuild.emit.kinds.extensions", lambda: (*extensions(), Names()))
    fleet = Fleet(state_dir=state.root)
    avx = plans.make_target("avx")
    other = plans.make_wheel("hnswlib", "0.8.0+cpu.avx", avx, artifact_key="1" * 32)
    good = plans.make_group(("c",), avx, wheels=(other,))
    bad = plans.make_group(wheels=(wheel_of_plan(),))
    both = with_digest(plans.make_plan((good, bad), inventory="i.yml"))
    assert {f"{each.name}.txt" for each in (good, bad)} == set(fleet.emit("names", plan=both).files)
    revoke(stored.sha256, WHY, state)
    emitted = fleet.emit("names", plan=both)
    assert set(emitted.files) == {f"{good.name}.txt"}
    assert any(WHY in text for text in emitted.warnings)
    with pytest.raises(BlockedError, match=WHY):
        fleet.emit("names", plan=a_plan())


def test_a_revocation_is_listed_and_taken_back(state: StateDir, stored: StoredWheel) -> None:
    revoke(stored.sha256, WHY, state)
    revoke(stored.sha256, "another reason", state)
    revoke("Num.Py==2.0", WHY, state)
    named = [each.revocation.what for each in revoked_wheels(state)]
    assert named == [stored.sha256, "num-py==2.0"]
    assert take_back(stored.sha256[:9], state).reason == "another reason"
    assert Store(state.store).find(wheel_of_plan())
    take_back("num_py==2.0", state)
    assert revoked_wheels(state) == ()
    with pytest.raises(UsageError, match="not revoked"):
        take_back("numpy==2.0", state)
    told = [json.loads(line)["what"] for line in state.revocations_journal.read_text().splitlines()]
    assert told == ["revoked"] * 3 + ["revocation taken back"] * 2


@pytest.mark.parametrize(
    "what",
    ["", "hnswlib", "hnswlib==", "==1", "a b==1", "hnswlib==x y", "abc", "f" * 12, "../x==1"],
)
def test_what_cannot_be_revoked_is_a_sentence(state: StateDir, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        revoke(what, WHY, StateDir(state.root))
    assert caught.value.fix


def test_a_downloaded_package_is_revoked_by_version(state: StateDir) -> None:
    file = locked("numpy", "2.0", "7")
    path = Store(state.store).path_of(file)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UsageError) as caught:
        revoke(file.sha256, WHY, StateDir(state.root))
    assert "fleetbuild revoke numpy==2.0" in caught.value.fix


def test_a_damaged_list_is_an_error_and_not_an_empty_list(state: StateDir) -> None:
    state.store.mkdir()
    (state.store / "revoked.json").write_text("{")
    with pytest.raises(UsageError, match=r"revoked\.json cannot be read"):
        Store(state.store).floors()


@pytest.fixture
def run(state: StateDir) -> Callable[..., Result]:
    def call(*args: str) -> Result:
        return CliRunner().invoke(app, ["revoke", *args, "--state-dir", str(state.root)])

    return call


def test_the_command(run: Callable[..., Result], state: StateDir, stored: StoredWheel) -> None:
    assert run("--list").stdout == "Nothing is revoked.\n"
    on_node(state, "gpu-1", manifest(stored.sha256))
    done = run("hnswlib==0.8.0", "--reason", WHY)
    assert done.exit_code == 0
    assert f"Revoked hnswlib==0.8.0: {WHY}" in done.stdout
    assert "gpu-1" in done.stdout
    assert stored.path.name in done.stdout
    assert "gpu-1" in run("--list").stdout
    listed = json.loads(run("--list", "--json").stdout)["revoked"]
    assert [each["what"] for each in listed] == ["hnswlib==0.8.0"]
    assert "no longer revoked" in run("hnswlib==0.8.0", "--undo").stdout
    for wrong in ([], ["x==1"], ["--list", "x==1"], ["x==1", "--undo", "--reason", "y"]):
        refused = run(*wrong)
        assert (refused.exit_code, "fix:" in refused.stderr) == (2, True)
