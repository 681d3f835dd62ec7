"""Names of microarchitectures, from archspec's data. For display only: no decision uses them.

archspec's own host() reads the machine it runs on, so a node's flags are looked up in its data.
"""

from __future__ import annotations

from collections.abc import Set

from archspec.cpu import TARGETS

# The kernel's spelling to archspec's.
_ALIASES = {"pni": "sse3"}
_ARM_IMPLEMENTERS = {"0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x4e": "Nvidia",
                     "0x61": "Apple", "0xc0": "Ampere"}  # fmt: skip


def microarchitecture(
    arch: str, features: Set[str], vendor: str | None = None, part: str | None = None
) -> str | None:
    """Return the best microarchitecture whose features are all present: `haswell`, `neoverse_v1`.

    `vendor` and `part` are as /proc/cpuinfo has them. Arm cores are known by their part, since
    cores of one architecture have the same flags; x86 by vendor and flags.
    """
    known = {_ALIASES.get(feature, feature) for feature in features}
    maker = _ARM_IMPLEMENTERS.get(vendor or "", vendor)
    fitting = [
        target
        for target in TARGETS.values()
        if target.family.name == arch and target.vendor == maker and target.features <= known
        if not target.cpu_part or target.cpu_part == part
    ]
    return max(fitting, key=lambda target: len(target.features)).name if fitting else None
