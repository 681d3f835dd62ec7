"""plan_fleet: with a folder of files for an index, and on captures of a fleet with a real one."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetbuild.errors import (
    ConfigError,
    InstallError,
    InventoryError,
    RecipeError,
    ResolutionError,
)
from fleetbuild.models import Config
from fleetbuild.plan.decide.group_fleet import group_fleet
from fleetbuild.plan.decide.wheels.draft import draft_plan
from fleetbuild.plan.document.serialize import dump_plan, read_plan
from fleetbuild.plan.plan_fleet import named_builders, plan_fleet
from tests.factories.elf import make_elf
from tests.factories.files import (
    be_only_index,
    git,
    make_project,
    make_repository,
    make_sdist,
    make_wheel,
)
from tests.factories.fleets import facts, inventory, node

project = partial(make_project, requires='["dep"]', build="[]", backend="b")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with files of an index, beside a fleetbuild.yml, and no other index."""
    files = tmp_path / "files"
    make_wheel(files, "dep", tag="cp311-cp311-manylinux_2_28_x86_64")
    make_wheel(files, "tool")
    make_sdist(files, "pkg", pyproject=project("pkg", build='["tool"]'))
    be_only_index(files, monkeypatch)
    return tmp_path


def plan(fleet, *packages, **more):
    return plan_fleet(inventory(fleet), fleet, packages=packages, **more)


def test_a_pinned_package_is_locked_with_its_build(site):
    events = []
    made = plan({"a": facts()}, "pkg==1.0", on_event=events.append)
    group = made.groups[0]
    assert made.lock == "complete"
    assert [file.name for file in group.dependencies] == ["dep"]
    assert [file.name for file in group.wheels[0].build_dependencies] == ["tool"]
    assert group.wheels[0].recipe == "generic"
    assert group.wheels[0].source.file == "pkg-1.0.tar.gz"
    stored = site / ".fleetbuild" / "store" / "files" / group.wheels[0].source.sha256
    assert (stored / "pkg-1.0.tar.gz").is_file()
    assert [event.stage for event in events] == ["plan", "plan", "plan"]
    again = plan({"a": facts()}, "pkg==1.0")
    assert again.groups == made.groups


@pytest.mark.usefixtures("site")
def test_nodes_are_grouped_once_unless_a_libc_rules_dependencies_out(monkeypatch):
    calls = []

    def counting(*given, blocked=None, **more):
        calls.append(sorted(blocked or ()))
        return group_fleet(*given, blocked=blocked, **more)

    monkeypatch.setattr("fleetbuild.plan.plan_fleet.group_fleet", counting)
    plan({"a": facts(), "b": facts("avx2")}, "pkg==1.0")
    assert calls == [[]]
    calls.clear()
    made = plan({"a": facts(), "old": facts(libc="2.17")}, "pkg==1.0")
    assert calls == [[], ["old"]]
    assert made.nodes["old"].state == "blocked"
    assert made.nodes["a"].state == "ok"


@pytest.mark.parametrize("policy", ["targeted", "auto"])
def test_a_plan_is_drafted_once_even_if_a_source_or_a_libc_changes_its_groups(
    site, monkeypatch, policy
):
    drafts = []
    # One wheel of pure Python serves every CPU, as its source shows.
    pure = project("pure").replace('"b"', '"hatchling.build"')
    make_sdist(site / "files", "pure", pyproject=pure)

    def counting(fleet, *given):
        drafts.append([group.name for group in fleet.groups])
        return draft_plan(fleet, *given)

    monkeypatch.setattr("fleetbuild.plan.plan_fleet.draft_plan", counting)
    fleet = {"a": facts("avx512"), "b": facts(), "old": facts(libc="2.17")}
    config = Config.model_validate({"build": {"policy": policy}})
    made = plan(fleet, "pure==1.0", config=config)
    assert (made.lock, made.nodes["old"].state) == ("complete", "blocked")
    assert drafts == [["cpu-x86-64-cp311"]]


