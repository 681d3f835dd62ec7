"""May this wheel go to nodes of this target? Each reason why not is a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.tags import Tag, parse_tag

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.metadata import same
from fleetbuild.audit.models import ElfAudit, WheelAudit, sm_order, version_order
from fleetbuild.audit.wheel import audit_wheel
from fleetbuild.models import Target

_IMPLIED = {"x86_64": x86.implied, "aarch64": aarch64.implied}
_PERENNIAL = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_PLATFORM = re.compile(
    r"(?P<name>linux|manylinux\d+|manylinux_(?P<glibc>\d+_\d+)|musllinux_(?P<musl>\d+_\d+))"
    r"_(?P<arch>\w+)"
)


def check_wheel(
    path: Path | str,
    *,
    target: Target,
    package: str,
    wheel_version: str,
    sha256: str | None = None,
) -> tuple[str, ...]:
    """What speaks against this wheel on nodes of this target; nothing where it is right."""
    return check_audit(
        audit_wheel(path),
        target=target,
        package=package,
        wheel_version=wheel_version,
        sha256=sha256,
    )


def check_audit(
    audit: WheelAudit,
    *,
    target: Target,
    package: str,
    wheel_version: str,
    sha256: str | None = None,
) -> tuple[str, ...]:
    """The same for a wheel that was audited already."""
    return (
        *(f"{audit.file}: {problem}" for problem in audit.problems),
        *_identity(audit, package, wheel_version, sha256),
        *_tags(audit, target),
        *(finding for elf in audit.elfs for finding in _elf(elf, target)),
        *_gpus(audit, target),
    )


def _identity(audit: WheelAudit, package: str, version: str, sha256: str | None) -> Iterator[str]:
    if sha256 is not None and audit.sha256 != sha256:
        yield f"{audit.file} has sha256 {audit.sha256}, and {sha256} was expected"
    said = {
        "METADATA": (audit.name, audit.version),
        "its file name": (audit.file_name, audit.file_version),
    }
    for where, (name, found) in said.items():
        if name and found and not same(name, found, package, version):
            yield f"{audit.file} should be {package} {version}, and {where} says {name} {found}"


def _tags(audit: WheelAudit, target: Target) -> Iterator[str]:
    tags = [tag for text in audit.tags for tag in parse_tag(text)]
    if tags and not any(_python_fits(tag, target.python) for tag in tags):
        yield f"{audit.file} is for {_either(tag.interpreter for tag in tags)}, not {target.python}"
    if tags and not any(_platform_fits(tag, target) for tag in tags):
        yield (
            f"{audit.file} is for {_either(tag.platform for tag in tags)}, not for Linux on "
            f"{target.arch} with {target.libc.family} {target.libc.floor}"
        )


def _python_fits(tag: Tag, python: str) -> bool:
    interpreter = python.rstrip("t")
    if tag.abi == "none":
        return tag.interpreter in (interpreter, "py3", f"py{interpreter[2:]}")
    if tag.abi == "abi3":  # good for newer Pythons, but for none without the lock
        oldest = tag.interpreter.removeprefix("cp3")
        return (
            python == interpreter
            and oldest.isdigit()
            and interpreter.removeprefix("cp3").isdigit()
            and int(oldest) <= int(interpreter.removeprefix("cp3"))
        )
    return tag.interpreter == interpreter and tag.abi == python


def _platform_fits(tag: Tag, target: Target) -> bool:
    if tag.platform == "any":
        return True
    platform = _PLATFORM.fullmatch(tag.platform)
    if platform is None or platform["arch"] != target.arch:
        return False
    if platform["name"] == "linux":
        return True
    family = "musl" if platform["musl"] else "glibc"
    needs = platform["musl"] or platform["glibc"] or _PERENNIAL.get(platform["name"], "")
    floor = version_order(target.libc.floor)
    return family == target.libc.family and version_order(needs.replace("_", ".")) <= floor


def _elf(elf: ElfAudit, target: Target) -> Iterator[str]:
    if elf.arch != target.arch:
        yield f"{elf.path} is for {elf.arch}, not {target.arch}"
        return
    if elf.libc and elf.libc != target.libc.family:
        yield f"{elf.path} is linked with {elf.libc}, and the nodes have {target.libc.family}"
    elif elf.glibc and version_order(elf.glibc) > version_order(target.libc.floor):
        yield f"{elf.path} needs glibc {elf.glibc}, and the oldest node has {target.libc.floor}"
    allowed = _IMPLIED[elf.arch](frozenset(target.features))
    for use in elf.features:
        if use.feature not in allowed:
            yield f"{elf.path} uses {use}, which {target.isa} does not have"


def _gpus(audit: WheelAudit, target: Target) -> Iterator[str]:
    if not audit.sms and not audit.ptx:  # a package of the release that has no GPU code
        return
    for sm in target.sms:
        if not any(_runs(built, sm) for built in audit.sms) and not any(
            sm_order(ptx) <= sm_order(sm) for ptx in audit.ptx
        ):
            yield f"{audit.file} has no code for SM {sm}; it has {_either(audit.sms + audit.ptx)}"


def _runs(built: str, sm: str) -> bool:
    """Machine code runs on its own SM and on later ones of the same major version."""
    (major, minor, suffix), (node_major, node_minor, _) = sm_order(built), sm_order(sm)
    if suffix:
        return (major, minor) == (node_major, node_minor)
    return major == node_major and minor <= node_minor


def _either(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))
