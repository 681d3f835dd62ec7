"""Everything that has to go together in a build, and what that leaves of CUDA's toolkits.

Each thing (SMs, torch, driver, pin) holds the toolkit down, or up, or both. Nothing else rules one
out, so where none is left, an upper limit lies below a lower one, and these two tell why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fleetbuild.hardware.cuda import TOOLKITS, is_jetson, minor, newest_for_driver
from fleetbuild.hardware.gpus import SMS, sm_order
from fleetbuild.hardware.pytorch import EVIDENCE, Evidence, Torch, find_torch, python_of
from fleetbuild.models import Facts
from fleetbuild.text import version_key

OLDEST, *_, NEWEST = TOOLKITS


@dataclass(frozen=True)
class Constraint:
    """The newest, or the oldest, toolkit that one thing allows, and that as a sentence."""

    version: str
    says: str
    cause: str  # sm, torch, package, driver, pin, jetpack, table


@dataclass(frozen=True)
class Case:
    """What has to go together, for one node or for all members of a group."""

    versions: Mapping[str, str]
    torch: Torch | None
    sms: tuple[str, ...]
    python_tag: str
    driver: str | None  # the oldest of those that are known
    archs: tuple[str, ...]
    pin: str | None
    jetpacks: tuple[str, ...] = ()  # the CUDA that Jetsons have
    floors: tuple[tuple[str, str], ...] = ()  # packages, and the oldest CUDA for each

    def allowed(self) -> list[str]:
        """The toolkits that go with all of it, oldest first."""
        uppers, lowers = list(_uppers(self)), list(_lowers(self))
        return [
            version
            for version in TOOLKITS
            if all(version_key(lower.version) <= version_key(version) for lower in lowers)
            and all(version_key(version) <= version_key(upper.version) for upper in uppers)
        ]

    def evidence(self, toolkit: str) -> Evidence:
        """What a build with this toolkit rests on."""
        if self.torch is None:
            return "buildable"
        return self.torch.evidence(toolkit, self.sms, self.archs)

    def grade(self, toolkit: str) -> tuple[object, ...]:
        """What makes one toolkit better than another: evidence, then that PyTorch does not call
        it an experiment, then that it is newer."""
        release = self.torch.releases.get(toolkit) if self.torch else None
        stable = release is None or release.status == "stable"
        return -EVIDENCE.index(self.evidence(toolkit)), stable, version_key(toolkit)

    def without_code(self, toolkit: str) -> list[str]:
        """The SMs that PyTorch's wheels for this toolkit do not run on."""
        return [
            sm
            for sm in self.sms
            if self.torch
            and not all(self.torch.has_code_for(toolkit, arch, sm) for arch in self.archs)
        ]


