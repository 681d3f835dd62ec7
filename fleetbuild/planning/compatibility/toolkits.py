"""Which CUDA toolkit a group is built with, or why none will do and what will instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from packaging.utils import canonicalize_name

from fleetbuild.hardware.cuda import TOOLKITS, Gcc, is_jetson, minor
from fleetbuild.hardware.pytorch import (
    COMPANIONS,
    NEWEST,
    OLDEST,
    Evidence,
    Torch,
    companion_for,
    find_torch,
    fits_companion,
    public,
    wanted_torch,
)
from fleetbuild.models import Facts, Python
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.alternatives import nearest_alternative
from fleetbuild.planning.compatibility.constraints import (
    Case,
    case_of,
    joined,
    no_toolkit,
    sentence,
    sm_list,
    wrong_python,
)
from fleetbuild.text import count


class Toolkit(Frozen):
    """The CUDA toolkit that a group is built with."""

    version: str  # "13.0"
    evidence: Evidence
    installed_on: tuple[str, ...] = ()  # the builders that have it; none: it is to be supplied
    # Where their compiler is none for it: others that will do as well, and take that compiler.
    instead: tuple[str, ...] = ()
    why: str


class Unfit(Frozen):
    """Why something cannot be built, with a clause for each cause, and the nearest choice."""

    reason: str
    fix: str


def package_problem(versions: Mapping[str, str]) -> Unfit | None:
    """Packages of one release that do not belong together, whatever the node."""
    named = _named(versions)
    torch = public(named.get("torch", ""))
    if torch is None:
        return None
    if find_torch(str(torch)) is None:
        return Unfit(
            reason=f"torch {torch} is older than all that is known, which begins with "
            f"{OLDEST.name}.",
            fix=f"Take torch {OLDEST.newest} or newer.",
        )
    strangers = [
        name
        for name in COMPANIONS
        if name in named and not fits_companion(name, named[name], str(torch))
    ]
    if not strangers:
        return None
    return Unfit(
        reason=" ".join(_stranger(name, named[name], str(torch)) for name in strangers),
        fix=" ".join(_kin(name, named[name], str(torch)) for name in strangers),
    )


def member_problem(
    versions: Mapping[str, str],
    facts: Facts,
    python_tag: str,
    *,
    pin: str | None = None,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Unfit | None:
    """Why these packages cannot be built for this node at all; None where they can."""
    case = case_of(_named(versions), facts.sms, python_tag, (facts,), pin, floors=floors)
    return _unfit(case, facts.pythons)


def choose_toolkit(
    versions: Mapping[str, str],
    sms: Sequence[str],
    python_tag: str,
    members: Sequence[Facts],
    builders: Mapping[str, Facts],
    *,
    pin: str | None = None,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Toolkit | Unfit:
    """The pinned toolkit; else the newest that all members allow and a builder has, one that
    PyTorch releases torch with (its experiments last) before one that merely can be built with;
    else the newest such, to be supplied."""
    case = case_of(_named(versions), sms, python_tag, members, pin, floors=floors)
    unfit = _unfit(case)
    if unfit:
        return unfit
    offers = [_offer(case, toolkit, builders) for toolkit in case.allowed()]
    best = max(offers, key=lambda it: (bool(it.owners), it.ready, *case.grade(it.version)))
    remarks = (*_choice(case, best), *_about_compiler(case, best), *_about_members(case, members))
    return Toolkit(
        version=best.version,
        evidence=case.evidence(best.version),
        installed_on=best.owners,
        instead=_instead(case, best, builders),
        why=sentence(remarks),
    )


def compiler_needed(versions: Mapping[str, str], toolkit: Toolkit | None) -> Gcc | None:
    """The versions of gcc that build this, with this toolkit or for the CPU alone. None: any."""
    return _compiler(_named(versions), toolkit.version if toolkit else None)


def _compiler(versions: Mapping[str, str], toolkit: str | None) -> Gcc | None:
    torch = find_torch(versions.get("torch", ""))
    ours = Gcc(torch.gcc) if torch else None
    theirs = TOOLKITS[toolkit].gcc if toolkit else None
    return ours & theirs if ours and theirs else ours or theirs


def _named(versions: Mapping[str, str]) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in versions.items()}


def _unfit(case: Case, pythons: Sequence[Python] = ()) -> Unfit | None:
    clauses = [*filter(None, (wrong_python(case),)), *no_toolkit(case)]
    if not clauses:
        return None
    return Unfit(reason=sentence(clauses), fix=nearest_alternative(case, pythons))


@dataclass(frozen=True)
class _Offer:
    """An allowed toolkit, and who has it."""

    version: str
    owners: tuple[str, ...]
    ready: bool  # an owner has a compiler for it, or can be given any


def _offer(case: Case, toolkit: str, builders: Mapping[str, Facts]) -> _Offer:
    owners = [
        name
        for name, facts in builders.items()
        if toolkit in map(minor, facts.toolchain.get("nvcc", ()))
    ]
    ready = [name for name in owners if _has_compiler(case, toolkit, builders[name])]
    return _Offer(toolkit, tuple(ready or owners), bool(ready))


def _has_compiler(case: Case, toolkit: str, builder: Facts) -> bool:
    """Whether a gcc there will do. Where there is none yet, one that does will be installed."""
    gccs = builder.toolchain.get("gcc", ())
    needed = _compiler(case.versions, toolkit)
    return not gccs or needed is None or any(needed.fits(version) for version in gccs)


def _instead(case: Case, best: _Offer, builders: Mapping[str, Facts]) -> tuple[str, ...]:
    def taken(toolkit: str) -> bool:
        return any(_has_compiler(case, toolkit, builders[name]) for name in best.owners or builders)

    others = replace(case, pin=None).allowed()
    return () if taken(best.version) else tuple(filter(taken, others))


def _choice(case: Case, offer: _Offer) -> Iterator[str]:
    if case.pin:
        yield f"fleetbuild.yml asks for CUDA {offer.version}"
    if offer.owners:
        yield f"CUDA {offer.version} is installed on {joined(offer.owners)}"
    else:
        which = f"CUDA {offer.version}" if case.pin else "a CUDA toolkit that goes with this"
        yield f"no builder has {which}"
    if case.torch:
        yield _about_torch(case, case.torch, offer)
    else:
        yield f"CUDA {offer.version} compiles for {sm_list(case.sms)}"


def _about_torch(case: Case, torch: Torch, offer: _Offer) -> str:
    release = torch.releases.get(offer.version)
    evidence = case.evidence(offer.version)
    if evidence == "released" and release:
        how = " as an experiment" if release.status == "experimental" else ""
        return f"PyTorch releases torch {torch.name} with CUDA {offer.version}{how}"
    if evidence == "reported" and torch.built_by_others(offer.version, case.sms, case.archs):
        return (
            f"PyTorch does not release torch {torch.name} with CUDA {offer.version}, and "
            "conda-forge does"
        )
    if evidence == "reported":
        left = joined(tuple(torch.releases), "and")
        return (
            f"torch {torch.name} with CUDA {offer.version} is reported to work on "
            f"{sm_list(case.sms)}, for which PyTorch's own with CUDA {left} has no code"
        )
    if not torch.known:
        return (
            f"torch {torch.name} is newer than all that is known, which ends with {NEWEST.name}: "
            f"it is taken to accept CUDA {torch.cuda_from} or newer"
        )
    if release:
        return (
            f"PyTorch's own torch {torch.name} with CUDA {offer.version} has no code for "
            f"{sm_list(case.without_code(offer.version))}, which nobody is known to have built"
        )
    return (
        f"torch {torch.name} builds with CUDA {torch.cuda_from} or newer, but PyTorch does not "
        f"release it with {offer.version}"
    )


def _about_compiler(case: Case, offer: _Offer) -> Iterator[str]:
    if offer.owners and not offer.ready:
        needed = _compiler(case.versions, offer.version)
        yield f"the compiler there is outside of {needed}, so one is to be installed"


def _about_members(case: Case, members: Sequence[Facts]) -> Iterator[str]:
    unknown = sum(member.driver is None for member in members)
    if unknown:
        yield f"the driver of {count(unknown, 'member')} is unknown and was not checked"
    if any(is_jetson(sm) for sm in case.sms):
        yield "on a Jetson, CUDA comes with JetPack"


def _stranger(name: str, version: str, torch: str) -> str:
    return f"{name} {version} goes with torch {_asked(name, version)}, not with {torch}."


def _asked(name: str, version: str) -> str:
    wanted = str(wanted_torch(name, version))
    plain = wanted.lstrip("=>").removesuffix(".*")
    return f"{plain} or newer" if wanted.startswith(">=") else plain


def _kin(name: str, version: str, torch: str) -> str:
    theirs = companion_for(name, torch)
    ways = [f"{name} {theirs} with torch {torch}"] if theirs else []
    return f"Take {' or '.join([*ways, f'torch {_asked(name, version)} with {name} {version}'])}."
