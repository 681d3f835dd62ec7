"""Each command that a message prints can be pasted: it has the run's options, and parses."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import fleetbuild
from fleetbuild.cli import app
from fleetbuild.cli.foreign_options import Command
from fleetbuild.cli.hints import Hints, commands
from tests.factories.plans import make_plan

ROOT = typer.main.get_command(app)
CODE = Path(fleetbuild.__file__).parent
RUN = {
    "limit": "gpu*", "config": Path("my fleet.yml"), "requirement": [Path("my list.txt")],
    "package": None, "ask_become_pass": True, "become_password_file": None,
    "vault_id": ["dev@file", "prod@prompt"], "state_dir": Path("s"), "context": "my cluster",
    "yes": True, "json": True,
}  # fmt: skip
INVENTORY, CONFIG = "'my fleet/inv.yml'", "--config 'my fleet.yml'"
NODES = f"--limit 'gpu*' {CONFIG}"
LOGINS = (
    " --ask-become-pass --vault-id dev@file --vault-id prod@prompt --context 'my cluster'"
    " --state-dir s"
)
MADE_WITH = {"requirement": ("r.txt",), "captures": ("c",), "vault_password_file": ("a file",)}
# Modules that begin a sentence with a command's name, or make one of any (test_cli_fleet.py).
OF_ANY = {"__init__.py", "errors.py", "hints.py", "env.py", "foreign_options.py"}
OF_CHECK = LOGINS.replace(" --context 'my cluster'", "")


def hints(**values: Any) -> Hints:
    return Hints(ROOT, {**RUN, "inventory": "my fleet/inv.yml", **values})


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module but its docstrings, with X for each value in them; or lines."""
    if file.suffix != ".py":
        yield from enumerate(file.read_text().splitlines(), 1)
        return
    tree = ast.parse(file.read_text())
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in ast.walk(node) if part is not node}  # fmt: skip
    shown = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node in inner or node in shown:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, line) for line in node.value.splitlines())
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


def messages() -> Iterator[Any]:
    plugins = CODE.parent / "plugins/plugin_utils"
    files = [*CODE.rglob("*.py"), *plugins.glob("*.py"), plugins / "known_failures.yml"]
    for file in sorted(files):
        for line, text in texts(file):
            name = f"{file.relative_to(CODE.parent).as_posix()}:{line}"
            assert "fleetbuild X" not in text or file.name in OF_ANY, f"{name} hides its command"
            for command in commands(text):
                if command.words[0] in ROOT.commands:
                    yield pytest.param(text[command.start : command.end], id=name)


def parse(command: str) -> None:
    """Give the words to the real parser; an unknown option or word too many raises."""
    words = shlex.split(command)[1:]
    program, context = ROOT, ROOT.make_context("fleetbuild", [], resilient_parsing=True)
    while hasattr(program, "commands"):
        name, program, words = program.resolve_command(context, words)
        if not hasattr(program, "commands"):
            break
        context = program.make_context(name, words[:1], parent=context, resilient_parsing=True)
    program.make_context(name, words, parent=context)


@pytest.mark.parametrize("text", list(messages()))
def test_a_command_in_a_message_parses_with_the_options_of_the_run(text: str) -> None:
    completed = hints().completed(text)
    parse(completed)
    assert hints().completed(completed) == completed
    parse(Hints(ROOT, {"inventory": "a,"}).completed(text))


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        (
            "Install it again: fleetbuild verify INVENTORY --repair",
            f"Install it again: fleetbuild verify {INVENTORY} --repair {NODES}{LOGINS}",
        ),
        (
            "`fleetbuild check --emulate a==1 --for cpu-avx-cp311` decides",
            f"`fleetbuild check --emulate a==1 --for cpu-avx-cp311 {CONFIG}{OF_CHECK}` decides",
        ),
        (
            "Go back with: fleetbuild rollback INVENTORY --limit n1.",
            f"Go back with: fleetbuild rollback {INVENTORY} --limit n1 {CONFIG}{LOGINS}",
        ),
        (
            "Next: fix it, then run again: fleetbuild apply",  # the saved plan has the rest
            f"Next: fix it, then run again: fleetbuild apply{LOGINS}",
        ),
        ("Use it with: fleetbuild run -- COMMAND",
         f"Use it with: fleetbuild run {CONFIG} --state-dir s -- COMMAND"),
        ("Next: fleetbuild apply 'my plan'", f"Next: fleetbuild apply 'my plan'{LOGINS}"),
        ("see fleetbuild store list, or (fleetbuild audit WHEEL)",
         "see fleetbuild store list --state-dir s, or (fleetbuild audit WHEEL --state-dir s)"),
        ("fleetbuild reads it. HOME=X fleetbuild …", "fleetbuild reads it. HOME=X fleetbuild …"),
    ],
)  # fmt: skip
def test_a_command_has_the_options_of_the_run_that_it_takes(text: str, completed: str) -> None:
    assert hints().completed(text) == completed


