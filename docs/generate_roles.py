"""Writes the argument specs of roles and modules, which follow from the specs in fleetbuild.models.

In: the specs. Out: blocks of files, each between two comments. `make docs` runs it through
docs/generate.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml

from fleetbuild.models._base import Frozen
from fleetbuild.models.build_parameters import BuildSpec
from fleetbuild.models.role_parameters import ReleaseOptions, VerifySpec, parameters

ROOT = Path(__file__).parents[1]
Options = dict[str, dict[str, Any]]
_SPECS: dict[tuple[str, str], type[Frozen]] = {  # of a role, and of its module
    ("build_wheel", "build"): BuildSpec,
    ("install_wheel", "release"): ReleaseOptions,
    ("verify_wheel", "verify"): VerifySpec,
}


class Block(NamedTuple):
    """Lines of a file that stand between two comments which hold the label."""

    file: str
    label: str
    lines: Callable[[], str]


def blocks() -> Iterator[Block]:
    """All of them."""
    for (role, module), spec in _SPECS.items():
        file = f"plugins/modules/{module}.py"
        yield Block(file, "documentation", lambda s=spec: _documentation(s))
        yield Block(file, "arguments", lambda s=spec: _arguments(s))
        specs = f"roles/{role}/meta/argument_specs.yml"
        yield Block(specs, "spec", lambda s=spec: _yaml(_options(s)))
    yield Block("docs/roles.md", "roles", _roles)


def stale(*, write: bool) -> list[str]:
    """The blocks that are not current, as `file: label`; with `write` they are made so."""
    found = []
    for block in blocks():
        file = ROOT / block.file
        text = file.read_text("utf-8")
        wanted = _with(text, block)
        if wanted != text:
            found.append(f"{block.file}: {block.label}")
            if write:
                file.write_text(wanted, "utf-8")
    return found


def _with(text: str, block: Block) -> str:
    mark = rf"(?:#|<!--) {{}} {block.label}(?: -->|, by make docs)?$"
    pattern = (
        r"(?ms)^(?P<indent> *)(?P<begin>"
        + mark.format("generated:")
        + r"\n).*?^(?P<end> *"
        + mark.format("end of")
        + ")"
    )
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"{block.file} has no comment `generated: {block.label}`.")
    lines = textwrap.indent(block.lines().rstrip("\n") + "\n", found["indent"])
    made = found["indent"] + found["begin"] + lines + found["end"]
    return text[: found.start()] + made + text[found.end() :]


# A spec, as Ansible knows it.


def _options(spec: type[Frozen]) -> Options:
    found: Options = {}
    for name, parameter in parameters(spec).items():
        field = spec.model_fields[name]
        option: dict[str, Any] = {"description": parameter.meaning, **_type(field.annotation)}
        if parameter.path:
            option["type"] = "path"
        if not field.is_required():
            option["default"] = _plain(field.default)
        elif not parameter.computed:
            option["required"] = True
        found[name] = option
    return found


def _type(kind: Any) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin is Literal:
        return {"type": "str", "choices": list(get_args(kind))}
    if origin is not tuple:
        return {"type": "dict" if origin is dict else kind.__name__}
    element = get_args(kind)[0]
    if not issubclass(element, Frozen):
        return {"type": "list", "elements": element.__name__}
    # A part that need not be there has no default: the module asks whether it is there.
    parts = {name: {key: value for key, value in part.items() if key != "default"}
             for name, part in _options(element).items()}  # fmt: skip
    return {"type": "list", "elements": "dict", "options": parts}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _documentation(spec: type[Frozen]) -> str:
    # A module's backslashes and quotes are safe here: the docstring is a raw one.
    text = _yaml(_options(spec), width=80)
    return re.sub(r"(?m)^( +)options:$", r"\1suboptions:", text)


def _bare(name: str, option: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: value for key, value in option.items() if key != "description"}
    if name.endswith("key"):
        about["no_log"] = False  # Ansible would take it for a secret
    if "options" in about:
        about["options"] = {part: _bare(part, each) for part, each in about["options"].items()}
    return about


def _arguments(spec: type[Frozen]) -> str:
    text = repr({name: _bare(name, option) for name, option in _options(spec).items()})
    ruff = [
        str(Path(sys.executable).with_name("ruff")),
        "format",
        "--stdin-filename",
        "plugins/x.py",
        "-",
    ]
    made = subprocess.run(
        ruff, input=f"SPEC = {text}\n", capture_output=True, text=True, check=True, cwd=ROOT
    )
    return made.stdout


def _roles() -> str:
    rows = ["| role | what it does |", "|---|---|"]
    for file in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role = file.parents[1].name
        main = yaml.safe_load(file.read_text("utf-8"))["argument_specs"]["main"]
        rows.append(f"| [{role}](../roles/{role}/README.md) | {main['short_description']} |")
    return "\n".join(rows)


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _yaml(value: Mapping[str, Any], width: int = 120) -> str:
    return yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)