@pytest.mark.parametrize("policy", ["targeted", "auto", "published"])
@pytest.mark.parametrize("sdist", [False, True])
def test_a_pure_package_is_taken_as_published_once_for_all_cpus(site, policy, sdist):
    """An index may have its wheel alone."""
    make_wheel(site / "files", "pure", requires="dep")
    if sdist:
        make_sdist(site / "files", "pure", pyproject=project("pure"))
    fleet = {"a": facts("avx512"), "b": facts("avx2"), "c": facts("avx")}
    config = Config.model_validate({"build": {"policy": policy}})
    made = plan(fleet, "pure==1.0", config=config)
    (group,) = made.groups
    (wheel,) = group.wheels
    assert (group.name, group.nodes) == ("cpu-x86-64-cp311", ("a", "b", "c"))
    assert (wheel.action, wheel.published.file) == ("published", "pure-1.0-py3-none-any.whl")
    assert [file.name for file in group.dependencies] == ["dep"]
    assert made.summary.wheels_to_build == 0


def test_a_package_with_a_compiled_wheel_is_built_though_it_has_a_wheel_for_any(site):
    make_wheel(site / "files", "pkg")
    make_wheel(site / "files", "pkg", tag="cp311-cp311-manylinux_2_38_x86_64")
    (group,) = plan({"a": facts(libc="2.28")}, "pkg==1.0").groups
    assert group.wheels[0].action == "build"


def test_a_wheel_for_any_with_machine_code_is_not_taken_as_pure(site):
    """Beyond what the nodes have, it would die."""
    code = {"pkg/_c.so": make_elf(bytes.fromhex("c5fdfec1c3"))}  # vpaddd ymm0
    make_wheel(site / "files", "pkg", files=code)
    (group,) = plan({"a": facts("avx")}, "pkg==1.0").groups
    assert group.wheels[0].action == "build"


def test_a_package_with_wheels_of_other_kinds_alone_names_the_ways_out(site):
    for version in ("1.0", "2.0"):  # 2.0 has no sdist either
        make_wheel(site / "files", "only", version, "cp311-cp311-manylinux_2_17_x86_64")
    node = plan({"a": facts()}, "only==1.0").nodes["a"]
    assert node.reason.startswith("cpu-avx2-cp311: only 1.0 cannot be installed. No sdist")
    assert (node.fix[:13], node.fix[-22:]) == ("Name a source", "build: {policy: auto}.")


def test_a_tree_is_packed_and_planned_by_content(site):
    tree = site / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text(project("mine"))
    made = plan({"a": facts()}, "./tree").groups[0].wheels[0]
    assert (made.package, made.version, made.source_path) == ("mine", "1.0", str(tree))
    assert made.source.url.startswith("file://")
    assert Path(made.source.url.removeprefix("file://")).is_file()
    (tree / "code.c").write_text("int x;")
    other = plan({"a": facts()}, "mine @ ./tree").groups[0].wheels[0]
    assert other.artifact_key != made.artifact_key


def test_an_archive_may_be_named_in_the_file_beside_it(site):
    config = Config(packages=("files/pkg-1.0.tar.gz",)).within(str(site))
    made = plan_fleet(inventory(["a"]), {"a": facts()}, config)
    assert made.groups[0].wheels[0].source.file == "pkg-1.0.tar.gz"
    assert made.packages == ("files/pkg-1.0.tar.gz",)


def test_recipes_beside_the_file_are_used(site):
    (site / "recipes").mkdir()
    (site / "recipes" / "pkg.yml").write_text(
        "name: special\npackages: [pkg]\nrungs: [x86-64]\nsources: [sdist]\n"
    )
    assert plan({"a": facts()}, "pkg==1.0").groups[0].name == "cpu-x86-64-cp311"
    (site / "tree").mkdir()
    (site / "tree" / "pyproject.toml").write_text(project("pkg"))
    with pytest.raises(ConfigError, match="builds from sdist, and"):
        plan({"a": facts()}, "./tree")
    (site / "recipes" / "bad.yml").write_text("rungs: []\n")
    with pytest.raises(RecipeError, match=r"recipes/bad\.yml"):
        plan({"a": facts()}, "pkg==1.0")


