"""The plan as a file, its staleness, and its story."""

from __future__ import annotations

import json

import pytest

from fleetbuild.errors import PlanFileError, UsageError
from fleetbuild.models import Facts, Gpu
from fleetbuild.models.digest import digest
from fleetbuild.models.plan import version_skew
from fleetbuild.models.release import ManifestWheel
from fleetbuild.plan.decide.resolution import Locks, Resolution
from fleetbuild.plan.document.fingerprint import changes_since_plan
from fleetbuild.plan.document.serialize import dump_plan, read_plan
from fleetbuild.plan.explain import explain_group, explain_name, explain_node
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store
from tests.factories.fleets import facts, locked, manifest, node, package, planned, python

PLAN = planned({"a": facts(), "b": facts("avx512")})


def test_versions_that_differ_between_groups_with_gpus_are_named():
    """NCCL refuses a job whose processes have different versions of it."""
    gpus = {"a": "8.6", "b": "9.0", "c": "6.0"}
    fleet = {name: facts(sms=(sm,), driver="580.95.05") for name, sm in gpus.items()}
    plan = planned(fleet, packages=[package("torch", "2.11.0")])

    def groups(versions: list[str], file: str = "nvidia-nccl-cu12", torch: str = "2.11.0"):
        """The groups with a torch as published, and with these versions of a dependency."""
        wheels = [
            group.wheels[0].model_copy(update={"wheel_version": torch if number else "2.11.0"})
            for number, group in enumerate(plan.groups)
        ]
        return tuple(
            group.model_copy(update={"wheels": (wheel,), "dependencies": (locked(file, version),)})
            for group, wheel, version in zip(plan.groups, wheels, versions, strict=True)
        )

    first, *others = (group.name for group in plan.groups)
    nccl = groups(["2.27.5", "2.28.9", "2.28.9"])
    (told,) = version_skew(nccl)
    assert told == (
        f"Groups with GPUs have different versions of NCCL: 2.27.5 in {first}; 2.28.9 in"
        f" {', '.join(others)}. A distributed job cannot span them: run each job on nodes of one"
        " version."
    )
    assert version_skew(nccl[1:]) == ()
    cuda = groups(["12.6.77", "13.0.1", "13.0.1"], "nvidia-cuda-runtime")
    assert "different versions of CUDA: 12 in" in version_skew(cuda)[0]
    assert version_skew(groups(["12.6.77", "12.8.1", "12.8.1"], "nvidia-cuda-runtime-cu12")) == ()
    labelled = version_skew(groups(["12.6", "12.6", "12.6"], "nvidia-cuda-runtime", "2.10.0+cu130"))
    assert [told.partition(":")[0].rpartition(" ")[2] for told in labelled] == ["torch", "CUDA"]
    without = nccl[0].target.model_copy(update={"sms": ()})
    assert version_skew((nccl[0].model_copy(update={"target": without}), *nccl[1:])) == ()


def test_a_plan_comes_back_as_it_was():
    text = dump_plan(PLAN)
    assert read_plan(text) == PLAN
    assert dump_plan(read_plan(text)) == text
    assert len(PLAN.digest) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("hosts:", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "JSON, but not a plan"),
        ('{"all": {}}', "JSON, but not a plan"),
    ],
)
def test_a_text_that_is_not_a_plan_is_refused(text, message):
    with pytest.raises(PlanFileError, match=message) as caught:
        read_plan(text, "plan.json")
    assert caught.value.exit_code == 2
    assert "fleetbuild plan" in caught.value.fix


def changed(**values):
    return json.dumps({**json.loads(dump_plan(PLAN)), **values})


def test_an_edited_newer_or_unversioned_plan_is_refused():
    with pytest.raises(PlanFileError, match="damaged or was edited"):
        read_plan(changed(release="other"))
    with pytest.raises(PlanFileError, match="damaged or was edited"):
        read_plan(changed(digest=""))
    with pytest.raises(PlanFileError, match="damaged or was edited"):
        read_plan(changed(release="\ud800"))
    with pytest.raises(PlanFileError, match="newer than this fleetbuild") as caught:
        read_plan(changed(format_version="2.0"))
    assert "Update fleetbuild" in caught.value.fix
    with pytest.raises(PlanFileError, match="format version is 'x'"):
        read_plan(changed(format_version="x"))


