"""Packages as people name them: ranges, extras, git, requirement and lock files, pure Python."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from fleetbuild.errors import ConfigError, ResolutionError
from fleetbuild.models import Config
from fleetbuild.plan.explain import explain_group
from fleetbuild.plan.plan_fleet import plan_fleet
from fleetbuild.plan.resolve.requirement_files import read_requirement_files
from tests.factories.elf import make_elf
from tests.factories.files import (
    be_only_index,
    git,
    make_project,
    make_repository,
    make_sdist,
    make_wheel,
)
from tests.factories.fleets import facts, inventory, python

FLEET = {"a": facts("avx2"), "b": facts("avx512"), "c": facts("x86-64")}
project = partial(make_project, requires='["dep"]', build="[]", backend="b")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with files of an index, and no other index."""
    files = tmp_path / "files"
    for version in ("1.0", "1.5", "2.0"):
        make_wheel(files, "dep", version)
        make_sdist(files, "pkg", version, pyproject=project("pkg", version) + EXTRA)
    make_wheel(files, "more", "3.0")
    be_only_index(files, monkeypatch)
    return tmp_path


EXTRA = '[project.optional-dependencies]\nall = ["more"]\n'


def plan(*packages: str, config: Config | None = None, fleet=None, **files):
    fleet = fleet or {"a": facts()}
    listed = read_requirement_files(has_packages=bool(packages), **files) if files else None
    return plan_fleet(inventory(fleet), fleet, config, packages, requirements=listed)


def closure(made) -> dict[str, str]:
    return {file.name: file.version for file in made.groups[0].dependencies}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("text", "version"),
    [("pkg", "2.0"), ("pkg>=1,<2", "1.5"), ("pkg~=1.0", "1.5"), ("pkg != 2.0", "1.5"),
     ("pkg==1.*", "1.5"), ("pkg ; sys_platform == 'linux'", "2.0")],
)  # fmt: skip
def test_a_range_becomes_its_newest_version_in_the_plan(text, version):
    made = plan(text)
    assert made.packages == (f"pkg=={version}",)
    assert made.groups[0].wheels[0].version == version


@pytest.mark.usefixtures("site")
def test_extras_are_installed_with_the_package():
    assert closure(plan("pkg==1.0")) == {"dep": "2.0"}
    made = plan("pkg[All]>=2")
    assert made.packages == ("pkg[all]==2.0",)
    assert closure(made) == {"dep": "2.0", "more": "3.0"}


def test_extras_come_from_the_source_if_a_recipe_states_the_requirements(site):
    (site / "recipes").mkdir()
    (site / "recipes" / "pkg.yml").write_text(
        "name: pkg\npackages: [pkg]\nrungs: [x86-64]\nrequires: []\n"
    )
    assert closure(plan("pkg==1.0")) == {}
    assert closure(plan("pkg[all]==1.0")) == {"more": "3.0"}


def test_constraints_bound_the_range_and_the_installed_packages(site):
    (site / "c.txt").write_text("pkg<2\ndep==1.0\n")
    made = plan("pkg", constraints=["c.txt"])
    assert (made.packages, closure(made)) == (("pkg==1.5",), {"dep": "1.0"})
    with pytest.raises(ConfigError, match=r"pkg==2\.0 is asked for, and a constraint says pkg<2"):
        plan("pkg==2.0", constraints=["c.txt"])
    with pytest.raises(ResolutionError, match="No version can be chosen for pkg>=2"):
        plan("pkg>=2", constraints=["c.txt"])


def actions(made) -> dict[str, dict[str, str]]:
    return {
        group.name: {wheel.package: wheel.action for wheel in group.wheels} for group in made.groups
    }


def test_what_files_list_is_taken_as_published_where_it_runs(site):
    """On other groups it is built, and so is what packages: names."""
    native = "cp311-cp311-manylinux_2_17_x86_64"
    code = {"pkg/_c.so": make_elf(bytes.fromhex("c5fdfec1c3"))}  # vpaddd ymm0
    make_wheel(site / "files", "pkg", "2.0", native, code, requires="dep")
    make_sdist(site / "files", "mine", "1.0", pyproject=project("mine"))
    make_wheel(site / "files", "mine", "1.0", native)
    (site / "r.txt").write_text("pkg\n")
    fleet = {"a": facts("avx2"), "c": facts("x86-64")}
    made = plan("mine==1.0", fleet=fleet, requirements=["r.txt"])
    assert actions(made) == {
        "cpu-avx2-cp311": {"mine": "build", "pkg": "published"},
        "cpu-x86-64-cp311": {"mine": "build", "pkg": "build"},
    }
    only = Config.model_validate({"build": {"only": ["Pkg"]}})
    made = plan("mine==1.0", fleet=fleet, config=only, requirements=["r.txt"])
    assert {tuple(each.items()) for each in actions(made).values()} == {
        (("mine", "published"), ("pkg", "build"))
    }
    # In fleetbuild.yml as on the command line.
    of_file = Config.model_validate({"packages": ["mine"], "requirements": ["r.txt"]})
    assert actions(plan(fleet=fleet, config=of_file))["cpu-avx2-cp311"] == {
        "mine": "build",
        "pkg": "published",
    }
    unknown = Config.model_validate({"build": {"only": ["pgk"]}})
    with pytest.raises(ConfigError, match="only names pgk, which is not in this release"):
        plan("pkg", config=unknown)
    with pytest.raises(ValueError, match="only: has no meaning with policy: auto"):
        Config.model_validate({"build": {"only": ["pkg"], "policy": "auto"}})


