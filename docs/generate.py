"""Writes docs/reference/, and what follows from the roles' parameters, from the code:
`python docs/generate.py`, or `--check` to compare."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from generate_roles import stale as stale_blocks
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fleetbuild import errors
from fleetbuild.cli import app
from fleetbuild.models import Config

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code. Run `make docs` after a change. -->\n"


def config_page() -> str:
    """Every key of fleetbuild.yml."""
    lines = [
        NOTE,
        "# fleetbuild.yml\n",
        "Found beside the inventory, or named with `--config`. Every key is optional; an unknown",
        "one is refused with the nearest right one. `fleetbuild init` writes one to start from.\n",
        "| key | values | default | meaning |",
        "|---|---|---|---|",
        *_keys(Config, ""),
    ]
    return "\n".join(lines) + "\n"


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
            continue
        cells = (
            f"`{prefix}{name}`",
            _values(field),
            f"`{_default(field)}`",
            field.description or "",
        )
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _values(field: FieldInfo) -> str:
    text = getattr(field.annotation, "__name__", "") if isinstance(field.annotation, type) else ""
    text = text or str(field.annotation).replace("typing.", "")
    if text.startswith("Literal"):
        return ", ".join(f"`{value}`" for value in re.findall(r"'([^']*)'", text))
    words = {
        "tuple[str, ...]": "list of strings",
        "str": "string",
        "int": "number",
        "None": "`null`",
    }
    return " or ".join(words.get(word, word) for word in text.split(" | "))


def _default(field: FieldInfo) -> str:
    value = field.default
    return "null" if value is None else "[]" if value == () else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# No exceptions: they are in a Result, and stop nothing else.
_OF_RESULTS = {
    3: "A node did not answer or refused the login.",
    5: "A wheel failed to build.",
    6: "A release failed to install on a node.",
    7: "A wheel is not what its target promises, or failed its checks on a node.",
}


def exit_codes_page() -> str:
    """Every exit code, from the error classes."""
    meanings: dict[int, list[str]] = {0: ["Done."]}
    for error in _error_classes():
        meanings.setdefault(error.exit_code, []).append((error.__doc__ or "").strip())
    for code, meaning in _OF_RESULTS.items():
        meanings.setdefault(code, []).append(meaning)
    meanings[1] = ["A fault in fleetbuild itself; the traceback is in the state directory."]
    meanings[10] = [
        "There is something to do and nothing worse to report (`plan --detailed-exitcode`)."
    ]
    order = ", ".join(str(code) for code in errors.EXIT_PRECEDENCE if code)
    rows = [f"| {code} | {_cell(' '.join(said))} |" for code, said in sorted(meanings.items())]
    return (
        "\n".join(
            [
                NOTE,
                "# Exit codes\n",
                "The same for all commands. If several apply, the one that stopped the most",
                f"comes first: {order}.\n",
                "| code | meaning |",
                "|---|---|",
                *rows,
            ]
        )
        + "\n"
    )


def _error_classes() -> list[type[errors.FleetbuildError]]:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    kinds = [kind for kind in classes if issubclass(kind, errors.FleetbuildError)]
    return [kind for kind in kinds if kind is not errors.FleetbuildError]


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = [NOTE, "# Commands\n"]
    root = typer.main.get_command(app)
    for name, command in _commands(root, "fleetbuild"):
        lines += [f"## {name}\n", (command.help or "").strip() + "\n", *_params(command), ""]
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield name, command
    for key, child in children.items():
        yield from _commands(child, f"{name} {key}")


def _params(command: Any) -> list[str]:
    rows = ["| argument or option | meaning |", "|---|---|"]
    for param in command.params:
        names = ", ".join(f"`{name}`" for name in param.opts) if _is_option(param) else ""
        metavar = param.metavar or ("" if names else param.name.upper())
        label = f"{names} {metavar}".strip() if names else f"`{metavar}`"
        rows.append(f"| {_cell(label)} | {_cell(_meaning(param))} |")
    return rows


def _is_option(param: Any) -> bool:
    return bool(param.opts[0].startswith("-"))


def _meaning(param: Any) -> str:
    text = param.help or ""
    default = param.default
    shown = default not in (None, False, ()) and not callable(default)
    return f"{text} Default: `{default}`." if shown and _is_option(param) else text


PAGES = {"config.md": config_page, "exit-codes.md": exit_codes_page, "cli.md": cli_page}


def main() -> int:
    """Write all that is generated, or with --check name what is not current."""
    stale = [
        name
        for name, page in PAGES.items()
        if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != page()
    ]
    check = "--check" in sys.argv
    blocks = stale_blocks(write=not check)
    if not check:
        REFERENCE.mkdir(exist_ok=True)
        for name in stale:
            (REFERENCE / name).write_text(PAGES[name]())
        return 0
    for name in (*stale, *blocks):
        sys.stderr.write(f"{name} is not current. Run: make docs\n")
    return len([*stale, *blocks])


if __name__ == "__main__":
    sys.exit(main())
