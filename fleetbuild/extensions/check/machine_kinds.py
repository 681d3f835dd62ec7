"""Kinds of machines that a check judges for: what --for names, this machine, the nodes of a fleet.

In: names and facts. Out: for each name a `MachineKind`: CPU features, SMs, Python and C library.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Iterable, Mapping

from fleetbuild.audit.check import implied_features
from fleetbuild.errors import BlockedError, ConfigError, UsageError
from fleetbuild.hardware.gpus import SMS, sm_order
from fleetbuild.hardware.machine_names import MachineName, read_machine_name, similar_names
from fleetbuild.hardware.rungs import RUNGS, best
from fleetbuild.models import Facts, Login, Node, TargetLibc
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.named_targets import parse_target
from fleetbuild.plan.decide.resolution import LockRequest
from fleetbuild.plan.resolve.sandbox import PYTHON_TAG, glibc_here
from fleetbuild.text import fold, version_key
from fleetbuild.toolchains.pytorch import python_of

_NEW_GLIBC = "2.35"  # of a kind that is judged on a machine without glibc
HERE = "this machine"


class MachineKind(Frozen):
    """A kind of machine. `name` is as the user wrote it."""

    name: str
    arch: str
    features: frozenset[str]  # with the features that they imply
    sms: tuple[str, ...] = ()
    python: str  # cp311
    python_version: str  # 3.11.2
    libc: TargetLibc
    read_as: str = ""  # of a machine's name: IvyBridge (x86-64-v2 + avx, f16c)

    @property
    def meaning(self) -> str:
        """What it stands for: IvyBridge, x86_64, rung avx, SM 6.1; Python 3.11, glibc 2.36."""
        rung = best(self.features, self.arch)
        parts = [self.read_as] if self.read_as else []
        parts += [self.arch, f"rung {rung.name}" if rung else "no rung"]
        parts += [f"SM {', '.join(self.sms)}"] if self.sms else []
        return f"{', '.join(parts)}; {self.python}, {self.libc.family} {self.libc.floor}"

    def request(self, requirements: Iterable[str]) -> LockRequest:
        """Return the request to resolve these requirements for this kind."""
        return LockRequest(
            requirements=tuple(requirements),
            python_version=self.python_version,
            python=self.python,
            arch=self.arch,
            libc=self.libc,
        )


def named_kinds(
    names: Iterable[str], facts: Mapping[str, Facts] | None = None
) -> tuple[MachineKind, ...]:
    """Return the kind of each name: a node of these facts, a machine's name, or a group."""
    return tuple(_named(name, facts or {}) for name in dict.fromkeys(names))


def this_machine() -> MachineKind:
    """Return this machine as a kind."""
    return _of_facts(HERE, [_facts_here()])


def kinds_of_fleet(facts: Mapping[str, Facts]) -> tuple[MachineKind, ...]:
    """Return a kind for each group of nodes with the same rung, SMs, Python and libc family.

    A kind has the features that all of its nodes have.
    """
    alike = _alike(facts)
    if not alike:
        why = {
            name: known.reason or "its CPU or its Python is unknown"
            for name, known in facts.items()
        }
        said = "; ".join(f"{name}: {reason}" for name, reason in list(why.items())[:3])
        raise BlockedError(
            f"No node of the inventory can be judged for. {said}",
            "Name a kind with --for, or see: fleetbuild facts INVENTORY",
        )
    return tuple(_of_facts(name, members) for name, members in sorted(alike.items()))


def _alike(facts: Mapping[str, Facts]) -> dict[str, list[Facts]]:
    """Return the nodes that can be judged for, by the names of their groups."""
    alike: dict[str, list[Facts]] = {}
    for known in facts.values():
        if known.state == "ok" and known.isa and known.pythons:
            alike.setdefault(_group_name(known), []).append(known)
    return alike


def _named(name: str, facts: Mapping[str, Facts]) -> MachineKind:
    if name in facts:
        return _of_node(name, facts[name])
    if machine := read_machine_name(name):
        return _of_machine(name, machine)
    if members := _alike(facts).get(name):
        return _of_facts(name, members)
    try:
        target = parse_target(name)
    except ConfigError as error:
        raise _unknown(name, facts, error) from None
    return _imagined(
        name,
        target.arch,
        frozenset(target.features),
        sms=target.sms,
        python=target.python,
        family=target.libc.family,
    )


