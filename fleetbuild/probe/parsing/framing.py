"""What script.sh prints, cut into its sections. Pure."""

from __future__ import annotations

import re

from fleetbuild.models import Capture

SECTIONS = (
    "uname", "cpuinfo", "os-release", "libc", "libstdcxx", "meminfo", "nproc", "disk", "python",
    "nvidia-smi", "lspci", "toolchain", "release",
    "sve", "device-tree", "mig",  # only where there is such hardware
)  # fmt: skip


def split(output: str, nonce: str) -> Capture:
    """The sections in what script.sh printed. Whatever stands outside of them (a greeting, a
    profile's chatter) is left out, and so is a section that did not come to its end."""
    mark = re.escape(nonce)
    frame = re.compile(
        rf"^{mark} begin (?P<name>[a-z-]+)\n(?P<text>.*?)\n{mark} end (?P=name) (?P<status>\d+)$",
        re.DOTALL | re.MULTILINE,
    )
    return {
        match["name"]: match["text"]
        for match in frame.finditer(output)
        if match["name"] in SECTIONS and (match["text"] or match["status"] == "0")
    }
