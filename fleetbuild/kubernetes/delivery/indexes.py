"""Which of a fleet's images share a name, one for each architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetbuild.models import PlannedGroup

_INDEX = """\
For pods that run on either architecture, of Python {abi}{gpu}: for each architecture the group
whose wheels ask for no more than those of the others."""
_BEYOND = """
Keep it off nodes of these groups, which have less: {groups}"""
_NONE = "There is no index for {abi}: none of {groups} runs wherever the others do."


@dataclass(frozen=True)
class Index:
    """One name for images of several architectures."""

    members: tuple[PlannedGroup, ...]  # none where no group serves the nodes of the others
    says: str  # what it is for, or why it is not there


def indexes(built: Sequence[PlannedGroup], fleet: Sequence[PlannedGroup]) -> Iterator[Index]:
    """One for each Python ABI that was built for several architectures. A pod asks for a GPU or it
    does not, so groups with GPUs have one of their own.
    """
    for abi, gpu in sorted({(one.target.python, bool(one.target.sms)) for one in built}):
        some = [one for one in built if (one.target.python, bool(one.target.sms)) == (abi, gpu)]
        by_arch = [
            [one for one in some if one.target.arch == arch]
            for arch in sorted({one.target.arch for one in some})
        ]
        if len(by_arch) > 1:
            yield _index(abi, by_arch, [one for one in fleet if one.target.sms or not gpu])


def _index(
    abi: str, by_arch: Sequence[Sequence[PlannedGroup]], fleet: Sequence[PlannedGroup]
) -> Index:
    members: list[PlannedGroup] = []
    for some in by_arch:
        least = least_demanding(some)
        if least is None:
            names = ", ".join(one.name for one in some)
            return Index((), _NONE.format(abi=abi, groups=names))
        members.append(least)
    gpu = " with a GPU" if members[0].target.sms else ""
    says = _INDEX.format(abi=abi, gpu=gpu)
    if beyond := sorted(one.name for one in fleet if not _runs_there(members, one)):
        says += _BEYOND.format(groups=", ".join(beyond))
    return Index(tuple(members), says)


def least_demanding(groups: Sequence[PlannedGroup]) -> PlannedGroup | None:
    """Of one architecture's groups that whose wheels run wherever those of the others do."""
    fits = [one for one in groups if all(_asks_no_more(one, other) for other in groups)]
    return min(fits, key=lambda group: group.name, default=None)


def _runs_there(members: Sequence[PlannedGroup], node: PlannedGroup) -> bool:
    """Do nodes of this group run their architecture's member, where there is one?"""
    mine = [one for one in members if one.target.arch == node.target.arch]
    return all(_asks_no_more(one, node) for one in mine)


def _asks_no_more(one: PlannedGroup, other: PlannedGroup) -> bool:
    """Without SMs a wheel uses the CPU alone; with them it wants one of these GPUs."""
    sms = set(one.target.sms)
    fits_gpus = not sms or bool(other.target.sms and set(other.target.sms) <= sms)
    return fits_gpus and set(one.target.features) <= set(other.target.features)