def test_a_plan_with_a_right_digest_and_unknown_fields():
    data = {**json.loads(dump_plan(PLAN)), "surplus": 1, "digest": ""}
    with pytest.raises(PlanFileError, match="this version can read: surplus"):
        read_plan(json.dumps({**data, "digest": digest(data)}))


def test_the_same_fleet_is_not_stale():
    installed = {"default": manifest(PLAN.groups_by_node["a"].release_id)}
    fleet = {"a": facts(release=installed, memory_gb=1.0, cpus=1),
             "b": facts("avx512", warnings=("new",))}  # fmt: skip
    assert changes_since_plan(PLAN, fleet) == []
    assert changes_since_plan(PLAN, {"a": Facts(state="unreachable")}) == []
    assert changes_since_plan(PLAN, {}) == []
    more = (*facts().features, "a_flag_that_no_rung_asks_about")
    assert changes_since_plan(PLAN, {"a": facts(features=more)}) == []


def test_a_plan_that_was_overtaken_is_stale():
    """Another controller installed something newer, which an apply would replace."""
    before, newer = manifest("1" * 16), manifest("2" * 16)
    plan = planned({"a": facts(release={"default": before}), "b": facts("avx512")})
    assert plan.nodes["a"].current == before.id
    installed = manifest(plan.groups_by_node["a"].release_id)
    for serving in ({"default": before}, {"default": installed}, {}, {"other": newer}):
        assert changes_since_plan(plan, {"a": facts(release=serving)}) == []
    overtaken = {"a": facts(release={"default": newer}), "b": facts("avx512")}
    (sentence,) = changes_since_plan(plan, overtaken)
    assert sentence == (
        f"a: it served release {before.id} when the plan was made and serves release {newer.id}"
        " now, which another apply or a rollback activated."
    )
    overtaken = {"b": facts("avx512", release={"default": newer})}
    assert "it served no release" in changes_since_plan(plan, overtaken)[0]
    # Captures need not say what served.
    captured = plan.model_copy(update={"facts_source": "captures"})
    assert changes_since_plan(captured, overtaken) == []


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Facts(state="skipped", reason="The inventory says so."), "a: The inventory says so."),
        (facts("avx"), "a: its rung was avx2 when the plan was made and is avx now."),
        (facts(libc="2.39"), "C library was glibc 2.36 when the plan was made and is glibc 2.39"),
        (facts(libc=None), "is unknown now"),
        (facts(sms=("8.6",)), "none when the plan was made and is 8.6"),
        (facts(driver="550.54"), "GPU driver was unknown"),
        (facts("armv8"), "architecture was x86_64"),
        (facts(pythons=()), "/usr/bin/python3 existed when the plan was made and is gone"),
        (facts(pythons=(python("3.12.1"),)), "/usr/bin/python3 was cp311"),
    ],
)
def test_a_changed_fact_of_the_target_makes_a_plan_stale(now, words):
    assert any(words in sentence for sentence in changes_since_plan(PLAN, {"a": now}))


def test_changed_flags_are_reported_once_and_without_their_digest():
    more = facts(features=(*facts().features, "avx512f"))
    assert changes_since_plan(PLAN, {"a": more}) == [
        "a: its CPU flags have changed since the plan was made."
    ]
    assert not any(
        "flags" in sentence for sentence in changes_since_plan(PLAN, {"a": facts("avx")})
    )


def test_a_new_python_beside_the_planned_one_changes_nothing():
    both = (python("3.12.1", "/usr/local/bin/python3"), python())
    assert changes_since_plan(PLAN, {"a": facts(pythons=both)}) == []


def test_explain_shows_every_decision_about_a_node():
    known = facts(
        "avx512vnni",
        hypervisor_masked=("amx_tile",),
        gpus=(Gpu(name="T4", sm="7.5"),),
        driver="535",
        warnings=("careful",),
    )
    plan = planned({"n": known})
    story = "\n".join(explain_node(plan, known, "n"))
    assert "n: ok, in group cpu-avx512-cp311" in story
    assert "detected rung: avx512vnni" in story
    assert "not better: avx512bf16 needs avx512_bf16" in story
    assert "hidden by its firmware or kernel: amx_tile (its model has them)" in story
    assert "planned for: avx512, the best that its recipes build for (grouping" in story
    assert "T4 (SM 7.5), driver 535" in story
    assert "warning: careful" in story
    assert "no release is current" in story
    assert "builds its wheels" in story


