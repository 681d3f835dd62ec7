"""Write build.ps1 for each group of Windows nodes: the group's values, then data/build.ps1.

In: a plan. Out: file names and texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from fleetbuild.models import Plan, WindowsGroup, WindowsWheel
from fleetbuild.text import fold

_HEAD = """\
# Written by fleetbuild emit windows for the group {name}.
# Builds the wheels of {packages} for this group's CPU, GPUs and Python with MSVC, and
# checks them in a new virtual environment. Run it on a node of the group ({nodes}), in PowerShell:
#   powershell -ExecutionPolicy Bypass -File build.ps1
# The wheels are then in the folder dist beside this script. Build requirements and dependencies
# come from the package index without a lock.
param(
    [string]$Python = '', # the interpreter to build with; default: the one that the probe found
    [string]$Workspace = '', # the folder for sources and builds; it needs {disk:g} GB
    [int]$Jobs = 0 # compilers at once, each with up to {memory:g} GB; 0: the build decides
)
"""


def windows_files(plan: Plan) -> dict[str, str]:
    """Return the build script of each group with Windows nodes, and the files that it reads."""
    made: dict[str, str] = {}
    for group in plan.windows:
        if not _problem(group):
            made |= {f"{group.name}/{name}": text for name, text in _group_files(plan, group)}
    return made


def windows_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each group without a script, and for each thing that a node lacks."""
    if not plan.windows:
        return ("The plan has no group of Windows nodes, so no script is written.",)
    without = (
        f"{group.name} gets no script: {problem}"
        for group in plan.windows
        if (problem := _problem(group))
    )
    lacking = (
        f"{group.name}: {sentence}"
        for group in plan.windows
        if not _problem(group)
        for sentence in group.to_supply
    )
    return (*without, *lacking)


def _problem(group: WindowsGroup) -> str | None:
    return next((wheel.problem for wheel in group.wheels if wheel.problem), None)


def _group_files(plan: Plan, group: WindowsGroup) -> list[tuple[str, str]]:
    made = [("build.ps1", _script(plan, group))]
    for wheel in group.wheels:
        made += [
            *((f"{wheel.package}/patches/{name}", text) for name, text in wheel.patches.items()),
            *((f"{wheel.package}/files/{name}", f"{text}\n") for name, text in wheel.files.items()),
            *(
                (f"{wheel.package}/checks/{name}", f"{text}\n")
                for name, text in _checks(wheel).items()
            ),
        ]
    return made


def _checks(wheel: WindowsWheel) -> dict[str, str]:
    return {f"{number}.py": text for number, text in enumerate(wheel.checks, start=1)}


def _script(plan: Plan, group: WindowsGroup) -> str:
    packages = " and ".join(f"{wheel.package} {wheel.version}" for wheel in group.wheels)
    head = _HEAD.format(
        name=group.name,
        packages=packages,
        nodes=fold(group.nodes),
        disk=sum(wheel.disk_gb for wheel in group.wheels),
        memory=max(wheel.job_memory_gb for wheel in group.wheels),
    )
    pythons = {node.python for name in group.nodes if (node := plan.nodes.get(name))}
    values = {
        "Name": group.name,
        "PythonVersion": group.python,
        "Interpreters": tuple(sorted(filter(None, pythons))),
        "ToolsetBelow": group.toolset_below or "",
        "ToSupply": group.to_supply,
    }
    body = files("fleetbuild.windows").joinpath("data/build.ps1").read_text("utf-8")
    wheels = ",\n".join(_literal(_wheel_values(wheel)) for wheel in group.wheels)
    return f"{head}\n$Group = {_literal(values)}\n\n$Wheels = @(\n{wheels}\n)\n{body}"


def _wheel_values(wheel: WindowsWheel) -> dict[str, object]:
    return {
        "Package": wheel.package,
        "WheelVersion": wheel.wheel_version,
        "Git": wheel.source.git or "",
        "Ref": wheel.source.ref or "",
        "Submodules": wheel.source.submodules,
        "Requirement": wheel.source.requirement or "",
        "Cuda": wheel.cuda or "",
        "BuildRequirements": wheel.build_requirements,
        "Environment": wheel.environment,
        "Settings": wheel.config_settings,
        "Patches": tuple(wheel.patches),
        "Bundled": wheel.bundled,
        "Imports": wheel.import_names,
        "Checks": tuple(_checks(wheel)),
    }


def _literal(value: object, indent: str = "") -> str:
    """Return a value as PowerShell writes it. Single quotes: nothing in a text is expanded."""
    if isinstance(value, bool):
        return "$true" if value else "$false"
    if isinstance(value, Mapping):
        deeper = indent + "    "
        rows = (
            f"{deeper}{_text(str(key))} = {_literal(each, deeper)}\n" for key, each in value.items()
        )
        return f"[ordered]@{{\n{''.join(rows)}{indent}}}" if value else "[ordered]@{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"@({', '.join(_literal(each, indent) for each in value)})"
    return _text(str(value))


def _text(text: str) -> str:
    """Return a text in single quotes. PowerShell takes typographic quotes for plain ones, too."""
    for quote in "'\u2018\u2019\u201a\u201b":
        text = text.replace(quote, quote * 2)
    return "'" + " ".join(text.split("\n")) + "'"
