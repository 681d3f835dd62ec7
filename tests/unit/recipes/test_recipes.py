"""Recipes: data that is checked, found by package, and rendered for a target."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from jinja2 import TemplateRuntimeError
from pydantic import ValidationError

from fleetbuild.errors import RecipeError
from fleetbuild.recipes import (
    Recipe,
    RecipeInput,
    choose_recipe,
    find_recipe,
    known_recipes,
    parse_recipe,
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_requirements,
    render_requires,
    render_settings,
)
from fleetbuild.recipes.templates import rendered
from tests.factories.plans import make_target

AVX2 = make_target(floor="2.28")


def _job(flags: str = "", version: str = "1.0", **target: object) -> RecipeInput:
    return RecipeInput(version=version, target=AVX2.model_copy(update=target), flags=flags)


MINIMAL = "name: mine\npackages: [Some.Package]\nrungs: [x86-64, avx2]\n"


def test_hnswlib_has_its_own_recipe_and_others_the_generic_one():
    assert find_recipe("HNSWlib").name == "hnswlib"
    assert find_recipe("whatever").name == "generic"
    assert {recipe.name for recipe in known_recipes().values()} >= {"hnswlib", "generic"}


def test_hnswlib_never_builds_for_the_machine_that_builds():
    environment = render_environment(find_recipe("hnswlib"), _job("-march=x86-64-v3"))
    assert environment == {
        "CFLAGS": "-O3 -march=x86-64-v3",
        "CXXFLAGS": "-O3 -march=x86-64-v3",
        "HNSWLIB_NO_NATIVE": "1",
    }


def test_a_variable_that_adds_to_flags_adds_once_to_each_template():
    mine = parse_recipe(MINIMAL + "variables: {flags: '{{ flags }} -g'}\n", "mine.yml")
    environment = render_environment(mine, _job("-mavx2"))
    assert environment == {"CFLAGS": "-O3 -mavx2 -g", "CXXFLAGS": "-O3 -mavx2 -g"}


def test_generic_leaves_out_what_needs_intrinsics():
    rungs = find_recipe("anything").rungs
    assert {"avx512vnni", "avx512bf16", "amx"}.isdisjoint(rungs)
    assert {"x86-64", "avx512", "armv8", "armv9"} <= set(rungs)


def test_values_are_rendered_over_the_target():
    recipe = parse_recipe(
        MINIMAL + "environment: {T: '{{ arch }}/{{ isa }}/{{ python }}/{{ libc }}/{{ sms }}'}", "x"
    )
    assert render_environment(recipe, _job("-x"))["T"] == "x86_64/avx2/cp311/glibc/()"


def test_a_template_that_fails_names_its_variable():
    recipe = parse_recipe(MINIMAL + "environment: {T: '{{ nobody }}'}", "x")
    with pytest.raises(RecipeError, match=r"environment\.T"):
        render_environment(recipe, _job("-x"))


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("rung: [avx]", "unknown key 'rung'", "Did you mean 'rungs'?"),
        ("libc: [uclibc]", "libc.0 is 'uclibc'", "libc.0"),
        ("rungs: [haswell]", "haswell is not a rung", "rungs"),
        ("environment: {A: '-march=native'}", "names the native CPU", "environment"),
        ("environment: {'A-B': x}", "not the name of an environment variable", "environment"),
        ("environment: {A: '{{ x'}", "not a Jinja2 template", "environment"),
        ("build_requirements: ['==']", "is not a requirement", "build_requirements"),
        ("files: {../../up: x}", "'../../up' is not a file name", "files"),
        ("files: {/etc/passwd: x}", "'/etc/passwd' is not a file name", "files"),
        ("import_names: [a.b, 'os; exit()']", "'os; exit()' is not a module name", "import_names"),
        ("checks: ['def']", "not valid Python in line 1", "checks"),
    ],
)
def test_mistakes_name_file_field_and_fix(line, message, fix):
    text = MINIMAL.replace("rungs: [x86-64, avx2]\n", "") if line.startswith("rungs") else MINIMAL
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text + line, "recipes/mine.yml")
    assert caught.value.message.startswith("recipes/mine.yml")
    assert message in caught.value.message
    assert fix in caught.value.fix


def test_a_missing_field_is_named():
    with pytest.raises(RecipeError, match="'rungs' is missing"):
        parse_recipe("name: mine", "mine.yml")
    with pytest.raises(RecipeError, match="contains nothing"):
        parse_recipe("", "mine.yml")
    with pytest.raises(RecipeError, match="line 1"):
        parse_recipe("name: [", "mine.yml")


def test_a_users_recipe_of_the_same_name_wins(tmp_path):
    (tmp_path / "hnswlib.yml").write_text("name: hnswlib\npackages: [hnswlib]\nrungs: [avx]\n")
    (tmp_path / "notes.txt").write_text("not a recipe")
    assert find_recipe("hnswlib", [tmp_path]).rungs == ("avx",)
    assert find_recipe("hnswlib", [tmp_path / "absent"]).rungs != ("avx",)


def test_two_recipes_for_one_package_are_refused(tmp_path):
    (tmp_path / "other.yml").write_text("name: other\npackages: [hnswlib]\nrungs: [avx]\n")
    with pytest.raises(RecipeError, match="hnswlib and other both"):
        choose_recipe("hnswlib", known_recipes([tmp_path]))


def test_recipes_come_by_entry_point(monkeypatch, tmp_path):
    package = tmp_path / "their_recipes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "theirs.yaml").write_text("name: theirs\npackages: [theirs]\nrungs: [avx]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("theirs", "their_recipes", "fleetbuild.recipes")
    monkeypatch.setattr("fleetbuild.recipes.find.entry_points", lambda **_: [point])
    assert find_recipe("theirs").name == "theirs"


def test_a_recipe_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "bad.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=r"bad\.yml cannot be read"):
        known_recipes([tmp_path])


def test_an_empty_value_is_not_set():
    recipe = parse_recipe(
        MINIMAL + "environment: {A: '{{ 1 if sms }}', B: x}\n"
        "config_settings: {cmake.define.X: '{{ cuda or \"\" }}', y: '{{ version }}'}",
        "x",
    )
    assert set(render_environment(recipe, _job())) == {"B", "CFLAGS", "CXXFLAGS"}
    assert render_settings(recipe, _job()) == {"y": "1.0"}


@pytest.mark.parametrize(
    "value",
    [
        "{{ nobody }}",
        "{{ 1 / 0 }}",
        "{{ 1 + version }}",
        "{{ version is within('nonsense') }}",
        "{% for each in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_a_value_that_cannot_be_rendered_is_named(value):
    recipe = parse_recipe(MINIMAL + f'environment: {{A: "{value}"}}', "x")
    with pytest.raises(RecipeError, match=r"mine cannot be rendered: environment\.A: \S") as caught:
        render_environment(recipe, _job())
    assert "Its templates may use: package" in caught.value.fix


def test_values_may_depend_on_the_version():
    recipe = parse_recipe(
        MINIMAL + "environment: {A: '{{ 1 if version is within(\"<2.14\") }}'}", "x"
    )
    assert "A" in render_environment(recipe, _job(version="2.13.1"))
    assert "A" not in render_environment(recipe, _job(version="2.14.0"))


def test_patches_apply_by_version_and_target(tmp_path):
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "old.patch").write_text("--- a\n")
    (tmp_path / "patches" / "arm.patch").write_text("--- b\n")
    (tmp_path / "mine.yml").write_text(
        MINIMAL + "patches: [{file: old.patch, versions: '<2'}, "
        "{file: arm.patch, when: arch == 'aarch64'}]"
    )
    recipe = find_recipe("some-package", [tmp_path])
    assert [patch.text for patch in patches_for(recipe, _job())] == ["--- a\n"]
    later = patches_for(recipe, _job(version="2.0", arch="aarch64"))
    assert [patch.file for patch in later] == ["arm.patch"]


def test_a_missing_patch_is_named(tmp_path):
    (tmp_path / "mine.yml").write_text(MINIMAL + "patches: [{file: gone.patch}]")
    with pytest.raises(RecipeError, match=r"patches/gone\.patch cannot be read"):
        known_recipes([tmp_path])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("source: {git: a, archive: b}", "must name either git or archive"),
        ("source: {}", "must name either git or archive"),
        ("patches: [{file: a.patch, versions: new}]", "is not a version specifier"),
        ("patches: [{file: ../a.patch}]", "file"),
        ("requires: ['{{ x']", "not a Jinja2 template"),
    ],
)
def test_a_wrong_recipe_is_refused(wrong, said):
    with pytest.raises(RecipeError, match=said):
        parse_recipe(MINIMAL + wrong, "x")


def test_files_requirements_and_requires_are_rendered():
    recipe = parse_recipe(
        MINIMAL + "files: {cmake/a.cmake: 'set(X {{ isa }})'}\n"
        "build_requirements: [cmake, '{{ \"ninja\" if sms }}']\n"
        "requires: ['numpy>={{ version }}', '{{ \"nvidia-nccl\" if cuda }}']\n"
        "checks: ['assert \"{{ isa }}\"']",
        "x",
    )
    assert render_files(recipe, _job()) == {"cmake/a.cmake": "set(X avx2)"}
    assert render_requirements(recipe, _job()) == ("cmake",)
    assert render_requires(recipe, _job()) == ("numpy>=1.0",)
    assert render_checks(recipe, _job()) == ('assert "avx2"',)
    assert render_requires(parse_recipe(MINIMAL, "x"), _job()) is None


def test_a_recipe_may_extend_another(tmp_path):
    (tmp_path / "hnswlib.yml").write_text(
        "extends: hnswlib\nenvironment: {EXTRA: '1'}\njob_memory_gb: 7\nchecks: []\n"
    )
    ours, theirs = find_recipe("hnswlib", [tmp_path]), find_recipe("hnswlib")
    assert ours.environment == {**theirs.environment, "EXTRA": "1"}
    assert (ours.job_memory_gb, ours.checks) == (7, ())
    assert ours.rungs == theirs.rungs


def test_a_recipes_own_source_replaces_the_inherited_kind(tmp_path):
    (tmp_path / "torch.yml").write_text("extends: torch\nsource: {archive: 'https://x/t.tgz'}\n")
    (tmp_path / "a.yml").write_text("name: a\nextends: torch\nsource: {git: 'https://x/y'}\n")
    known = known_recipes([tmp_path])
    assert (known["torch"].source.git, known["torch"].source.archive) == (None, "https://x/t.tgz")
    assert (known["a"].source.git, known["a"].source.archive) == ("https://x/y", None)


def test_a_recipe_that_extends_may_serve_other_packages(tmp_path):
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "a.patch").write_text("--- a\n")
    (tmp_path / "a.yml").write_text("name: a\nextends: b\npackages: [a]\nsource: {ref: main}\n")
    (tmp_path / "b.yml").write_text(
        "name: b\npackages: [b]\nrungs: [avx]\nsource: {git: 'https://x/y'}\n"
        "patches: [{file: a.patch}]\n"
    )
    mine = find_recipe("a", [tmp_path])
    assert (mine.name, mine.packages, mine.rungs) == ("a", ("a",), ("avx",))
    assert (mine.source.git, mine.source.ref) == ("https://x/y", "main")
    assert mine.patches[0].text == "--- a\n"
    assert find_recipe("b", [tmp_path]).source.ref != "main"
    upper = tmp_path / "upper"
    upper.mkdir()
    (upper / "c.yml").write_text("name: c\nextends: a\npackages: [c]\nsource: {git: 'https://z'}\n")
    third = find_recipe("c", [tmp_path, upper])
    assert (third.source.git, third.source.ref) == ("https://z", "main")
    assert third.patches[0].text == "--- a\n"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"a": "name: a\nextends: gone\n"}, "extends 'gone', but that recipe does not exist"),
        ({"a": "name: a\nextends: a\n"}, "extends 'a', but that recipe does not exist"),
        ({"a": "name: a\nextends: b\n", "b": "name: b\nextends: a\n"}, "in turn"),
        ({"a": "extends: hnswlib\nenvironment: [A]\n"}, "environment"),
        ({"a": "extends: hnswlib\nrung: [avx]\n"}, "unknown key 'rung'"),
    ],
)
def test_an_invalid_extends_is_an_error(tmp_path, texts, words):
    for name, text in texts.items():
        (tmp_path / f"{name}.yml").write_text(text)
    with pytest.raises(RecipeError, match=words):
        known_recipes([tmp_path])


def test_requirements_of_a_recipe_are_validated():
    recipe = parse_recipe(MINIMAL + "requires: ['numpy >{{ \"\" }}']", "x")
    with pytest.raises(RecipeError, match=r"has 'numpy >' in requires, which is not a requirement"):
        render_requires(recipe, _job())


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 10**10 }}",
        "{{ [1] * 10**9 }}",
        "{{ 2 ** (10 ** 9) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    ],
)
def test_a_template_gives_no_endless_text(text: str) -> None:
    with pytest.raises(TemplateRuntimeError, match=r"numbers up to|more than 65536 characters"):
        rendered(text, {})


def test_a_template_has_a_length() -> None:
    assert rendered("{{ a * 2 }} {{ 2 ** 10 }}", {"a": 3}) == "6 1024"
    with pytest.raises(ValidationError, match="a template of more than 65536 characters"):
        Recipe.model_validate({"name": "demo", "variables": {"a": "x" * 70_000}})
