"""How QEMU's user mode imitates a CPU.

In: the features of a CPU. Out: the value of QEMU's -cpu option, and its features.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Any

from fleetbuild.hardware.cpu_models import CPU_MODELS
from fleetbuild.hardware.data import load


@cache
def _table() -> dict[str, Any]:
    return load("qemu.yml", "fleetbuild.extensions.check")


@cache
def not_emulated() -> frozenset[str]:
    """Return the features that QEMU does not carry out, whatever model is asked for."""
    return frozenset(_table()["not_emulated"])


def is_imitated(arch: str, features: Set[str]) -> bool:
    """Return whether QEMU can imitate a CPU with these features, so that a run can decide."""
    return qemu_cpu(arch, features) is not None and features.isdisjoint(not_emulated())


@cache
def emulated_features(cpu: str) -> frozenset[str]:
    """Return the features of a CPU that QEMU imitates, from the value of its -cpu option."""
    name, *hidden = cpu.split(",")
    model = next((model for model in CPU_MODELS.values() if model.qemu == name), None)
    spelled = {word: feature for feature, word in _table()["spelling"].items()}
    without = {spelled.get(word[1:], word[1:]) for word in hidden}
    return model.features - without if model else frozenset()


def qemu_cpu(arch: str, features: Set[str]) -> str | None:
    """Return QEMU's -cpu for a CPU that has no other features than these; None if it has none.

    QEMU imitates the model that shares most of them, without what these features lack, so code that
    needs more dies as it would on the real CPU.
    """
    candidates = [model for model in CPU_MODELS.values() if model.arch == arch and model.qemu]
    if arch == "aarch64":  # QEMU switches no single feature of an Arm model off
        candidates = [model for model in candidates if model.features <= features]
    if not candidates:
        return None
    best = max(
        candidates,
        key=lambda model: (len(model.features & features), -len(model.features - features)),
    )
    hidden = sorted(best.features - features)
    words = [str(best.qemu), *(f"-{_table()['spelling'].get(name, name)}" for name in hidden)]
    return ",".join(words)
