"""The names that Node Feature Discovery and GPU Feature Discovery have for hardware features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import RUNGS, Rung

GPU = "nvidia.com/gpu"  # what the device plugin offers, and pods ask for
GPU_TOLERATION = {"key": GPU, "operator": "Exists"}  # nodes are often tainted with that name
GFD_MAJOR = "nvidia.com/gpu.compute.major"
GFD_MINOR = "nvidia.com/gpu.compute.minor"
_LABEL = "feature.node.kubernetes.io/cpu-cpuid."


def rung_flags(rung: Rung) -> tuple[str, ...]:
    """Return the flags of the feature cpu.cpuid that a node of this rung has, weakest first."""
    names = _table()["names"]
    spelled = [names[feature] for step in rung.lineage for feature in step.adds]
    return tuple(spelled) or (_table()["baseline"][rung.arch],)


def features_of(flags: Collection[str]) -> frozenset[str]:
    """Return the features of rungs that these flags of cpu.cpuid mean, in the kernel's spelling."""
    table = _table()
    features = {feature for feature, flag in table["names"].items() if flag in flags}
    levels = (RUNGS[name] for name, flag in table["levels"].items() if flag in flags)
    return frozenset(features).union(*(rung.features for rung in levels))


def shown_flags(labels: Mapping[str, str]) -> frozenset[str]:
    """Return the flags of cpu.cpuid that a node's labels show."""
    return frozenset(
        key.removeprefix(_LABEL)
        for key, value in labels.items()
        if key.startswith(_LABEL) and value == "true"
    )


def gfd_labels(sm: str) -> dict[str, str]:
    """Return the labels that GPU Feature Discovery sets for GPUs of this SM."""
    major, _, minor = sm.partition(".")
    return {GFD_MAJOR: major, GFD_MINOR: minor}


@cache
def _table() -> dict[str, Any]:
    return load("nfd.yml", "fleetbuild.extensions.kubernetes")
