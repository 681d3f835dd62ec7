"""Read the GPUs from nvidia-smi's CSV, lspci's lines and the device tree of boards.

GPUs of AMD and Intel are read from lspci, and a warning says that nothing is built for them. Of a
GPU that MIG splits, a program sees each instance as a GPU.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from fleetbuild.hardware.gpus import (
    OTHER_VENDORS,
    gfx_name,
    other_gpu_name,
    sm_of_device,
    sm_of_soc,
    sm_order,
)
from fleetbuild.models import Capture, Gpu
from fleetbuild.probe.parsing.text import lines, once_per_text, short

MAX_GPUS = 256
_MAX_CELLS = 32
_SM = re.compile(r"[1-9]\d?\.\d", re.ASCII)
_DRIVER = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9})( ?MiB)?", re.ASCII)
# A line of lspci, in three steps that each read it once: 0000:03:00.0 3D controller [0302]: NVIDIA
# Device [10de:2503] (rev a1)
_KFD = re.compile(r"(\d{1,5}) (\d{1,8}) (\d{5,6})", re.ASCII)
_NEEDED = {vendor.lower(): code for vendor, code in OTHER_VENDORS.values()}
_SLOT = re.compile(r"[0-9a-f:.]{7,16} ", re.IGNORECASE | re.ASCII)
_CLASS = re.compile(r"\[?\b(?P<group>[0-9a-f]{4})\]?: ", re.IGNORECASE | re.ASCII)
_ID = re.compile(r"\[?(?P<id>(?:10de|1002|8086):[0-9a-f]{4})\]?\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Gpus:
    """The GPUs with a working driver, and warnings about the others."""

    gpus: tuple[Gpu, ...] = ()
    sms: tuple[str, ...] = ()
    driver: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Device:
    """A GPU on the PCI bus."""

    slot: str
    id: str
    name: str

    @property
    def vendor(self) -> str:
        return self.id[:4]

    @property
    def sm(self) -> str | None:
        return sm_of_device(self.id)

    def __str__(self) -> str:
        return f"{self.slot} {self.name} [{self.id}]"


@dataclass(frozen=True)
class _Soc:
    """The GPU in a Tegra chip, which is not on a PCI bus."""

    board: str
    sm: str
    served: bool  # its driver has created its device


@once_per_text("nvidia-smi", "lspci", "device-tree", "kfd", "mig")
def read_gpus(capture: Capture) -> Gpus:
    """Return the GPUs with their SMs: from the driver, else from the PCI device or the chip."""
    on_bus, soc = _devices(capture), _soc(capture)
    nvidia = _nvidia_gpus(capture, [device for device in on_bus if device.vendor == "10de"], soc)
    names = _gfx_names(capture)
    others = [_other_gpu(device, names) for device in on_bus if device.vendor != "10de"]
    return replace(
        nvidia,
        gpus=(*nvidia.gpus, *others),
        warnings=nvidia.warnings + _unsupported(others, cpu_node=not nvidia.gpus),
    )


def _other_gpu(device: _Device, gfx_names: dict[str, str]) -> Gpu:
    return Gpu(
        name=other_gpu_name(device.id),
        vendor="amd" if device.vendor == "1002" else "intel",
        gfx=gfx_names.get(device.slot.lower()),
    )


def _gfx_names(capture: Capture) -> dict[str, str]:
    """Return the gfx name of each GPU of AMD with a driver, by its PCI slot: 0000:c1:00.0."""
    names = {}
    for match in filter(None, map(_KFD.fullmatch, lines(capture, "kfd", MAX_GPUS, 100))):
        domain, location, version = map(int, match.groups())
        bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
        names[f"{domain:04x}:{bus:02x}:{device:02x}.{function}"] = gfx_name(version)
    return names


def _unsupported(gpus: list[Gpu], *, cpu_node: bool) -> tuple[str, ...]:
    """Return a warning for each kind of GPU that fleetbuild does not build for."""
    kinds = dict.fromkeys((gpu.name, gpu.gfx, _NEEDED[gpu.vendor]) for gpu in gpus)
    consequence = ", so this is a CPU node" if cpu_node else ""
    return tuple(
        f"Nothing is built for the GPU {name}{f' ({gfx})' if gfx else ''}: {needed} is not "
        f"supported, only NVIDIA's CUDA{consequence}."
        for name, gfx, needed in kinds
    )


def _nvidia_gpus(capture: Capture, devices: list[_Device], soc: _Soc | None) -> Gpus:
    rows = _rows(capture)
    if not rows:
        return _without_nvidia_smi(capture, devices, soc)
    sms = _sms(rows, devices, soc)
    gpus = tuple(_gpu(row, sm) for row, sm in zip(rows, sms, strict=True))
    return Gpus(
        gpus=gpus,
        sms=_all_sms(gpus),
        driver=next((row["driver"] for row in rows if row["driver"]), None),
        warnings=(
            *_unknown(gpus),
            *_unserved(rows, devices),
            *split_gpus(capture),
            *_unexpected_lines(capture, rows),
        ),
    )


def _all_sms(gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    return tuple(sorted({gpu.sm for gpu in gpus if gpu.sm}, key=sm_order))


def _smi_lines(capture: Capture) -> list[str]:
    """Return the non-empty lines that nvidia-smi printed."""
    return [line for line in lines(capture, "nvidia-smi", 4 * MAX_GPUS, 1000) if line]


def _rows(capture: Capture) -> list[dict[str, str]]:
    """Return the rows of the CSV by column name; empty if it is not CSV."""
    split = (line.split(",", _MAX_CELLS) for line in _smi_lines(capture))
    table = [[cell.strip() for cell in cells] for cells in split]
    for number, cells in enumerate(table):
        header = [cell.partition("[")[0].rstrip().lower() for cell in cells]
        if "name" in header and len(header) > 1:
            body = [row for row in table[number + 1 :] if len(row) == len(header)]
            return [_named(dict(zip(header, row, strict=True))) for row in body[:MAX_GPUS]]
    return []


def _named(row: dict[str, str]) -> dict[str, str]:
    """Return the needed cells; "" for a missing or invalid value such as [N/A]."""

    def valid(column: str, pattern: re.Pattern[str]) -> str:
        value = row.get(column, "")
        return value if pattern.fullmatch(value) else ""

    return {
        "name": row["name"],
        "sm": valid("compute_cap", _SM),
        "driver": valid("driver_version", _DRIVER),
        "memory": valid("memory.total", _MEMORY),
    }


def _gpu(row: dict[str, str], sm: str | None) -> Gpu:
    memory = row["memory"].removesuffix("MiB").strip()
    return Gpu(name=short(row["name"], 100), sm=sm, memory_mb=int(memory) if memory else None)


def _sms(rows: list[dict[str, str]], devices: list[_Device], soc: _Soc | None) -> list[str | None]:
    """Return the SM of each row. nvidia-smi lists GPUs in bus order, so row n is device n.

    A Tegra chip's own GPU is named "Orin (nvgpu)" and has almost no values.
    """
    own = ["nvgpu" in row["name"] or not devices for row in rows] if soc else [False] * len(rows)
    on_bus = own.count(False)
    of_devices = [device.sm for device in devices]
    if len(devices) != on_bus:  # one has no driver: only an SM common to all is certain
        of_devices = [of_devices[0] if len(set(of_devices)) == 1 else None] * on_bus
    sms = iter(of_devices)
    by_place = [soc.sm if soc and mine else next(sms) for mine in own]
    return [row["sm"] or sm for row, sm in zip(rows, by_place, strict=True)]


def _soc(capture: Capture) -> _Soc | None:
    fields = [line.partition(": ") for line in lines(capture, "device-tree", 100, 1000)]
    names = [value for key, _, value in fields if key == "compatible"]
    sm = next(filter(None, map(sm_of_soc, names)), None)
    if sm is None:
        return None
    board = next((value for key, _, value in fields if key == "model"), names[0])
    return _Soc(short(board, 100), sm, served=any(key == "device" for key, _, _ in fields))


def _devices(capture: Capture) -> list[_Device]:
    """Return the display controllers, without audio and USB functions and NVSwitches.

    AMD's Instinct accelerators are of the class 1200; Intel has NPUs there.
    """
    controllers = map(_display_controller, lines(capture, "lspci", 8 * MAX_GPUS, 1000))
    return list(filter(None, controllers))[:MAX_GPUS]


def _display_controller(line: str) -> _Device | None:
    slot = _SLOT.match(line)
    kind = _CLASS.search(line, slot.end()) if slot else None
    which = _ID.search(line, kind.end()) if kind else None
    if not (slot and kind and which):
        return None
    accelerator = kind["group"] == "1200" and which["id"].startswith("1002")
    if not (accelerator or kind["group"].startswith("03")):
        return None
    name = line[kind.end() : which.start()]
    return _Device(slot[0].strip(), which["id"].lower(), short(name, 100))


def _without_nvidia_smi(capture: Capture, devices: list[_Device], soc: _Soc | None) -> Gpus:
    """Return the GPUs of a node without nvidia-smi output; a Jetson's GPU works without it."""
    output = short(" ".join(_smi_lines(capture)[:20]))
    detail = f" nvidia-smi says: {output}" if output else ""
    served = (Gpu(name=soc.board, sm=soc.sm),) if soc and soc.served else ()
    others = {str(device): f"{device.name} [{device.id}]".strip() for device in devices}
    if soc and not soc.served:
        others[f"of {soc.board}"] = soc.board
    if not served and not others:
        return Gpus(warnings=(f"No GPU found.{detail}",) if output else ())
    consequence = "so it is not used" if served else "so this is a CPU node"
    return Gpus(
        gpus=served + tuple(Gpu(name=name) for name in others.values()),
        sms=_all_sms(served),
        warnings=tuple(
            f"The GPU {which} has no working driver, {consequence}.{detail}" for which in others
        ),
    )


