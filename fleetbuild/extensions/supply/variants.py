"""The table of variants of an export: every built wheel, what it is for, and how to install it.

In: a plan and the store. Out: variants.md and variants.json beside the indexes of the groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from packaging.version import Version

from fleetbuild.errors import UsageError
from fleetbuild.files import write_atomically
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Plan, PlannedGroup, Target
from fleetbuild.models._base import Frozen
from fleetbuild.store.wheels import Store
from fleetbuild.toolchains.cuda import TOOLKITS
from fleetbuild.toolchains.pytorch import python_of

_HEAD = """\
# Variants

Each folder here is a package index for one kind of machine. Serve them with any web server, or copy
them. Choose a row whose needs the machine meets in full; of several, choose the one with the most
CPU features. The features are those in `/proc/cpuinfo`; the SM is the compute capability that
`nvidia-smi --query-gpu=compute_cap --format=csv` prints.

"""
_WORDS = re.compile(r'[\w\s.+!/:,{}\[\]"-]*', re.ASCII)  # of a table as it is written here
REQUIREMENTS = "requirements.txt"  # beside a group's index
_INSTALL = """
## Installing
Replace HERE with the address of this folder, such as `https://wheels.example.com`, or with its
`file://` address. Add no other index: it may have another build of the same version. These lines
install into the environment that is active, of venv, uv or conda (in conda: with pip in it).
requirements.txt has the hash of each file, so nothing else is installed.

"""


_HEAD_OF_UPLOADS = """\
# Variants

All these wheels are in one index, {index}. Choose a row whose needs the machine
meets in full; of several, choose the one with the most CPU features. The features are those in
`/proc/cpuinfo`; the SM is the compute capability that
`nvidia-smi --query-gpu=compute_cap --format=csv` prints.

"""
_INSTALL_UPLOADED = """
## Installing
Name the version in full, as here: without what follows the `+`, pip takes the variant whose name
sorts last, whatever the machine is. Dependencies come from your usual index.