def _unknown(name: str, facts: Collection[str], error: ConfigError) -> UsageError:
    if re.match(r"(cpu|sm\d+(\.sm\d+)*)-", name):  # meant as a group's name
        return UsageError(error.message, error.fix)
    close = similar_names(name, facts)
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    nodes = f" a node ({fold(facts, 100)})," if facts else ""
    return UsageError(
        f"--for {name[:100]} is not the name of a rung, a CPU, a GPU, a group or a node.",
        f"{meant}Name a rung ({', '.join(RUNGS)}), a CPU such as zen3 or 'Xeon E5-2650 v2', a GPU"
        f" such as sm61 or 'RTX 3060',{nodes} or a group such as sm61-avx2-cp311; each of several"
        " has its own --for.",
    )


def _of_machine(name: str, machine: MachineName) -> MachineKind:
    """Return the kind that a machine's name stands for; a GPU is put into this machine."""
    if machine.sm and machine.sm not in SMS:
        raise UsageError(f"--for {name} is an unknown SM.", f"The known SMs are: {', '.join(SMS)}.")
    sms = (machine.sm,) if machine.sm else ()
    if machine.arch is None:
        read_as = f"{machine.read_as} with the CPU of this machine"
        return this_machine().model_copy(update={"name": name, "sms": sms, "read_as": read_as})
    kind = _imagined(name, machine.arch, machine.features, sms=sms)
    return kind.model_copy(update={"read_as": machine.read_as})


def _of_node(name: str, facts: Facts) -> MachineKind:
    if facts.state != "ok" or not facts.isa or not facts.pythons:
        why = facts.reason or "its CPU or its Python is unknown."
        raise BlockedError(f"{name} cannot be judged for: {why}", facts.fix or "")
    return _of_facts(name, [facts])


def _group_name(facts: Facts) -> str:
    sms = ".".join("sm" + sm.replace(".", "") for sm in facts.sms) or "cpu"
    musl = ("musl",) if facts.libc and facts.libc.family == "musl" else ()
    return "-".join((sms, str(facts.isa), facts.pythons[0].tag, *musl))


def _of_facts(name: str, members: list[Facts]) -> MachineKind:
    """Return the kind of these nodes: what all of them have, and the oldest C library."""
    first = members[0]
    common = frozenset.intersection(*(frozenset(known.features) for known in members))
    oldest = min(
        (known.libc for known in members if known.libc),
        key=lambda libc: version_key(libc.version),
        default=None,
    )
    libc = TargetLibc(family=oldest.family, floor=oldest.version) if oldest else _libc_here()
    return MachineKind(
        name=name,
        arch=str(first.arch),
        features=implied_features(str(first.arch), common),
        sms=first.sms,
        python=first.pythons[0].tag,
        python_version=first.pythons[0].version,
        libc=libc,
    )


def _imagined(
    name: str,
    arch: str,
    features: frozenset[str],
    *,
    sms: tuple[str, ...] = (),
    python: str | None = None,
    family: str | None = None,
) -> MachineKind:
    """Return a kind of which no machine is at hand, by default with this Python and C library."""
    return MachineKind(
        name=name,
        arch=arch,
        features=implied_features(arch, features),
        sms=tuple(sorted(sms, key=sm_order)),
        python=python or PYTHON_TAG,
        python_version=python_of(python) if python else platform.python_version().rstrip("+"),
        libc=TargetLibc(family="musl", floor="1.2") if family == "musl" else _libc_here(),
    )


def _libc_here() -> TargetLibc:
    return TargetLibc(family="glibc", floor=glibc_here() or _NEW_GLIBC)


def _facts_here() -> Facts:
    """Return the facts of this machine, by the probe that nodes get."""
    from fleetbuild.probe.parsing.facts import unreachable  # noqa: PLC0415
    from fleetbuild.probe.probing import Probed, probe  # noqa: PLC0415

    node = Node(name=HERE, login=Login(connection="local", host="localhost"))
    answer = probe([node])[HERE]
    known = answer.facts if isinstance(answer, Probed) else unreachable(answer.reason)
    if known.state != "ok" or not known.isa or not known.arch:
        why = known.reason or "its CPU is unknown."
        raise UsageError(
            f"This machine cannot be judged for: {why}",
            "Name the kind of machine, such as: --for Haswell",
        )
    own_first = sorted(known.pythons, key=lambda python: python.tag != PYTHON_TAG)
    return known.model_copy(update={"pythons": tuple(own_first)})
