"""The readings that come with fleetbuild, so that a known wheel is judged without a download.

`python -m benchmarks.readings STATE...` packs what checks with these state folders read into
fleetbuild/audit/data/readings.xz. Fill one first, with the current reader:

    fleetbuild check -r benchmarks/check.txt --for avx2 --state-dir STATE
    fleetbuild check numpy polars faiss-cpu==1.14.2 --for IvyBridge --instead --state-dir STATE
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetbuild.audit.evidence import FileResults, pack_readings

DATA = Path(__file__).parents[1] / "fleetbuild" / "audit" / "data" / "readings.xz"


def main() -> None:
    """Write the file."""
    kept = [path for state in sys.argv[1:] for path in sorted(Path(state, "checks").glob("*.json"))]
    results = [FileResults.model_validate_json(path.read_bytes()) for path in kept]
    DATA.write_bytes(pack_readings(results))
    print(f"{DATA}: {len(results)} files, {DATA.stat().st_size} bytes")


if __name__ == "__main__":
    main()
