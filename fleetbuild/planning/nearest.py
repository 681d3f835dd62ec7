"""The nearest choice that works, for a case that does not: a sentence computed from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetbuild.hardware.cuda import TOOLKITS, compiles_for
from fleetbuild.hardware.pytorch import (
    COMPANIONS,
    EVIDENCE,
    TORCHES,
    Evidence,
    Torch,
    companion_for,
    python_of,
)
from fleetbuild.models import Python
from fleetbuild.planning.limits import (
    Case,
    conflict,
    joined,
    no_toolkit,
    sentence,
    sm_list,
    unknown_sms,
    wrong_python,
)


def remedy(case: Case, pythons: Sequence[Python] = ()) -> str:
    """What to do about a case that cannot be built, on a node with these interpreters."""
    if unknown_sms(case):
        return "Update fleetbuild, or set fleetbuild_sms for it to SMs that are known."
    others = [*_torch(case)]
    apart = " Give such nodes a release name of their own." if others else ""
    ways = [*_python(case, pythons), *_pin(case), *_driver(case), *_sms(case), *others]
    return sentence(ways or ["leave the package out, or set fleetbuild_skip: true for it"]) + apart


def _python(case: Case, pythons: Sequence[Python]) -> Iterator[str]:
    if not wrong_python(case) or no_toolkit(case) or case.torch is None:
        return
    there = next((each for each in pythons if case.torch.python.fits(each.tag)), None)
    if there:
        yield f"set fleetbuild_python to {there.path} ({there.version}), which is there"
    else:
        yield f"install Python {case.torch.python} and name it in fleetbuild_python"


def _pin(case: Case) -> Iterator[str]:
    """Where the pin alone stands in the way."""
    free = replace(case, pin=None)
    if case.pin and not no_toolkit(free) and no_toolkit(case):
        yield f"take cuda: out of fleetbuild.yml or set it to {_best(free)}"


def _driver(case: Case) -> Iterator[str]:
    """Where the driver alone stands in the way."""
    if case.sms and any(limit.cause == "driver" for limit in conflict(_known_pin(case))):
        oldest = replace(_known_pin(case), driver=None).allowed()[0]
        needed = TOOLKITS[oldest].driver
        yield f"update its driver to {needed} or newer, which CUDA {oldest} needs"


def _known_pin(case: Case) -> Case:
    return case if case.pin in TOOLKITS else replace(case, pin=None)


def _torch(case: Case) -> Iterator[str]:
    if case.torch is None:
        return
    offer = _offer(case)
    if offer is None:  # none for this Python
        offer = _offer(replace(case, python_tag=""))
    if offer:
        yield offer


def _offer(case: Case) -> str | None:
    """The newest torch that is known to be built so, else the newest that should build."""
    found = [
        (torch, _by_evidence(replace(case, torch=torch)))
        for torch in reversed(TORCHES.values())
        if not case.python_tag or torch.python.fits(case.python_tag)
        if not no_toolkit(replace(case, torch=torch))
    ]
    known = [(torch, toolkits) for torch, toolkits in found if "buildable" not in toolkits]
    return next((_said(case, torch, toolkits) for torch, toolkits in known or found), None)


def _by_evidence(case: Case) -> dict[Evidence, list[str]]:
    """The toolkits on the best evidence there is, and with those released also those reported."""
    allowed = {kind: [t for t in case.allowed() if case.evidence(t) == kind] for kind in EVIDENCE}
    known: dict[Evidence, list[str]] = {
        kind: allowed[kind] for kind in ("released", "reported") if allowed[kind]
    }
    return known or {"buildable": allowed["buildable"]}


def _said(case: Case, torch: Torch, toolkits: dict[Evidence, list[str]]) -> str:
    """torch 2.0.1 with CUDA 11.7 or 11.8 is the newest known to be built so, 11.4 is reported."""
    python = "" if case.python_tag else f" for Python {torch.python}"
    named = f"torch {torch.newest}{_companions(case, torch)}{python}"
    if not case.sms:
        return f"take {named}, the newest for Python {python_of(case.python_tag)}"
    ends = {
        "released": "is the newest known to be built so",
        "reported": "is the newest reported to work",
        "buildable": "is the newest that should build, though nobody is known to have done it",
    }
    (kind, versions), *rest = toolkits.items()
    text = f"{named} with CUDA {joined(versions, 'or')} {ends[kind]}"
    return text + "".join(f", {joined(more)} is reported to work" for _, more in rest)


def _companions(case: Case, torch: Torch) -> str:
    theirs = {name: companion_for(name, torch.newest) for name in COMPANIONS}
    named = [f"{name} {theirs[name]}" for name in theirs if name in case.versions and theirs[name]]
    return f" ({joined(named)})" if named else ""


def _sms(case: Case) -> Iterator[str]:
    """Where its SMs have no toolkit in common."""
    limits = conflict(replace(case, torch=None, driver=None, pin=None)) if case.sms else []
    if limits:
        served = [[sm for sm in case.sms if compiles_for(toolkit, sm)] for toolkit in TOOLKITS]
        most = max(reversed(served), key=len)
        yield f"set fleetbuild_sms for it to {sm_list(most)}, which one toolkit compiles for"


def _best(case: Case) -> str:
    allowed = case.allowed()
    return next(
        (
            toolkit
            for kind in EVIDENCE
            for toolkit in reversed(allowed)
            if case.evidence(toolkit) == kind
        ),
    )
