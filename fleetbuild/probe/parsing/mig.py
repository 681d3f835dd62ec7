"""GPUs that MIG splits into instances, each of which a program takes for a GPU of its own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from fleetbuild.models import Capture
from fleetbuild.probe.parsing.text import lines, short

_MODE = re.compile(r"(?P<index>\d{1,3}), (?P<name>.{1,200}), Enabled", re.ASCII)
_GPU = re.compile(r"GPU (?P<index>\d{1,3}): ", re.ASCII)
_INSTANCE = re.compile(r"MIG (?P<profile>[\w.+-]{1,30}) +Device +\d{1,3}: ", re.ASCII)


def split_gpus(capture: Capture) -> list[str]:
    """A warning for each GPU that MIG is switched on for. Its SM is that of all its instances."""
    said = lines(capture, "mig", 1000, 400)
    modes = filter(None, map(_MODE.fullmatch, said))
    instances = _instances(said)
    return [
        _sentence(f"GPU {mode['index']} ({short(mode['name'], 100)})", instances[mode["index"]])
        for mode in modes
    ]


def _instances(said: list[str]) -> defaultdict[str, Counter[str]]:
    """By the index of the GPU: how many of each profile, such as 1g.10gb."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    index = ""
    for line in said:
        if gpu := _GPU.match(line):
            index = gpu["index"]
        elif instance := _INSTANCE.match(line):
            found[index][instance["profile"]] += 1
    return found


def _sentence(gpu: str, profiles: Counter[str]) -> str:
    if not profiles:
        return (
            f"{gpu} has MIG switched on and no instance, so no program can use it. Make one "
            "(nvidia-smi mig -cgi), or switch MIG off."
        )
    counts = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    return f"{gpu} is split by MIG into {counts}: a program sees one of them at a time."
