"""Decide whether a published wheel fits the nodes of a group.

In: a package, a target, the published file. Out: a `PublishedChoice`. The recipe says which CPU the
published wheels need if they choose code at run time; the tables say which GPUs PyTorch's wheels
serve. The machine code of any other wheel has to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, LockedFile, Target
from fleetbuild.models._base import Frozen
from fleetbuild.models.verdict import Code
from fleetbuild.plan.decide.packages import Package
from fleetbuild.toolchains.cuda import runs_on, serves
from fleetbuild.toolchains.pytorch import COMPANIONS, find_torch
from fleetbuild.toolchains.rocm import has_rocm_code, rocm_of


class PublishedChoice(Frozen):
    """The decision whether a group takes a published wheel of a package, with the reason."""

    file: LockedFile | None = None  # the wheel to take; None: build it
    version: str  # of the package, as it is asked for here
    why: str  # why it is taken, or why not
    undecided: bool = False  # whether only a run would show that it fits


PublishedChoices = Mapping[tuple[str, str], PublishedChoice]  # package and group -> choice


def must_be_read(package: Package, target: Target, file: LockedFile) -> bool:
    """Return whether a published wheel's machine code has to be read to know what it needs."""
    known = package.name in COMPANIONS or (package.name == "torch" and _is_known(file, target.arch))
    return _rung(package, target, file) is None or bool(target.sms and not known)


def _rung(package: Package, target: Target, file: LockedFile) -> str | None:
    """Return the rung that the recipe states for published wheels; None if it states none."""
    if _is_for_one_target(file):
        return None
    return package.recipe.published_rung(target.arch, package.version)


def _is_for_one_target(file: LockedFile) -> bool:
    """Return whether it was built for a target, as ours are: 2.6.0+cu124.sm86.avx. The recipe and
    the tables know the wheels of a project's own releases alone."""
    label = file.version.partition("+")[2]
    return any(label.endswith(f".{rung.label}") for rung in RUNGS.values())


def _is_known(torch: LockedFile, arch: str) -> bool:
    """Return whether the GPU code of a torch is known without reading it: by label, or by table."""
    row = find_torch(torch.version)
    return "+" in torch.version or bool(row and row.read_on_pypi(arch))


def choose_published(
    package: Package,
    target: Target,
    members: Sequence[Facts],
    file: LockedFile,
    *,
    versions: Mapping[str, str],
    code: Code | None = None,
    published_torch: LockedFile | None = None,
) -> PublishedChoice:
    """Return the published wheel if it fits the target and every member, else why it does not.
    `published_torch` is the published torch that a companion is installed with."""
    torch = versions.get("torch", "") if package.name in ("torch", *COMPANIONS) else ""
    beyond = [*_cpu(package, target, file, code)]
    reasons = [
        *((code.problem,) if code and code.problem else ()),
        *beyond,
        *_ptx(target, code),
        *_rocm(members, file),
        *((f"it is not known to use {target.blas} (build.blas)",) if target.blas else ()),
        *(_gpus_of_torch(target, members, file, torch) if torch else ()),
        *(_gpus(target, code) if code or not torch else ()),
        *(
            _companion(file, torch, published_torch, target.arch)
            if torch and package.name in COMPANIONS
            else ()
        ),
    ]
    if reasons:
        undecided = code is not None and code.undecided and reasons == beyond
        why = f"{file.file} does not fit: {'; '.join(reasons)}."
        return PublishedChoice(version=package.version, why=why, undecided=undecided)
    why = _why_it_fits(package, target, file, torch, code)
    said = f"{why[0].upper()}{why[1:]}."
    return PublishedChoice(file=file, version=package.version, why=said)


def _cpu(package: Package, target: Target, file: LockedFile, code: Code | None) -> Iterable[str]:
    rung = RUNGS.get(_rung(package, target, file) or "")
    if rung:
        if not rung <= RUNGS[target.isa]:
            yield f"it is built for {rung.name}, and these nodes are {target.isa}"
    elif code is None:
        yield "it is unknown which CPU its code needs"
    elif beyond := sorted(set(code.features) - set(target.features)):
        yield f"it uses {', '.join(beyond)}, which {target.isa} does not have"


