"""What users' scripts rely on is as it was recorded: options, exit codes, documents, file names.

Nothing is imported but the program itself; one real apply on this machine gives the documents.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fleetbuild
from fleetbuild.cli import app
from tests.contract.contract import (
    UPDATE,
    broken_command,
    broken_list,
    broken_shape,
    command_of,
    load,
    save,
    shape,
)
from tests.factories.inventories import remember_inventories

HERE = Path(__file__).parent
FLEET = HERE.parent / "unit" / "data" / "fleet.yml"
CAPTURES = HERE.parent / "unit" / "data" / "fleet"
LOCAL = "all: {hosts: {this-machine: {ansible_connection: local}}}\n"
EMITTED = {
    "k8s": [], "nfd": [], "labels": [], "affinity": [], "kustomize": [],
    "containers": ["--image-prefix", "registry.example.com/team/fleet"],
}  # fmt: skip


@pytest.fixture(scope="session")
def updating(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--update-golden"))


def hold(name: str, now: Any, broken: list[str], updating: bool) -> None:
    """Fail and name the broken promises, or record the present state."""
    if updating:
        save(name, now)
    elif broken:
        pytest.fail(
            "This breaks promises to users:\n  " + "\n  ".join(broken)
            + f"\nIf it is meant, record it again: {UPDATE}",
            pytrace=False,
        )  # fmt: skip


def commands(name: str = "fleetbuild") -> Iterator[tuple[str, Any]]:
    """Every command of the program, by what its `--help` says."""
    said = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    assert said.exit_code == 0, said.output
    command = command_of(said.stdout)
    yield name, command
    for below in command["commands"]:
        yield from commands(f"{name} {below}")


def test_every_recorded_command_line_is_still_accepted(updating: bool) -> None:
    now = dict(commands())
    recorded = {} if updating else load("commands.json")
    broken = [
        f"{name} {problem}"
        for name, before in recorded.items()
        for problem in (
            broken_command(before, now[name]) if name in now else ["is no longer a command"]
        )
    ]
    hold("commands.json", now, broken, updating)


def test_every_key_of_fleetbuild_yml_is_still_read(updating: bool) -> None:
    now = sorted(_keys(fleetbuild.Config.model_json_schema()))
    broken = [] if updating else broken_list(load("config.json"), now)
    hold("config.json", now, broken, updating)


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    def walk(node: dict[str, Any], path: str) -> Iterator[str]:
        for name, below in node.get("properties", {}).items():
            yield f"{path}{name}"
            reference = below.get("$ref") or next(
                (each["$ref"] for each in below.get("allOf", ()) if "$ref" in each), ""
            )
            if reference:
                yield from walk(schema["$defs"][reference.rpartition("/")[2]], f"{path}{name}.")

    return walk(schema, "")


@pytest.fixture
def wrong_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which things are wrong, as the table of exit codes names them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    remember_inventories(monkeypatch, "fleet.yml", "local.yml", place=str(tmp_path))
    shutil.copy(FLEET, "fleet.yml")
    shutil.copytree(CAPTURES, "captures")
    shutil.copytree(CAPTURES / "avx-old", "captures/this-machine")
    shutil.copytree(HERE / "package", "tiny")
    Path("local.yml").write_text(LOCAL)
    Path("broken.yml").write_text("all:\n  hosts:\n   a: {\n")
    Path("unknown-key.yml").write_text("packges: [tiny==1.0]\n")
    Path("python-2.yml").write_text("python: '3.4'\n")
    Path("damaged.json").write_text('{"format_version": "1.0"')
    Path("newer.json").write_text('{"format_version": "2.0", "digest": "x", "groups": []}')
    Path("odd-1.0-py3-none-any.whl").write_bytes(b"no zip")
    Path("file").touch()
    _leaf(Path("links"))
    Path("linked.yml").write_text("index: [links]\n")
    Path("held").mkdir()
    with Path("held/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _leaf(folder: Path) -> None:
    folder.mkdir()
    subprocess.run([sys.executable, HERE / "package/backend.py", folder], check=True)


@pytest.mark.usefixtures("wrong_uses")
def test_every_recorded_exit_code_is_unchanged(updating: bool) -> None:
    recorded = load("exit_codes.json")
    now = {use: _exit_code(use) for use in recorded}
    broken = [
        f"fleetbuild {use}: exit code was {recorded[use]}, is {now[use]}"
        for use in recorded
        if now[use] != recorded[use]
    ]
    hold("exit_codes.json", now, broken, updating)


def _exit_code(use: str) -> int:
    """The code of the last of these command lines; the others prepare for it."""
    shutil.rmtree(".fleetbuild", ignore_errors=True)
    for written in (Path("fleetbuild.yml"), Path("inventory.yml")):
        written.unlink(missing_ok=True)
    code = -1
    for line in use.split(" && "):
        result = CliRunner().invoke(app, line.split())
        assert "Traceback" not in result.output, line
        code = result.exit_code
    return code


@pytest.mark.usefixtures("wrong_uses")
def test_an_error_is_two_lines_on_stderr_and_with_json_a_document_too() -> None:
    for use in ("apply", "apply --json", "facts nowhere.yml --json", "explain nobody --json"):
        result = CliRunner().invoke(app, use.split())
        assert result.exit_code == 2
        error, fix = result.stderr.splitlines()[-2:]
        assert (error.partition(" ")[0], fix.partition(" ")[0]) == ("error:", "fix:")
        if not use.endswith("--json"):
            assert result.stdout == ""
        elif use.startswith("apply"):  # the last event
            last = json.loads(result.stdout)
            assert (last["stage"], last["state"]) == ("done", "failed")
            assert (f"error: {last['message']}", f"fix: {last['fix']}") == (error, fix)
        else:
            told = json.loads(result.stdout)["error"]
            assert told["exit_code"] == 2
            assert (f"error: {told['message']}", f"fix: {told['fix']}") == (error, fix)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every document, from a plan for captures and from one apply on this machine."""
    here = tmp_path_factory.mktemp("contract")
    shutil.copytree(HERE / "package", here / "tiny")
    _leaf(here / "links")
    (here / "local.yml").write_text(LOCAL)
    common = f'packages: ["tiny @ {here}/tiny"]\nindex: [{here}/links]\nbuild: {{cache: none}}\n'
    (here / "fleetbuild.yml").write_text(f"{common}install: {{path: {here}/opt}}\n")
    (here / "captured.yml").write_text(f"{common}grouping: {{max_wheel_sets: 2}}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("UV_NO_INDEX", "1")
        return _documents(here)


def _documents(here: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    captured = ("--facts", CAPTURES, "--json", "--state-dir", "captured")
    found["facts --json"] = json.loads(call("facts", FLEET, *captured, code=3))
    text = call("plan", FLEET, "--config", "captured.yml", *captured, code=3)
    assert text == (here / "captured/plan.json").read_text()
    found["plan --json"] = plan = json.loads(text)
    group = plan["groups"][0]
    for what, name in (("node", group["nodes"][0]), ("group", group["name"])):
        found[f"explain {what} --json"] = json.loads(call("explain", name, *captured))
    lines = call("apply", "local.yml", "--yes", "--json").splitlines()
    found["apply --json, a line"] = [json.loads(line) for line in lines]
    for command in ("status local.yml", "store list", "store gc", "store export out", "doctor"):
        found[f"{command} --json"] = json.loads(call(*command.split(), "--json", code=None))
    found["verify --json, a line"] = [
        json.loads(line) for line in call("verify", "local.yml", "--json").splitlines()
    ]
    for what, more in EMITTED.items():
        found["emit --json"] = json.loads(call("emit", what, *more, "--json"))
        wheel = next((here / ".fleetbuild/store/wheels").rglob("*.whl"))
    found["audit --json"] = json.loads(call("audit", wheel, "--json"))
    found["manifest.json of a release"] = json.loads(
        (here / "opt/current/manifest.json").read_text()
    )
    found["files"] = _names(here, json.loads((here / ".fleetbuild/plan.json").read_text()))
    return found


def call(*args: str | Path, code: int | None = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, args)])
    assert code in (None, done.exit_code), (args, done.stdout, done.stderr)
    return done.stdout


