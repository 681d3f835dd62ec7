"""Which CUDA toolkits fit the SMs, torch, driver and pin of a build, and why the others do not.

In: package versions, SMs, a Python and facts of nodes, as a `Combination`. Out: the allowed
toolkits, or clauses that say why none is allowed. Each SM, torch, driver or pin sets an oldest or
a newest toolkit, or both. If no toolkit is left, a newest lies below an oldest, and the two
constraints together are the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fleetbuild.hardware.gpus import SMS, sm_order
from fleetbuild.models import Facts
from fleetbuild.text import version_key
from fleetbuild.toolchains.cuda import TOOLKITS, is_jetson, minor, newest_for_driver
from fleetbuild.toolchains.nvidia import toolkit_archives, toolkit_requirements
from fleetbuild.toolchains.pytorch import EVIDENCE, Evidence, Torch, find_torch, python_of

OLDEST, *_, NEWEST = TOOLKITS


@dataclass(frozen=True)
class Constraint:
    """The oldest or newest toolkit that one cause allows, and a clause that says so."""

    version: str
    clause: str
    cause: str  # sm, torch, package, driver, pin, jetpack, table


@dataclass(frozen=True)
class Combination:
    """The versions and GPUs of one build, for one node or for all members of a group."""

    versions: Mapping[str, str]
    torch: Torch | None
    sms: tuple[str, ...]
    python_tag: str
    driver: str | None  # the oldest known driver
    archs: tuple[str, ...]
    pin: str | None
    jetpacks: tuple[str, ...] = ()  # CUDA versions installed on Jetsons
    floors: tuple[tuple[str, str], ...] = ()  # package, oldest CUDA that builds it

    def allowed(self) -> list[str]:
        """Return the toolkits that fit the whole combination, oldest first."""
        uppers, lowers = list(_uppers(self)), list(_lowers(self))
        return [
            version
            for version in TOOLKITS
            if all(version_key(lower.version) <= version_key(version) for lower in lowers)
            and all(version_key(version) <= version_key(upper.version) for upper in uppers)
        ]

    def evidence(self, toolkit: str) -> Evidence:
        """Return how well a build with this toolkit is known to work."""
        if self.torch is None:
            return "buildable"
        return self.torch.evidence(toolkit, self.sms, self.archs)

    def grade(self, toolkit: str) -> tuple[object, ...]:
        """Return a sort key, best last: evidence, then stable over experimental, then newer.

        What nobody is known to have built is the better the nearer it is to a release of PyTorch.
        Of one major version, a toolkit that NVIDIA's wheels or archives bring comes before others.
        """
        releases = self.torch.releases if self.torch else {}
        release, evidence = releases.get(toolkit), self.evidence(toolkit)
        stable = release is None or release.status == "stable"
        order = list(TOOLKITS)
        distances = (abs(order.index(toolkit) - order.index(cuda)) for cuda in releases)
        near = -min(distances, default=0) if evidence == "buildable" else 0
        number = version_key(toolkit)
        brought = self.can_be_fetched(toolkit)
        return -EVIDENCE.index(evidence), stable, near, number[0], brought, number

    def can_be_fetched(self, toolkit: str) -> bool:
        """Return whether NVIDIA's wheels or archives bring a compiler of this toolkit."""
        return all(
            bool(
                toolkit_requirements(toolkit, arch, self.sms, ())
                or toolkit_archives(toolkit, arch, self.sms, ())
            )
            for arch in self.archs
        )

    def without_code(self, toolkit: str) -> list[str]:
        """Return the SMs that PyTorch's wheels for this toolkit do not run on."""
        return [
            sm
            for sm in self.sms
            if self.torch
            and not all(self.torch.has_code_for(toolkit, arch, sm) for arch in self.archs)
        ]


