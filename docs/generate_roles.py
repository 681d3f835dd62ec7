"""Writes what follows from the parameters of roles and builds (fleetbuild.models).

In: the specs. Out: blocks of the roles, modules, playbooks and pages, each between two comments.
`make docs` runs it through docs/generate.py.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml

from fleetbuild.models._base import Frozen
from fleetbuild.models.build_parameters import BuildRole, BuildSpec
from fleetbuild.models.role_parameters import (
    ChangedRelease,
    InstallRole,
    InstallSpec,
    Parameter,
    RemoveSpec,
    RollbackSpec,
    VerifySpec,
    parameters,
)

ROOT = Path(__file__).parents[1]
Options = dict[str, dict[str, Any]]
_LONGEST = 88  # of a line in a module, whose lines are indented by 12
_ROLES = {"build_wheel": BuildRole, "install_wheel": InstallRole, "verify_wheel": VerifySpec}
_MODULES = {"build": BuildSpec, "release": InstallRole, "verify": VerifySpec}
_ENTRIES: dict[str, type[Frozen]] = {
    "builds": BuildSpec,
    "installs": InstallSpec,
    "verifies": VerifySpec,
    "rollbacks": RollbackSpec,
}


class Block(NamedTuple):
    """Lines of a file that stand between two comments which hold the label."""

    file: str
    label: str
    lines: Callable[[], str]


def blocks() -> Iterator[Block]:
    """All of them, in an order in which each may read what those before it have written."""
    for role, spec in _ROLES.items():
        yield Block(f"roles/{role}/defaults/main.yml", "defaults", lambda r=role: _defaults(r))
        specs = f"roles/{role}/meta/argument_specs.yml"
        yield Block(specs, "main", lambda s=spec: _yaml(_options(s)))
    signed = {"statement", "signature"}
    keep = {"path", "release", "release_id", "keep", "in_use", "controller", *signed}
    back = {"path", "release", "revoked", "controller"}
    for entry, names in (("activate", keep), ("rollback", back)):
        part = {name: each for name, each in _options(InstallRole).items() if name in names}
        specs = "roles/install_wheel/meta/argument_specs.yml"
        yield Block(specs, entry, lambda p=part: _yaml(_prefixed("install_wheel", p)))
    for module, spec in _MODULES.items():
        file = f"plugins/modules/{module}.py"
        yield Block(file, "documentation", lambda s=spec: _documentation(s))
        yield Block(file, "arguments", lambda s=spec: _arguments(s))
    yield Block("roles/build_wheel/tasks/build.yml", "arguments", _task)
    yield Block("playbooks/build.yml", "build", lambda: _passed("build_wheel", BuildSpec, "build"))
    for playbook, prefix, spec, value in (
        ("install", "install_wheel", InstallSpec, "fleetbuild_install"),
        ("verify", "verify_wheel", VerifySpec, "fleetbuild_verify"),
        ("rollback", "install_wheel", RollbackSpec, "fleetbuild_rollback"),
        ("clean_up", "install_wheel", ChangedRelease, "fleetbuild_clean_up"),
        ("remove", "install_wheel", RemoveSpec, "fleetbuild_removal"),
    ):
        lines = lambda p=prefix, s=spec, v=value: _passed(p, s, v)  # noqa: E731
        yield Block(f"playbooks/{playbook}.yml", prefix, lines)
    for role in sorted(path.parent.name for path in ROOT.glob("roles/*/README.md")):
        yield Block(f"roles/{role}/README.md", "variables", lambda r=role: _variables(r))
    for entry, spec in _ENTRIES.items():
        yield Block("playbooks/README.md", entry, lambda s=spec: _entry(s))
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


# The values of a spec, as Ansible knows them.


def _options(spec: type[Frozen], *, module: bool = False) -> Options:
    """A spec's parameters in the form of an argument spec, the role's or the module's."""
    found: Options = {}
    for name, parameter in parameters(spec, module=module).items():
        if parameter.role:
            found[name] = _option(spec, name, parameter, module=module)
    return found if module else _prefixed(_role_of(spec), found)


def _prefixed(role: str, options: Options) -> Options:
    return {
        name if name.startswith(role) else f"{role}_{name}": each for name, each in options.items()
    }


def _role_of(spec: type[Frozen]) -> str:
    return next((role for role, known in _ROLES.items() if issubclass(known, spec)), "")


def _option(spec: type[Frozen], name: str, parameter: Parameter, *, module: bool) -> dict[str, Any]:
    field = spec.model_fields[name]
    option: dict[str, Any] = {"description": parameter.meaning, **_type(field.annotation, module)}
    if module and option.get("elements") == "dict":
        element = get_args(field.annotation)[0]
        # The module finds a file by its name, in the folder that the role copied it to.
        keys = {"file" if key == "path" else key: None for key in _needed(element)}
        option["description"] += f" Each has {' and '.join(f'C({key})' for key in keys)}"
        more = [key for key in parameters(element) if key not in _needed(element)]
        option["description"] += "".join(f", and may have C({key})" for key in more) + "."
    if module and parameter.path:
        option["type"] = "path"
    if field.is_required():
        if not module and parameter.computed is None:
            option["required"] = True
    else:
        option["default"] = _plain(field.default)
    if module and parameter.module_default is not None:
        option["default"] = parameter.module_default
    return option


