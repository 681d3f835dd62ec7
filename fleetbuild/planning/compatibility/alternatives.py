"""The nearest choice that works, for a case that does not: a sentence computed from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fleetbuild.hardware.cuda import TOOLKITS, compiles_for
from fleetbuild.hardware.pytorch import (
    COMPANIONS,
    TORCHES,
    Evidence,
    Torch,
    companion_for,
    python_of,
)
from fleetbuild.models import Python
from fleetbuild.planning.compatibility.constraints import (
    Case,
    conflict,
    joined,
    no_toolkit,
    sentence,
    sm_list,
    unknown_sms,
    wrong_python,
)
from fleetbuild.text import version_key

_ENDS: dict[Evidence, str] = {
    "released": "is the newest known to be built so",
    "reported": "is the newest reported to work",
    "buildable": "is the newest that should build, though nobody is known to have done it",
}


def nearest_alternative(case: Case, pythons: Sequence[Python] = ()) -> str:
    """What to do about a case that cannot be built, on a node with these interpreters."""
    if unknown_sms(case):
        return "Update fleetbuild, or set fleetbuild_sms for it to SMs that are known."
    here = [*_cures(case, pythons), *_sms(case)]
    freer = (case,) if here else (*_freer(case),)
    found = next(((freed, other) for freed in freer for other in _torch(freed)), None)
    if found is None:
        return sentence(here or ["leave the package out, or set fleetbuild_skip: true for it"])
    apart = joined(["under a release name of their own", *_provisos(case, *found)])
    return f"{sentence([*here, str(found[1])])} Plan such nodes apart, {apart}."


def _freer(case: Case) -> Iterator[Case]:
    """The case as it is, then without what can be changed, as little of it as does."""
    unpinned = replace(case, pin=None)
    yield from (case, unpinned, replace(case, driver=None), replace(unpinned, driver=None))


def _provisos(case: Case, freed: Case, other: _Choice) -> Iterator[str]:
    """What has to be changed beside torch, for this one to be built."""
    if freed.pin != case.pin:
        yield "without cuda:"
    if freed.driver != case.driver:
        oldest = min((cuda for some in other.toolkits.values() for cuda in some), key=version_key)
        yield f"with driver {TOOLKITS[oldest].driver} or newer, which CUDA {oldest} needs"


def _cures(case: Case, pythons: Sequence[Python]) -> Iterator[str]:
    """What makes this very torch possible: another Python, driver or pin, or all of them."""
    toolkit = list(_freed(case))
    if toolkit or not no_toolkit(case):
        steps = (*_python(case, pythons), *filter(None, (", or ".join(toolkit),)))
        yield from filter(None, (", and ".join(steps),))


def _python(case: Case, pythons: Sequence[Python]) -> Iterator[str]:
    if case.torch is None or not wrong_python(case):
        return
    there = next((each for each in pythons if case.torch.python.fits(each.tag)), None)
    if there:
        yield f"set fleetbuild_python to {there.path} ({there.version}), which is there"
    else:
        yield f"install Python {case.torch.python} and name it in fleetbuild_python"


def _freed(case: Case) -> Iterator[str]:
    """Without the pin or without the driver there is a toolkit, or only without both."""
    if not no_toolkit(case):
        return
    unpinned, updated = replace(case, pin=None), replace(case, driver=None)
    both = replace(unpinned, driver=None)
    yield from _jetpack(case)
    if not no_toolkit(unpinned):
        yield _unpin(unpinned)
    if not no_toolkit(updated):
        yield _update(updated)
    if no_toolkit(unpinned) and no_toolkit(updated) and not no_toolkit(both):
        yield f"take cuda: out of fleetbuild.yml and {_update(both)}"


def _jetpack(case: Case) -> Iterator[str]:
    """What another JetPack would change, if there is one for the module."""
    any_of_them = replace(case, jetpacks=())
    if not case.jetpacks or no_toolkit(any_of_them):
        return
    oldest = any_of_them.allowed()[0]
    if version_key(case.jetpacks[0]) < version_key(oldest):
        yield f"update JetPack, where there is one with CUDA {oldest} or newer for the module"
    elif len(case.jetpacks) > 1:
        yield "give them all the same JetPack"


def _unpin(case: Case) -> str:
    return f"take cuda: out of fleetbuild.yml or set it to {max(case.allowed(), key=case.grade)}"


def _update(case: Case) -> str:
    oldest = case.allowed()[0]
    return f"update its driver to {TOOLKITS[oldest].driver} or newer, which CUDA {oldest} needs"


def _torch(case: Case) -> Iterator[_Choice]:
    """The newest torch known to be built so for this Python, else for another one, else the
    newest that should build."""
    if case.torch is None:
        return
    here = list(_buildable(case))
    elsewhere = [*_buildable(replace(case, python_tag=""))] if case.sms else []
    known = [choice for choice in (*here, *elsewhere) if "buildable" not in choice.toolkits]
    yield from (*known, *here, *elsewhere)[:1]


@dataclass(frozen=True)
class _Choice:
    """A torch that can be built for a case, and the toolkits to do it with."""

    case: Case
    torch: Torch
    toolkits: dict[Evidence, list[str]]

    def __str__(self) -> str:
        """torch 2.0.1 with CUDA 11.7 or 11.8 is the newest known to be built so."""
        anyhow = "" if self.case.python_tag else f" for Python {self.torch.python}"
        named = f"torch {self.torch.newest}{_companions(self.case, self.torch)}{anyhow}"
        if not self.case.sms:
            return f"take {named}, the newest for Python {python_of(self.case.python_tag)}"
        (kind, versions), *rest = self.toolkits.items()
        text = f"{named} with CUDA {_either(versions)} {_ENDS[kind]}"
        return text + "".join(f", {_either(more)} is reported to work" for _, more in rest)


def _buildable(case: Case) -> Iterator[_Choice]:
    """Each torch that can be built so, the newest first."""
    for torch in reversed(TORCHES.values()):
        other = replace(case, torch=torch)
        fits = not case.python_tag or torch.python.fits(case.python_tag)
        if fits and not no_toolkit(other):
            yield _Choice(case, torch, _by_evidence(other))


def _by_evidence(case: Case) -> dict[Evidence, list[str]]:
    """The toolkits that are known to do, by evidence; else all that should."""
    allowed = case.allowed()
    known: dict[Evidence, list[str]] = {
        kind: [toolkit for toolkit in allowed if case.evidence(toolkit) == kind]
        for kind in ("released", "reported")
    }
    return {kind: toolkits for kind, toolkits in known.items() if toolkits} or {
        "buildable": allowed
    }


def _either(toolkits: Sequence[str]) -> str:
    """11.7 or 11.8; 11.0 to 11.8 where there are many."""
    return joined(toolkits, "or") if len(toolkits) < 4 else f"{toolkits[0]} to {toolkits[-1]}"


def _companions(case: Case, torch: Torch) -> str:
    theirs = {name: companion_for(name, torch.newest) for name in COMPANIONS}
    named = [f"{name} {theirs[name]}" for name in theirs if name in case.versions and theirs[name]]
    return f" ({joined(named)})" if named else ""


def _sms(case: Case) -> Iterator[str]:
    """Where its SMs have no toolkit in common: most of them that can be planned with all else."""
    limits = conflict(replace(case, torch=None, driver=None, pin=None)) if case.sms else []
    if not limits or wrong_python(case):
        return
    served = [[sm for sm in case.sms if compiles_for(toolkit, sm)] for toolkit in TOOLKITS]
    possible = [sms for sms in served if sms and not no_toolkit(replace(case, sms=tuple(sms)))]
    if possible:
        most = max(reversed(possible), key=len)
        yield f"set fleetbuild_sms for it to {sm_list(most)}, which one toolkit compiles for"
