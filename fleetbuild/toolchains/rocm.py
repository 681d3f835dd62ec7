"""ROCm wheels, which others publish: their version of ROCm, and the GPUs they have code for."""

from __future__ import annotations

import re

from fleetbuild.hardware.data import load
from fleetbuild.text import version_key

_DATA = load("rocm.yml", "fleetbuild.toolchains")
_GPUS = {rocm: names.split() for rocm, names in _DATA["pytorch"].items()}
# AMD's own indexes (TheRock) have one address for each family: gfx1151, gfx120X-all, gfx94X-dcgpu.
_FAMILY = re.compile(r"/(gfx[0-9a-f]{2,4})(X?)(?:-[a-z]+)?/", re.ASCII)


def rocm_of(version: str) -> str | None:
    """Return 7.2 for a wheel of version 2.13.0+rocm7.2; None for other wheels."""
    match = re.match(r"rocm(\d+\.\d+)", version.partition("+")[2], re.ASCII)
    return match[1] if match else None


def has_rocm_code(rocm: str, url: str, gfx: str) -> bool:
    """Return whether a wheel has code for a GPU: by its index's family, else by PyTorch's list."""
    if family := _FAMILY.search(url):
        return re.fullmatch(family[1] + "[0-9a-f]" * len(family[2]), gfx) is not None
    known = [names for oldest, names in _GPUS.items() if version_key(oldest) <= version_key(rocm)]
    return bool(known) and gfx in known[-1]