def case_of(
    versions: Mapping[str, str],
    sms: Iterable[str],
    python_tag: str,
    members: Sequence[Facts],
    pin: str | None,
    *,
    floors: Mapping[str, str] = MappingProxyType({}),
) -> Case:
    """The case of these members."""
    drivers = (member.driver for member in members if member.driver)
    return Case(
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


def wrong_python(case: Case) -> str:
    """Why torch is not for this Python, as a clause; "" where it is."""
    if case.torch is None or case.torch.python.fits(case.python_tag):
        return ""
    version = python_of(case.python_tag)
    kind = f"the free-threaded {version}" if case.python_tag.endswith("t") else version
    return f"torch {case.torch.name} is for Python {case.torch.python}, not for {kind}"


def no_toolkit(case: Case) -> list[str]:
    """Why no toolkit goes with all of it, a clause for each cause; none where one does."""
    if not case.sms:
        return []
    unknown = unknown_sms(case)
    if unknown:
        return [f"no CUDA toolkit from {OLDEST} to {NEWEST} compiles for {sm_list(unknown)}"]
    if case.pin and case.pin not in TOOLKITS:
        return [f"fleetbuild.yml asks for CUDA {case.pin}, and {OLDEST} to {NEWEST} are known"]
    return [*_strangers(case), *(limit.says for limit in conflict(case))]


def _strangers(case: Case) -> Iterator[str]:
    strangers = case.torch.strangers(case.sms) if case.torch else []
    if case.torch and strangers:
        yield f"torch {case.torch.name} does not know {sm_list(strangers)}"


def unknown_sms(case: Case) -> list[str]:
    """SMs that are in no table."""
    return [sm for sm in case.sms if sm not in SMS]


def conflict(case: Case) -> list[Constraint]:
    """The limits that leave no toolkit, the upper ones first.

    A driver can be changed, so it is told only where it is what stands in the way.
    """
    uppers, lowers = list(_uppers(case)), list(_lowers(case))
    pairs = [
        (upper, lower)
        for upper in uppers
        for lower in lowers
        if version_key(upper.version) < version_key(lower.version)
    ]
    lasting = [pair for pair in pairs if pair[0].cause != "driver"]
    guilty = {limit for pair in lasting or pairs for limit in pair}
    told = [limit for limit in dict.fromkeys((*uppers, *lowers)) if limit in guilty]
    # That the table begins somewhere is told only where nothing else holds the toolkit up.
    return told if len(told) < 3 else [limit for limit in told if limit.cause != "table"]


def _uppers(case: Case) -> Iterator[Constraint]:
    yield from _of_sms({sm: last for sm in case.sms if (last := SMS[sm].last_cuda)}, newer=False)
    if case.torch and case.torch.cuda_to:
        to = case.torch.cuda_to
        why = f" ({case.torch.broken.because})" if case.torch.broken else ""
        yield Constraint(to, f"torch {case.torch.name} goes with CUDA {to} or older{why}", "torch")
    if case.driver:
        # 10.1 stands for all toolkits that are older than the table.
        newest = newest_for_driver(case.driver) or "10.1"
        yield Constraint(newest, f"driver {case.driver} runs CUDA {newest} or older", "driver")
    yield from _pinned(case)


def _lowers(case: Case) -> Iterator[Constraint]:
    yield from _of_sms({sm: SMS[sm].first_cuda for sm in case.sms}, newer=True)
    if case.torch:
        since = case.torch.cuda_from
        yield Constraint(since, f"torch {case.torch.name} needs CUDA {since} or newer", "torch")
    for name, since in case.floors:
        yield Constraint(since, f"{name} needs CUDA {since} or newer", "package")
    yield from _pinned(case)
    yield Constraint(OLDEST, f"fleetbuild knows CUDA {OLDEST} or newer", "table")


def _of_sms(limits: Mapping[str, str], *, newer: bool) -> Iterator[Constraint]:
    """The strictest of them, with all SMs that set it."""
    if limits:
        version = (max if newer else min)(limits.values(), key=version_key)
        sms = [sm for sm, each in limits.items() if each == version]
        need = "needs" if len(sms) == 1 else "need"
        way = "newer" if newer else "older"
        yield Constraint(version, f"{sm_list(sms)} {need} CUDA {version} or {way}", "sm")


def _pinned(case: Case) -> Iterator[Constraint]:
    """What leaves one toolkit alone, and so holds it up and down."""
    if case.pin:
        yield Constraint(case.pin, f"fleetbuild.yml asks for CUDA {case.pin}", "pin")
    for cuda in case.jetpacks:
        yield Constraint(
            cuda, f"a Jetson runs the CUDA of its JetPack alone, here {cuda}", "jetpack"
        )


def sm_list(sms: Sequence[str]) -> str:
    """SM 3.5; SM 3.5 and 8.6."""
    return f"SM {joined(sms)}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def sentence(clauses: Sequence[str]) -> str:
    """Clauses as one sentence. Names keep their small letter."""
    text = "; ".join(clauses)
    named = text.startswith(("torch ", "fleetbuild"))
    return f"{text if named else text[:1].upper() + text[1:]}."
