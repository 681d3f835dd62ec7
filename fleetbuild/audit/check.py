"""Check whether a wheel may be installed on nodes of a target.

In: a wheel's audit and a target. Out: a sentence for each problem.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.metadata import other_package
from fleetbuild.audit.models import ElfAudit, WheelAudit, code_runs_on
from fleetbuild.audit.wheel import ENOUGH, audit_wheel
from fleetbuild.audit.wheel_tags import supported_tags
from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models import Target
from fleetbuild.text import first_few, version_key

_IMPLIED = {"x86_64": x86.implied, "aarch64": aarch64.implied}


def implied_features(arch: str, features: Collection[str]) -> frozenset[str]:
    """Return these features of a CPU with the features that they imply."""
    return _IMPLIED[arch](frozenset(features)) if arch in _IMPLIED else frozenset(features)


def check_wheel(
    path: Path | str,
    *,
    target: Target,
    package: str,
    wheel_version: str,
    libstdcxx: str | None = None,
    pins: Iterable[str] = (),
    allowed: Iterable[str] = (),
    top_level: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the problems of a wheel on nodes of a target; empty if it fits.

    `libstdcxx` is the oldest GLIBCXX of the nodes, if known; `pins` are the exact versions of the
    packages that the wheel is built against. `allowed` and `top_level` come from its recipe.
    """
    audit = audit_wheel(path, allowed=allowed, top_level=top_level)
    problems = (
        *(f"{audit.file}: {problem}" for problem in audit.problems),
        *other_package(audit, package, wheel_version),
        *_unpinned(audit, pins),
        *_tags(audit, target),
        *_machines(audit, target),
        *(
            finding
            for elf in audit.elfs
            if elf.arch == target.arch
            for finding in _elf(elf, target)
        ),
        *_cxx(audit, libstdcxx),
        *_gpus(audit, target, package, wheel_version),
    )
    return first_few(problems, ENOUGH)


def _unpinned(audit: WheelAudit, pins: Iterable[str]) -> Iterator[str]:
    for pin in pins:
        name = pin.partition("==")[0]
        required = [text for text in audit.requires if _required(text) == canonicalize_name(name)]
        if [re.sub(r"\s|\[[^\[\]]*\]", "", text) for text in required] != [pin]:
            actual = " and ".join(required) or f"nothing of {name}"
            yield f"{audit.file} must require {pin}, but its METADATA requires {actual}"


def _required(text: str) -> str:
    return canonicalize_name(re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0])


def _tags(audit: WheelAudit, target: Target) -> Iterator[str]:
    tags = {tag for text in audit.tags for tag in parse_tag(text)}
    supported = supported_tags(target.python, target.arch, target.libc).keys()
    if not tags or tags & supported:
        return
    if not {_python(tag) for tag in tags} & {_python(tag) for tag in supported}:
        yield f"{audit.file} is for {_either(tag.interpreter for tag in tags)}, not {target.python}"
    else:
        yield (
            f"{audit.file} is for {_either(tag.platform for tag in tags)}, not for Linux on "
            f"{target.arch} with {target.libc.family} {target.libc.floor}"
        )


def _python(tag: Tag) -> tuple[str, str]:
    return tag.interpreter, tag.abi


def _machines(audit: WheelAudit, target: Target) -> Iterator[str]:
    """Yield the files for another machine, unless some are for this one: then those are data."""
    host = [elf for elf in audit.elfs if elf.arch != "cuda"]
    if not any(elf.arch == target.arch for elf in host):
        for elf in host:
            yield f"{elf.path} is for {elf.arch}, not {target.arch}"


def _elf(elf: ElfAudit, target: Target) -> Iterator[str]:
    if elf.libc and elf.libc != target.libc.family:
        yield f"{elf.path} is linked with {elf.libc}, but the nodes have {target.libc.family}"
    elif elf.glibc and version_key(elf.glibc) > version_key(target.libc.floor):
        yield f"{elf.path} needs glibc {elf.glibc}, but the oldest node has {target.libc.floor}"
    allowed = implied_features(elf.arch, target.features)
    for use in elf.features:
        if use.when != "guarded" and use.feature not in allowed:
            yield f"{elf.path} uses {use}, which {target.isa} does not have"
    for what in elf.unknown:
        yield f"{elf.path} has {what}, so nobody knows where it runs"


def _cxx(audit: WheelAudit, oldest: str | None) -> Iterator[str]:
    if oldest is None or any("libstdc++" in elf.path for elf in audit.elfs):  # it contains its own
        return
    for elf in audit.elfs:
        if elf.glibcxx and version_key(elf.glibcxx) > version_key(oldest):
            yield f"{elf.path} needs GLIBCXX_{elf.glibcxx}, but the oldest libstdc++ has {oldest}"


def _gpus(audit: WheelAudit, target: Target, package: str, version: str) -> Iterator[str]:
    own = [elf for elf in audit.elfs if not _from_nvidia(elf)]
    machine = {sm for elf in own for sm in elf.sms}
    ptx = {sm for elf in own for sm in elf.ptx}
    if not machine and not ptx:  # a package of the release that has no GPU code
        return
    for sm in target.sms:
        if not any(code_runs_on(code, sm) for code in (*machine, *(f"{each}+PTX" for each in ptx))):
            yield f"{audit.file} has no code for SM {sm}; it has {_sorted(machine | ptx)}"
    if target.ptx and target.ptx not in ptx:
        actual = f"only for SM {_sorted(ptx)}" if ptx else "for no SM"
        yield f"{audit.file} must contain PTX for SM {target.ptx} (cuda_ptx), but has PTX {actual}"
    if "." in version.partition("+")[2]:  # built by fleetbuild: its version names its SMs
        for elf in own:
            yield from _beyond(elf, target, package)


def _beyond(elf: ElfAudit, target: Target, package: str) -> Iterator[str]:
    promised = f"only for SM {', '.join(target.sms)}" if target.sms else "for CPUs"
    extra = {sm for sm in elf.sms + elf.ptx if sm.rstrip("af") not in target.sms}
    if more := extra - _granted(package, target.sms):
        yield f"{elf.path} contains GPU code for SM {_sorted(more)}, but it must be {promised}"


def _granted(package: str, sms: tuple[str, ...]) -> set[str]:
    """Return the SMs that a package may contain beyond these."""
    rows = _table("gpu_code")["packages"].get(canonicalize_name(package), ()) if sms else ()
    return {sm for row in rows if row["for"] in (*sms, "any") for sm in row["also"]}


def _from_nvidia(elf: ElfAudit) -> bool:
    return elf.path.rpartition("/")[2].startswith(tuple(_table("gpu_code")["libraries"]))


def _sorted(sms: Iterable[str]) -> str:
    return ", ".join(sorted(sms, key=sm_order))


@cache
def _table(name: str) -> dict[str, Any]:
    return load(f"{name}.yml", "fleetbuild.audit")


def _either(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))
