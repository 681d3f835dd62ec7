"""Read what script.ps1 printed on a Windows node: system, CPU and memory. Pure; input is untrusted.

Windows has no /proc/cpuinfo. The CPU's features come from CPUID if the node has PowerShell 7, else
from the numbers of IsProcessorFeaturePresent, completed by the features of the CPU's model.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetbuild.hardware.cpus import expected_rung
from fleetbuild.hardware.rungs import Rung, best
from fleetbuild.models import Capture, Os
from fleetbuild.probe.parsing.cpu import Cpu
from fleetbuild.probe.parsing.text import lines, short
from fleetbuild.windows.hardware import features_of_cpuid, features_of_numbers

_UNAME = re.compile(r"Windows (\d{1,3}(?:\.\d{1,6}){1,3}) ([A-Za-z0-9_]{2,16})", re.ASCII)
_PROPERTY = re.compile(r"([A-Za-z]\w{0,40}) *: ?(.*)", re.ASCII)
_MODEL = re.compile(r"Family (\d{1,3}) Model (\d{1,3}) Stepping (\d{1,3})", re.ASCII)
_CPUID = re.compile(r"cpuid ([0-9A-F]{8}) ([0-9A-F]{8})" + r" ([0-9A-F]{8})" * 4, re.ASCII)
_XSTATE = re.compile(r"xstate ([0-9A-F]{1,16})", re.ASCII)
_NUMBER = re.compile(r"feature (\d{1,3})", re.ASCII)
_SIZE = re.compile(r"\d{1,15}", re.ASCII)
_CPUS = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_MAX_SOCKETS = 64


@dataclass(frozen=True)
class _Reading:
    """The features, which of them follow from the model alone, and whether CPUID was read."""

    features: frozenset[str]
    by_model: frozenset[str]
    exact: bool


def is_windows(capture: Capture) -> bool:
    """Return whether script.ps1 made this capture."""
    return any(line.startswith("Windows ") for line in lines(capture, "uname", 8, 400))


def read_windows_cpu(capture: Capture) -> Cpu:
    """Return the CPU of a Windows node."""
    found = next(filter(None, map(_UNAME.fullmatch, lines(capture, "uname", 8, 400))), None)
    version, machine = (found[1], found[2]) if found else (None, None)
    if machine != "AMD64":
        which = f"Windows on {machine}" if machine else "This Windows"
        return Cpu(version, machine, unsupported=f"{which} is not supported: only on AMD64.")
    processor = _processor(capture)
    model = expected_rung(processor)
    reading = _features(capture, model, version or "")
    rung = best(reading.features, "x86_64")
    return Cpu(
        kernel=version,
        arch="x86_64",
        isa=rung.name if rung else None,
        features=tuple(sorted(reading.features)),
        masked=tuple(sorted(model.features - reading.features)) if model and reading.exact else (),
        warnings=_warnings(reading, model),
    )


def read_windows_os(capture: Capture, cpu: Cpu) -> Os:
    """Return the edition and version of Windows."""
    system = _properties(capture, "windows")
    return Os(
        id="windows",
        version=cpu.kernel,
        name=short(system.get("Caption", ""), 100) or None,
        kernel=cpu.kernel,
    )


def windows_memory_gb(capture: Capture) -> float | None:
    """Return the memory that Windows can use."""
    size = _properties(capture, "windows").get("TotalVisibleMemorySize", "")
    return round(int(size) / 1024**2, 1) if _SIZE.fullmatch(size) and int(size) else None


def windows_cpus(capture: Capture) -> int | None:
    """Return the number of logical processors of all sockets."""
    counts = [
        value
        for name, value in _pairs(capture, "processors")
        if name == "NumberOfLogicalProcessors" and _CPUS.fullmatch(value)
    ]
    return sum(map(int, counts[:_MAX_SOCKETS])) or None


def _processor(capture: Capture) -> dict[str, str]:
    """Return the first socket's model in the fields of /proc/cpuinfo."""
    fields = _properties(capture, "processors")
    known = {"vendor_id": fields.get("Manufacturer", ""), "model name": fields.get("Name", "")}
    if found := _MODEL.search(fields.get("Description", "")):
        known |= dict(zip(("cpu family", "model", "stepping"), found.groups(), strict=True))
    return known


def _features(capture: Capture, model: Rung | None, version: str) -> _Reading:
    said = lines(capture, "cpu-features", 300, 120)
    leaves = {
        (int(match[1], 16), int(match[2], 16)): (
            int(match[3], 16),
            int(match[4], 16),
            int(match[5], 16),
            int(match[6], 16),
        )
        for match in filter(None, map(_CPUID.fullmatch, said))
    }
    numbers = {int(match[1]) for match in filter(None, map(_NUMBER.fullmatch, said))}
    state = next((int(match[1], 16) for match in filter(None, map(_XSTATE.fullmatch, said))), None)
    if leaves:
        features = features_of_cpuid(leaves, state, numbers)
        return _Reading(features, frozenset(), exact=True)
    found = features_of_numbers(numbers, model, version)
    return _Reading(found.features, found.by_model, exact=False)


def _warnings(reading: _Reading, model: Rung | None) -> tuple[str, ...]:
    if reading.exact:
        return ()
    missing = "" if model else ", and its model is unknown"
    said = f"shows only some features of the CPU{missing}: the others count as missing"
    if reading.by_model:
        taken = ", ".join(sorted(reading.by_model))
        said = f"does not show {taken}, which the CPU's model has and a hypervisor may hide"
    return (f"Windows {said}. Install PowerShell 7, with which the probe reads CPUID itself.",)


def _properties(capture: Capture, section: str) -> dict[str, str]:
    """Return the first value of each property."""
    return dict(reversed(_pairs(capture, section)))


def _pairs(capture: Capture, section: str) -> list[tuple[str, str]]:
    """Return the properties in the output of Format-List: `Name : value`."""
    found = map(_PROPERTY.fullmatch, lines(capture, section, 2000, 400))
    return [(match[1], match[2].strip()) for match in found if match]


# The script is too long for a command line of cmd.exe, so it comes on standard input. `$input` has
# its lines; PowerShell's own "-Command -" would read them as if they were typed, block by block.
_BOOTSTRAP = '& ([ScriptBlock]::Create((@($input) -join "`n"))) {arguments}'


def powershell_command(arguments: Sequence[str]) -> str:
    """Return the command; the script goes to its standard input.

    It has only letters, digits and "+/=-.", which no shell of Windows reads in another way.
    """
    quoted = " ".join("'" + argument.replace("'", "''") + "'" for argument in arguments)
    text = _BOOTSTRAP.format(arguments=quoted)
    encoded = base64.b64encode(text.encode("utf-16-le")).decode()
    return (
        "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
        f"-EncodedCommand {encoded}"
    )
