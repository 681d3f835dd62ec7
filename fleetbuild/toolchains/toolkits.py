"""The CUDA toolkit that a group is built with.

In: package versions, SMs, drivers and the toolkits on the builders. Out: a `Toolkit`, or an
`Problem` with the nearest alternative. Runs after nodes are grouped, before wheels are planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from packaging.utils import canonicalize_name

from fleetbuild.models import Facts, Python
from fleetbuild.models._base import Frozen
from fleetbuild.models.problem import Problem
from fleetbuild.text import count, version_key
from fleetbuild.toolchains.alternatives import nearest_alternative
from fleetbuild.toolchains.compilers import gccs_beside
from fleetbuild.toolchains.constraints import (
    Combination,
    combination_of,
    joined,
    no_toolkit,
    sentence,
    sm_list,
    wrong_python,
)
from fleetbuild.toolchains.cuda import TOOLKITS, Gcc, glibc_limit, is_jetson, minor
from fleetbuild.toolchains.pytorch import (
    COMPANIONS,
    NEWEST,
    OLDEST,
    SVE_GCC,
    TORCHES,
    Evidence,
    Torch,
    companion_for,
    find_torch,
    fits_companion,
    needs_sve_gcc,
    public_version,
    wanted_torch,
)


class Toolkit(Frozen):
    """The CUDA toolkit that a group is built with."""

    version: str  # "13.0"
    evidence: Evidence
    installed_on: tuple[str, ...] = ()  # builders that have it; empty: somebody has to install it
    # If no gcc on these builders suits this toolkit: other toolkits that would do, and suit it.
    alternatives: tuple[str, ...] = ()
    why: str


def package_incompatibility(versions: Mapping[str, str]) -> Problem | None:
    """Return why the packages of one release cannot be built together on any node, or None."""
    canonical = _canonical(versions)
    torch = public_version(canonical.get("torch", ""))
    if torch is None:
        return None
    if find_torch(str(torch)) is None:
        return Problem(
            reason=f"torch {torch} is older than the oldest supported version, {OLDEST.name}.",
            fix=f"Take torch {OLDEST.newest} or newer.",
        )
    mismatched = [
        name
        for name in COMPANIONS
        if name in canonical and not fits_companion(name, canonical[name], str(torch))
    ]
    if not mismatched:
        return None
    return Problem(
        reason=" ".join(_mismatch(name, canonical[name], str(torch)) for name in mismatched),
        fix=" ".join(_mismatch_fix(name, canonical[name], str(torch)) for name in mismatched),
    )


def pytorch_variant(toolkit: Toolkit | None) -> str | None:
    """Return the PyTorch index for this toolkit: cpu, cu130. None if PyTorch has no such index."""
    if toolkit is None:
        return "cpu"
    released = any(toolkit.version in torch.releases for torch in TORCHES.values())
    return "cu" + toolkit.version.replace(".", "") if released else None


def node_incompatibility(
    versions: Mapping[str, str],
    facts: Facts,
    python_tag: str,
    *,
    pin: str | None = None,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Problem | None:
    """Return why these packages cannot be built for this node, or None if they can."""
    combination = combination_of(
        _canonical(versions), facts.sms, python_tag, (facts,), pin, floors=floors
    )
    return _incompatibility(combination, facts.pythons)


def choose_toolkit(
    versions: Mapping[str, str],
    sms: Sequence[str],
    python_tag: str,
    members: Sequence[Facts],
    builders: Mapping[str, Facts],
    *,
    pin: str | None = None,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Toolkit | Problem:
    """Return the toolkit for a group, or why no toolkit fits.

    A pinned toolkit wins. Otherwise: a toolkit that this torch is known to be built with, then one
    that compiles with the glibc of a builder, then one that a builder has installed, then the best
    evidence (released by PyTorch, reported to work, should build), then the newest major version,
    then one that NVIDIA's wheels or archives bring, then the newest.
    """
    combination = combination_of(_canonical(versions), sms, python_tag, members, pin, floors=floors)
    incompatibility = _incompatibility(combination)
    if incompatibility:
        return incompatibility
    candidates = [_candidate(combination, toolkit, builders) for toolkit in combination.allowed()]
    best = max(
        candidates,
        key=lambda it: (
            combination.evidence(it.version) != "buildable",
            it.compiles,
            bool(it.installed_on),
            it.ready,
            *combination.grade(it.version),
        ),
    )
    remarks = (
        *_about_choice(combination, best),
        *_about_others(combination, best, candidates),
        *_about_compiler(combination, best),
        *_about_members(combination, members),
    )
    return Toolkit(
        version=best.version,
        evidence=combination.evidence(best.version),
        installed_on=best.installed_on,
        alternatives=_alternatives(combination, best, builders),
        why=sentence(remarks),
    )


def lacking_libraries(facts: Facts, cuda: str, libraries: Sequence[str] | None) -> tuple[str, ...]:
    """Return which of these libraries a builder's installed toolkit is known to lack."""
    return tuple(
        library
        for library in libraries or ()
        if cuda in map(minor, facts.toolchain.get(f"without-{library}", ()))
    )


