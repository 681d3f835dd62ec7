"""CPU models that users name, such as IvyBridge or Graviton2, and how QEMU imitates a CPU.

In: a name, or a set of features. Out: features, or the value of QEMU's -cpu option.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import ARCHITECTURES

_DATA = load("cpu_models.yml")
_SPELLED = {"sse3": "pni"}  # archspec's name of a feature, and the kernel's
NOT_EMULATED = frozenset(_DATA["not_emulated"])


@dataclass(frozen=True)
class CpuModel:
    """A CPU model: the features of its silicon, and QEMU's name of it."""

    name: str
    arch: str
    features: frozenset[str]
    qemu: str | None  # None: QEMU cannot imitate it
    aliases: tuple[str, ...] = ()


def _read(arch: str, table: dict[str, dict[str, Any]]) -> dict[str, CpuModel]:
    models: dict[str, CpuModel] = {}
    for name, row in table.items():
        older = models[row["from"]].features if "from" in row else frozenset()
        models[name] = CpuModel(
            name=name,
            arch=arch,
            features=older | frozenset(row["adds"]),
            qemu=row.get("qemu", name) or None,
            aliases=tuple(row.get("also", ())),
        )
    return models


CPU_MODELS: dict[str, CpuModel] = {
    **_read("x86_64", _DATA["x86_64"]),
    **_read("aarch64", _DATA["aarch64"]),
}
_BY_NAME = {
    re.sub(r"[\s_-]", "", name.casefold()): model
    for model in CPU_MODELS.values()
    for name in (model.name, *model.aliases)
}


def find_cpu_model(name: str) -> CpuModel | None:
    """Return the model of this name, however its words are joined, else archspec's; None if it is
    unknown."""
    key = re.sub(r"[\s_-]", "", name.casefold())
    return _BY_NAME.get(key) or _of_archspec().get(key)


@cache
def _of_archspec() -> dict[str, CpuModel]:
    """Return archspec's CPUs by name, each with the features of the levels that it is made of."""
    from archspec.cpu import TARGETS  # noqa: PLC0415 (most names need no second table)

    models: dict[str, CpuModel] = {}
    for name, target in TARGETS.items():
        if target.family.name in ARCHITECTURES:
            known = {_SPELLED.get(feature, feature) for feature in target.features}
            model = CpuModel(name, target.family.name, frozenset(known), None)
            models[re.sub("[_-]", "", name)] = model
    return models


def is_imitated(arch: str, features: Set[str]) -> bool:
    """Return whether QEMU can imitate a CPU with these features, so that a run can decide."""
    return qemu_cpu(arch, features) is not None and features.isdisjoint(NOT_EMULATED)


@cache
def emulated_features(cpu: str) -> frozenset[str]:
    """Return the features of a CPU that QEMU imitates, from the value of its -cpu option."""
    name, *hidden = cpu.split(",")
    model = next((model for model in CPU_MODELS.values() if model.qemu == name), None)
    spelled = {word: feature for feature, word in _DATA["spelling"].items()}
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
    words = [str(best.qemu), *(f"-{_DATA['spelling'].get(name, name)}" for name in hidden)]
    return ",".join(words)
