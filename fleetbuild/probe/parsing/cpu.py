"""Read the CPU from `uname` and /proc/cpuinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from fleetbuild.hardware.cpus import expected_rung, microarchitecture, x86_model_name
from fleetbuild.hardware.rungs import ARCHITECTURES, RUNGS, best
from fleetbuild.models import Capture
from fleetbuild.models.node import ON_WINDOWS
from fleetbuild.models.problem import Problem
from fleetbuild.probe.parsing.text import MAX_KEPT, lines, once_per_text, short

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
_MAX_KINDS = 64  # a processor has two or three
_MODEL = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
# Lines that nothing is read from, and in which nodes of one kind differ.
_MEASURED = re.compile(r"\n(?:cpu MHz|bogomips)[\t ]*:[^\n]*")
_THAT_MATTER = frozenset(feature for rung in RUNGS.values() for feature in rung.features)


@dataclass(frozen=True)
class Cpu:
    """The CPU and its features. `unsupported` says why no wheel can be built for the node."""

    kernel: str | None
    arch: str | None
    isa: str | None = None
    microarchitecture: str | None = None
    features: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    sve_bits: int | None = None
    unsupported: Problem | None = None
    warnings: tuple[str, ...] = ()


def read_cpu(capture: Capture) -> Cpu:
    """Return the CPU with the flags that all of its processors have."""
    text = capture.get("cpuinfo", "")
    if len(text) <= MAX_KEPT and "flags" in text:
        capture = {**capture, "cpuinfo": _MEASURED.sub("", text)}
    return _read_cpu(capture)


@once_per_text("uname", "cpuinfo", "sve")
def _read_cpu(capture: Capture) -> Cpu:
    system, kernel, machine = _uname(capture)
    if system not in (None, "Linux"):
        return Cpu(kernel, machine, unsupported=_why_unsupported(system))
    fields = [_field(line) for line in lines(capture, "cpuinfo") if ":" in line]
    arch = _ALIASES.get(machine, machine) if machine else _arch_by_shape(fields)
    if arch is not None and arch not in ARCHITECTURES:
        supported = " and ".join(ARCHITECTURES)
        reason = f"The architecture {arch} is not supported: {supported} are."
        return Cpu(kernel, arch, unsupported=Problem(reason))
    features = _common_features(fields, _FLAGS[arch]) if arch else frozenset()
    if arch is None or not features:
        return Cpu(kernel, arch, warnings=(_why_unknown(capture, arch),))
    rung = best(features, arch)
    kinds = _kinds(fields, _FLAGS[arch])
    return Cpu(
        kernel=kernel,
        arch=arch,
        isa=rung.name if rung else None,
        microarchitecture=_microarchitectures(arch, kinds),
        features=tuple(sorted(features)),
        masked=tuple(sorted(_masked(arch, kinds))),
        sve_bits=_sve_bits(capture) if "sve" in features else None,
        warnings=_differences(kinds, features),
    )


def _why_unsupported(system: str) -> Problem:
    if system.startswith(("Windows", "MINGW", "MSYS", "CYGWIN")):
        fix = f"Set ansible_shell_type: powershell for this host. {ON_WINDOWS.fix}"
        return ON_WINDOWS._replace(fix=fix)
    return Problem(f"{system} is not supported: only Linux is.")


@dataclass(frozen=True)
class _Kind:
    """The processors of a node with the same model and features."""

    features: frozenset[str]
    fields: dict[str, str]


def _kinds(fields: list[tuple[str, str]], key: str) -> list[_Kind]:
    """Return the kinds of processors, such as performance and efficiency cores."""
    processors: list[dict[str, str]] = [{}]
    for name, value in fields:
        if name == "processor":
            processors.append({})
        processors[-1].setdefault(name, value)
    told = [processor for processor in processors[1:] if key in processor]
    if (
        len(told) < len(processors) - 1 or not told
    ):  # older Arm kernels list the flags once for all processors
        told = [_first_processor(fields)]
    alike = {tuple(map(processor.get, (key, *_MODEL))): processor for processor in told}
    return [
        _Kind(_features(processor.get(key, "")), processor)
        for processor in list(alike.values())[:_MAX_KINDS]
    ]


def _masked(arch: str, kinds: list[_Kind]) -> frozenset[str]:
    """Return features of the processor model that no processor shows."""
    shown: frozenset[str] = frozenset().union(*(kind.features for kind in kinds))
    models = [expected_rung(kind.fields) for kind in kinds]
    expected = (model.features for model in models if model and model.arch == arch)
    return frozenset().union(*expected) - shown


def _differences(kinds: list[_Kind], common: frozenset[str]) -> tuple[str, ...]:
    some = frozenset().union(*(kind.features for kind in kinds)) - common
    partly = sorted(some & _THAT_MATTER)
    sentence = (
        f"Its processors differ: only some of them have {', '.join(partly)}. Code may run on any "
        "of them, so only what all of them have is used."
    )
    return (sentence,) if partly else ()


def _microarchitectures(arch: str, kinds: list[_Kind]) -> str | None:
    names = [
        (arch == "x86_64" and x86_model_name(kind.fields))
        or microarchitecture(
            arch,
            kind.features,
            kind.fields.get("vendor_id") or kind.fields.get("CPU implementer"),
            kind.fields.get("CPU part"),
        )
        for kind in kinds[:8]
    ]
    return " + ".join(dict.fromkeys(filter(None, names))) or None


def _sve_bits(capture: Capture) -> int | None:
    """Return the length of an SVE register in bits, if it is valid (16 to 256 bytes)."""
    text = " ".join(lines(capture, "sve", 2, 80)).strip()
    size = int(text) if re.fullmatch(r"\d{2,3}", text, re.ASCII) else 0
    return size * 8 if 16 <= size <= 256 and size % 16 == 0 else None


def _uname(capture: Capture) -> tuple[str | None, str | None, str | None]:
    """System, release and machine, each None if `uname` is missing or malformed."""
    match = next(filter(None, map(_UNAME.fullmatch, lines(capture, "uname", 8, 400))), None)
    return (match[1], match[2], match[3]) if match else (None, None, None)


def _field(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _first_processor(fields: list[tuple[str, str]]) -> dict[str, str]:
    """Return the first value of every field."""
    return dict(reversed(fields))


def _common_features(fields: list[tuple[str, str]], key: str) -> frozenset[str]:
    """Return the features that all cores have, since code may run on any of them."""
    texts = list({value for name, value in fields if name == key})
    common = _features(texts[0]) if texts else frozenset()
    for text in texts[1:]:  # one after the other: all the sets at once can be a gigabyte
        common &= _features(text)
    return frozenset(sorted(common)[:MAX_FEATURES])


@lru_cache(maxsize=32)  # the nodes of a fleet have few kinds of processors
def _features(text: str) -> frozenset[str]:
    return frozenset(filter(_FEATURE.fullmatch, text.split()))


def _arch_by_shape(fields: list[tuple[str, str]]) -> str | None:
    """Return the architecture from /proc/cpuinfo if `uname` does not name it.

    The flag lm means x86-64; only a 64-bit Arm kernel lists `asimd`.
    """
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
        return "Neither uname nor cpuinfo shows the architecture."
    return (
        f"cpuinfo names no {_FLAGS[arch]}, so the CPU's features are unknown: {short(text, 60)!r}."
    )
