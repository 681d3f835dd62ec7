"""Plans and `explain` with known runs of wheels, and with readings of their code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleetbuild.extensions.check import evidence
from fleetbuild.extensions.check.needs import read_needs
from fleetbuild.extensions.check.results import EmulatedRun, FileResults, Results
from fleetbuild.files import sha256_of
from fleetbuild.hardware.cpu_models import find_cpu_model
from fleetbuild.models import Config
from fleetbuild.models.verdict import Verdict
from fleetbuild.plan.explain import explain_name
from fleetbuild.plan.plan_fleet import plan_fleet
from fleetbuild.plan.resolve.sandbox import PYTHON_TAG
from fleetbuild.state import StateDir
from tests.factories.elf import make_elf
from tests.factories.files import make_sdist, make_wheel
from tests.factories.fleets import facts, inventory, python

HERE = (python(".".join(map(str, sys.version_info[:3]))),)
AUTO = Config.model_validate({"build": {"policy": "auto"}})


@pytest.fixture
def site(index):
    """An index with a source that requires a wheel of unknown code."""
    make_wheel(index, "dep", tag="py3-none-manylinux_2_28_x86_64")
    make_sdist(index, "pkg", requires='["dep"]')
    return index


def plan(fleet, *packages, config=None):
    return plan_fleet(inventory(fleet), fleet, config, packages)


def actions(made):
    return {
        group.name: {wheel.package: wheel.action for wheel in group.wheels} for group in made.groups
    }


def keep_run(wheel, cpu, verdict, where=None, uses=("avx2",)):
    """Keep a run of this wheel's file, as `fleetbuild check --emulate` does."""
    run = EmulatedRun(
        cpu=cpu,
        qemu="7.2",
        python="cp311",
        uses=uses,
        exercised=True,
        verdict=Verdict(verdict=verdict, where=where, evidence="emulated"),
    )
    sha256 = sha256_of(wheel)
    results = Results()
    results.keep(FileResults(sha256=sha256, file=wheel.name, runs=(run,)))


def test_a_dependency_that_is_known_to_die_blocks_the_nodes_where_it_dies(site, monkeypatch):
    (dep,) = site.glob("dep-*.whl")
    keep_run(dep, "IvyBridge", "dies-at-import", "illegal instruction in import dep")
    fleet = {"old": facts("avx"), "new": facts("avx2")}
    made = plan(fleet, "pkg==1.0")
    assert {name: made.nodes[name].state for name in fleet} == {"old": "blocked", "new": "ok"}
    assert made.nodes["old"].reason == (
        "dep 1.0, a dependency, dies at import there: illegal instruction in import dep."
    )
    assert "dep!=1.0" in made.nodes["old"].fix
    ran = EmulatedRun(
        cpu="SandyBridge",
        qemu="7.2",
        python="cp311",
        uses=("avx2",),
        verdict=Verdict(verdict="runs", evidence="emulated"),
    )
    other = FileResults(sha256="0" * 64, file="dep-0.9-py3-none-any.whl", runs=(ran,))
    monkeypatch.setattr(evidence, "shipped_runs", lambda: {"0" * 64: other})
    assert "dep==0.9" in plan(fleet, "pkg==1.0").nodes["old"].fix


def test_if_no_older_dependency_loads_the_newest_says_why_the_node_is_blocked(site):
    for path in site.glob("dep-*"):
        path.unlink()
    code = make_elf(bytes.fromhex("c5f5fec2c3"), symbol="PyInit__c")
    for version in ("1.0", "2.0", "3.0"):
        extra = {"dep/_c.so": code}
        make_wheel(site, "dep", version, "py3-none-manylinux_2_17_x86_64", extra)
    node = plan({"k10": facts("x86-64")}, "pkg==1.0").nodes["k10"]
    assert (node.state, node.reason[:35]) == ("blocked", "dep 3.0, a dependency, dies at impo")


@pytest.mark.parametrize(
    ("verdict", "words"), [("no-kernel", "has no kernel"), ("refuses", "refuses by itself")]
)
def test_the_reason_of_a_known_death_is_a_sentence(site, verdict, words):
    (dep,) = site.glob("dep-*.whl")
    keep_run(dep, "IvyBridge", verdict, "dep/_c.so has code for SM 8.6")
    reason = plan({"old": facts("avx")}, "pkg==1.0").nodes["old"].reason
    assert reason == f"dep 1.0, a dependency, {words} there: dep/_c.so has code for SM 8.6."


def test_a_published_wheel_that_ran_on_such_a_cpu_is_taken(site):
    code = b"\x0f\xa2" + bytes.fromhex("c5f5fec2c3")  # cpuid, then AVX2
    wheel = make_wheel(
        site,
        "hnswlib",
        tag="cp311-cp311-manylinux_2_28_x86_64",
        files={"hnswlib/_c.so": make_elf(code)},
    )
    config = Config.model_validate({"build": {"policy": "published"}})
    fleet = {"old": facts("avx")}
    assert plan(fleet, "hnswlib==1.0", config=config).nodes["old"].state == "blocked"
    keep_run(wheel, "SandyBridge", "runs")
    made = plan(fleet, "hnswlib==1.0", config=config)
    (planned,) = made.groups[0].wheels
    assert planned.published.file == wheel.name
    assert "Ran on a CPU like avx" in planned.reason


