"""fleetbuild.yml: a right file is read; a mistake is reported with its place and its fix."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from fleetbuild.config import (
    config_model,
    find_config,
    load_config,
    parse_config,
    parse_yaml,
    with_absolute_playbooks,
)
from fleetbuild.errors import ConfigError
from fleetbuild.models import Config


def test_the_example_of_the_reference_is_read():
    config = parse_config(
        """
        release: default
        packages: [hnswlib==0.8.0]
        python: "3.11"
        grouping: {rungs: detected, max_wheel_sets: null}
        install: {path: /srv/fleetbuild, keep: 3}
        rollout: {canary: 1, serial: "25%"}
        """
    )
    assert config.packages == ("hnswlib==0.8.0",)
    assert config.grouping.rungs == "detected"
    assert config.install.path == "/srv/fleetbuild"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "{}"])
def test_an_empty_file_means_all_defaults(text):
    assert parse_config(text) == config_model()()


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("pakages: []", "unknown key 'pakages'", "Did you mean 'packages'?"),
        ("grouping: {rung: x}", "unknown key 'grouping.rung'", "'grouping.rungs'"),
        ("build: {jobs: 4}", "unknown key 'build.jobs'", "The keys here are: policy, only"),
        ("zzz: 1", "unknown key 'zzz'", "The keys here are: release, packages"),
        ("packages: [a==1\nrelease: x", "not valid YAML in line 2", "indentation"),
        (
            "".join(" " * depth + "a:\n" for depth in range(1500)),
            "fleetbuild.yml is nested too deeply.",
            "Nest less.",
        ),
        ("a: \x00", "special characters are not allowed.", "plain UTF-8"),
        ("- a\n- b", "contains a list; keys", "Its keys are: release"),
        (
            "install: {path: relative}",
            "install.path is 'relative': must be an absolute path.",
            "install.path",
        ),
        ("cuda: twelve", "cuda is 'twelve': must be the CUDA", "Correct cuda"),
        ('rollout: {serial: "300%"}', "rollout.serial is '300%': a number or a perc", "serial"),
        ("rollout: {serial: 0}", "rollout.serial is 0: at least 1 node belongs here", "serial"),
        ("rollout: {before: {playbok: x}}", "unknown key 'rollout.before.playbok'", "playbook"),
        ("build: {cache: x}", "is 'x': must be 'ccache', 'sccache' or 'none'.", "build.cache"),
        (
            "packages: {hnswlib: 0.8.0, b: null}",
            "packages is {hnswlib: 0.8.0, b: null}: must be a list",
            "Correct packages",
        ),
        ("release: wheels", "release is 'wheels': current, history, releases, wheels", "release"),
        ("packages: [a]\npackages: [b]", "line 1, column 1: the key 'packages' is", "that line"),
        ("python: 3.10", "python is 3.1: must be a string; put it in quotes", "Correct python"),
    ],
)
def test_mistakes_are_reported_with_place_and_fix(text, message, fix):
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "fleetbuild.yml")
    assert message in caught.value.message
    assert caught.value.message.startswith("fleetbuild.yml")
    assert fix in caught.value.fix


def test_a_merged_key_may_be_replaced_and_merged_again() -> None:
    text = "a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}\n"
    document = parse_yaml(text, "fleetbuild.yml", ConfigError)
    assert [document[name]["x"] for name in "abc"] == [1, 2, 3]


def test_a_file_knows_its_folder(tmp_path):
    (tmp_path / "fleetbuild.yml").write_text("release: one\n")
    config = load_config(tmp_path / "fleetbuild.yml")
    assert config.release == "one"
    assert config.folder == str(tmp_path)
    assert Config().folder is None
    assert "folder" not in config.model_dump()


def test_unreadable_files_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "none.yml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "binary.yml")


def test_fleetbuild_yml_is_found_beside_the_inventory(tmp_path):
    assert find_config(str(tmp_path / "hosts.yml")) is None
    expected = tmp_path / "fleetbuild.yml"
    expected.write_text("")
    assert find_config(str(tmp_path / "hosts.yml")) == expected
    assert find_config(str(tmp_path)) == expected
    assert find_config(str(Path("/nowhere/hosts"))) is None


def test_fleetbuild_yml_may_lie_beside_an_inventory_directory(tmp_path):
    folder = tmp_path / "inventory"
    folder.mkdir()
    above, inside = tmp_path / "fleetbuild.yml", folder / "fleetbuild.yml"
    above.write_text("")
    assert find_config(str(folder)) == above
    inside.write_text("")
    assert find_config(str(folder)) == inside
    inside.unlink()
    assert find_config(str(folder / "hosts.yml")) is None


def test_a_folder_called_fleetbuild_yml_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "fleetbuild.yml").mkdir()
    found = find_config(str(tmp_path / "hosts.yml"))
    assert found is not None
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(found)


def test_serial_is_a_number_a_percentage_or_a_list_whose_last_entry_is_repeated() -> None:
    def batches(text: str, nodes: int) -> list[int]:
        sizes = parse_config(f"rollout: {{serial: {text}}}").rollout.batches(nodes)
        return list(islice(sizes, 4))

    assert batches("3", 40) == [3, 3, 3, 3]
    assert batches('"25%"', 40) == [10, 10, 10, 10]
    assert batches('[1, 5, "30%"]', 40) == [1, 5, 12, 12]
    assert batches('["1%", 2]', 40) == [1, 2, 2, 2]  # as in Ansible, at least one node


def test_a_hooks_playbook_is_found_beside_the_file(tmp_path: Path) -> None:
    config = parse_config("rollout: {before: {playbook: drain.yml}}")
    with pytest.raises(ConfigError, match=r"rollout.before names the playbook .*/drain.yml, which"):
        with_absolute_playbooks(config, tmp_path)
    (tmp_path / "drain.yml").touch()
    hook = with_absolute_playbooks(config, tmp_path).rollout.before
    assert hook is not None
    assert (hook.playbook, hook.timeout) == (str(tmp_path / "drain.yml"), 300)