def test_the_hypervisor_flag_marks_a_virtual_machine():
    known = facts(hypervisor_masked=("avx512f",))
    guest = known.model_copy(update={"features": (*known.features, "hypervisor")})
    story = "\n".join(explain_node(planned({"n": guest}), guest, "n"))
    assert "hidden by its hypervisor, firmware or kernel: avx512f" in story


def test_explain_shows_a_nodes_toolkits_and_wheels():
    known = facts(
        sms=("3.5", "8.6", "99.0"), driver="470.256.02", toolchain={"nvcc": ("11.4.48", "11.8.89")}
    )
    story = explain_node(planned({"n": known}), known, "n")
    assert (
        "  CUDA: SM 3.5 (Kepler) needs 7.0 to 11.8; SM 8.6 (Ampere) needs 11.1 or newer; SM 99.0 "
        "is not a supported SM; its driver runs 11.8 or older; installed there: 11.4.48, 11.8.89"
        in story
    )
    assert any("GPU code: none: these packages have none for its GPUs." in line for line in story)
    assert "  wheel: hnswlib 0.8.0+cpu.avx2, by recipe hnswlib: to be built" in story


def test_explain_shows_a_driver_older_than_all_toolkits():
    known = facts(driver="390.157")
    story = "\n".join(explain_node(planned({"n": known}), known, "n"))
    assert "CUDA: its driver runs none from 10.2 on; installed there: none" in story


@pytest.mark.parametrize(
    ("name", "driver", "said"),
    [
        ("Device [10de:2204]", None, "SM 8.6 by its PCI device, but no driver"),
        ("Device [10de:ffff]", None, "SM unknown, no driver"),
        ("Jetson AGX Orin", None, "SM unknown, no driver"),
        ("Strange", "535.1", "SM unknown"),
    ],
)
def test_explain_shows_a_gpu_with_an_unknown_sm(name: str, driver: str | None, said: str):
    known = facts(gpus=(Gpu(name=name),), driver=driver)
    story = explain_node(planned({"n": known}), known, "n")
    assert f"  GPUs: {name} ({said})" + (f", driver {driver}" if driver else "") in story


def test_explain_shows_that_the_inventory_lowers_the_rung():
    known = facts("avx512")
    plan = planned({"n": known}, nodes=(node("n", isa="avx"),))
    assert "  planned for: avx, as the inventory says" in explain_node(plan, known, "n")


def test_explain_says_that_captures_must_be_named_again():
    plan = planned({"n": facts()})
    assert "--facts" not in "".join(explain_node(plan, None, "n"))
    captured = plan.model_copy(update={"facts_source": "captures"})
    assert "repeat --facts to show them" in "".join(explain_node(captured, None, "n"))


def test_explain_shows_why_nodes_get_nothing():
    fleet = {"gone": Facts(state="unreachable", reason="no route"), "bare": facts(pythons=())}
    plan = planned(fleet)
    assert "because: no route" in "\n".join(explain_node(plan, fleet["gone"], "gone"))
    assert "interpreters: none" in "\n".join(explain_node(plan, fleet["bare"], "bare"))
    assert explain_node(plan, None, "bare")[0] == "bare: blocked"


def test_explain_shows_the_release_of_installed_nodes():
    wanted = planned({"a": facts()}).groups[0].release_id
    fleet = {
        "done": facts(release={"default": manifest(wanted)}),
        "old": facts(release={"default": manifest("1" * 16)}, toolchain={}, gpus=(Gpu(name="x"),)),
    }
    plan = planned(fleet)
    assert "is current, as planned" in "\n".join(explain_node(plan, fleet["done"], "done"))
    old = "\n".join(explain_node(plan, fleet["old"], "old"))
    assert f"{wanted} will replace it" in old
    assert "compiler: none" in old
    assert "SM unknown" in old


