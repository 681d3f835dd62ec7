"""Named targets: wheels for kinds of machines that the inventory does not have."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleetbuild.cli.show.plan import next_lines, plan_body, plan_ending
from fleetbuild.errors import ConfigError
from fleetbuild.extension import PlanBasis
from fleetbuild.extensions.catalogue import extension
from fleetbuild.extensions.catalogue.targets import name_targets
from fleetbuild.models import Config, Container, Libc
from fleetbuild.plan.decide.group_fleet import group_fleet
from fleetbuild.plan.decide.left_out import nodes_without_build
from fleetbuild.plan.decide.resolution import Source
from fleetbuild.plan.document.fingerprint import changes_since_plan
from fleetbuild.plan.explain import explain_group, explain_node
from fleetbuild.plan.plan_fleet import plan_fleet
from tests.factories.files import be_only_index, make_sdist, make_wheel
from tests.factories.fleets import facts, inventory, node, package, python

RECIPE = "name: pkg\npackages: [pkg]\nrungs: [x86-64, avx, avx2]\ncuda: true\n"


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Plans pkg 1.0, which has GPU code, with a folder of files for an index."""
    files = tmp_path / "files"
    make_wheel(files, "dep", tag="cp311-cp311-manylinux_2_28_x86_64")
    make_wheel(files, "tool")
    make_sdist(files, "pkg", requires='["dep"]', build='["tool"]')
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/pkg.yml").write_text(RECIPE)
    be_only_index(files, monkeypatch)

    def plan(fleet, *targets, nodes=None, builders=(), **config):
        made = Config.model_validate({"packages": ["pkg==1.0"], **config}).within(str(tmp_path))
        hosts = inventory(nodes or fleet)
        return plan_fleet(hosts, fleet, made, targets=targets, builders=builders)

    return plan


def test_targets_are_planned_on_nodes_of_other_kinds_and_nothing_is_installed(plan):
    fleet = {"big": facts("avx512", cpus=64), "small": facts("avx2")}
    made = plan(fleet, "sm89-avx2-cp311", "sm90-avx-cp311", "cpu-avx2-cp311")
    groups = {group.name: group for group in made.groups}
    assert list(groups) == ["cpu-avx2-cp311", "sm89-avx2-cp311", "sm90-avx-cp311"]
    assert {group.nodes for group in made.groups} == {()}
    assert {group.representative for group in made.groups} == {"big"}
    assert {group.fallbacks for group in made.groups} == {("small",)}
    lead = groups["sm89-avx2-cp311"].wheels[0]
    assert (lead.action, lead.built_on, lead.fallbacks) == ("build", "big", ("small",))
    assert lead.wheel_version == f"1.0+cu{(lead.cuda or '').replace('.', '')}.sm89.avx2"
    assert [file.name for file in groups["sm89-avx2-cp311"].dependencies or ()] == ["dep"]
    assert {name: each.state for name, each in made.nodes.items()} == {
        "big": "skipped",
        "small": "skipped",
    }
    assert {name: (each.state, each.group) for name, each in made.targets.items()} == {
        name: ("ok", name) for name in groups
    }
    assert made.summary.nodes_to_change == 0
    assert made.summary.wheels_to_build == 3
    assert (made.exit_code, made.detailed_exit_code) == (0, 10)
    assert "3 wheels to build for 3 targets. Nothing is installed." in plan_ending(made)[-1]


def test_a_target_that_no_node_can_build_is_blocked_with_what_a_builder_needs(plan, tmp_path):
    fleet = {
        "old": facts("avx"),
        "other": facts("avx2", pythons=(python("3.12.1"),)),
        "gone": facts(state="unreachable", reason="no route", features=(), libc=None),
    }
    made = plan(fleet, "cpu-avx2-cp311", "cpu-avx-cp311")
    blocked = made.targets["cpu-avx2-cp311"]
    assert blocked.state == "blocked"
    assert blocked.group is None
    assert "old lacks" in str(blocked.reason)
    assert "other has no interpreter for cp311" in str(blocked.reason)
    assert "gone was not reached" in str(blocked.reason)
    assert "Python 3.11 with venv: add it to the inventory" in str(blocked.fix)
    assert made.targets["cpu-avx-cp311"].builders == ("old",)
    assert made.nodes["gone"].state == "unreachable"
    assert made.exit_code == 4
    assert "More: fleetbuild explain cpu-avx2-cp311" in next_lines(
        made, tmp_path / ".fleetbuild/plan.json", tmp_path / ".fleetbuild"
    )
    said = explain_node(made, None, "cpu-avx2-cp311")
    assert "  cannot build: other has no interpreter for cp311" in said


