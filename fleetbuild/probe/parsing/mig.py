"""Read which GPUs MIG splits into instances; a program sees each instance as a GPU."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from fleetbuild.models import Capture
from fleetbuild.probe.parsing.text import lines, short

_MODE = re.compile(r"(?P<index>\d{1,3}), (?P<name>.{1,200}), Enabled", re.ASCII)
_GPU = re.compile(r"GPU (?P<index>\d{1,3}): ", re.ASCII)
_INSTANCE = re.compile(r"MIG (?P<profile>[\w.+-]{1,30}) +Device +\d{1,3}: ", re.ASCII)


def split_gpus(capture: Capture) -> list[str]:
    """Return a warning for each GPU with MIG enabled. All its instances have the same SM."""
    said = lines(capture, "mig", 1000, 400)
    modes = filter(None, map(_MODE.fullmatch, said))
    instances = _instances(said)
    return [
        _sentence(f"GPU {mode['index']} ({short(mode['name'], 100)})", instances[mode["index"]])
        for mode in modes
    ]


def _instances(said: list[str]) -> defaultdict[str, Counter[str]]:
    """Return the number of instances per profile (such as 1g.10gb) by GPU index."""
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
            f"{gpu} has MIG enabled but no instance, so no program can use it. Create one "
            "(nvidia-smi mig -cgi), or disable MIG."
        )
    counts = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    return f"{gpu} is split by MIG into {counts}: a program sees one of them at a time."
