"""The fix for packages that cannot be built for a node: the nearest alternative that can.

In: a `Combination` that no CUDA toolkit fits. Out: one sentence for the user, computed from the
tables of CUDA toolkits, drivers and torch versions. Used when a node or a group is blocked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fleetbuild.models import Python
from fleetbuild.text import named_path, version_key
from fleetbuild.toolchains.constraints import (
    Combination,
    conflict,
    joined,
    no_toolkit,
    sentence,
    sm_list,
    unknown_sms,
    wrong_python,
)
from fleetbuild.toolchains.cuda import TOOLKITS, compiles_for
from fleetbuild.toolchains.pytorch import (
    COMPANIONS,
    TORCHES,
    Evidence,
    Torch,
    companion_for,
    python_of,
)

_EVIDENCE_TEXT: dict[Evidence, str] = {
    "released": "is the newest that PyTorch releases",
    "reported": "is the newest reported to work",
    "buildable": "is the newest that should build, but no such build is known",
}


def nearest_alternative(combination: Combination, pythons: Sequence[Python] = ()) -> str:
    """Return what to do about a combination that cannot be built, given the node's interpreters."""
    if unknown_sms(combination):
        return "Update fleetbuild, or set fleetbuild_sms for the node to supported SMs."
    fixes = [*_fixes_for_this_torch(combination, pythons), *_sms_fix(combination)]
    relaxed = (combination,) if fixes else (*_relaxed(combination),)
    found = next(((freed, other) for freed in relaxed for other in _newest_buildable(freed)), None)
    if found is None:
        return sentence(
            fixes or ["leave the package out, or set fleetbuild_skip: true for the node"]
        )
    conditions = joined(["under a release name of their own", *_other_changes(combination, *found)])
    return f"{sentence([*fixes, str(found[1])])} Plan such nodes separately, {conditions}."


def _relaxed(combination: Combination) -> Iterator[Combination]:
    """Yield the combination, then without its pin, without its driver, and without both."""
    unpinned = replace(combination, pin=None)
    yield from (
        combination,
        unpinned,
        replace(combination, driver=None),
        replace(unpinned, driver=None),
    )


def _other_changes(
    combination: Combination, freed: Combination, other: _BuildableTorch
) -> Iterator[str]:
    """Yield what else has to change before the other torch can be built."""
    if freed.pin != combination.pin:
        yield "without cuda:"
    if freed.driver != combination.driver:
        oldest = min((cuda for some in other.toolkits.values() for cuda in some), key=version_key)
        yield f"with driver {TOOLKITS[oldest].driver} or newer, which CUDA {oldest} needs"


def _fixes_for_this_torch(combination: Combination, pythons: Sequence[Python]) -> Iterator[str]:
    """Yield what makes the wanted torch possible: another Python, driver or pin, or all of them."""
    toolkit = list(_toolkit_fixes(combination))
    if toolkit or not no_toolkit(combination):
        steps = (*_python_fix(combination, pythons), *filter(None, (", or ".join(toolkit),)))
        yield from filter(None, (", and ".join(steps),))


def _python_fix(combination: Combination, pythons: Sequence[Python]) -> Iterator[str]:
    if combination.torch is None or not wrong_python(combination):
        return
    there = next((each for each in pythons if combination.torch.python.fits(each.tag)), None)
    if there:
        where = named_path(there.path)
        yield f"set fleetbuild_python to {where} ({there.version}), which is installed"
    else:
        yield f"install Python {combination.torch.python} and name it in fleetbuild_python"


def _toolkit_fixes(combination: Combination) -> Iterator[str]:
    """Yield which change leaves a toolkit: no pin, a newer driver, or only both together."""
    if not no_toolkit(combination):
        return
    unpinned, updated = replace(combination, pin=None), replace(combination, driver=None)
    both = replace(unpinned, driver=None)
    yield from _jetpack_fix(combination)
    if not no_toolkit(unpinned):
        yield _pin_fix(unpinned)
    if not no_toolkit(updated):
        yield _driver_fix(updated)
    if no_toolkit(unpinned) and no_toolkit(updated) and not no_toolkit(both):
        yield f"take cuda: out of fleetbuild.yml and {_driver_fix(both)}"


