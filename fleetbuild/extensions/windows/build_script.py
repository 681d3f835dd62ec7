"""Write build.ps1 for each group of Windows nodes: the group's values, then data/build.ps1.

In: the groups. Out: file names and texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from fleetbuild.extensions.windows.planning import WindowsGroup, WindowsWheel
from fleetbuild.recipes import (
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_requirements,
    render_settings,
    render_source,
)
from fleetbuild.text import fold

_HEAD = """\
# Written by `fleetbuild emit windows INVENTORY` for the group {name}.
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


def windows_files(groups: Sequence[WindowsGroup]) -> dict[str, str]:
    """Return the build script of each group without a problem, and the files that it reads."""
    return {
        f"{group.name}/{name}": text
        for group in groups
        if not group.problem
        for name, text in _group_files(group)
    }


def _group_files(group: WindowsGroup) -> Iterator[tuple[str, str]]:
    yield "build.ps1", _script(group)
    for wheel in group.wheels:
        folder = wheel.package.name
        for patch in patches_for(wheel.recipe, wheel.given):
            yield f"{folder}/patches/{patch.file}", patch.text
        for name, text in render_files(wheel.recipe, wheel.given).items():
            yield f"{folder}/files/{name}", f"{text}\n"
        for name, text in _checks(wheel).items():
            yield f"{folder}/checks/{name}", f"{text}\n"


def _checks(wheel: WindowsWheel) -> dict[str, str]:
    checks = render_checks(wheel.recipe, wheel.given)
    return {f"{number}.py": text for number, text in enumerate(checks, start=1)}


def _script(group: WindowsGroup) -> str:
    head = _HEAD.format(
        name=group.name,
        packages=" and ".join(f"{w.package.name} {w.package.version}" for w in group.wheels),
        nodes=fold(group.nodes),
        disk=sum(wheel.recipe.disk_gb for wheel in group.wheels),
        memory=max(map(_memory_gb, group.wheels)),
    )
    values = {
        "Name": group.name,
        "PythonVersion": group.target.python.replace("cp3", "3.").removesuffix("t"),
        "Interpreters": group.interpreters,
        "ToolsetBelow": group.toolset_below or "",
        "ToSupply": group.to_supply,
    }
    body = files(__package__ or "").joinpath("data/build.ps1").read_text("utf-8")
    wheels = ",\n".join(_literal(_wheel_values(wheel)) for wheel in group.wheels)
    return f"{head}\n$Group = {_literal(values)}\n\n$Wheels = @(\n{wheels}\n)\n{body}"


def _wheel_values(wheel: WindowsWheel) -> dict[str, object]:
    package, recipe, given = wheel.package, wheel.recipe, wheel.given
    source = render_source(recipe, package.name, package.version)
    git = source if source and source.git else None
    return {
        "Package": package.name,
        "WheelVersion": given.wheel_version,
        "Git": git.git if git else "",
        "Ref": git.ref if git else "",
        "Submodules": bool(git and git.submodules),
        "Requirement": "" if git else f"{package.name}=={package.version}",
        "Cuda": given.cuda or "",
        "BuildRequirements": render_requirements(recipe, given),
        "Environment": render_environment(recipe, given),
        "Settings": render_settings(recipe, given),
        "Patches": [patch.file for patch in patches_for(recipe, given)],
        "Bundled": {
            folder: render_checks(recipe.model_copy(update={"checks": patterns}), given)
            for folder, patterns in wheel.bundled.items()
        },
        "Imports": recipe.import_names,
        "Checks": list(_checks(wheel)),
    }


def _memory_gb(wheel: WindowsWheel) -> float:
    sms = wheel.given.target.sms
    return wheel.recipe.job_memory_gb + wheel.recipe.sm_job_memory_gb * len(sms)


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
