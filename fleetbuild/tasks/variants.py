"""The table of variants of an export: every built wheel, what it is for, and how to install it.

In: a plan and the store. Out: variants.md and variants.json beside the indexes of the groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fleetbuild.hardware.pytorch import python_of
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Plan, PlannedGroup, Target
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


def write_variants(plan: Plan, store: Store, groups: Iterable[str], folder: Path) -> Path:
    """Write the table of the built wheels of these groups; return the path of the text."""
    names = set(groups)
    wanted = [group for group in plan.groups if group.name in names]
    rows = [row for group in wanted for row in _rows(group, store)]
    document = {"format_version": "1.0", "variants": rows}
    (folder / "variants.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    path = folder / "variants.md"
    path.write_text(_text(wanted, rows), encoding="utf-8")
    return path


def _rows(group: PlannedGroup, store: Store) -> Iterable[dict[str, Any]]:
    for wheel in group.wheels:
        if stored := store.find(wheel):
            yield {
                "group": group.name,
                "package": wheel.package,
                "version": wheel.wheel_version,
                "file": f"{group.name}/files/{stored.path.name}",
                "sha256": stored.sha256,
                "size": stored.path.stat().st_size,
                "cuda": wheel.cuda,
                "ptx": wheel.target.ptx,
                "target": wheel.target.model_dump(mode="json", exclude={"ptx", "blas"}),
                "requirement": f"{wheel.package}=={wheel.wheel_version}",
            }


def _text(groups: Sequence[PlannedGroup], rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| folder | package | CUDA | size | sha256 |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row['group']}` | {row['package']} {row['version']} | {row['cuda'] or '-'} | "
        f"{row['size'] / 1e6:.1f} MB | `{row['sha256']}` |"
        for row in rows
    ]
    needs = ["", "| folder | Python | C library | CPU | GPU |", "|---|---|---|---|---|"]
    needs += [f"| `{group.name}` | {_machine(group)} |" for group in groups]
    commands = [_commands(group, rows) for group in groups]
    return _HEAD + "\n".join((*lines, *needs)) + "\n" + _INSTALL + "\n".join(commands)


def _machine(group: PlannedGroup) -> str:
    target = group.target
    libc = f"{target.libc.family} {target.libc.floor} or newer"
    sms = f"SM {', '.join(target.sms)}" if target.sms else "-"
    return f"{python_of(target.python)} | {libc} | {_cpu(target)} | {sms}"


def _cpu(target: Target) -> str:
    beyond = sorted(RUNGS[target.isa].features - _baseline(target.arch))
    return f"{target.arch}: {' '.join(beyond)}" if beyond else target.arch


def _baseline(arch: str) -> frozenset[str]:
    """Return the features that every machine of this architecture has."""
    return frozenset.intersection(*(rung.features for rung in RUNGS.values() if rung.arch == arch))


def _commands(group: PlannedGroup, rows: Sequence[dict[str, Any]]) -> str:
    wanted = " ".join(f"'{row['requirement']}'" for row in rows if row["group"] == group.name)
    index = f"--index-url HERE/{group.name}/simple/"
    return f"```\npip install {index} {wanted}\nuv pip install {index} {wanted}\n```\n"