def _jetpack_fix(combination: Combination) -> Iterator[str]:
    """Yield what to do about JetPack, if another JetPack would leave a toolkit."""
    any_of_them = replace(combination, jetpacks=())
    if not combination.jetpacks or no_toolkit(any_of_them):
        return
    oldest = any_of_them.allowed()[0]
    if version_key(combination.jetpacks[0]) < version_key(oldest):
        yield f"update JetPack to one with CUDA {oldest} or newer, if the module supports one"
    elif len(combination.jetpacks) > 1:
        yield "install the same JetPack on all of them"


def _pin_fix(combination: Combination) -> str:
    best = max(combination.allowed(), key=combination.grade)
    return f"take cuda: out of fleetbuild.yml or set it to {best}"


def _driver_fix(combination: Combination) -> str:
    oldest = combination.allowed()[0]
    return f"update its driver to {TOOLKITS[oldest].driver} or newer, which CUDA {oldest} needs"


def _newest_buildable(combination: Combination) -> Iterator[_BuildableTorch]:
    """Yield at most one torch: the newest known to work for this Python, else for another Python,
    else the newest that should build."""
    if combination.torch is None:
        return
    here = list(_buildable(combination))
    elsewhere = [*_buildable(replace(combination, python_tag=""))] if combination.sms else []
    known = [choice for choice in (*here, *elsewhere) if "buildable" not in choice.toolkits]
    yield from (*known, *here, *elsewhere)[:1]


@dataclass(frozen=True)
class _BuildableTorch:
    """A torch that can be built for a combination, and the toolkits that can build it."""

    combination: Combination
    torch: Torch
    toolkits: dict[Evidence, list[str]]

    def __str__(self) -> str:
        """Return "torch 2.0.1 with CUDA 11.7 or 11.8 is the newest that PyTorch releases"."""
        anyhow = "" if self.combination.python_tag else f" for Python {self.torch.python}"
        named = (
            f"torch {self.torch.newest}{_format_companions(self.combination, self.torch)}{anyhow}"
        )
        if not self.combination.sms:
            return f"take {named}, the newest for Python {python_of(self.combination.python_tag)}"
        (kind, versions), *rest = self.toolkits.items()
        text = f"{named} with CUDA {_format_versions(versions)} {_EVIDENCE_TEXT[kind]}"
        return text + "".join(f", {_format_versions(more)} is reported to work" for _, more in rest)


def _buildable(combination: Combination) -> Iterator[_BuildableTorch]:
    """Yield every torch that can be built for the rest of the combination, newest first."""
    for torch in reversed(TORCHES.values()):
        other = replace(combination, torch=torch)
        fits = not combination.python_tag or torch.python.fits(combination.python_tag)
        if fits and not no_toolkit(other):
            yield _BuildableTorch(combination, torch, _by_evidence(other))


def _by_evidence(combination: Combination) -> dict[Evidence, list[str]]:
    """Return the toolkits known to work, by evidence; without any, all that should build."""
    allowed = combination.allowed()
    known: dict[Evidence, list[str]] = {
        kind: [toolkit for toolkit in allowed if combination.evidence(toolkit) == kind]
        for kind in ("released", "reported")
    }
    return {kind: toolkits for kind, toolkits in known.items() if toolkits} or {
        "buildable": allowed
    }


def _format_versions(toolkits: Sequence[str]) -> str:
    """Return "11.7 or 11.8", or "11.0 to 11.8" for four or more versions."""
    return joined(toolkits, "or") if len(toolkits) < 4 else f"{toolkits[0]} to {toolkits[-1]}"


def _format_companions(combination: Combination, torch: Torch) -> str:
    theirs = {name: companion_for(name, torch.newest) for name in COMPANIONS}
    named = [
        f"{name} {theirs[name]}" for name in theirs if name in combination.versions and theirs[name]
    ]
    return f" ({joined(named)})" if named else ""


def _sms_fix(combination: Combination) -> Iterator[str]:
    """If the SMs share no toolkit: yield the largest set of SMs that does, as a fleetbuild_sms."""
    limits = (
        conflict(replace(combination, torch=None, driver=None, pin=None)) if combination.sms else []
    )
    if not limits or wrong_python(combination):
        return
    served = [[sm for sm in combination.sms if compiles_for(toolkit, sm)] for toolkit in TOOLKITS]
    possible = [
        sms for sms in served if sms and not no_toolkit(replace(combination, sms=tuple(sms)))
    ]
    if possible:
        most = max(reversed(possible), key=len)
        yield f"set fleetbuild_sms for the node to {sm_list(most)}, which one toolkit compiles for"
