"""The CPU, by `uname` and /proc/cpuinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleetbuild.hardware.cpus import expected_rung
from fleetbuild.hardware.microarchitectures import microarchitecture
from fleetbuild.hardware.rungs import ARCHITECTURES, best
from fleetbuild.models import Capture
from fleetbuild.probe._text import lines, short

_FLAGS = {"x86_64": "flags", "aarch64": "Features"}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_SHAPES = (
    ("cpu", "POWER", "ppc64le"),
    ("isa", "rv64", "riscv64"),
    ("vendor_id", "IBM/S390", "s390x"),
)
_UNAME = re.compile(r"([A-Za-z][\w./-]{0,63}) (\S{1,128}) ([A-Za-z][\w.-]{0,31})", re.ASCII)
_FEATURE = re.compile(r"[A-Za-z0-9_.+-]{1,40}", re.ASCII)
MAX_FEATURES = 1024


@dataclass(frozen=True)
class Cpu:
    """What the CPU is and has. `unsupported` says why the node can have no wheel at all."""

    kernel: str | None
    arch: str | None
    isa: str | None = None
    microarchitecture: str | None = None
    features: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    unsupported: str | None = None
    warnings: tuple[str, ...] = ()


def read_cpu(capture: Capture) -> Cpu:
    """The CPU by its own flags: those that all processors have."""
    system, kernel, machine = _uname(capture)
    if system not in (None, "Linux"):
        return Cpu(kernel, machine, unsupported=f"{system} is not supported: only Linux is.")
    fields = [_field(line) for line in lines(capture, "cpuinfo") if ":" in line]
    arch = _ALIASES.get(machine, machine) if machine else _arch_by_shape(fields)
    if arch is not None and arch not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        reason = f"The architecture {arch} is not supported: {known} are."
        return Cpu(kernel, arch, unsupported=reason)
    features = _common_features(fields, _FLAGS[arch]) if arch else frozenset()
    if arch is None or not features:
        return Cpu(kernel, arch, warnings=(_why_unknown(capture, arch),))
    rung = best(features, arch)
    first = _first_processor(fields)
    expected = expected_rung(first)
    masked = expected.features - features if expected and expected.arch == arch else frozenset()
    return Cpu(
        kernel=kernel,
        arch=arch,
        isa=rung.name if rung else None,
        microarchitecture=microarchitecture(
            arch,
            features,
            first.get("vendor_id") or first.get("CPU implementer"),
            first.get("CPU part"),
        ),
        features=tuple(sorted(features)),
        masked=tuple(sorted(masked)),
    )


def _uname(capture: Capture) -> tuple[str | None, str | None, str | None]:
    """System, release and machine, each None where `uname` is missing or no uname."""
    match = next(filter(None, map(_UNAME.fullmatch, lines(capture, "uname"))), None)
    return (match[1], match[2], match[3]) if match else (None, None, None)


def _field(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _first_processor(fields: list[tuple[str, str]]) -> dict[str, str]:
    """Every field as it first stands."""
    return dict(reversed(fields))


def _common_features(fields: list[tuple[str, str]], key: str) -> frozenset[str]:
    """Cores can differ, and code may run on any of them."""
    texts = {value for name, value in fields if name == key}
    sets = [frozenset(filter(_FEATURE.fullmatch, text.split())) for text in texts]
    common = frozenset.intersection(*sets) if sets else frozenset()
    return frozenset(sorted(common)[:MAX_FEATURES])


def _arch_by_shape(fields: list[tuple[str, str]]) -> str | None:
    """What /proc/cpuinfo looks like, where `uname` does not tell. Long mode is x86-64, and only a
    64-bit Arm kernel says `asimd`."""
    first = _first_processor(fields)
    if "flags" in first:
        return "x86_64" if "lm" in _common_features(fields, "flags") else "i686"
    if "Features" in first:
        return "aarch64" if "asimd" in _common_features(fields, "Features") else "armv7l"
    return next(
        (arch for key, begin, arch in _SHAPES if first.get(key, "").startswith(begin)), None
    )


def _why_unknown(capture: Capture, arch: str | None) -> str:
    text = capture.get("cpuinfo", "")
    if not text.strip():
        return "cpuinfo is missing, so the CPU's features are unknown."
    if arch is None:
        return "Neither uname nor cpuinfo tells the architecture."
    return (
        f"cpuinfo names no {_FLAGS[arch]}, so the CPU's features are unknown: {short(text, 60)!r}."
    )