def _type(kind: Any, module: bool) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin is Literal:
        return {"type": "str", "choices": list(get_args(kind))}
    if origin is tuple:
        element = get_args(kind)[0]
        if not issubclass(element, Frozen):
            return {"type": "list", "elements": element.__name__}
        return {
            "type": "list",
            "elements": "dict",
            **({} if module else {"options": _parts(element)}),
        }
    return {"type": "dict" if origin is dict else kind.__name__}


def _parts(element: type[Frozen]) -> Options:
    """The parts of each entry of a list. One that need not be there has no default, either."""
    return {
        name: {
            "description": part.meaning,
            **_type(element.model_fields[name].annotation, module=False),
            **({"required": True} if name in _needed(element) else {}),
        }
        for name, part in parameters(element).items()
    }


def _needed(element: type[Frozen]) -> list[str]:
    return [name for name, field in element.model_fields.items() if field.is_required()]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# The roles.


def _defaults(role: str) -> str:
    spec, lines = _ROLES[role], []
    for name, parameter in parameters(spec).items():
        if not parameter.role:
            continue
        field, variable = spec.model_fields[name], f"{role}_{name}"
        lines += textwrap.wrap(_words(parameter.meaning, ""), 110, break_on_hyphens=False,
                               initial_indent="# ", subsequent_indent="# ")  # fmt: skip
        if not field.is_required():
            lines.append(f"{variable}: {_scalar(_plain(field.default))}")
        elif parameter.computed is None:
            lines.append(f"# {variable}: (required)")
        elif isinstance(parameter.computed, str):
            lines += _expression(variable, parameter.computed.replace("KEY", _identity(spec)))
        else:
            lines.append(_yaml({variable: parameter.computed}).rstrip())
    return "\n".join(lines)


def _identity(spec: type[Frozen]) -> str:
    known = parameters(spec).items()
    named = (f"build_wheel_{name}{each.identifies}" for name, each in known
             if each.identifies is not None)  # fmt: skip
    return f"[{', '.join(named)}]"


def _expression(variable: str, text: str) -> list[str]:
    if len(text) < 100:
        return [f'{variable}: "{text}"']
    lines = textwrap.wrap(text, 110, break_on_hyphens=False)
    return [f"{variable}: >-", *(f"  {line}" for line in lines)]


def _task() -> str:
    return "\n".join(
        f'{name}: "{{{{ {each.passed or f"build_wheel_{name}"} }}}}"'
        for name, each in parameters(BuildSpec, module=True).items()
    )


# The modules.


def _documentation(spec: type[Frozen]) -> str:
    # A module's backslashes and quotes are safe here: the docstring is a raw one.
    return _yaml(_options(spec, module=True), width=60)


def _arguments(spec: type[Frozen]) -> str:
    lines = []
    for name, option in _options(spec, module=True).items():
        about = {key: value for key, value in option.items() if key != "description"}
        line = f"{json.dumps(name)}: {_python(about)},"
        if len(line) > _LONGEST:  # as ruff writes it
            parts = (f"    {json.dumps(key)}: {_python(value)},\n" for key, value in about.items())
            line = f"{json.dumps(name)}: {{\n{''.join(parts)}}},"
        lines.append(line)
    return "\n".join(lines)


def _python(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {_python(each)}' for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    return str(value) if isinstance(value, bool) else json.dumps(value)


# The playbooks.


def _passed(role: str, spec: type[Frozen], value: str) -> str:
    lines = []
    known = parameters(_ROLES[role])
    for name, field in spec.model_fields.items():
        if name not in known or not known[name].role:
            continue
        default = "" if field.is_required() else f" | default({_jinja(_plain(field.default))})"
        lines.append(f'{role}_{name}: "{{{{ {value}.{name}{default} }}}}"')
    return "\n".join(lines)


def _jinja(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


# The pages.


def _variables(role: str) -> str:
    file = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    options = yaml.safe_load(file.read_text("utf-8"))["argument_specs"]["main"]["options"]
    return _table(options, "variable", "see defaults")


def _entry(spec: type[Frozen]) -> str:
    options = {name: _option(spec, name, each, module=False) | {"required": True}
               if spec.model_fields[name].is_required() else _option(spec, name, each, module=False)
               for name, each in parameters(spec).items()}  # fmt: skip
    return _table(options, "key", "")


def _table(options: Options, first: str, otherwise: str) -> str:
    rows = [f"| {first} | type | default | meaning |", "|---|---|---|---|"]
    for name, option in options.items():
        default = f"`{_scalar(option['default'])}`" if "default" in option else otherwise
        if option.get("required"):
            default = "required"
        meaning = _words(option["description"], "`")
        if "choices" in option:
            meaning += f" One of {', '.join(option['choices'])}."
        if "options" in option:
            meaning += f" Each: {', '.join(f'`{part}`' for part in option['options'])}."
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        rows.append(f"| `{name}` | {kind} | {default} | {meaning} |")
    return "\n".join(rows)


def _roles() -> str:
    rows = ["| role | what it does |", "|---|---|"]
    for file in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role = file.parents[1].name
        main = yaml.safe_load(file.read_text("utf-8"))["argument_specs"]["main"]
        rows.append(f"| [{role}](../roles/{role}/README.md) | {main['short_description']} |")
    return "\n".join(rows)


def _words(text: str | list[str], quote: str) -> str:
    text = text if isinstance(text, str) else " ".join(text)
    return re.sub(r"\bC\(([^)]*)\)", rf"{quote}\1{quote}", text)


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _yaml(value: Mapping[str, Any], width: int = 120) -> str:
    return yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)


def _scalar(value: Any) -> str:
    return json.dumps(value) if value == "" or not isinstance(value, str) else value