def _unknown(gpus: tuple[Gpu, ...]) -> list[str]:
    return [
        f"The SM of {gpu.name} is unknown: neither its driver nor its PCI device shows it. "
        "Set fleetbuild_sms for this host."
        for gpu in gpus
        if gpu.sm is None
    ]


def _unserved(rows: list[dict[str, str]], devices: list[_Device]) -> list[str]:
    if len(devices) <= len(rows):
        return []
    return [f"{len(devices)} GPUs are on the bus, but the driver serves only {len(rows)}."]


def _unexpected_lines(capture: Capture, rows: list[dict[str, str]]) -> list[str]:
    """Return a warning about lines between the rows, such as "Unable to determine …"."""
    others = _smi_lines(capture)[len(rows) + 1 :]
    return [f"nvidia-smi also says: {short(' '.join(others))}"] if others else []


_MODE = re.compile(r"(?P<index>\d{1,3}), (?P<name>.{1,200}), Enabled", re.ASCII)
_GPU = re.compile(r"GPU (?P<index>\d{1,3}): ", re.ASCII)
_INSTANCE = re.compile(r"MIG (?P<profile>[\w.+-]{1,30}) +Device +\d{1,3}: ", re.ASCII)


def split_gpus(capture: Capture) -> list[str]:
    """Return a warning for each GPU with MIG enabled. All its instances have the same SM."""
    mig_lines = lines(capture, "mig", 1000, 400)
    modes = filter(None, map(_MODE.fullmatch, mig_lines))
    instances = _instances(mig_lines)
    return [
        _sentence(f"GPU {mode['index']} ({short(mode['name'], 100)})", instances[mode["index"]])
        for mode in modes
    ]


def _instances(mig_lines: list[str]) -> defaultdict[str, Counter[str]]:
    """Return the number of instances per profile (such as 1g.10gb) by GPU index."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    index = ""
    for line in mig_lines:
        if gpu := _GPU.match(line):
            index = gpu["index"]
        elif instance := _INSTANCE.match(line):
            counts[index][instance["profile"]] += 1
    return counts


def _sentence(gpu: str, profiles: Counter[str]) -> str:
    if not profiles:
        return (
            f"{gpu} has MIG enabled but no instance, so no program can use it. Create one "
            "(nvidia-smi mig -cgi), or disable MIG."
        )
    counts = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    return f"{gpu} is split by MIG into {counts}: a program sees one of them at a time."