def _names(here: Path, plan: dict[str, Any]) -> list[str]:
    """The files in the state directory and of a release, with what differs by machine left out."""
    (group,) = plan["groups"]
    (wheel,) = group["wheels"]
    data = {
        wheel["artifact_key"]: "KEY", group["release_id"]: "RELEASE", group["name"]: "GROUP",
        wheel["wheel_version"]: "VERSION", wheel["source"]["sha256"]: "SHA256",
        plan["digest"]: "DIGEST", plan["digest"][:16]: "DIGEST16",
    }  # fmt: skip
    data |= {each["sha256"]: "SHA256" for each in group["dependencies"]}
    names = set()
    for folder in (here / ".fleetbuild", here / "opt", here / "out"):
        for path in folder.rglob("*"):
            parts = path.relative_to(here).parts
            if "releases" in parts and len(parts) > parts.index("releases") + 2:
                continue  # a virtual environment
            name = "/".join(parts)
            for before, after in data.items():
                name = name.replace(before, after)
            names.add(_timeless(name))
    names |= {f"{here.joinpath('opt/current').readlink().parts[0]}/… <- opt/current"}
    return sorted(names)


def _timeless(name: str) -> str:
    name = re.sub(r"runs/\d{8}T\d{6}-", "runs/TIME-", name)
    return re.sub(r"\b[0-9a-f]{64}\b", "SHA256", name)


DOCUMENTS = (
    "facts --json", "plan --json", "explain node --json", "explain group --json",
    "apply --json, a line", "verify --json, a line", "status local.yml --json",
    "store list --json", "store gc --json", "store export out --json", "doctor --json",
    "emit --json", "audit --json", "manifest.json of a release",
)  # fmt: skip


def test_every_document_has_the_recorded_keys(documents: dict[str, Any], updating: bool) -> None:
    now = {name: shape(documents[name]) for name in DOCUMENTS}
    recorded = {} if updating else load("documents.json")
    broken = [
        f"{name}: {problem}"
        for name, before in recorded.items()
        for problem in broken_shape(before, now[name])
    ]
    hold("documents.json", now, broken, updating)


def test_stage_names_of_events_are_unchanged(documents: dict[str, Any], updating: bool) -> None:
    now = sorted({f"{e['stage']} {e['state']}" for e in documents["apply --json, a line"]})
    broken = [] if updating else broken_list(load("events.json"), now)
    hold("events.json", now, broken, updating)


def test_file_names_are_unchanged(documents: dict[str, Any], updating: bool) -> None:
    now = documents["files"]
    broken = [] if updating else broken_list(load("files.json"), now)
    hold("files.json", now, broken, updating)
