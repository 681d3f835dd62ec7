"""The table of variants of an export: every built wheel, what it is for, and how to install it.

In: a plan and the store. Out: variants.md and variants.json beside the indexes of the groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from fleetbuild.errors import UsageError
from fleetbuild.hardware.pytorch import python_of
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Plan, PlannedGroup, Target
from fleetbuild.models._base import Frozen
from fleetbuild.store import Store

_HEAD = """\
# Variants

Each folder here is a package index for one kind of machine. Serve them with any web server, or copy
them. Choose a row whose needs the machine meets in full; of several, choose the one with the most
CPU features. The features are those in `/proc/cpuinfo`; the SM is the compute capability that
`nvidia-smi --query-gpu=compute_cap --format=csv` prints.

"""
_INSTALL = """
## Installing
Replace HERE with the address of this folder, such as `https://wheels.example.com`, or with its
`file://` address. Add no other index: it may have another build of the same version.

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
    target: Target
    machine: Target  # the group's target


def write_variants(plan: Plan, store: Store, groups: Iterable[str], folder: Path) -> Path:
    """Write the table of the built wheels of these groups; return the path of the text.

    Rows of other groups that earlier exports left in this folder stay in the table.
    """
    names = set(groups)
    exported = [group for group in plan.groups if group.name in names]
    rows = [row for group in exported for row in _rows(group, store)]
    rows += [row for row in _earlier(folder / "variants.json") if row.group not in names]
    rows.sort(key=lambda row: (row.group, row.package))
    document = {"format_version": "1.0", "variants": [row.model_dump(mode="json") for row in rows]}
    (folder / "variants.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    path = folder / "variants.md"
    path.write_text(_text(rows), encoding="utf-8")
    return path


def _earlier(path: Path) -> list[Variant]:
    """Return the rows of an earlier export whose wheels are still there."""
    if not path.exists():
        return []
    try:
        rows = [Variant.model_validate(row) for row in json.loads(path.read_bytes())["variants"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(
            f"{path} is not a table that fleetbuild wrote.", "Name another folder, or remove it."
        ) from None
    return [row for row in rows if (path.parent / row.file).is_file()]


def _rows(group: PlannedGroup, store: Store) -> Iterable[Variant]:
    for wheel in group.wheels:
        if stored := store.find(wheel):
            yield Variant(
                group=group.name,
                package=wheel.package,
                version=wheel.wheel_version,
                file=f"{group.name}/files/{stored.path.name}",
                sha256=stored.sha256,
                size=stored.path.stat().st_size,
                cuda=wheel.cuda,
                target=wheel.target,
                machine=group.target,
            )


def _text(rows: Sequence[Variant]) -> str:
    lines = ["| folder | package | CUDA | size | sha256 |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.group}` | {row.package} {row.version} | {row.cuda or '-'} | "
        f"{row.size / 1e6:.1f} MB | `{row.sha256}` |"
        for row in rows
    ]
    machines = {row.group: row.machine for row in rows}
    needs = ["", "| folder | Python | C library | CPU | GPU |", "|---|---|---|---|---|"]
    needs += [f"| `{group}` | {_machine(machine)} |" for group, machine in machines.items()]
    commands = [_commands(group, rows) for group in machines]
    return _HEAD + "\n".join((*lines, *needs)) + "\n" + _INSTALL + "\n".join(commands)


def _machine(target: Target) -> str:
    libc = f"{target.libc.family} {target.libc.floor} or newer"
    sms = f"SM {', '.join(target.sms)}" if target.sms else "-"
    return f"{python_of(target.python)} | {libc} | {_cpu(target)} | {sms}"


def _cpu(target: Target) -> str:
    beyond = sorted(RUNGS[target.isa].features - _baseline(target.arch))
    return f"{target.arch}: {' '.join(beyond)}" if beyond else target.arch


def _baseline(arch: str) -> frozenset[str]:
    """Return the features that every machine of this architecture has."""
    return frozenset.intersection(*(rung.features for rung in RUNGS.values() if rung.arch == arch))


def _commands(group: str, rows: Sequence[Variant]) -> str:
    wanted = " ".join(f"'{row.package}=={row.version}'" for row in rows if row.group == group)
    index = f"--index-url HERE/{group}/simple/"
    return f"```\npip install {index} {wanted}\nuv pip install {index} {wanted}\n```\n"