def test_a_package_is_built_against_another_of_its_release(site):
    recipes = site / "recipes"
    recipes.mkdir()
    (recipes / "pkg.yml").write_text(
        "name: pkg\npackages: [pkg]\nrungs: [x86-64]\nrequires: [dep]\n"
    )
    (recipes / "upper.yml").write_text(
        "name: upper\npackages: [upper]\nrungs: [x86-64, avx2]\nbuilt_against: [pkg]\n"
        "config_settings: {a: b}\n"
    )
    make_wheel(site / "files", "pip", "25.0")
    make_sdist(site / "files", "upper", pyproject=project("upper").replace('"dep"', '"pkg==1.0"'))
    fleet = {"a": facts("avx2"), "b": facts("x86-64")}
    made = plan(fleet, "upper==1.0", "pkg==1.0")
    assert made.lock == "complete", made.lock_problem
    assert made.summary.wheels_to_build == 3
    for group in made.groups:
        upper, pkg = group.wheels
        assert upper.built_against == (pkg.artifact_key,)
        # What pkg needs, and a pip that passes settings on.
        assert [file.name for file in upper.build_dependencies] == ["dep", "pip"]
        assert [file.name for file in group.dependencies] == ["dep"]
    with pytest.raises(ConfigError, match="built against pkg, which is not in this release"):
        plan(fleet, "upper==1.0")


def test_a_gpu_package_without_a_recipe_is_a_warning(site):
    make_wheel(site / "files", "torch", "2.13.0")
    (site / "tree").mkdir()
    text = project("kernels", build='["tool", "torch>=2"]')
    (site / "tree" / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match="built against torch, which is not in this release"):
        plan({"a": facts(sms=("8.6",))}, "./tree")
    text = project("kernels", build='["tool", "cupy-cuda12x"]')
    (site / "tree" / "pyproject.toml").write_text(text)
    (warning,) = plan({"a": facts(sms=("8.6",))}, "./tree").warnings
    assert warning.startswith(
        "kernels has no recipe (it requires cupy-cuda12x). It is built for the CPU only, whatever"
    )
    assert warning.endswith("recipes/kernels.yml beside fleetbuild.yml (docs/recipes.md).")
    (site / "tree" / "pyproject.toml").write_text(project("kernels", build='["tool"]'))
    assert plan({"a": facts(sms=("8.6",))}, "./tree").warnings == ()


def test_gpu_code_without_a_recipe_blocks_the_nodes_with_gpus(site):
    make_sdist(site / "files", "kernels", files={"csrc/add.cu": "__global__ void add() {}"})
    fleet = {"cpu": facts(), "gpu": facts(sms=("8.6",))}
    made = plan(fleet, "kernels==1.0")
    assert made.nodes["cpu"].state == "ok"
    assert made.nodes["gpu"].state == "blocked"
    assert "kernels has GPU code (CUDA or HIP files: 1, such as csrc/add.cu)" in (
        made.nodes["gpu"].reason
    )
    assert any("nodes with GPUs are blocked" in each for each in made.warnings)
    # Both fixes that it offers lead on.
    hosts = inventory([node("cpu"), node("gpu", sms=())])
    without = plan_fleet(hosts, fleet, packages=["kernels==1.0"])
    assert without.nodes["gpu"].state == "ok"
    path, keys = re.match(
        r"Write (\S+) beside fleetbuild.yml, with (.*) \(", made.nodes["gpu"].fix
    ).groups()
    (site / "recipes").mkdir()
    (site / path).write_text("\n".join(re.split(", | and ", keys)))
    assert plan(fleet, "kernels==1.0").nodes["gpu"].reason != made.nodes["gpu"].reason


