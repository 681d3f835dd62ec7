"""Wheels that others publish: does one fit the nodes of a group, and why not?

What a package's wheels need of a CPU is in its recipe, where they choose their code at run time;
what PyTorch's need of a GPU is in the tables. Any other wheel has to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.hardware.cuda import runs_on, serves
from fleetbuild.hardware.pytorch import COMPANIONS, find_torch
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, LockedFile, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.packages import Package


class Code(Frozen):
    """What the machine code in a wheel needs, strictly read."""

    features: tuple[str, ...] = ()
    sms: tuple[str, ...] = ()  # "8.6", "9.0a"
    ptx: tuple[str, ...] = ()


class Choice(Frozen):
    """What is published of a package, for one group."""

    file: LockedFile | None = None  # the wheel that is taken
    why: str  # it is, or is not


Choices = Mapping[tuple[str, str], Choice]  # package and group -> choice


def must_be_read(package: Package, target: Target) -> bool:
    """Whether only its code tells what a published wheel of this package needs."""
    told_by_table = package.name in ("torch", *COMPANIONS)
    return target.arch not in package.recipe.published or bool(target.sms and not told_by_table)


def choose_published(
    package: Package,
    target: Target,
    members: Sequence[Facts],
    file: LockedFile,
    *,
    versions: Mapping[str, str],
    code: Code | None = None,
    beside: LockedFile | None = None,
) -> Choice:
    """The published wheel, where it fits the target and every member; else why it does not.
    `beside` is the published torch that a companion comes to stand beside."""
    torch = versions.get("torch", "") if package.name in ("torch", *COMPANIONS) else ""
    reasons = [
        *_cpu(package, target, code),
        *(_gpus_of_torch(target, members, file, torch) if torch else _gpus(target, code)),
        *(_companion(file, torch, beside) if torch and package.name in COMPANIONS else ()),
    ]
    if reasons:
        return Choice(why=f"{file.file} does not fit: {'; '.join(reasons)}.")
    return Choice(file=file, why=f"Published: {_fits(package, target, file, torch)}.")


def _cpu(package: Package, target: Target, code: Code | None) -> Iterable[str]:
    rung = RUNGS.get(package.recipe.published.get(target.arch, ""))
    if rung:
        if not rung <= RUNGS[target.isa]:
            yield f"it is built for {rung.name}, and these nodes are {target.isa}"
    elif code is None:
        yield "nobody knows what its code needs"
    elif beyond := sorted(set(code.features) - set(target.features)):
        yield f"it holds {', '.join(beyond)}, which {target.isa} is without"


def _gpus_of_torch(
    target: Target, members: Sequence[Facts], file: LockedFile, version: str
) -> Iterable[str]:
    cuda, torch = _variant(file, version), find_torch(version)
    if not target.sms:
        return
    if cuda is None or torch is None:
        yield "it is for CPUs"
        return
    missing = [sm for sm in target.sms if not torch.has_code_for(cuda, target.arch, sm)]
    if missing:
        yield f"built with CUDA {cuda}, it has no code for SM {', '.join(missing)}"
    old = sorted({each.driver for each in members if each.driver and not serves(each.driver, cuda)})
    if old:
        yield f"driver {', '.join(old)} does not run CUDA {cuda}"


def _companion(file: LockedFile, version: str, torch: LockedFile | None) -> Iterable[str]:
    """A companion links the libraries of one variant of torch, and loads with no other."""
    if torch is None:
        yield "no published torch is taken for these nodes, and it goes with no other"
    elif _variant(file, version) != _variant(torch, version):
        kinds = [f"CUDA {cuda}" if (cuda := _variant(each, version)) else "CPUs alone"
                 for each in (file, torch)]  # fmt: skip
        yield f"it is made for {kinds[0]}, and torch {torch.version} for {kinds[1]}"


def _gpus(target: Target, code: Code | None) -> Iterable[str]:
    if not target.sms:
        return
    held = code.sms if code else ()
    missing = [sm for sm in target.sms if not any(runs_on(each, sm) for each in held)]
    if missing:
        yield f"it has no code for SM {', '.join(missing)}"


def _variant(file: LockedFile, torch: str) -> str | None:
    """The CUDA version of a wheel of PyTorch's: by its label, else as on PyPI; None for CPUs."""
    label = file.version.partition("+")[2]
    if match := re.match(r"cu(\d+)(\d)\b", label):
        return f"{match[1]}.{match[2]}"
    known = find_torch(torch)
    return known.pypi if known and not label else None


def _fits(package: Package, target: Target, file: LockedFile, torch: str) -> str:
    cuda = _variant(file, torch) if torch else None
    rung = package.recipe.published.get(target.arch)
    cpu = f"runs from {rung} on and picks its code at run time" if rung else "holds nothing beyond"
    if target.sms:
        return f"{cpu}, with code for SM {', '.join(target.sms)}"
    if cuda:
        return f"{cpu}; it brings CUDA {cuda}, which these nodes do not use"
    return cpu if rung else f"{cpu} {target.isa}"
