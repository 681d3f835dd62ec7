"""Read what script.ps1 printed on a Windows node. Pure; input is untrusted.

In: a capture. Out: `Facts`, as the core reads them on a Linux node.

Windows has no /proc/cpuinfo. The CPU's features come from CPUID if the node has PowerShell 7, else
from the numbers of IsProcessorFeaturePresent, completed by the features of the CPU's model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fleetbuild.extensions.windows.hardware import (
    WindowsFeatures,
    features_of_cpuid,
    features_of_numbers,
)
from fleetbuild.hardware.cpus import expected_rung
from fleetbuild.hardware.rungs import Rung, best
from fleetbuild.models import Capture, Facts, Python, Unreachable
from fleetbuild.probe.parsing.facts import MAX_PYTHONS, facts_of, unreachable
from fleetbuild.probe.parsing.text import lines, short

SECTIONS = (
    "uname", "processors", "cpu-features", "nvidia-smi", "lspci", "toolchain", "python",
)  # fmt: skip

_UNAME = re.compile(r"Windows (\d{1,3}(?:\.\d{1,6}){1,3}) ([A-Za-z0-9_]{2,16})", re.ASCII)
_PROPERTY = re.compile(r"([A-Za-z]\w{0,40}) *: ?(.*)", re.ASCII)
_MODEL = re.compile(r"Family (\d{1,3}) Model (\d{1,3}) Stepping (\d{1,3})", re.ASCII)
_CPUID = re.compile(r"cpuid ([0-9A-F]{8}) ([0-9A-F]{8})" + r" ([0-9A-F]{8})" * 4, re.ASCII)
_XSTATE = re.compile(r"xstate ([0-9A-F]{1,16})", re.ASCII)
_NUMBER = re.compile(r"feature (\d{1,3})", re.ASCII)
_PYTHON = re.compile(
    r"(?P<path>[A-Za-z]:\\[^\s\"<>|?*][^\"<>|?*]{0,500}?) (?P<version>3\.\d{1,3}[\w.+]{0,20})"
    r" (?P<soabi>cpython-3\d{1,3}[mt]?-win(?:32|_amd64))(?P<words>(?: [\w-]{1,20}){0,8})",
    re.ASCII,
)


def windows_facts(capture: Capture | Unreachable) -> Facts:
    """Return the facts in the capture of a Windows node; malformed values are unknown."""
    if isinstance(capture, Unreachable):
        return unreachable(capture.reason, capture.fix)
    # GPUs, tools and sections without an answer are printed as on Linux.
    shared = facts_of(capture)
    capture = {name: text for name, text in capture.items() if name not in shared.unanswered}
    found = next(filter(None, map(_UNAME.fullmatch, lines(capture, "uname", 8, 400))), None)
    version, machine = (found[1], found[2]) if found else ("", None)
    if machine != "AMD64":
        which = f"Windows on {machine}" if machine else "This Windows"
        reason = f"{which} is not supported: only on AMD64."
        fix = "Set fleetbuild_skip: true for this host."
        return Facts(state="unsupported", reason=reason, fix=fix)
    model = expected_rung(_processor(capture))
    reading = _features(capture, model, version)
    rung = best(reading.features, "x86_64")
    pythons = _pythons(capture)
    values = {
        "state": "ok",
        "arch": "x86_64",
        "isa": rung.name if rung else None,
        "features": tuple(sorted(reading.features)),
        "pythons": tuple(each for each in pythons if each.soabi.endswith("amd64")),
        "warnings": (*_warnings(reading, model), *_foreign(pythons), *shared.warnings),
    }
    return shared.model_copy(update=values)


def _pythons(capture: Capture) -> list[Python]:
    """Return the interpreters, each path once."""
    said = filter(None, map(_PYTHON.fullmatch, lines(capture, "python", 1000, 1000)))
    pythons = {
        match["path"]: Python(
            path=match["path"],
            version=match["version"],
            soabi=match["soabi"],
            venv="venv" in match["words"].split(),
        )
        for match in said
    }
    return list(pythons.values())[:MAX_PYTHONS]


def _foreign(pythons: Sequence[Python]) -> Iterator[str]:
    for python in pythons:
        if python.soabi.endswith("win32"):
            yield f"{short(python.path)} is a 32-bit Python ({python.soabi}), so it is left out."


def _processor(capture: Capture) -> dict[str, str]:
    """Return the first socket's model in the fields of /proc/cpuinfo."""
    said = filter(None, map(_PROPERTY.fullmatch, lines(capture, "processors", 2000, 400)))
    fields = dict(reversed([(match[1], match[2].strip()) for match in said]))
    known = {"vendor_id": fields.get("Manufacturer", ""), "model name": fields.get("Name", "")}
    if found := _MODEL.search(fields.get("Description", "")):
        known |= dict(zip(("cpu family", "model", "stepping"), found.groups(), strict=True))
    return known


def _features(capture: Capture, model: Rung | None, version: str) -> WindowsFeatures:
    said = lines(capture, "cpu-features", 300, 120)
    found = (
        [int(number, 16) for number in match.groups()]
        for match in filter(None, map(_CPUID.fullmatch, said))
    )
    leaves = {(leaf, subleaf): (a, b, c, d) for leaf, subleaf, a, b, c, d in found}
    numbers = {int(match[1]) for match in filter(None, map(_NUMBER.fullmatch, said))}
    state = next((int(match[1], 16) for match in filter(None, map(_XSTATE.fullmatch, said))), None)
    if leaves:
        return features_of_cpuid(leaves, state, numbers)
    return features_of_numbers(numbers, model, version)


def _warnings(reading: WindowsFeatures, model: Rung | None) -> tuple[str, ...]:
    if reading.exact:
        return ()
    missing = "" if model else ", and its model is unknown"
    said = f"shows only some features of the CPU{missing}: the others count as missing"
    if reading.by_model:
        taken = ", ".join(sorted(reading.by_model))
        said = f"does not show {taken}, which the CPU's model has and a hypervisor may hide"
    return (f"Windows {said}. Install PowerShell 7, with which the probe reads CPUID itself.",)