def test_a_command_to_plan_again_names_the_packages_of_the_run() -> None:
    again = hints().completed("Plan again: fleetbuild plan INVENTORY").split("--")
    assert again[1:3] == ["requirement 'my list.txt' ", "limit 'gpu*' "]


def test_every_command_completes_the_commands_of_its_messages() -> None:
    below = [each for group in ("emit", "store") for each in ROOT.commands[group].commands.items()]
    others = {name: each for name, each in ROOT.commands.items() if not hasattr(each, "commands")}
    assert [name for name, each in (*below, *others.items()) if not isinstance(each, Command)] == []


def test_an_argument_of_another_command_is_not_given() -> None:
    assert Hints(ROOT, {"package": ("a==1",)}).completed("fleetbuild init") == "fleetbuild init"


def test_a_cluster_is_named_where_a_command_asks_it() -> None:
    fix = "fleetbuild emit k8s, or fleetbuild emit labels --apply"
    assert Hints(ROOT, {"context": "c", "inventory": "i"}).completed(fix) == f"{fix} --context c"
    again = Hints(ROOT, {"context": "c", "from_cluster": True, "inventory": None})
    assert again.completed("fleetbuild plan INVENTORY") == (
        "fleetbuild plan --from-cluster --context c"
    )


def test_a_list_of_hosts_keeps_its_comma() -> None:
    given = Hints(ROOT, {"inventory": "w07,"}).completed("run: fleetbuild status INVENTORY.")
    assert given == "run: fleetbuild status 'w07,'"


def test_a_run_without_an_inventory_takes_the_last_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Hints(ROOT, {"state_dir": tmp_path})
    assert given.completed("Make one: fleetbuild plan INVENTORY") == (
        f"Make one: fleetbuild plan --state-dir {tmp_path}"
    )
    recorded = Hints(ROOT, {"state_dir": tmp_path, "captures": "c"})  # of other machines than this
    assert recorded.completed("fleetbuild plan INVENTORY").startswith(
        "fleetbuild plan INVENTORY --facts c"
    )
    made = make_plan(facts_source="probe", limit="a", options=MADE_WITH)
    monkeypatch.setattr("fleetbuild.read_plan", lambda _: made)
    own = {"state_dir": tmp_path, "config": "c.yml"}
    again = Hints(ROOT, own).completed("fleetbuild plan INVENTORY")
    assert again == (
        f"fleetbuild plan {made.inventory} --requirement r.txt --facts c --limit a --config c.yml"
        f" --vault-password-file 'a file' --state-dir {tmp_path}"
    )


@pytest.mark.parametrize(
    ("own", "recalled"),
    [
        ({"limit": "a"},
         " --requirement r.txt --facts c --limit a --config c.yml --vault-password-file 'a file'"),
        ({"limit": "a", "vault_password_file": ["b"], "timeout": None},  # it asks the nodes
         " --requirement r.txt --limit a --config c.yml --vault-password-file b"),
        ({"limit": None}, " --config c.yml --vault-password-file 'a file'"),  # a was a trial
        ({"package": None}, ""),  # a run that plans names its own
        ({"inventory": "another"}, ""),
    ],
)  # fmt: skip
def test_a_run_for_the_last_plans_inventory_repeats_what_that_was_made_with(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], recalled: str
) -> None:
    made = make_plan(facts_source="probe", limit="a", config="c.yml", options=MADE_WITH)
    monkeypatch.setattr("fleetbuild.read_plan", lambda _: made)
    given = {"inventory": made.inventory, "state_dir": Path(".fleetbuild"), **own}
    assert Hints(ROOT, given).completed("fleetbuild plan INVENTORY") == (
        f"fleetbuild plan {given['inventory']}{recalled}"
    )