def test_an_extension_without_a_recipe_is_built_against_torch(site):
    setup = "from torch.utils.cpp_extension import CUDAExtension\n"
    files = {"setup.py": setup, "csrc/add.cu": ""}
    make_sdist(site / "files", "kernels", files=files)
    make_sdist(site / "files", "torch", "2.6.0")
    recipes = site / "recipes"
    recipes.mkdir()
    text = "name: torch\npackages: [torch]\nrungs: [x86-64]\ncuda: true\nrequires: []\n"
    (recipes / "torch.yml").write_text(text)
    made = plan({"gpu": facts(sms=("8.6",))}, "kernels==1.0", "torch==2.6.0")
    (group,) = made.groups
    kernels = next(wheel for wheel in group.wheels if wheel.package == "kernels")
    assert kernels.environment["TORCH_CUDA_ARCH_LIST"] == "8.6"
    assert kernels.built_against
    (told,) = (each for each in made.warnings if each.startswith("kernels has no recipe"))
    assert "planned with the recipe torch-extension: built against torch, for CPUs and GPUs" in told


def test_a_package_that_cannot_be_built_is_blocked_with_its_reason(site):
    made = plan({"a": facts()}, "onnxruntime==1.0")  # no index has it
    assert made.nodes["a"].state == "blocked"
    assert "cannot be built for cpu-x86-64-v2-cp311: it has no sdist" in made.nodes["a"].reason
    assert "build: {policy: auto}" in made.nodes["a"].fix
    config = Config.model_validate({"build": {"policy": "auto"}})
    make_wheel(site / "files", "onnxruntime", tag="cp311-cp311-manylinux_2_17_aarch64")
    tried = plan_fleet(inventory(["a"]), {"a": facts()}, config, ["onnxruntime==1.0"])
    assert ". No wheel is published for Python 3.11" in tried.nodes["a"].reason
    make_wheel(site / "files", "onnxruntime", tag="cp311-cp311-manylinux_2_17_x86_64")
    taken = plan_fleet(inventory(["a"]), {"a": facts()}, config, ["onnxruntime==1.0"])
    assert taken.groups[0].wheels[0].action == "published"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("policy", ["targeted", "auto", "published"])
def test_a_version_that_no_index_has_is_refused_whatever_the_policy(policy):
    config = Config.model_validate({"build": {"policy": policy}})
    with pytest.raises(ResolutionError, match=r"dep 9.9 is not on the index; .* is 1.0"):
        plan({"a": facts()}, "dep==9.9", config=config)


def test_a_rust_package_gets_the_features_of_its_rung(site):
    make_wheel(site / "files", "setuptools_rust", "1.0")
    lock = '[[package]]\nname = "libc"\nsource = "registry+https://index.example.org"\n'
    files = {"Cargo.lock": lock, ".cargo/config.toml": "[source.x]\nreplace-with = 'y'"}
    make_sdist(site / "files", "crab", build='["setuptools-rust"]', files=files)
    made = plan({"a": facts("avx2", toolchain={"gcc": ("12.2.0",)})}, "crab==1.0")
    (wheel,) = made.groups[0].wheels
    assert "+avx2" in wheel.environment["RUSTFLAGS"]
    assert wheel.environment["CARGO_NET_OFFLINE"] == "true"
    assert wheel.requires.tools == {"cargo>=1.63": "to be installed by the toolchain role"}
    old = facts("avx2", toolchain={"gcc": ("12.2.0",), "cargo": ("1.48.0",)})
    (wheel,) = plan({"a": old}, "crab==1.0").groups[0].wheels
    (told,) = wheel.requires.to_supply
    assert told.startswith("a has cargo 1.48.0, but the recipe rust-extension needs 1.63 or newer")
    make_sdist(
        site / "files", "crab", "2.0", build='["setuptools-rust"]', files={"Cargo.lock": lock}
    )
    made = plan({"a": facts("avx2")}, "crab==2.0")
    assert made.nodes["a"].state == "blocked"
    assert "needs crates that it does not contain" in made.nodes["a"].reason
    assert "cargo vendor" in made.nodes["a"].fix


def test_a_tree_without_a_version_is_planned_with_the_stated_one(site):
    tree = site / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text(
        project("pkg").replace('version = "1.0"', 'dynamic = ["version"]')
    )
    (site / "recipes").mkdir()
    (site / "recipes" / "pkg.yml").write_text(
        "name: pkg\npackages: [pkg]\nrungs: [x86-64]\nrequires: [dep]\n"
    )
    with pytest.raises(ConfigError, match="only known once") as caught:
        plan({"a": facts()}, "pkg @ ./tree")
    assert "pkg==VERSION @ ./tree" in caught.value.fix
    made = plan({"a": facts()}, "pkg==2.0 @ ./tree").groups[0].wheels[0]
    assert made.wheel_version == "2.0+cpu.x8664"
    with pytest.raises(ConfigError, match=r"is pkg 1\.0, not 2\.0"):
        plan({"a": facts()}, "pkg==2.0 @ files/pkg-1.0.tar.gz")


