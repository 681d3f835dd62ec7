"""NVIDIA's libraries as wheels: the requirements that bring the libraries of a GPU build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet

from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import is_jetson
from fleetbuild.toolchains.pytorch import Torch

_DATA = load("nvidia.yml", "fleetbuild.toolchains")


@dataclass(frozen=True)
class NvidiaWheels:
    """Requirements of wheels. An empty one means that no wheel exists: the nodes must have it."""

    toolkit: tuple[str, ...] = ()
    cudnn: str = ""
    cudnn_major: str = ""
    nccl: str = ""


@dataclass(frozen=True)
class Archive:
    """One of the archives that make up a toolkit."""

    name: str
    version: str
    url: str
    sha256: str
    size: int


def wheels_for(
    cuda: str | None, arch: str, sms: Sequence[str], torch: Torch | None
) -> NvidiaWheels:
    """Return the wheels for this toolkit, architecture and these GPUs, with a cuDNN for this torch.

    A Jetson has its own libraries: those on PyPI are for other GPUs.
    """
    if cuda is None or any(is_jetson(sm) for sm in sms):
        return NvidiaWheels()
    major = cuda.split(".")[0]
    toolkit, nccl = (_row(table, cuda, arch) for table in ("toolkits", "nccl"))
    cudnn = _cudnn(cuda, arch, sms, torch) if torch else ""
    return NvidiaWheels(
        toolkit=tuple(each.format(cuda=cuda) for each in toolkit["wheels"]) if toolkit else (),
        cudnn=f"nvidia-cudnn-cu{major}{cudnn}" if cudnn else "",
        cudnn_major=torch.cudnn if torch and cudnn else "",
        nccl=f"nvidia-nccl-cu{major}" if nccl else "",
    )


def toolkit_requirements(
    cuda: str, arch: str, sms: Sequence[str], libraries: Sequence[str]
) -> tuple[str, ...]:
    """Return the wheels that make up a toolkit to build with: the compiler, and these libraries,
    named as cuda-toolkit's extras. Empty if no wheels have the compiler."""
    row = None if any(map(is_jetson, sms)) else _row("compilers", cuda, arch)
    more = "".join(f",{library}" for library in libraries)
    return tuple(each.format(cuda=cuda, more=more) for each in row["wheels"]) if row else ()


def toolkit_archives(
    cuda: str, arch: str, sms: Sequence[str], libraries: Sequence[str]
) -> tuple[Archive, ...]:
    """Return the archives that make up a toolkit to build with, as `toolkit_requirements` does."""
    table = _DATA["archives"]
    rows = table["toolkits"].get(cuda, {})
    names = (*table["always"], *libraries)
    if any(map(is_jetson, sms)) or not set(names) <= set(rows):
        return ()
    return tuple(
        Archive(
            name,
            rows[name]["version"],
            table["address"] + rows[name]["path"].format(place=table["places"][arch]),
            **rows[name][arch],
        )
        for name in names
        if rows[name]
    )


def _row(table: str, cuda: str, arch: str) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = _DATA[table]
    fitting = (row for row in rows if arch in row.get("archs", row))
    return next((row for row in fitting if SpecifierSet(row["cuda"]).contains(cuda)), None)


def _cudnn(cuda: str, arch: str, sms: Sequence[str], torch: Torch) -> str:
    """Return the cuDNN versions that torch supports, that have wheels and serve these GPUs."""
    row, oldest = _row("cudnn", cuda, arch), min(sms, key=sm_order)
    without = (
        each["from"] for each in _DATA["cudnn_sms"] if sm_order(oldest) < sm_order(each["sm"])
    )
    below = min([str(int(torch.cudnn) + 1), *without], key=version_key)
    since = max(row[arch], torch.cudnn_from or "0", torch.cudnn, key=version_key) if row else below
    return f">={since},<{below}" if version_key(since) < version_key(below) else ""