def test_a_plan_says_which_versions_change_on_the_nodes_that_have_a_release():
    wanted = planned({"a": facts()}).groups[0].wheels[0]
    mine = {"package": "hnswlib", "artifact_key": "1" * 32, "sha256": "2" * 64}
    before = manifest("1" * 16).model_copy(
        update={"wheels": (ManifestWheel(version=wanted.wheel_version, **mine),),
                "dependencies": ("numpy==1.26.4", "gone==1.0")}
    )  # fmt: skip
    lock = Resolution(wheels=(locked("numpy", "2.2.6"),))
    (group,) = planned({"a": facts(release={"default": before})}, closure=lock).groups
    assert [(each.package, each.installed, each.planned) for each in group.changes] == [
        ("hnswlib", (wanted.wheel_version,), wanted.wheel_version),  # another build
        ("gone", ("1.0",), None),
        ("numpy", ("1.26.4",), "2.2.6"),
    ]
    (new,) = planned({"a": facts()}).groups
    assert new.changes == ()


def test_explain_goes_by_the_last_answer_of_a_node_and_not_by_the_plan():
    plan = planned({"a": facts()})
    wanted = plan.groups[0].release_id
    assert f"no release is current; {wanted} will be installed" in "\n".join(
        explain_node(plan, facts(), "a")
    )
    since = facts(release={"default": manifest(wanted)})
    assert f"{wanted} is current, as planned" in "\n".join(explain_node(plan, since, "a"))
    during = "\n".join(explain_node(plan, facts(), "a", changing=True))
    assert "release: unknown: an apply is changing this node" in during
    assert "will be installed" not in during


def test_explain_shows_every_decision_about_a_group():
    fleet = {"a": facts(libc="2.28", disk_gb=0.1), "b": facts(toolchain={}, memory_gb=None)}
    story = "\n".join(explain_group(planned(fleet), fleet, "cpu-avx2-cp311"))
    assert "2 nodes: a, b" in story
    assert "oldest C library: 2.28 (a)" in story
    assert "representative: a: glibc 2.28, gcc 12.2.0, 16 GB, 8 CPUs" in story
    assert "CFLAGS=-O3 -march=" in story
    assert "build requirements: numpy 2.0, setuptools 80" in story
    assert "dependencies: numpy 2.0" in story
    assert "to supply: a has 0.1 GB" in story
    assert "representative: a" in "\n".join(explain_group(planned(fleet), {}, "cpu-avx2-cp311"))


def test_explain_shows_a_missing_lock_and_a_blocked_wheel():
    fleet = {"a": facts(toolchain={}, memory_gb=None, cpus=None)}
    story = "\n".join(explain_group(planned(fleet, locks=Locks()), fleet, "cpu-avx2-cp311"))
    assert "not locked: No package index was queried." in story
    assert "no compiler yet, unknown memory" in story
    blocked = planned(fleet, closure=Resolution(problem="none such."))
    assert "see the wheels" in "\n".join(explain_group(blocked, fleet, "cpu-avx2-cp311"))
    assert "nothing changes" in "\n".join(explain_node(blocked, fleet["a"], "a"))
    none = planned(fleet, closure=Resolution(), build=Resolution())
    assert "dependencies: none" in "\n".join(explain_group(none, fleet, "cpu-avx2-cp311"))


def test_explain_names_the_baseline():
    plan = planned({"a": facts("x86-64")})
    assert "the x86_64 baseline" in "\n".join(explain_group(plan, {}, "cpu-x86-64-cp311"))


def test_explain_knows_the_wheels_built_after_the_plan(monkeypatch, tmp_path):
    monkeypatch.setattr(Store, "fitting", lambda _, wheel: (wheel,))
    story = "\n".join(explain_name(PLAN, "cpu-avx2-cp311", StateDir(tmp_path), None).lines)
    assert "already built\n    because: Built after this was planned" in story


def test_explain_refuses_unknown_names():
    with pytest.raises(UsageError, match="no node, target or group 'zzz'") as caught:
        explain_node(PLAN, None, "zzz")
    assert "cpu-avx2-cp311" in caught.value.fix