def test_a_builder_pattern_without_matching_hosts_names_its_key(monkeypatch):
    def found(*_, **__):
        raise InventoryError("No host of inv.yml matches 'strong'.")

    monkeypatch.setattr("fleetbuild.plan.plan_fleet.list_inventory", found)
    config = Config.model_validate({"build": {"builders": "strong"}})
    with pytest.raises(ConfigError, match=r"build\.builders is 'strong': No host") as caught:
        named_builders(inventory(["a"]), config, None)
    assert "remove build.builders" in caught.value.fix
    hosts = {"b": {}, "a": {}}
    monkeypatch.setattr(
        "fleetbuild.plan.plan_fleet.list_inventory", lambda *_, **__: SimpleNamespace(hosts=hosts)
    )
    assert named_builders(inventory(["a"]), config, None) == ("a", "b")


@pytest.fixture
def forge(site, monkeypatch):
    """A recipe whose source is a repository of this machine, and what it says beside that."""
    monkeypatch.setenv("HOME", str(site))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    make_repository(site / "repo", {"pyproject.toml": project("inside", build='["tool"]')})
    git(site / "repo", "tag", "v1.0")
    (site / "recipes").mkdir()

    def write(more, fleet=None, policy="targeted"):
        (site / "recipes" / "inside.yml").write_text(
            "name: inside\npackages: [inside]\nrungs: [x86-64, avx2]\n"
            f"source: {{git: 'https://forge.invalid/repo'}}\n{more}"
        )
        config = Config(mirrors={"https://forge.invalid": site.as_uri()}, build={"policy": policy})
        fleet = fleet or {"a": facts()}
        return plan_fleet(inventory(fleet), fleet, config, ["inside==1.0"])

    return write


def test_a_source_in_git_is_fetched_only_if_the_recipe_states_no_requirements(forge, site):
    commit = git(site / "repo", "rev-parse", "HEAD")
    made = forge("requires: [dep]\nbuild_requirements: [tool]\n")
    assert made.lock == "complete", made.lock_problem
    told = made.groups[0].wheels[0]
    assert told.source.url == f"git+https://forge.invalid/repo@{commit}"
    assert told.source.sha256 == ""
    assert not (site / ".fleetbuild" / "store" / "files" / f"git-{commit}").exists()
    asked = forge("").groups[0]
    assert asked.wheels[0].artifact_key == told.artifact_key
    assert [file.name for file in asked.dependencies] == ["dep"]
    assert [file.name for file in asked.wheels[0].build_dependencies] == ["tool"]
    assert (site / ".fleetbuild" / "store" / "files" / f"git-{commit}").is_dir()
    assert read_plan(dump_plan(made)) == made


def test_a_build_gets_the_requirements_of_source_and_recipe(forge, site):
    make_wheel(site / "files", "more")
    made = forge("requires: [dep]\nbuild_requirements: [more]\n")
    assert made.lock == "complete", made.lock_problem
    told = [file.name for file in made.groups[0].wheels[0].build_dependencies]
    assert told == ["more", "tool"]
    assert made.warnings == ()


def test_a_source_with_unreadable_metadata_is_planned_by_its_recipe_with_a_warning(
    forge, monkeypatch
):
    def unreachable(*_):
        raise InstallError("The source in https://forge.invalid/repo cannot be fetched: timeout.")

    monkeypatch.setattr("fleetbuild.store.wheels.read_file", unreachable)
    made = forge("requires: [dep]\nbuild_requirements: [tool]\n")
    assert [file.name for file in made.groups[0].wheels[0].build_dependencies] == ["tool"]
    (warning,) = made.warnings
    assert warning == (
        "The build requirements of inside 1.0 could not be read. The source in "
        "https://forge.invalid/repo cannot be fetched: timeout. Only the recipe's own "
        "build requirements are used."
    )


