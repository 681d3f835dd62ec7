"""A store that holds the whole release of a plan: one wheel of pure Python."""

import zipfile
from pathlib import Path

from fleetbuild.models import Plan
from fleetbuild.store import Store

NAME = "hnswlib-0.8.0+cpu.avx2-py3-none-any.whl"
INFO = "hnswlib-0.8.0+cpu.avx2.dist-info"


def stocked(folder: Path, plan: Plan, says: str = "0.8.0") -> Store:
    """A store below this folder, for the plan of one group with hnswlib."""
    wheel = folder / NAME
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hnswlib.py", f"__version__ = {says!r}\n")
        archive.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: hnswlib\nVersion: 0.8.0+cpu.avx2\n"
        )
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    store = Store(folder / "store")
    store.add(wheel, plan.groups[0].wheels[0], built_on="a", seconds=1)
    return store
