"""Verdicts about wheel files: how a file runs on a kind of machine, and what its code needs."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen

VerdictName = Literal["runs", "dies-at-import", "dies-in-use", "refuses", "no-kernel", "undecided"]
EvidenceName = Literal["static", "emulated", "node"]

VERDICT_WORDS: dict[VerdictName, str] = {
    "runs": "runs",
    "dies-at-import": "dies at import",
    "dies-in-use": "dies in use",
    "refuses": "refuses by itself",
    "no-kernel": "no kernel",
    "undecided": "not decided",
}
DEATHS: frozenset[VerdictName] = frozenset(
    ("dies-at-import", "dies-in-use", "refuses", "no-kernel")
)


class Verdict(Frozen):
    """Whether a wheel runs on a kind of machine; `where` names what dies, or the open question."""

    verdict: VerdictName
    where: str | None = None
    evidence: EvidenceName = "static"
    features: tuple[str, ...] = ()  # that the machine lacks
    guarded: tuple[str, ...] = ()  # that it lacks and that only checked code uses
    # Whether it is undecided only because reading could not follow a check of the CPU.
    checks: bool = False
    native: bool = True  # whether the wheel has machine code
    instead: tuple[str, ...] = ()  # of a death: other versions that are known to run there

    @property
    def dies(self) -> bool:
        """Whether the wheel fails on this kind of machine."""
        return self.verdict in DEATHS


class Code(Frozen):
    """The CPU features and SMs that the machine code in a wheel needs."""

    features: tuple[str, ...] = ()
    sms: tuple[str, ...] = ()  # "8.6", "9.0a"
    ptx: tuple[str, ...] = ()
    ran: bool = False  # on such a CPU, which QEMU imitated
    undecided: bool = False  # reading cannot follow its checks of the CPU; a run would decide
    problem: str | None = None  # why the wheel cannot be judged, or is known to die