def test_another_commit_is_another_wheel(forge, site):
    one = forge("").groups[0].wheels[0].artifact_key
    git(site / "repo", "commit", "-q", "--allow-empty", "-m", "two")
    git(site / "repo", "tag", "-f", "v1.0")
    assert forge("").groups[0].wheels[0].artifact_key != one


def test_a_repository_that_is_not_reached_blocks_the_groups_that_need_it(forge, site):
    """If all need it, the lock is missing."""
    (site / "repo").rename(site / "gone")
    made = forge("requires: []\n")
    assert made.lock == "missing"
    assert "forge.invalid/repo cannot be fetched" in made.lock_problem
    assert (made.exit_code, made.nodes["a"].state) == (0, "ok")
    code = {"inside/_c.so": make_elf(bytes.fromhex("c5fdfec1c3"))}  # vpaddd ymm0
    make_wheel(site / "files", "inside", tag="cp311-cp311-manylinux_2_17_x86_64", files=code)
    made = forge("", {"a": facts("avx2"), "old": facts("avx")}, "auto")
    assert [made.nodes[name].state for name in ("a", "old")] == ["ok", "blocked"]
    assert made.nodes["old"].reason.startswith("cpu-x86-64-cp311: inside 1.0 cannot be installed.")
    assert "forge.invalid/repo cannot be fetched" in made.nodes["old"].reason
    assert (made.lock, made.exit_code, made.summary.nodes_to_change) == ("complete", 4, 1)


def test_a_version_without_a_tag_is_an_error(forge, site):
    git(site / "repo", "tag", "-d", "v1.0")
    with pytest.raises(ResolutionError, match=r"has no tag or branch v1\.0"):
        forge("")


def test_unclear_package_requests_are_errors(site):
    fleet = {"a": facts()}
    (site / "tree").mkdir()
    for text, words in {
        "pkg>9": r"chosen for pkg>9: Because only pkg==1.0 is available and you require pkg>9\.$",
        "pgk": "The package pgk is not on the index",
        "requirements.txt": "is a file that lists packages",
        "./absent": "does not exist",
        "pkg @ ./tree": "only known once its build runs",
        "./tree": "does not say which package",
    }.items():
        with pytest.raises((ConfigError, ResolutionError), match=words):
            plan(fleet, text)
    with pytest.raises(ConfigError, match="is pkg, not mine"):
        plan(fleet, "mine @ files/pkg-1.0.tar.gz")
    with pytest.raises(ConfigError, match="listed twice"):
        plan(fleet, "pkg==1.0", "files/pkg-1.0.tar.gz")
    with pytest.raises(ResolutionError, match=r"pkg 9 is not on the index; .* is 1\.0"):
        plan(fleet, "pkg==9")


def test_a_python_that_the_package_does_not_serve_blocks_its_group(site):
    text = project("new").replace("dependencies", 'requires-python = ">=3.12"\ndependencies')
    make_sdist(site / "files", "new", pyproject=text)
    made = plan({"a": facts()}, "new==1.0")
    assert made.nodes["a"].state == "blocked"
    assert "3.12" in made.nodes["a"].reason
    assert made.lock == "complete"


@pytest.mark.usefixtures("site")
def test_a_fleet_without_any_plannable_node_asks_no_index():
    events = []
    made = plan({"a": facts(pythons=())}, "pkg==1.0", on_event=events.append)
    assert (made.groups, made.lock, events) == ((), "complete", [])


@pytest.mark.usefixtures("site")
def test_a_source_that_cannot_be_downloaded_leaves_the_lock_missing(monkeypatch):
    def refuse(*_, **__):
        raise InstallError("pkg cannot be fetched.", "Look.")

    monkeypatch.setattr("fleetbuild.store.wheels.fetch", refuse)
    made = plan({"a": facts()}, "pkg==1.0")
    assert (made.lock, made.lock_problem) == (
        "missing",
        "pkg 1.0 cannot be installed. pkg cannot be fetched.",
    )
