"""A capture folder made visible on a node: programs and files where a real node has them."""

from __future__ import annotations

import re
from pathlib import Path

_PROGRAMS = Path(__file__).parent / "programs"
_PCI = re.compile(r"^(\S+) .*?\[([0-9a-f]{4})\].*\[([0-9a-f]{4}):([0-9a-f]{4})\]")


def mounts(capture: Path | None, *, gpu: bool, scratch: Path) -> list[str]:
    """Write what the node shows under `scratch`; the volumes (host:node:options) that show it."""
    volumes = []
    devices = scratch / "pci"
    devices.mkdir(parents=True)
    if capture is not None:
        cpuinfo = scratch / "cpuinfo"
        cpuinfo.write_bytes((capture / "cpuinfo").read_bytes())
        volumes.append(f"{cpuinfo}:/proc/cpuinfo:ro")
    if capture is not None and gpu:
        for name in ("nvidia-smi", "lspci"):
            if (capture / name).is_file():
                text = (capture / name).read_text()
                volumes.append(f"{_program(name, text, scratch)}:/usr/bin/{name}:ro")
        if (capture / "lspci").is_file():
            _pci_devices((capture / "lspci").read_text(), devices)
    if Path("/sys/bus/pci/devices").is_dir():
        # Always, so that a node never shows the GPUs of the machine that runs the lab.
        volumes.append(f"{devices}:/sys/bus/pci/devices:ro")
    return volumes


def _program(name: str, text: str, scratch: Path) -> Path:
    program = scratch / name
    source = (_PROGRAMS / name).read_text()
    program.write_text(source.replace("@CAPTURE@\n", text if text.endswith("\n") else text + "\n"))
    program.chmod(0o755)
    return program


def _pci_devices(lspci: str, folder: Path) -> None:
    for line in lspci.splitlines():
        if found := _PCI.match(line):
            slot, kind, vendor, device = found.groups()
            place = folder / slot
            place.mkdir()
            (place / "class").write_text(f"0x{kind}00\n")
            (place / "vendor").write_text(f"0x{vendor}\n")
            (place / "device").write_text(f"0x{device}\n")