def test_a_group_without_wheel_and_sdist_is_blocked_alone(site):
    make_wheel(site / "files", "native", "1.0", "cp311-cp311-manylinux_2_17_x86_64")
    make_wheel(site / "files", "native", "1.1", "cp313-cp313-manylinux_2_17_x86_64")
    make_wheel(site / "files", "other", "1.0", "cp311-cp311-manylinux_2_17_x86_64")
    (site / "r.txt").write_text("native==1.0\nother==1.0\n")
    fleet = {"a": facts(), "b": facts(pythons=(python("3.13.1"),))}
    made = plan(fleet=fleet, requirements=["r.txt"])
    assert {name: node.state for name, node in made.nodes.items()} == {"a": "ok", "b": "blocked"}
    assert made.nodes["b"].reason == (
        "cpu-avx2-cp313: native 1.0, other 1.0 cannot be installed. No wheel is published for"
        f" Python 3.13 (cp313) on x86_64 with glibc 2.36 in {site / 'files'}. No sdist was found"
        f" in {site / 'files'}."
    )
    assert made.nodes["b"].fix.startswith(
        f"Ask for native==1.1 ({Path('r.txt').absolute()}, line 1): the newest for this Python on"
        " the first index that has it. Or: Name a source tree for each: --package 'NAME @ ./path'."
    )
    story = explain_group(made, {}, "cpu-avx2-cp313")
    assert "\n".join(story).count(made.nodes["b"].reason) == 1
    assert (made.exit_code, made.lock) == (4, "complete")


def test_policy_published_names_each_missing_wheel_once(site):
    code = {"native/_c.so": make_elf(bytes.fromhex("c5fdfec1c3"))}  # vpaddd ymm0
    make_wheel(site / "files", "native", "1.0", "cp311-cp311-manylinux_2_17_x86_64", code)
    config = Config.model_validate({"build": {"policy": "published"}})
    fleet = {"a": facts("avx2"), "b": facts("avx")}
    made = plan("native", "pkg", "dep", fleet=fleet, config=config)
    assert made.nodes["a"].reason == (
        "cpu-avx2-cp311: pkg 2.0 cannot be installed. No wheel is published for Python 3.11 (cp311)"
        f" on x86_64 with glibc 2.36 in {site / 'files'}. Nothing is built, because build.policy is"
        " published."
    )
    reason = made.nodes["b"].reason
    assert reason.startswith(
        "cpu-avx-cp311: native 1.0 cannot be installed. native-1.0-cp311-cp311-manylinux_2_17_x"
    )
    assert [reason.count(f"{name} cannot be") for name in ("native 1.0", "pkg 2.0")] == [1, 1]
    assert "Or ask for another version or a range" in made.nodes["b"].fix
    taken = plan("native", "dep", fleet=fleet, config=config)
    assert [node.state for node in taken.nodes.values()] == ["ok", "blocked"]


@pytest.mark.parametrize("name", ["native", "onnxruntime"])  # no sdist; a recipe that cannot build
def test_old_libcs_alone_are_blocked_where_a_wheel_is_too_new_for_them(site, name):
    make_wheel(site / "files", name, "1.0", "cp311-cp311-manylinux_2_28_x86_64")
    (site / "r.txt").write_text(f"{name}\n")
    made = plan(fleet={"a": facts(), "old": facts(libc="2.17")}, requirements=["r.txt"])
    assert {name: node.state for name, node in made.nodes.items()} == {"a": "ok", "old": "blocked"}
    assert made.groups[0].wheels[0].action == "published"


def test_a_python_that_no_version_supports_stops_no_other(site):
    more = 'requires-python = ">=3.10"\n'
    make_sdist(site / "files", "late", pyproject=project("late") + more)
    fleet = {"a": facts(), "old": facts(pythons=(python("3.9.2"),))}
    made = plan("late", fleet=fleet)
    assert {name: node.state for name, node in made.nodes.items()} == {"a": "ok", "old": "blocked"}
    assert "Python 3.9" in made.nodes["old"].reason
    assert "late" in made.nodes["old"].reason


@pytest.mark.usefixtures("site")
def test_a_marker_that_excludes_all_nodes_leaves_the_package_out():
    made = plan("pkg==1.0", "other==1.0 ; sys_platform == 'win32'")
    assert made.packages == ("pkg==1.0",)
    old = {"a": facts(), "b": facts(pythons=(python("3.9.2"),))}
    with pytest.raises(ConfigError, match="is meant for some nodes only"):
        plan("pkg==1.0 ; python_version < '3.11'", fleet=old)
    assert plan("pkg==1.0", "other ; python_version < '3.11'").packages == ("pkg==1.0",)
    pinned = plan("pkg==1.0 ; python_version >= '3.11'", config=Config(python="3.11"))
    assert pinned.packages == ("pkg==1.0",)


