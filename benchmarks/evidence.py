"""What a wheel that was built here consists of, and whether a wheel is that one.

`python -m benchmarks.evidence WHEEL` prints the record to keep in docs/evidence/wheels: sha256,
and for each file its hash, the CPU features that its code needs and its SMs. `--check RECORD WHEEL`
names every difference; with `--rebuilt` the hashes may differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.baselines import say
from fleetbuild.audit import audit_wheel


def record_of(path: Path) -> dict[str, Any]:
    """Return the record of a wheel."""
    audit = audit_wheel(path)
    with zipfile.ZipFile(path) as archive:
        hashes = {elf.path: hashlib.sha256(archive.read(elf.path)) for elf in audit.elfs}
    return {
        "wheel": audit.file,
        "sha256": audit.sha256,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "problems": list(audit.problems),
        "libc": audit.libc_floor,
        "files": {
            elf.path: {
                "sha256": hashes[elf.path].hexdigest(),
                "load": sorted(elf.load),
                "default": sorted(elf.default),
                "guarded": sorted(elf.guarded),
                "sms": list(elf.sms),
                "ptx": list(elf.ptx),
                "kernels": sum(len(each.names) for each in elf.kernels),
            }
            for elf in audit.elfs
        },
    }


def differences(record: Mapping[str, Any], path: Path, *, same_bytes: bool = True) -> Iterator[str]:
    """Yield each difference between a record and a wheel as a sentence."""
    found = record_of(path)
    for key in ("wheel", "sha256", "problems", "libc"):
        if record[key] != found[key] and (same_bytes or key != "sha256"):
            yield f"{key} is {found[key]}, not {record[key]}"
    for name in sorted({*record["files"], *found["files"]}):
        wanted, there = record["files"].get(name), found["files"].get(name)
        if wanted is None or there is None:
            yield f"{name} is {'missing' if there is None else 'not in the record'}"
            continue
        for key in wanted:
            if wanted[key] != there[key] and (same_bytes or key != "sha256"):
                yield f"{name}: {key} is {there[key]}, not {wanted[key]}"


def main() -> int:
    """Print a record, or the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--check", metavar="RECORD", type=Path)
    parser.add_argument("--rebuilt", action="store_true", help="hashes may differ")
    options = parser.parse_args()
    if options.check is None:
        say(json.dumps(record_of(options.wheel), indent=1))
        return 0
    record = json.loads(options.check.read_text("utf-8"))
    found = list(differences(record, options.wheel, same_bytes=not options.rebuilt))
    say("\n".join(found) or "no difference")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