def test_the_evidence_is_explained_and_unknown_wheels_are_named(site):
    (dep,) = site.glob("dep-*.whl")
    made = plan({"old": facts("avx"), "new": facts("avx2")}, "pkg==1.0")
    state = StateDir(Path(".fleetbuild").absolute())
    unknown = "    not known: fleetbuild check dep==1.0 --for cpu-avx2-cp311"
    assert unknown in explain_name(made, "new", state, None).lines
    assert unknown in explain_name(made, "cpu-avx2-cp311", state, None).lines
    keep_run(dep, "IvyBridge", "dies-in-use", "illegal instruction in work")
    death = "    dep 1.0: dies in use (emulated): illegal instruction in work"
    assert death in explain_name(made, "cpu-avx-cp311", state, None).lines
    assert death not in explain_name(made, "new", state, None).lines
    assert unknown in explain_name(made, "new", state, None).lines
    keep_run(dep, "Haswell-noTSX", "runs")  # which alone decides nothing
    assert unknown in explain_name(made, "new", state, None).lines


def test_the_facts_of_a_node_change_no_word_of_the_evidence(site, monkeypatch):
    """The plan judges by the target; a run may match the node's features and not the target's."""
    (dep,) = site.glob("dep-*.whl")
    features = find_cpu_model("Haswell").features
    fleet = {"new": facts("avx2").model_copy(update={"features": tuple(sorted(features))})}
    made = plan(fleet, "pkg==1.0")
    keep_run(dep, "Haswell-noTSX", "dies-in-use", "illegal instruction", uses=("aes",))
    state = StateDir(Path(".fleetbuild").absolute())
    monkeypatch.setattr("fleetbuild.plan.explain.load_captures", lambda *_: {})
    monkeypatch.setattr("fleetbuild.plan.explain.facts_from", lambda _: fleet)
    told = [explain_name(made, "new", state, captures).lines for captures in (None, "captures")]
    unknown = "    not known: fleetbuild check dep==1.0 --for cpu-avx2-cp311"
    assert [unknown in lines for lines in told] == [True, True]


def test_auto_reads_a_published_wheel_once_for_all_groups_plans_and_checks(site, monkeypatch):
    read = []
    monkeypatch.setattr(evidence, "read_needs", lambda path: read.append(path) or read_needs(path))
    tag = "cp311-cp311-manylinux_2_17_x86_64"
    wheel = make_wheel(site, "mine", tag=tag, requires="dep")
    fleet = {"a": facts("avx"), "b": facts("avx2")}
    for _ in range(2):
        made = plan(fleet, "mine==1.0", config=AUTO)
        assert [group.wheels[0].action for group in made.groups] == ["published"] * 2
    assert [path.name for path in read] == [wheel.name]
    assert Results().of(sha256_of(wheel), wheel.name).needs.requires == ("dep",)


def test_a_build_that_a_run_of_the_published_wheel_may_spare_is_named(site):
    code = {"pkg/_c.so": make_elf(b"\x0f\xa2" + bytes.fromhex("c5fdfec1c3"))}  # cpuid; vpaddd ymm0
    tag = f"{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_17_x86_64"
    wheel = make_wheel(site, "pkg", "2.0", tag, code, requires="dep")
    make_sdist(site, "pkg", "2.0", requires='["dep"]')
    fleet = {"a": facts("avx", pythons=HERE)}
    group = f"cpu-avx-{PYTHON_TAG}"
    made = plan(fleet, "pkg==2.0", config=AUTO)
    assert actions(made) == {group: {"pkg": "build"}}
    assert made.warnings[0] == (
        f"The published pkg 2.0 is undecided for {group}, so it is built: `fleetbuild check"
        f" --emulate pkg==2.0 --for {group}` decides in seconds; then plan again."
    )
    run = EmulatedRun(
        cpu="IvyBridge", qemu="7.2", python=PYTHON_TAG, uses=("avx2",), exercised=True,
        beside=("0" * 64,),  # with another version of dep: it ran all the same
        verdict=Verdict(verdict="runs", evidence="emulated"),
    )  # fmt: skip
    known = Results().of(sha256_of(wheel), wheel.name)
    Results().keep(known.with_run(run))
    made = plan(fleet, "pkg==2.0", config=AUTO)
    assert actions(made) == {group: {"pkg": "published"}}
    assert not any("undecided" in warning for warning in made.warnings)


def test_no_run_is_proposed_for_a_cpu_that_qemu_cannot_imitate(site):
    code = {"pkg/_c.so": make_elf(bytes.fromhex("0fa262f27d488dc0"))}  # cpuid; avx512vbmi
    tag = f"{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_17_x86_64"
    make_wheel(site, "pkg", "2.0", tag, code, requires="dep")
    make_sdist(site, "pkg", "2.0", requires='["dep"]')
    for rung, proposed in (("avx2", True), ("avx512", False)):
        made = plan({"a": facts(rung, pythons=HERE)}, "pkg==2.0", config=AUTO)
        assert actions(made) == {f"cpu-{rung}-{PYTHON_TAG}": {"pkg": "build"}}
        assert any("--emulate" in warning for warning in made.warnings) is proposed
