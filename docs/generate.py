"""Generate from the code: docs/reference/, the JSON Schemas of the package, and the parameters of
roles and modules.

`python docs/generate.py` writes, `python docs/generate.py --check` names the files that differ.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import evidence
import typer
from generate_roles import stale as stale_blocks
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fleetbuild import errors
from fleetbuild.cli import app
from fleetbuild.config import config_model
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Plan
from fleetbuild.recipes import Recipe

ROOT = Path(__file__).parents[1]
NOTE = "<!-- Written by docs/generate.py from the code. Run `make docs` after a change. -->\n"


def config_page() -> str:
    """Every key of fleetbuild.yml."""
    lines = [
        NOTE,
        "# fleetbuild.yml\n",
        "fleetbuild reads it beside the inventory, or at the path of `--config`. Every key is",
        "optional.",
        "For an unknown key, the error names the nearest valid key. `fleetbuild init` writes an",
        "example to start from.\n",
        "| key | values | default | meaning |",
        "|---|---|---|---|",
        *_keys(config_model(), ""),
    ]
    return "\n".join(lines) + "\n"


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        sections = [
            each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)
        ]
        if field.annotation in sections:
            yield from _keys(field.annotation, f"{prefix}{name}.")
            continue
        cells = (
            f"`{prefix}{name}`",
            _values(field),
            f"`{_default(field)}`",
            field.description or "",
        )
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"
        for section in sections:
            yield from _keys(section, f"{prefix}{name}.")


def _values(field: FieldInfo) -> str:
    text = getattr(field.annotation, "__name__", "") if isinstance(field.annotation, type) else ""
    text = text or str(field.annotation).replace("typing.", "")
    if text.startswith("Literal"):
        return ", ".join(f"`{value}`" for value in re.findall(r"'([^']*)'", text))
    words = {
        "fleetbuild.models.config.Hook": "keys",
        "tuple[int or str, ...]": "a list of them",
        "tuple[str, ...]": "list of strings",
        "str": "string",
        "int": "number",
        "None": "`null`",
    }
    text = text.replace("tuple[int | str, ...]", "tuple[int or str, ...]")
    return " or ".join(words.get(word, word) for word in text.split(" | "))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    return "null" if value is None else "[]" if value == () else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# These are not exceptions: they are in a Result and do not stop the rest of the run.
_OF_RESULTS = {
    3: "A node did not answer or refused the login.",
    5: "A wheel failed to build.",
    6: "A release failed to install on a node.",
    7: "A wheel does not fit its target, or failed its checks on a node.",
}


def exit_codes_page() -> str:
    """Every exit code, from the error classes."""
    meanings: dict[int, list[str]] = {0: ["Done."]}
    for error in _error_classes():
        meanings.setdefault(error.exit_code, []).append((error.__doc__ or "").strip())
    for code, meaning in _OF_RESULTS.items():
        meanings.setdefault(code, []).append(meaning)
    meanings[1] = [
        "A fault in fleetbuild itself; the traceback is in the state directory.",
        "A disk of this machine is full.",
    ]
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
                "The same for all commands. If several apply, the most serious one counts, in this",
                f"order: {order}.\n",
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


# From so many commands on, an option with one meaning stands in the table of common options.
_COMMON = 4


def cli_page() -> str:
    """Every command with its arguments and options; options of many commands once, at the top."""
    commands = list(_commands(typer.main.get_command(app), "fleetbuild"))
    counts = Counter(row for _, command in commands for row in _params(command))
    common = [row for row, count in counts.items() if count >= _COMMON and row.startswith("| `--")]
    lines = [NOTE, "# Commands\n", "## Common options\n", *_HEAD, *common, ""]
    for name, command in commands:
        own = [row for row in _params(command) if row not in common]
        also = [row.split(" | ")[0].strip("| ") for row in _params(command) if row in common]
        lines += [f"## {name}\n", (command.help or "").strip() + "\n"]
        lines += [*_HEAD, *own, ""] if own else []
        lines += [f"Common options: {', '.join(also)}.\n"] if also else []
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = typer.Context(command)  # extensions add commands when they are asked for
    for key in command.list_commands(context):
        yield from _commands(command.get_command(context, key), f"{name} {key}")


_HEAD = ("| argument or option | meaning |", "|---|---|")


def _params(command: Any) -> list[str]:
    rows = []
    for param in command.params:
        metavar = param.metavar or ""
        names = ", ".join(f"`{name}`" for name in param.opts)
        # Click shows an argument without a metavar in capitals, in brackets if it may be left out.
        argument = metavar or (param.name.upper() if param.required else f"[{param.name.upper()}]")
        label = f"{names} {metavar}".strip() if _is_option(param) else f"`{argument}`"
        rows.append(f"| {_cell(label)} | {_cell(_meaning(param))} |")
    return rows


def _is_option(param: Any) -> bool:
    return bool(param.opts[0].startswith("-"))


def _meaning(param: Any) -> str:
    text = param.help or ""
    default = param.default
    shown = default not in (None, False, ()) and not callable(default)
    return f"{text} Default: `{default}`." if shown and _is_option(param) else text


def config_schema() -> str:
    """The JSON Schema of fleetbuild.yml."""
    return _schema(
        config_model().model_json_schema(), "fleetbuild.yml: the configuration of a fleet"
    )


def recipe_schema() -> str:
    """The JSON Schema of a recipe file."""
    schema = Recipe.model_json_schema()
    # A recipe that extends another takes missing values from it.
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["extends"]}]
    properties = schema["properties"]
    for rungs in (properties["rungs"], properties["rungs_for"]["additionalProperties"]):
        rungs["items"]["enum"] = list(RUNGS)
    # The text of a patch comes from the file beside the recipe, not from the recipe.
    del schema["$defs"]["Patch"]["properties"]["text"]
    return _schema(schema, "A recipe: how a package is built for a target")


def plan_schema() -> str:
    """The JSON Schema of a saved plan, which is also what `plan --json` prints."""
    schema = Plan.model_json_schema(mode="serialization")
    return _schema(schema, "A plan: the wheels to build, install and remove, by node and group")


def _schema(schema: dict[str, Any], title: str) -> str:
    first = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**first, **_untitled(schema)}, indent=2, ensure_ascii=False) + "\n"


def _untitled(part: Any) -> Any:
    """The schema without pydantic's titles, which repeat the names of the keys."""
    if isinstance(part, list):
        return [_untitled(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _untitled(value)
        for key, value in part.items()
        if key != "title" or not isinstance(value, str)
    }


_ROOMS = (
    "", "cli", "emit", "apply", "plan", "store", "probe", "ansible",
    "audit", "recipes", "toolchains", "hardware", "models", "extensions",
)  # fmt: skip


def modules_page() -> str:
    """Every room and every module of the package, by the first paragraph of its docstring."""
    package = ROOT / "fleetbuild"
    lines = [NOTE, "# Every module, by room", ""]
    for room in _ROOMS:
        folders = sorted({path.parent for path in (package / room).rglob("*.py")})
        for folder in folders if room else [package]:
            name = folder.relative_to(ROOT).as_posix()
            paths = sorted(folder.glob("*.py"), key=lambda path: path.name)
            summary, details = _docstring(folder / "__init__.py")
            lines += [f"{'##' if folder == package / room else '###'} {name}/", "", summary, ""]
            lines += [details, ""] if details and room else []
            modules = [path for path in paths if path.name not in ("__init__.py", "__main__.py")]
            if modules:
                rows = (f"| `{path.name}` | {_cell(_docstring(path)[0])} |" for path in modules)
                lines += ["| module | what it does |", "|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _docstring(path: Path) -> tuple[str, str]:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) if path.exists() else None
    summary, _, details = (text or "").partition("\n\n")
    return " ".join(summary.split()), details.partition("\n\n")[0]


WRITTEN = {
    "docs/reference/modules.md": modules_page,
    "docs/reference/config.md": config_page,
    "docs/reference/exit-codes.md": exit_codes_page,
    "docs/reference/cli.md": cli_page,
    "docs/benchmarks.md": evidence.figures_page,
    "docs/verified.md": evidence.verified_page,
    "docs/evidence/README.md": evidence.evidence_page,
    "fleetbuild/models/schemas/config.schema.json": config_schema,
    "fleetbuild/models/schemas/recipe.schema.json": recipe_schema,
    "fleetbuild/models/schemas/plan.schema.json": plan_schema,
}


def main() -> int:
    """Write the files, or with --check print the outdated ones and exit with 1."""
    texts = {ROOT / name: text() for name, text in WRITTEN.items()}
    texts |= {ROOT / name: text for name, text in evidence.charts().items()}
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    check = "--check" in sys.argv
    blocks = stale_blocks(write=not check)
    if check:
        names = [*(str(path.relative_to(ROOT)) for path in stale), *blocks]
        sys.stdout.writelines(f"{name}\n" for name in names)
        return int(bool(names))
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
