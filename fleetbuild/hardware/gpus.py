"""GPUs: the SM (compute capability) of a PCI device, and the properties of each SM.

Devices are identified by PCI id or by the driver. Product names are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetbuild.hardware.data import load

_DATA = load("gpus.yml")
# Vendors whose GPUs are only named in warnings: PCI vendor id -> name, what their code needs.
OTHER_VENDORS = {"1002": ("AMD", "ROCm"), "8086": ("Intel", "XPU")}
_OTHER_DEVICES: dict[str, dict[str, str]] = load("other_gpus.yml")


@dataclass(frozen=True)
class Sm:
    """One SM: its architecture, some products, and the CUDA toolkits that compile for it."""

    name: str  # "8.6"
    architecture: str
    products: tuple[str, ...]
    first_cuda: str
    last_cuda: str | None  # None: the newest toolkit still does
    jetson: bool = False


def _sms(table: dict[str, dict[str, Any]]) -> dict[str, Sm]:
    return {
        name: Sm(
            name,
            row["architecture"],
            tuple(row["products"]),
            row["first_cuda"],
            row["last_cuda"],
            row.get("jetson", False),
        )
        for name, row in table.items()
    }


def _devices(chips: dict[str, dict[str, str]]) -> dict[str, str]:
    return {device: chip["sm"] for chip in chips.values() for device in chip["devices"].split()}


SMS: dict[str, Sm] = _sms(_DATA["sms"])  # oldest first
_SM_OF_DEVICE = _devices(_DATA["chips"])


def sm_of_device(pci_id: str) -> str | None:
    """Return the SM of a PCI device such as "10de:1024"; None if unknown."""
    vendor, _, device = pci_id.lower().partition(":")
    return _SM_OF_DEVICE.get(device) if vendor == "10de" else None


def other_gpu_name(pci_id: str) -> str:
    """Return the name of an AMD or Intel GPU such as "1002:74a1"."""
    vendor, _, device = pci_id.lower().partition(":")
    name = _OTHER_DEVICES[vendor].get(device)
    return f"{OTHER_VENDORS[vendor][0]} {name or f'GPU [{pci_id}]'}"


def gfx_name(version: int) -> str:
    """Return LLVM's name of an AMD GPU, by gfx_target_version of its driver: 90010 is gfx90a."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def sm_of_soc(compatible: str) -> str | None:
    """Return the SM of the GPU in a chip such as "nvidia,tegra234"; None if unknown."""
    vendor, _, chip = compatible.partition(",")
    return _DATA["socs"].get(chip) if vendor == "nvidia" else None


def devices_of_sm(sm: str) -> tuple[str, ...]:
    """Return the PCI device ids, of vendor 10de, that have this SM."""
    return tuple(sorted(device for device, has in _SM_OF_DEVICE.items() if has == sm))


def sm_order(sm: str) -> tuple[int, int, str]:
    """Return a key that sorts SMs as numbers: 9.0, 9.0a, 12.0."""
    major, _, rest = sm.partition(".")
    minor = rest.rstrip("af")
    return int(major), int(minor), rest[len(minor) :]