def _gpus_of_torch(
    target: Target, members: Sequence[Facts], file: LockedFile, version: str
) -> Iterable[str]:
    cuda, torch = _variant(file, version, target.arch), find_torch(version)
    if not target.sms:
        return
    if cuda is None or torch is None:
        yield "it has no GPU code"
        return
    missing = [sm for sm in target.sms if not torch.has_code_for(cuda, target.arch, sm)]
    if missing and not _is_for_one_target(file):
        yield f"built with CUDA {cuda}, it has no code for SM {', '.join(missing)}"
    old = sorted({each.driver for each in members if each.driver and not serves(each.driver, cuda)})
    if old:
        yield f"driver {', '.join(old)} does not run CUDA {cuda}"


def _rocm(members: Sequence[Facts], file: LockedFile) -> Iterable[str]:
    """Return why a wheel for GPUs of AMD does not fit: each node needs one that it has code for."""
    rocm = rocm_of(file.version)
    if rocm is None:
        return
    gpus = [[gpu for gpu in node.gpus if gpu.vendor == "amd"] for node in members]
    if not all(gpus) or not gpus:
        yield f"it is for GPUs of AMD (ROCm {rocm}), which not all of these nodes have"
    names = {gpu.gfx for node in gpus for gpu in node}
    if None in names:
        yield "the gfx name of a GPU of AMD is unknown, because its driver does not work"
    if missing := sorted(
        name for name in names if name and not has_rocm_code(rocm, file.url, name)
    ):
        yield f"it has no code for {', '.join(missing)}"


def _companion(
    file: LockedFile, version: str, torch: LockedFile | None, arch: str
) -> Iterable[str]:
    """Return why a companion does not work with the release's torch.

    A companion links the libraries of one variant of torch, and loads only with this variant.
    """
    if torch is None:
        yield "it works only with a published torch, and these nodes get none"
    else:
        kinds = [_kind(each, version, arch) for each in (file, torch)]
        if kinds[0] != kinds[1]:
            yield f"it is built for {kinds[0]}, but torch {torch.version} for {kinds[1]}"


def _kind(file: LockedFile, torch: str, arch: str) -> str:
    """Return what a wheel of PyTorch is built for, in words."""
    if _is_for_one_target(file):
        return file.version.partition("+")[2]
    if rocm := rocm_of(file.version):
        return f"ROCm {rocm}"
    cuda = _variant(file, torch, arch)
    return f"CUDA {cuda}" if cuda else "CPUs only"


def _gpus(target: Target, code: Code | None) -> Iterable[str]:
    if not target.sms:
        return
    held = code.sms if code else ()
    missing = [sm for sm in target.sms if not any(runs_on(each, sm) for each in held)]
    if missing:
        yield f"it has no code for SM {', '.join(missing)}"


def _ptx(target: Target, code: Code | None) -> Iterable[str]:
    if target.ptx and (code is None or target.ptx not in code.ptx):
        yield f"it is not known to have PTX for SM {target.ptx} (cuda_ptx)"


def _variant(file: LockedFile, torch: str, arch: str) -> str | None:
    """Return the CUDA version of a PyTorch wheel: by its label, else as on PyPI; None for CPU."""
    label = file.version.partition("+")[2]
    if match := re.match(r"cu(\d+)(\d)\b", label):
        return f"{match[1]}.{match[2]}"
    known = find_torch(torch)
    return known.cuda_on_pypi(arch) if known and not label else None


def _why_it_fits(
    package: Package, target: Target, file: LockedFile, torch: str, code: Code | None
) -> str:
    cuda = _variant(file, torch, target.arch) if torch else None
    rung = _rung(package, target, file)
    if code and code.ran:
        cpu = f"ran on a CPU like {target.isa}, which QEMU imitated"
    elif rung:
        cpu = f"runs on {rung} or better and chooses its code at run time"
    else:
        cpu = f"uses no CPU features beyond {target.isa}"
    if target.sms:
        return f"{cpu}, with code for SM {', '.join(target.sms)}"
    if rocm := rocm_of(file.version):
        return f"{cpu}, with code of ROCm {rocm} for the GPUs of AMD here"
    if cuda:
        return f"{cpu}; it includes CUDA {cuda}, which these nodes do not use"
    return cpu
