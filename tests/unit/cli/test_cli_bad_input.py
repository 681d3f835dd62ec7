"""Bad input gets a sentence, a fix and its exit code, and nothing is lost."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from typer.testing import Result

from fleetbuild import save_plan
from tests.factories.plans import make_plan

DATA = Path(__file__).parents[1] / "data"
FLEET = DATA / "fleet.yml"
CAPTURES = DATA / "fleet"
Run = Callable[..., Result]


def refused(result: Result, code: int, *words: str) -> None:
    """The exit code is right, stdout is empty, and stderr is a sentence and a fix."""
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    error, _, fix = result.stderr.partition("\nfix: ")
    assert error.startswith("error: ")
    assert fix.strip()
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_folder_without_an_inventory_is_an_error(run: Run, here: Path) -> None:
    (here / "empty").mkdir()
    for more in ((), ("-v",), ("-vv",)):
        refused(run("plan", "empty", *more), 2, "The folder empty contains no inventory.")
    refused(run("facts", FLEET, "--limit", "@empty"), 2, "The limit file empty is a folder.")


def test_a_group_needs_a_pyproject_or_a_lock(run: Run) -> None:
    refused(run("plan", FLEET, "--facts", CAPTURES, "--group", "gpu"), 2, "group gpu", "--lock")


def test_a_state_directory_that_cannot_be_created_is_an_error(run: Run, here: Path) -> None:
    (here / "file").touch()
    arguments = ("plan", FLEET, "--facts", CAPTURES, "--package", "hnswlib==0.8.0")
    refused(run(*arguments, "--state-dir", "file"), 2, "file", "--state-dir")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fleetbuild.yml", "packges: [hnswlib==0.8.0]\n"),
        ("ours.yml", "packages: [hnswlib==0.8.0]\nbuild: {policy: auto}\n"),
    ],
)
@pytest.mark.parametrize("command", ["apply", "plan"])
def test_a_configuration_in_place_of_the_inventory_is_answered_with_the_right_command(
    run: Run, here: Path, command: str, name: str, text: str
) -> None:
    (here / name).write_text(text)
    result = run(command, name)
    refused(result, 2, f"{name} is a fleetbuild configuration, not an inventory.")
    assert result.stderr.endswith(f": fleetbuild {command} INVENTORY --config {name}\n")


def test_an_inventory_in_place_of_the_configuration_is_named_as_such(run: Run) -> None:
    refused(
        run("plan", FLEET, "--facts", CAPTURES, "--config", FLEET), 2, "is an Ansible inventory"
    )


def test_a_group_named_as_a_key_of_the_configuration_is_not_a_configuration(
    run: Run, here: Path
) -> None:
    (here / "inventory.yml").write_text("build: {hosts: {}}\n")
    refused(run("plan", "inventory.yml"), 2, "inventory.yml names no hosts")


def test_what_ansible_warns_of_in_an_inventory_is_shown(run: Run, here: Path) -> None:
    """Such as a host that is listed twice, or a name in --limit that is misspelt."""
    (here / "hosts.yml").write_text("all: {hosts: {a: {x: 1}, a: {x: 2}, b: {}}}\n")
    (here / "captures").mkdir()
    done = run("facts", "hosts.yml", "--facts", "captures", "--limit", "a,absent", "--json")
    assert "warning: Found duplicate mapping key 'a'" in done.stderr
    assert "warning: Could not match supplied host pattern, ignoring: absent" in done.stderr
    assert done.stdout.startswith("{")


@pytest.mark.parametrize("command", ["plan", "apply", "facts", "status"])
def test_an_empty_inventory_does_not_mean_every_inventory_here(run: Run, command: str) -> None:
    refused(run(command, ""), 2, "The inventory is empty")


def test_a_list_of_hosts_may_be_longer_than_a_path(run: Run) -> None:
    hosts = ",".join(f"gpu-{number:03}.cluster.example.org" for number in range(12))
    refused(run("facts", f"{hosts},", "--facts", "nowhere"), 2, "nowhere")
    refused(run("facts", "a" * 5000), 2, "does not exist")


@pytest.mark.parametrize("limit", ["", " ", ",", "@none", "~", "!", "all:!", "all,&"])
def test_an_empty_limit_does_not_mean_all_nodes(run: Run, here: Path, limit: str) -> None:
    (here / "none").write_text("\n")
    refused(run("apply", FLEET, "--limit", limit, "--yes"), 2, f"--limit {limit!r} is empty")


def test_planning_options_are_refused_with_a_saved_plan(run: Run, here: Path) -> None:
    save_plan(make_plan(inventory=str(FLEET)), here / "p.json")
    (here / "r.txt").write_text("x==1\n")
    for option in (
        ["--limit", "a"],
        ["--limit", ""],
        ["--package", "x==1"],
        ["--config", "c.yml"],
        ["--requirement", "r.txt"],
        ["--lock", "uv.lock"],
    ):
        refused(run("apply", "p.json", *option), 2, option[0])


def test_a_saved_plan_needs_no_yes_and_takes_it(run: Run, here: Path) -> None:
    save_plan(make_plan(inventory=str(FLEET)), here / "p.json")
    without, given = run("apply", "p.json"), run("apply", "p.json", "--yes")
    assert "--yes" not in given.stderr
    assert (given.exit_code, given.stderr) == (without.exit_code, without.stderr)


def test_options_that_ask_nodes_do_not_go_with_captures(run: Run) -> None:
    for option in (["--timeout", "3"], ["--forks", "2"], ["--save", "there"]):
        refused(run("facts", FLEET, "--facts", CAPTURES, *option), 2, option[0])
    refused(run("status", FLEET, "--offline", "--forks", "2"), 2, "--forks")


def test_explain_emit_and_store_need_a_plan(run: Run, here: Path) -> None:
    refused(run("explain", "anything"), 2, "plan.json")
    refused(run("emit", "k8s"), 2, "plan.json")
    refused(run("store", "gc"), 2, "plan.json")
    refused(run("store", "export", "out"), 2, "plan.json")
    assert list(here.iterdir()) == []


def test_a_file_that_is_not_a_wheel_is_reported(run: Run, here: Path) -> None:
    refused(run("audit", "missing.whl"), 2, "missing.whl")
    (here / "odd-1.0-py3-none-any.whl").write_bytes(b"no zip")
    result = run("audit", "odd-1.0-py3-none-any.whl")
    assert result.exit_code == 7
    assert "not a zip archive" in result.stdout
    assert "baseline" not in result.stdout  # nothing was read, so nothing is known of its needs


def denied(*_: object, **__: object) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "there")


def test_an_unreadable_plan_is_an_error(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "p.json").touch()
    given = os.open

    def opened(path: object, *how: object, **more: object) -> object:  # root may read everything
        return denied() if str(path).endswith("p.json") else given(path, *how, **more)

    monkeypatch.setattr(os, "open", opened)
    refused(run("apply", "p.json"), 2, "p.json", "Permission denied")


def test_an_export_to_an_unwritable_folder_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fleetbuild.plan.document.files.read_plan",
        lambda _: SimpleNamespace(inventory="i.yml", config=None),
    )
    monkeypatch.setattr("fleetbuild.extensions.supply.publish.fetch_all", lambda *_: ())
    monkeypatch.setattr("fleetbuild.store.release_files.release_files", denied)
    refused(run("store", "export", "there"), 2, "there", "Permission denied")


def test_an_unreadable_inventory_is_an_error(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "closed.yml").write_text("all: {\n")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "closed.yml")
    refused(run("facts", "closed.yml"), 2, "closed.yml", "permission denied")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "--no-such", "--json"), "No such option: --no-such"),
        (("explain", "--json"), "fleetbuild explain needs NODE|GROUP."),
        (("facts", "x.yml", "--json", "--forks", "a"), "does not accept this value as --forks"),
        (("apply", "x.yml", "--json", "--check"), "fleetbuild apply has no option --check."),
    ],
)
def test_each_error_is_one_document_with_json(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert message in error["message"]
    assert error["exit_code"] == 2
    assert error["message"] in result.stderr.replace("'", "")
