"""Write the wheels of a plan as variants of one version.

In: a plan, the store. Out: a folder with a wheel for each level of x86-64, the plain wheel, and for
each package the file that tells uv which level a wheel needs.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from fleetbuild.audit.limited_process import read_apart
from fleetbuild.files import write_atomically
from fleetbuild.models import Plan, PlannedWheel
from fleetbuild.store.release_files import writing
from fleetbuild.store.wheels import Store

# The wheel for any x86-64 is a plain one, which installers without variants take.
LEVELS = {"x86-64": None, "x86-64-v2": "v2", "avx2": "v3", "avx512": "v4"}
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same wheels make the same files


def write_variants(
    plan: Plan, store: Store, folder: Path
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the files that were written, and a sentence for each wheel that was left out."""
    written: dict[Path, None] = {}  # in their order; groups may share a wheel
    left_out: list[str] = []
    levels: dict[tuple[str, str], set[str]] = defaultdict(set)
    revoked = store.revocations.in_plan(plan)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for group in plan.groups:
            for wheel in group.wheels:
                stored = None if group.name in revoked else store.find(wheel)
                why = _why_not(wheel) if stored else "it is not in the store"
                if stored is None or why:
                    left_out.append(f"{wheel.package} of {group.name} is left out: {why}.")
                    continue
                level = LEVELS[wheel.target.isa]
                name = read_apart(
                    variant_here, stored.path, folder=str(folder), package=wheel.package,
                    version=wheel.version, level=level,
                )  # fmt: skip
                if name is None:
                    why = "it is too large to be written again, or the disk is full"
                    left_out.append(f"{wheel.package} of {group.name} is left out: {why}.")
                    continue
                levels[wheel.package, wheel.version] |= {level} if level else set()
                written[folder / name] = None
        for (package, version), known in levels.items():
            name = f"{package.replace('-', '_')}-{version}-variants.json"
            write_atomically(folder / name, json.dumps(_document(known), indent=1), mode=0o644)
            written[folder / name] = None
        links = "".join(f'<a href="{path.name}">{path.name}</a><br>\n' for path in written)
        write_atomically(folder / "index.html", f"<!DOCTYPE html>\n{links}", mode=0o644)
    return tuple(written), tuple(left_out)


def _why_not(wheel: PlannedWheel) -> str:
    if wheel.built_against:
        return "it requires one build of another package, and variants share a version"
    return "" if wheel.target.isa in LEVELS and not wheel.target.sms else "uv knows no such level"


def _document(levels: set[str]) -> dict[str, Any]:
    """Return what uv reads about variants: in each of them, and beside all of them."""
    return {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": ["x86_64"]},
        "providers": {"x86_64": {"requires": ["x86-64-variant-provider"]}},
        "variants": {level: {"x86_64": {"level": [level]}} for level in sorted(levels)},
    }


def variant_here(
    source: Path, *, folder: str, package: str, version: str, level: str | None
) -> str:
    """Write a wheel under its public version, which all variants share, with its level in it.

    Runs in the separate process, as all that opens wheels. Returns the file's name.
    """
    tags = source.stem.split("-")[-3:]
    name = package.replace("-", "_")
    file = "-".join((name, version, *tags, *([level] if level else []))) + ".whl"
    info = f"{name}-{version}.dist-info"
    rows: list[tuple[str, str, object]] = []
    part = Path(folder, f".{file}.part")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as new:

        def add(path: str, content: bytes, mode: int = 0o100644) -> None:
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            new.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            rows.append((path, f"sha256={digest.rstrip('=')}", len(content)))

        for member in old.infolist():
            top, _, rest = member.filename.partition("/")
            if member.is_dir() or rest == "RECORD":
                continue
            content = old.read(member)
            if top.endswith(".dist-info") and rest == "METADATA":
                line = f"Version: {version}".encode()
                content = re.sub(rb"(?m)^Version:[^\r\n]*", line, content, count=1)
            path = f"{info}/{rest}" if top.endswith(".dist-info") else member.filename
            add(path, content, member.external_attr >> 16)
        if level:
            add(f"{info}/variant.json", json.dumps(_document({level})).encode())
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
        add(f"{info}/RECORD", record.getvalue().encode())
    part.replace(Path(folder, file))
    return file