"""


class Variant(Frozen):
    """A built wheel of an export: its file, what it is built for, and the machines it is for."""

    group: str  # the folder with its index
    package: str
    version: str
    file: str  # its path in the export
    sha256: str
    size: int
    cuda: str | None
    driver: str | None = None  # the oldest NVIDIA driver that runs it
    target: Target
    machine: Target  # the group's target


def write_variants(
    plan: Plan, store: Store, groups: Iterable[str], folder: Path, *, keep: bool = False
) -> Path:
    """Write the table of the built wheels of these groups; return the path of the text.

    Rows of other groups that earlier exports left in this folder stay in the table. With `keep`,
    earlier rows of these groups stay, too, while their wheels are there.
    """
    names = set(groups)
    exported = [group for group in plan.groups if group.name in names]
    rows = [row for group in exported for row in _rows(group, store)]
    files = {row.file for row in rows}
    rows += [
        row
        for row in _earlier(folder / "variants.json")
        if row.file not in files and (keep or row.group not in names)
    ]
    return _write(rows, folder, partial(_text, folder))


def write_uploaded(plan: Plan, store: Store, index: str, folder: Path) -> Path:
    """Write the table of the built wheels that were uploaded to one index for all groups."""
    rows = [
        row.model_copy(update={"file": Path(row.file).name})
        for group in plan.groups
        for row in _rows(group, store, published=False)
    ]
    return _write(rows, folder, partial(_uploaded_text, index))


def _write(rows: list[Variant], folder: Path, text: Callable[[Sequence[Variant]], str]) -> Path:
    rows.sort(key=lambda row: (row.group, row.package, Version(row.version)))
    document = {"format_version": "1.0", "variants": [row.model_dump(mode="json") for row in rows]}
    path = folder / "variants.md"
    write_atomically(folder / "variants.json", json.dumps(document, indent=1) + "\n", mode=0o644)
    write_atomically(path, text(rows), mode=0o644)
    return path


def _earlier(path: Path) -> list[Variant]:
    """Return the rows of an earlier export whose wheels are still there."""
    if not path.exists():
        return []
    try:
        text = path.read_text("utf-8")
        rows = [Variant.model_validate(row) for row in json.loads(text)["variants"]]
        known = [row for row in rows if Version(row.version) and RUNGS[row.machine.isa]]
        if not _WORDS.fullmatch(text):
            raise ValueError("its words would become others in a command")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(
            f"{path} is not a table that fleetbuild wrote.", "Name another folder, or remove it."
        ) from None
    return [row for row in known if (path.parent / row.file).is_file()]


def _rows(group: PlannedGroup, store: Store, *, published: bool = True) -> Iterable[Variant]:
    """Yield the rows of a group; without `published`, only of wheels that fleetbuild built."""
    for wheel in group.wheels:
        if (published or not wheel.published) and (stored := store.find(wheel)):
            yield Variant(
                group=group.name,
                package=wheel.package,
                version=wheel.wheel_version,
                file=f"{group.name}/files/{stored.path.name}",
                sha256=stored.sha256,
                size=stored.path.stat().st_size,
                cuda=wheel.cuda,
                driver=TOOLKITS[wheel.cuda].driver if wheel.cuda in TOOLKITS else None,
                target=wheel.target,
                machine=group.target,
            )


def _text(folder: Path, rows: Sequence[Variant]) -> str:
    machines = {row.group: row.machine for row in rows}
    commands = []
    for group in machines:
        index, wanted = f"--index-url HERE/{group}/simple/", _names(_newest(rows, group))
        if (folder / group / REQUIREMENTS).is_file():  # an older version wrote none
            wanted = f"--require-hashes -r HERE/{group}/{REQUIREMENTS}"
        commands.append(f"For `{group}`:\n{_commands(index, wanted)}")
    return _HEAD + _tables(rows) + _INSTALL + "\n".join(commands)


def _uploaded_text(index: str, rows: Sequence[Variant]) -> str:
    machines = {row.group: row.machine for row in rows}
    commands = [
        f"For `{group}`:\n"
        + _commands(
            f"--extra-index-url {index}", _names(_newest(rows, group)), uv=f"--index {index}"
        )
        for group in machines
    ]
    head = _HEAD_OF_UPLOADS.format(index=index)
    return head + _tables(rows) + _INSTALL_UPLOADED + "\n".join(commands)


def _newest(rows: Sequence[Variant], group: str) -> list[Variant]:
    """Return the newest wheel of each package of a group; rows are sorted by version."""
    return list({row.package: row for row in rows if row.group == group}.values())


def _tables(rows: Sequence[Variant]) -> str:
    lines = ["| group | package | CUDA | size | sha256 |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.group}` | {row.package} {row.version} | {row.cuda or '-'} | "
        f"{row.size / 1e6:.1f} MB | `{row.sha256}` |"
        for row in rows
    ]
    machines = {row.group: row.machine for row in rows}
    drivers = {row.group: row.driver for row in rows if row.driver}
    needs = ["", "| group | Python | C library | CPU | GPU |", "|---|---|---|---|---|"]
    needs += [
        f"| `{group}` | {_machine(machine, drivers.get(group))} |"
        for group, machine in machines.items()
    ]
    return "\n".join((*lines, *needs)) + "\n"


def _machine(target: Target, driver: str | None) -> str:
    libc = f"{target.libc.family} {target.libc.floor} or newer"
    sms = f"SM {', '.join(target.sms)}" if target.sms else "-"
    if driver:
        sms += f", driver {driver} or newer"
    return f"{python_of(target.python)} | {libc} | {_cpu(target)} | {sms}"


def _cpu(target: Target) -> str:
    beyond = sorted(RUNGS[target.isa].features - _baseline(target.arch))
    return f"{target.arch}: {' '.join(beyond)}" if beyond else target.arch


def _baseline(arch: str) -> frozenset[str]:
    """Return the features that every machine of this architecture has."""
    return frozenset.intersection(*(rung.features for rung in RUNGS.values() if rung.arch == arch))


def _names(rows: Sequence[Variant]) -> str:
    return " ".join(f"'{row.package}=={row.version}'" for row in rows)


def _commands(index: str, wanted: str, uv: str = "") -> str:
    return f"```\npip install {index} {wanted}\nuv pip install {uv or index} {wanted}\n```\n"
