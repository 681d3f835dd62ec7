"""What source files know that the tables of fleetbuild/hardware and toolchains do not.

`python -m benchmarks.tables FILE...` reads files that a maintainer has downloaded, by their names:
pci.ids (pci-ids.ucw.cz), intel-family.h and cputype.h (the Linux kernel), CMake's
CMakeCUDAArchitecturesAll.cmake, and NVIDIA's redistrib_VERSION.json. It prints what is new.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetbuild.hardware.cpus import expected_rung
from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS, sm_of_device
from fleetbuild.toolchains.cuda import TOOLKITS

_NOT_GPUS = re.compile("audio|USB|UCSI|NVSwitch|reserved|bridge|controller", re.IGNORECASE)


def pci_ids(text: str) -> Iterator[str]:
    """Yield the GPUs of NVIDIA whose chip has a row without them, and those of unknown chips."""
    part = re.search(r"^10de .*\n((?:[\t#].*\n|\n)*)", text, re.MULTILINE)
    chips = set(load("gpus.yml")["chips"])
    for device, name in re.findall(
        r"^\t([0-9a-f]{4})  (.+)", part[1] if part else "", re.MULTILINE
    ):
        chip = re.match(r"G[A-Z]\d{3}|AD\d{3}|TU\d{3}|GB\w{3}", name)
        known = sm_of_device(f"10de:{device}") or _NOT_GPUS.search(name)
        if chip and not known and (chip[0] in chips or chip[0] > max(chips)):
            yield f"gpus.yml: {device} {name}"


def intel_family(text: str) -> Iterator[str]:
    """Yield Intel's CPUs that have no rung."""
    for name, family, model in re.findall(r"INTEL_(\w+)\s+IFM\((\d+), (0x[0-9A-F]+)\)", text):
        lines = {"vendor_id": "GenuineIntel", "cpu family": family, "model": model, "stepping": "4"}
        if not expected_rung(lines) and (int(family), int(model, 16)) > (6, 0x1A):
            yield f"cpus.yml: Intel {name}, family {family}, model {int(model, 16)}"


def cputype(text: str) -> Iterator[str]:
    """Yield Arm CPUs that have no rung."""
    makers = dict(re.findall(r"ARM_CPU_IMP_(\w+)\s+(0x[0-9A-Fa-f]+)", text))
    for maker, core, part in re.findall(r"(\w+?)_CPU_PART_(\w+)\s+(0x[0-9A-Fa-f]+)", text):
        lines = {"CPU implementer": makers.get(maker, ""), "CPU part": part}
        if not expected_rung(lines):
            yield f"cpus.yml: {maker} {core}, implementer {makers.get(maker)}, part {part}"


def cmake(text: str) -> Iterator[str]:
    """Yield SMs that CMake knows for a toolkit."""
    for sm in sorted(set(re.findall(r"\b(\d{2,3})\b(?=[ )])", text)), key=int):
        if f"{sm[:-1]}.{sm[-1]}" not in SMS and int(sm) >= 30:
            yield f"gpus.yml: SM {sm[:-1]}.{sm[-1]}"


def redistrib(text: str) -> Iterator[str]:
    """Yield a toolkit that cuda.yml lacks."""
    version = re.search(r'"release_label": "(\d+\.\d+)', text)
    if version and version[1] not in TOOLKITS:
        yield f"cuda.yml: CUDA {version[1]}"


SOURCES: dict[str, Callable[[str], Iterator[str]]] = {
    "pci.ids": pci_ids, "intel-family": intel_family, "cputype": cputype,
    "CMakeCUDA": cmake, "redistrib": redistrib,
}  # fmt: skip

if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        reader = next((SOURCES[name] for name in SOURCES if path.name.startswith(name)), None)
        found = list(reader(path.read_text("utf-8", "replace"))) if reader else ["unknown file"]
        print(f"{path}: {len(found)} new", *found, sep="\n  ")
