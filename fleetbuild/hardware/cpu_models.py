"""CPU models that users name, such as IvyBridge or Graviton2.

In: a name. Out: a `CpuModel` with its features.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from fleetbuild.hardware.data import load
from fleetbuild.hardware.rungs import ARCHITECTURES

_DATA = load("cpu_models.yml")
_SPELLED = {"sse3": "pni"}  # archspec's name of a feature, and the kernel's


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