def test_a_repository_is_planned_by_its_commit(site):
    repository = make_repository(site / "repo", {"pyproject.toml": project("mine", "3.1")})
    git(repository, "tag", "v3.1")
    commit = git(repository, "rev-parse", "HEAD").strip()
    address = repository.as_uri()
    for text in (f"git+{address}@v3.1", f"mine @ git+{address}", f"mine[x]==3.1 @ git+{address}"):
        made = plan(text)
        assert made.packages[0].endswith(f"==3.1 @ git+{address}@{commit}")
        assert made.groups[0].wheels[0].source.url == f"git+{address}@{commit}"
        again = plan(made.packages[0])
        assert again.groups[0].wheels[0].artifact_key == made.groups[0].wheels[0].artifact_key
    with pytest.raises(ResolutionError, match="no tag or branch v9"):
        plan(f"git+{address}@v9")
    with pytest.raises(ConfigError, match="is mine, not other"):
        plan(f"other @ git+{address}")


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("git+https://me:secret@git.example/x", "has a user or password in its address"),
        ("git+https://git.example/x#subdirectory=y", "names a folder of a repository"),
        ("x @ https://pypi.example/x-1.0.tar.gz", "content may change after the plan"),
        ("uv.lock", "is a file that lists packages"),
    ],
)
def test_sources_that_cannot_be_planned_are_refused_with_a_way_out(text, said):
    with pytest.raises(ConfigError, match=said) as refused:
        plan(text)
    assert refused.value.fix
    assert "secret" not in str(refused.value)


def test_files_of_fleetbuild_yml_and_of_the_command_line(site):
    (site / "r.txt").write_text("pkg>=1,<2\n-c c.txt\n")
    (site / "c.txt").write_text("dep<2\n")
    config = Config(requirements=("r.txt",)).within(str(site))
    for made in (plan(config=config), plan(requirements=["r.txt"])):
        assert (made.packages, closure(made)) == (("pkg==1.5",), {"dep": "1.5"})


def test_a_lock_names_packages_or_only_bounds_them(site):
    sha256 = hashlib.sha256((site / "files/pkg-1.0.tar.gz").read_bytes()).hexdigest()
    lock = Path("pylock.toml")
    text = (
        "lock-version = '1.0'\ncreated-by = 'a test'\n"
        "[[packages]]\nname = 'pkg'\nversion = '1.0'\n"
        f"sdist = {{path = 'pkg-1.0.tar.gz', hashes = {{sha256 = '{sha256}'}}}}\n"
        "[[packages]]\nname = 'dep'\nversion = '1.5'\n"
        f"wheels = [{{path = 'dep-1.5-py3-none-any.whl', hashes = {{sha512 = '{'0' * 128}'}}}}]\n"
    )
    lock.write_text(text)
    made = plan("pkg", lock=lock)
    assert (made.packages, closure(made)) == (("pkg==1.0",), {"dep": "1.5"})
    lock.write_text(text.replace(sha256, "0" * 64))
    with pytest.raises(ConfigError, match="not among the hashes"):
        plan("pkg", lock=lock)
    lock.write_text(text.partition("[[packages]]\nname = 'dep'")[0])
    assert plan(lock=lock).packages == ("pkg==1.0",)


def test_a_pure_package_is_built_once_whatever_the_cpus(site):
    tree = site / "tree"
    tree.mkdir()
    pyproject = project("mine", backend="setuptools.build_meta")
    (tree / "pyproject.toml").write_text(pyproject)
    (tree / "mine.py").write_text("x = 1\n")
    make_wheel(site / "files", "wheel", "1.0")
    pure = plan("./tree", fleet=FLEET)
    assert pure.summary.wheels_to_build == 1
    (tree / "fast.c").write_text("int x;\n")
    assert plan("./tree", fleet=FLEET).summary.wheels_to_build == 3
    (tree / "fast.c").unlink()
    (tree / "setup.py").write_text("setup(ext_modules=[...])\n")
    assert plan("./tree", fleet=FLEET).summary.wheels_to_build == 3


@pytest.mark.usefixtures("site")
def test_a_node_with_a_full_disk_is_blocked_and_stops_nobody():
    full = facts("avx2", install_free_gb=0.001)
    made = plan("pkg==1.0", fleet={"a": full, "b": facts("avx2", install_free_gb=5.0)})
    assert made.nodes["a"].state == "blocked"
    assert "The disk of /opt/fleetbuild has 1 MB free" in made.nodes["a"].reason
    assert "df -h shows where" in made.nodes["a"].fix
    (group,) = made.groups
    assert (group.nodes, group.wheels[0].built_on) == (("b",), "b")
    assert made.lock == "complete"
    assert not plan("pkg==1.0", fleet={"a": full}).groups