def combination_of(
    versions: Mapping[str, str],
    sms: Iterable[str],
    python_tag: str,
    members: Sequence[Facts],
    pin: str | None,
    *,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Combination:
    """Return the combination for these members."""
    drivers = (member.driver for member in members if member.driver)
    return Combination(
        versions=versions,
        torch=find_torch(versions.get("torch", "")),
        sms=tuple(sorted(set(sms), key=sm_order)),
        python_tag=python_tag,
        driver=min(drivers, key=version_key, default=None),
        archs=tuple(sorted({member.arch for member in members if member.arch})) or ("x86_64",),
        pin=minor(pin) if pin else None,
        jetpacks=_jetpacks(members) if any(map(is_jetson, sms)) else (),
        floors=tuple(floors.items()),
    )


def _jetpacks(jetsons: Sequence[Facts]) -> tuple[str, ...]:
    have = filter(None, (jetson.toolchain.get("nvcc") for jetson in jetsons))
    return tuple(sorted({minor(max(nvccs, key=version_key)) for nvccs in have}, key=version_key))


def wrong_python(combination: Combination) -> str:
    """Return why this torch does not support this Python, as a clause; "" if it does."""
    if combination.torch is None or combination.torch.python.fits(combination.python_tag):
        return ""
    version = python_of(combination.python_tag)
    kind = f"the free-threaded {version}" if combination.python_tag.endswith("t") else version
    return (
        f"torch {combination.torch.name} is for Python {combination.torch.python}, not for {kind}"
    )


def no_toolkit(combination: Combination) -> list[str]:
    """Return why no toolkit fits, one clause for each cause; an empty list if one fits."""
    if not combination.sms:
        return []
    unknown = unknown_sms(combination)
    if unknown:
        return [f"no CUDA toolkit from {OLDEST} to {NEWEST} compiles for {sm_list(unknown)}"]
    if combination.pin and combination.pin not in TOOLKITS:
        return [
            f"fleetbuild.yml asks for CUDA {combination.pin}; supported are {OLDEST} to {NEWEST}"
        ]
    return [*_unsupported_by_torch(combination), *(limit.clause for limit in conflict(combination))]


def _unsupported_by_torch(combination: Combination) -> Iterator[str]:
    unsupported = combination.torch.unsupported_sms(combination.sms) if combination.torch else []
    if combination.torch and unsupported:
        yield f"torch {combination.torch.name} does not support {sm_list(unsupported)}"


def unknown_sms(combination: Combination) -> list[str]:
    """Return the SMs that no table lists."""
    return [sm for sm in combination.sms if sm not in SMS]


def conflict(combination: Combination) -> list[Constraint]:
    """Return the constraints that leave no toolkit, upper ones first.

    A driver can be updated, so it is named only if no other constraint excludes the toolkits.
    """
    uppers, lowers = list(_uppers(combination)), list(_lowers(combination))
    pairs = [
        (upper, lower)
        for upper in uppers
        for lower in lowers
        if version_key(upper.version) < version_key(lower.version)
    ]
    without_driver = [pair for pair in pairs if pair[0].cause != "driver"]
    conflicting = {limit for pair in without_driver or pairs for limit in pair}
    reported = [limit for limit in dict.fromkeys((*uppers, *lowers)) if limit in conflicting]
    # The first row of the table is named only if nothing else sets an oldest toolkit.
    return (
        reported if len(reported) < 3 else [limit for limit in reported if limit.cause != "table"]
    )


def _uppers(combination: Combination) -> Iterator[Constraint]:
    yield from _of_sms(
        {sm: last for sm in combination.sms if (last := SMS[sm].last_cuda)}, newer=False
    )
    if combination.torch and combination.torch.cuda_to:
        to = combination.torch.cuda_to
        why = f" ({combination.torch.broken.because})" if combination.torch.broken else ""
        yield Constraint(
            to, f"torch {combination.torch.name} supports CUDA {to} or older{why}", "torch"
        )
    if combination.driver:
        # 10.1 stands for every toolkit older than the table.
        newest = newest_for_driver(combination.driver) or "10.1"
        yield Constraint(
            newest, f"driver {combination.driver} runs CUDA {newest} or older", "driver"
        )
    yield from _pinned(combination)


def _lowers(combination: Combination) -> Iterator[Constraint]:
    yield from _of_sms({sm: SMS[sm].first_cuda for sm in combination.sms}, newer=True)
    if combination.torch:
        since = combination.torch.cuda_from
        yield Constraint(
            since, f"torch {combination.torch.name} needs CUDA {since} or newer", "torch"
        )
    for name, since in combination.floors:
        yield Constraint(since, f"{name} needs CUDA {since} or newer", "package")
    yield from _pinned(combination)
    yield Constraint(OLDEST, f"fleetbuild supports CUDA {OLDEST} or newer", "table")


def _of_sms(limits: Mapping[str, str], *, newer: bool) -> Iterator[Constraint]:
    """Yield the strictest of these limits, with all SMs that set it."""
    if limits:
        version = (max if newer else min)(limits.values(), key=version_key)
        sms = [sm for sm, each in limits.items() if each == version]
        need = "needs" if len(sms) == 1 else "need"
        way = "newer" if newer else "older"
        yield Constraint(version, f"{sm_list(sms)} {need} CUDA {version} or {way}", "sm")


def _pinned(combination: Combination) -> Iterator[Constraint]:
    """Yield the constraints that allow exactly one toolkit: the pin, and a Jetson's JetPack."""
    if combination.pin:
        yield Constraint(combination.pin, f"fleetbuild.yml asks for CUDA {combination.pin}", "pin")
    for cuda in combination.jetpacks:
        yield Constraint(
            cuda, f"a Jetson runs only the CUDA of its JetPack, here {cuda}", "jetpack"
        )


def sm_list(sms: Sequence[str]) -> str:
    """Return "SM 3.5" or "SM 3.5 and 8.6"."""
    return f"SM {joined(sms)}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def sentence(clauses: Sequence[str]) -> str:
    """Return the clauses as one sentence. Names keep their lower-case first letter."""
    text = "; ".join(clauses)
    named = text.startswith(("torch ", "fleetbuild"))
    return f"{text if named else text[:1].upper() + text[1:]}."
