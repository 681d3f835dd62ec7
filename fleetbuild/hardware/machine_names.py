"""Names of machines as people type them: a rung, an architecture level, a CPU, an SM or a GPU.

In: a name such as zen3, x86-64-v3, "Xeon E5-2650 v2", sm_86 or "RTX 3060". Out: a `MachineName`, or
the known names that look like it. Everything that takes such a name reads it here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fleetbuild.hardware.cpu_models import CPU_MODELS, CpuModel, find_cpu_model
from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS
from fleetbuild.hardware.rungs import RUNGS, best

_SM = re.compile(r"(?:(?:sm|compute|cc)(\d{1,2})\.?|(\d{1,2})\.)(\d)", re.ASCII)
_LONGEST = 200  # of a name
_TOLD_APART = frozenset().union(*(rung.features for rung in RUNGS.values()))


@dataclass(frozen=True)
class MachineName:
    """What a name stands for: a CPU, a GPU (then `arch` is None), or both."""

    read_as: str  # IvyBridge (x86-64-v2 + avx, f16c)
    arch: str | None = None
    features: frozenset[str] = frozenset()
    sm: str | None = None  # may be one that no table lists


def read_machine_name(name: str) -> MachineName | None:
    """Return what a name stands for, however its words are written; None if it is unknown."""
    text = re.sub("|".join(_data()["ignored"]), " ", name[:_LONGEST].casefold())
    whole, key = _key(name[:_LONGEST]), _key(text)
    if model := _rung(whole) or find_cpu_model(whole) or find_cpu_model(key):
        return _of_cpu(model)
    if match := _SM.fullmatch(whole):
        return _of_gpu(f"{match[1] or match[2]}.{match[3]}")
    row: dict[str, str] = next((it for it in _data()["rows"] if re.fullmatch(it["match"], key)), {})
    if model := find_cpu_model(row.get("cpu", "")):
        return _of_cpu(model, row.get("sm"))
    return _of_gpu(row["sm"]) if row else None


def _rung(key: str) -> CpuModel | None:
    """Return the rung of this name, or with this name of a compiler, as a CPU."""
    return next(
        (
            CpuModel(rung.name, rung.arch, rung.features, None)
            for rung in RUNGS.values()
            if key in (_key(rung.name), _key(rung.march or rung.name))
        ),
        None,
    )


def similar_names(name: str, others: Iterable[str]) -> tuple[str, ...]:
    """Return the known names of machines, and the other names, that look like this one."""
    known = [example for row in _data()["rows"] for example in row["names"]]
    known += [spelled for model in CPU_MODELS.values() for spelled in (model.name, *model.aliases)]
    known += [*others, *RUNGS]
    spelled = {_key(each): each for each in known}
    return tuple(spelled[key] for key in difflib.get_close_matches(_key(name), spelled, 3))


def _of_cpu(model: CpuModel, sm: str | None = None) -> MachineName:
    """Return a CPU with its highest architecture level, and what rungs tell apart beyond that."""
    reached = best(model.features, model.arch)
    lineage = reversed(reached.lineage) if reached else ()
    level = next((rung for rung in lineage if rung.march or rung.arch != "x86_64"), None)
    text = model.name
    if level and (spelled := level.march or level.name) != model.name:
        more = sorted((model.features & _TOLD_APART) - level.features)
        text += f" ({spelled}{' + ' if more else ''}{', '.join(more)})"
    return MachineName(f"{text}, with SM {sm}" if sm else text, model.arch, model.features, sm)


def _of_gpu(sm: str) -> MachineName:
    return MachineName(f"SM {sm}{f' ({SMS[sm].architecture})' if sm in SMS else ''}", sm=sm)


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.casefold())


@cache
def _data() -> dict[str, Any]:
    return load("machine_names.yml")