def compiler_needed(
    versions: Mapping[str, str], toolkit: Toolkit | None, isa: str = ""
) -> Gcc | None:
    """Return the gcc versions that can build these packages with this toolkit; None if any can.

    `isa` is the rung of torch's own wheel, whose SVE kernels need a newer one.
    """
    gcc = _compiler(_canonical(versions), toolkit.version if toolkit else None)
    return gcc & Gcc(SVE_GCC) if gcc and needs_sve_gcc(versions.get("torch", ""), isa) else gcc


def _compiler(versions: Mapping[str, str], toolkit: str | None) -> Gcc | None:
    torch = find_torch(versions.get("torch", ""))
    torch_gcc = Gcc(torch.gcc) if torch else None
    toolkit_gcc = TOOLKITS[toolkit].gcc if toolkit else None
    return torch_gcc & toolkit_gcc if torch_gcc and toolkit_gcc else torch_gcc or toolkit_gcc


def _canonical(versions: Mapping[str, str]) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in versions.items()}


def _incompatibility(combination: Combination, pythons: Sequence[Python] = ()) -> Problem | None:
    clauses = [*filter(None, (wrong_python(combination),)), *no_toolkit(combination)]
    if not clauses:
        return None
    return Problem(reason=sentence(clauses), fix=nearest_alternative(combination, pythons))


@dataclass(frozen=True)
class _Candidate:
    """An allowed toolkit, and the builders that have it."""

    version: str
    installed_on: tuple[str, ...]
    ready: bool  # one of these builders has a gcc for it, or no gcc at all yet
    compiles: bool  # with the glibc of a builder


def glibc_problem(toolkit: str, facts: Facts) -> str:
    """Return why this toolkit does not compile there, after the node's name; "" if it does."""
    limit, libc = glibc_limit(toolkit), facts.libc
    if (
        limit
        and libc
        and libc.family == "glibc"
        and version_key(limit) <= version_key(libc.version)
    ):
        return (
            f"has glibc {libc.version}, and CUDA {toolkit} does not compile with {limit} or newer"
        )
    return ""


def _candidate(combination: Combination, toolkit: str, builders: Mapping[str, Facts]) -> _Candidate:
    installed_on = [
        name
        for name, facts in builders.items()
        if toolkit in map(minor, facts.toolchain.get("nvcc", ()))
    ]
    able = {name for name, facts in builders.items() if not glibc_problem(toolkit, facts)}
    if able:
        installed_on = [name for name in installed_on if name in able]
    ready = [name for name in installed_on if _has_compiler(combination, toolkit, builders[name])]
    compiles = bool(able) or not builders
    return _Candidate(toolkit, tuple(ready or installed_on), bool(ready), compiles)


def _has_compiler(combination: Combination, toolkit: str, builder: Facts) -> bool:
    """Return whether gcc and glibc of a builder suit; without any gcc, a suitable one is
    installed."""
    if glibc_problem(toolkit, builder):
        return False
    default = builder.toolchain.get("gcc", ())
    needed = _compiler(combination.versions, toolkit)
    if not default or needed is None:
        return True
    return any(needed.fits(version) for version in (*default, *gccs_beside(builder)))


