"""The readings that come with fleetbuild, so that a known wheel is judged without a download.

`python -m benchmarks.readings CACHE...` packs what checks with these caches read into
fleetbuild/extensions/check/data/readings.xz. Fill one first, with the current reader:

    export XDG_CACHE_HOME=CACHE
    fleetbuild check -r benchmarks/check.txt --for avx2
    fleetbuild check numpy polars faiss-cpu==1.14.2 --for IvyBridge --instead
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Iterable
from pathlib import Path

from fleetbuild.extensions.check.results import READER, FileResults

DATA = Path(__file__).parents[1] / "fleetbuild/extensions/check/data/readings.xz"


def main() -> None:
    """Write the file."""
    folders = [Path(cache, "fleetbuild", "evidence") for cache in sys.argv[1:]]
    kept = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    results = [FileResults.model_validate_json(path.read_bytes()) for path in kept]
    DATA.write_bytes(pack_readings(results))
    print(f"{DATA}: {len(results)} files, {DATA.stat().st_size} bytes")


def pack_readings(results: Iterable[FileResults]) -> bytes:
    """Return these needs as the file that comes with fleetbuild. Files with GPU kernels are left
    out: their names take megabytes."""
    found = {
        one.sha256: one.needs.model_dump_json(exclude_defaults=True)
        for one in results
        if one.needs and one.reader == READER and not one.needs.problems
        if not any(elf.kernels for elf in one.needs.files)
    }
    lines = [str(READER), *(f"{sha256} {text}" for sha256, text in sorted(found.items()))]
    return lzma.compress("\n".join(lines).encode(), preset=9)


if __name__ == "__main__":
    main()