@pytest.mark.parametrize("width", [90, 140])
def test_a_plan_with_nothing_but_blocked_targets_says_why(plan, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(plan_body(plan({"a": facts("avx")}, "cpu-avx2-cp311"), width))
    said = " ".join(console.export_text().split())
    assert "cpu-avx2-cp311" in said
    assert "a lacks" in said


def test_named_builders_alone_build(plan):
    fleet = {"a": facts("avx512", cpus=64), "b": facts("avx2"), "c": facts("avx2")}
    made = plan(fleet, "cpu-avx2-cp311", builders=["b"])
    assert made.targets["cpu-avx2-cp311"].builders == ("b",)
    nodes = [node("a"), node("b"), node("c", builder=True)]
    assert plan(fleet, "cpu-avx2-cp311", nodes=nodes).groups[0].representative == "c"
    made = plan(fleet, "cpu-avx512-cp311", builders=["b"], grouping={"rungs": "detected"})
    assert "No node of the named builders can build" in str(made.targets["cpu-avx512-cp311"].reason)
    assert "name it in build.builders" in str(made.targets["cpu-avx512-cp311"].fix)


def test_the_oldest_c_library_that_can_build_is_the_floor(plan):
    fleet = {"new": facts("avx2", "2.39", cpus=64), "old": facts("avx2", "2.31")}
    made = plan(fleet, "cpu-avx2-cp311")
    group = made.groups[0]
    assert (group.target.libc.floor, group.wheels[0].built_on) == ("2.31", "old")
    assert group.wheels[0].fallbacks == ()
    assert made.targets["cpu-avx2-cp311"].refused == {
        "new": "new has glibc 2.39, and old has the older 2.31"
    }
    assert made.warnings == ()


def test_targets_that_no_package_tells_apart_share_a_group(plan):
    made = plan({"a": facts("avx512bf16")}, "cpu-avx512-cp311", "cpu-avx2-cp311")
    assert {each.group for each in made.targets.values()} == {"cpu-avx2-cp311"}
    assert len(made.groups) == 1
    assert "cpu-avx512-cp311 gets the wheels of cpu-avx2-cp311" in " ".join(plan_ending(made))
    assert "2 named targets" in explain_group(made, {}, "cpu-avx2-cp311")[0]


def test_an_impossible_combination_blocks_its_target_alone(plan):
    made = plan({"a": facts("avx2")}, "sm35-avx2-cp311", "sm90-avx2-cp311", cuda="12.8")
    blocked = made.targets["sm35-avx2-cp311"]
    assert blocked.state == "blocked"
    assert "SM 3.5" in str(blocked.reason)
    assert made.targets["sm90-avx2-cp311"].state == "ok"


def test_a_host_may_be_called_like_a_target(plan):
    made = plan({"cpu-avx-cp311": facts("avx2")}, "cpu-avx-cp311")
    assert made.groups[0].representative == "cpu-avx-cp311"
    assert made.groups[0].target.isa == "avx"


def test_a_target_does_not_get_the_sms_of_a_host_with_its_name():
    name = "cpu-avx2-cp311"
    hosts, fleet = inventory([node(name, sms=("8.6",))]), {name: facts("avx2")}
    packages = [package("kernels", "1.0")]
    members = extension.members([name], PlanBasis(hosts, fleet, Config(), []))
    of_nodes = group_fleet(hosts, fleet, packages, Config()).groups
    of_targets = group_fleet(hosts, fleet, packages, Config(), members=members).groups
    sources = {"kernels": Source(package="kernels", version="1.0", gpu_code=("CUDA files: 1",))}
    assert list(nodes_without_build(hosts, of_nodes, packages, sources, {})) == [name]
    assert nodes_without_build(hosts, of_targets, packages, sources, {}) == {}


def test_the_x86_64_baseline_can_be_named(plan):
    assert plan({"a": facts("avx2")}, "cpu-x86-64-cp311").groups[0].target.isa == "x86-64"


def test_targets_of_the_command_replace_the_configurations(plan):
    fleet = {"a": facts("avx2")}
    assert list(plan(fleet, targets=["cpu-avx-cp311"]).targets) == ["cpu-avx-cp311"]
    assert list(plan(fleet, "cpu-avx2-cp311", targets=["cpu-avx-cp311"]).targets) == [
        "cpu-avx2-cp311"
    ]


@pytest.mark.parametrize("grouping", [{"max_wheel_sets": 1}, {"optimize_for": "compatibility"}])
def test_options_that_merge_groups_are_refused(grouping):
    config = Config.model_validate({"grouping": grouping})
    with pytest.raises(ConfigError, match="each named target gets wheels of its own"):
        name_targets(["cpu-avx2-cp311"], PlanBasis(inventory(["a"]), {"a": facts()}, config, []))


def test_a_builder_that_changes_makes_the_plan_stale(plan):
    fleet = {"a": facts("avx2"), "b": facts("avx", libc=Libc(family="musl", version="1.2.4"))}
    made = plan(fleet, "cpu-avx2-cp311")
    assert list(made.fingerprint) == ["a"]
    assert changes_since_plan(made, fleet) == []
    assert "C library" in changes_since_plan(made, {"a": facts("avx2", "2.39")})[0]


def test_the_c_library_of_the_image_that_builds_is_the_floor():
    known = facts("avx512", libc="2.41")
    image = Container(image="old:1", libc=Libc(family="glibc", version="2.28"), pythons=(python(),))
    fleet = {"a": known.model_copy(update={"container": image})}
    (target,) = name_targets(["cpu-avx2-cp311"], PlanBasis(inventory(fleet), fleet, Config(), []))
    assert (target.builders, target.target.libc.floor) == (("a",), "2.28")
