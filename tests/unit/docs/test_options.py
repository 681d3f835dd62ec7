"""Each option of fleetbuild that a page, a message or a fix names is an option of the command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fleetbuild.cli import app

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")]
# An option behind the name of one of these programs belongs to it.
PROGRAMS = (
    r"ansible(?:-\w+)?|apk|apt-get|benchmarks\.probe|build\.sh|curl|docker|git|kubeadm|kubectl|kubelet|make|mypy"
    r"|dnf|zypper|nvidia-smi|pip|podman|pytest|python3?|sbatch|squeue|twine|uv"
)
# Options of other programs that stand alone where they are explained.
STANDS_ALONE = {
    "ansible-playbook": {"--check"},
    "build.sh": {"--push"},
    "kubelet": {"--node-labels"},
    "nix-build": {"--arg"},
    "pip": {"--extra-index-url", "--hash", "--index", "--require-hashes"},
    "podman": {"--cap-drop", "--entrypoint", "--network", "--read-only", "--rm"},
    "pytest": {"--long", "--record"},
    "uv": {"--no-config"},
}
NAMED = re.compile(
    r"(?P<option>(?<![\w-])--[a-z][a-z-]+)"
    r"|\bfleetbuild (?P<command>[a-z]+(?: [a-z0-9]+)?)"
    rf"|(?<![\w.])(?P<other>{PROGRAMS})(?= )"
    r"|(?P<end>[;|&])"
)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def options_by_command() -> dict[str, set[str]]:
    """Return the options of each command; the options of all commands are under ""."""
    found: dict[str, set[str]] = {"": {"--version", "--help"}}

    def collect(command: Any, name: str) -> None:
        names = {
            word
            for parameter in command.params
            for word in (*parameter.opts, *parameter.secondary_opts)
        }
        found[name] = names | {"--help"}
        found[""] |= names
        if hasattr(command, "list_commands"):
            context = typer.Context(command)  # extensions add commands when they are asked for
            for below in command.list_commands(context):
                collect(command.get_command(context, below), f"{name} {below}".strip())

    root: Any = typer.main.get_command(app)
    found[""] |= {word for parameter in root.params for word in parameter.opts}
    for name, command in root.commands.items():
        collect(command, name)
    return found


OPTIONS = options_by_command()


def unknown_options(text: str) -> list[str]:
    """Return the options in a text that belong to no command, or not to the command before them."""
    unknown, command = [], ""
    alone = set().union(*STANDS_ALONE.values())
    for found in NAMED.finditer(text):
        if found["option"] is None:
            words = (found["command"] or "").split()
            known = [
                " ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in OPTIONS
            ]
            command = "other" if found["other"] else known[0] if known else ""
        elif command == "" and found["option"] in alone:
            continue
        elif command != "other" and found["option"] not in OPTIONS[command]:
            unknown.append(f"{command} {found['option']}".strip())
    return unknown


def commands_in_page(text: str) -> Iterator[str]:
    """Yield each line of a code block and each piece of inline code."""
    for code in CODE.findall(text):
        yield from re.sub(r"\\\n", " ", code).splitlines()


def sentences_in_code(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of several words, {} for their values.

    Of the texts of files only the lines that name fleetbuild: the others are for other programs.
    """
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= set(map(id, node.values))
            text = "".join(
                str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            text = node.value
        else:
            continue
        if " " in text.strip():
            lines = text.splitlines()
            yield from (line for line in lines if len(lines) == 1 or "fleetbuild " in line)


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_option_on_a_page_exists(page: Path) -> None:
    lines = commands_in_page(page.read_text(encoding="utf-8"))
    assert [(line, unknown) for line in lines if (unknown := unknown_options(line))] == []


def test_each_option_in_a_message_or_a_fix_exists() -> None:
    wrong = [
        (str(path.relative_to(ROOT)), line, unknown)
        for folder in ("fleetbuild", "plugins")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in sentences_in_code(ast.parse(path.read_text(encoding="utf-8")))
        if (unknown := unknown_options(line))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("Plan without --captures.", ["--captures"]),
        ("fleetbuild plan fleet.yml --facts DIR --captures DIR", ["plan --captures"]),
        ("fleetbuild plan fleet.yml --keep-going", ["plan --keep-going"]),
        ("run kubectl drain a --force, then fleetbuild status --offline", []),
        ("pip install --no-deps x; plan with --no-deps", ["--no-deps"]),
    ],
)
def test_an_option_that_the_command_lacks_is_found(text: str, unknown: list[str]) -> None:
    assert unknown_options(text) == unknown