def _alternatives(
    combination: Combination, best: _Candidate, builders: Mapping[str, Facts]
) -> tuple[str, ...]:
    def taken(toolkit: str) -> bool:
        return any(
            _has_compiler(combination, toolkit, builders[name])
            for name in best.installed_on or builders
        )

    others = replace(combination, pin=None).allowed()
    return () if taken(best.version) else tuple(filter(taken, others))


def _about_choice(combination: Combination, candidate: _Candidate) -> Iterator[str]:
    if combination.pin:
        yield f"fleetbuild.yml asks for CUDA {candidate.version}"
    if candidate.installed_on:
        yield f"CUDA {candidate.version} is installed on {joined(candidate.installed_on)}"
    else:
        which = f"CUDA {candidate.version}" if combination.pin else "a matching CUDA toolkit"
        yield f"no builder has {which}"
    if combination.torch:
        yield _about_torch(combination, combination.torch, candidate)
    else:
        yield f"CUDA {candidate.version} compiles for {sm_list(combination.sms)}"


def _about_torch(combination: Combination, torch: Torch, candidate: _Candidate) -> str:
    release = torch.releases.get(candidate.version)
    evidence = combination.evidence(candidate.version)
    if evidence == "released" and release:
        how = " as an experiment" if release.status == "experimental" else ""
        return f"PyTorch releases torch {torch.name} with CUDA {candidate.version}{how}"
    if evidence == "reported" and torch.built_by_others(
        candidate.version, combination.sms, combination.archs
    ):
        return (
            f"PyTorch does not release torch {torch.name} with CUDA {candidate.version}, and "
            "conda-forge does"
        )
    if evidence == "reported":
        released = joined(tuple(torch.releases), "and")
        return (
            f"torch {torch.name} with CUDA {candidate.version} is reported to work on "
            f"{sm_list(combination.sms)}, for which PyTorch's own with CUDA {released} has no code"
        )
    if not torch.known:
        return (
            f"torch {torch.name} is newer than the newest known version, {NEWEST.name}: fleetbuild "
            f"assumes that it accepts CUDA {torch.cuda_from} or newer"
        )
    if release:
        return (
            f"PyTorch's own torch {torch.name} with CUDA {candidate.version} has no code for "
            f"{sm_list(combination.without_code(candidate.version))}, and no such build is known"
        )
    return (
        f"torch {torch.name} builds with CUDA {torch.cuda_from} or newer, but PyTorch does not "
        f"release it with {candidate.version}"
    )


def _about_others(
    combination: Combination, best: _Candidate, candidates: Sequence[_Candidate]
) -> Iterator[str]:
    """Yield the installed toolkits that were passed over, if the one to take is not installed."""
    others = [each for each in candidates if each.installed_on] if not best.installed_on else ()
    for other in others:
        yield (
            f"CUDA {other.version} on {joined(other.installed_on)} is not taken: no torch "
            f"{combination.torch.name if combination.torch else ''} was built with it before "
            f'(cuda: "{other.version}" takes it)'
        )


def _about_compiler(combination: Combination, candidate: _Candidate) -> Iterator[str]:
    if candidate.installed_on and candidate.compiles and not candidate.ready:
        needed = _compiler(combination.versions, candidate.version)
        yield f"the compiler there is not {needed}, so another one is needed"


def _about_members(combination: Combination, members: Sequence[Facts]) -> Iterator[str]:
    unknown = sum(member.driver is None for member in members)
    if unknown:
        yield f"the driver of {count(unknown, 'member')} is unknown and was not checked"
    if any(is_jetson(sm) for sm in combination.sms):
        yield "on a Jetson, CUDA comes with JetPack"


def _mismatch(name: str, version: str, torch: str) -> str:
    return f"{name} {version} goes with torch {_wanted_versions(name, version)}, not with {torch}."


def _wanted_versions(name: str, version: str) -> str:
    wanted = str(wanted_torch(name, version))
    plain = wanted.lstrip("=>").removesuffix(".*")
    return f"{plain} or newer" if wanted.startswith(">=") else plain


def _mismatch_fix(name: str, version: str, torch: str) -> str:
    matching = companion_for(name, torch)
    options = [f"{name} {matching} with torch {torch}"] if matching else []
    options.append(f"torch {_wanted_versions(name, version)} with {name} {version}")
    return f"Take {' or '.join(options)}."
