"""Named targets: kinds of machines to build for, although the inventory has no such node.

In: names such as sm89-avx2-cp311, the nodes that may build, and their facts. Out: for each target
the facts of a machine with exactly its hardware, from which groups without nodes are made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.extension import PlanBasis
from fleetbuild.models import Config, Facts, Node, Python, Target
from fleetbuild.models._base import Frozen
from fleetbuild.models.node import NO_SSH
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.named_targets import parse_target
from fleetbuild.plan.decide.wheels.builders import fit_to_build
from fleetbuild.text import version_key
from fleetbuild.toolchains.pytorch import python_of

_BASELINE = ("sse2",)  # every x86-64 CPU has it; a node without flags would count as unread
_SHOWN = 3  # nodes whose refusal a reason gives in full


class NamedTarget(Frozen):
    """A target that the user named, or the reason why no node can build for it.

    Its libc floor is the oldest C library among the nodes that can build for it.
    """

    target: Target
    facts: Facts | None = None  # of a machine of just this kind; None if no node can build
    builders: tuple[str, ...] = ()  # nodes that can build for it
    refused: dict[str, str] = {}  # other nodes that were considered -> why they cannot
    problem: Problem | None = None  # why no node can build

    @property
    def name(self) -> str:
        """The target's name, such as sm89-avx2-cp311."""
        return self.target.name


def name_targets(names: Sequence[str], basis: PlanBasis) -> tuple[NamedTarget, ...]:
    """Return the named targets, each once, sorted by name. Without any named builder, every node
    may build."""
    nodes = basis.inventory.nodes
    _refuse_in_cluster(nodes)
    _refuse_merging(basis.config)
    named = sorted({*basis.builders, *(node.name for node in nodes if node.builder)})
    candidates = named or [node.name for node in nodes if not node.skip]
    targets = {target.name: target for target in map(parse_target, names)}
    return tuple(
        _named_target(targets[name], candidates, basis.facts, chosen=bool(named))
        for name in sorted(targets)
    )


def _refuse_merging(config: Config) -> None:
    if key := config.grouping.merges:
        raise ConfigError(
            f"grouping.{key} merges groups, but each named target gets wheels of its own.",
            f"Remove grouping.{key.partition(':')[0]}, or name fewer targets.",
        )


def _refuse_in_cluster(nodes: Sequence[Node]) -> None:
    if nodes and nodes[0].login.connection == NO_SSH:
        raise ConfigError(
            "Named targets need nodes that build, which fleetbuild reaches by SSH; the Nodes of a "
            "cluster build in Jobs, each for its own kind.",
            "Remove targets: from the configuration, or plan from an inventory.",
        )


def _named_target(
    target: Target, candidates: Collection[str], facts: Mapping[str, Facts], *, chosen: bool
) -> NamedTarget:
    pythons: dict[str, Python] = {}
    libcs: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in candidates:
        known = facts.get(name)
        # With the node's own libc as the floor, only the libc family can be wrong.
        libc = known.for_builds.libc if known else None
        own = libc.version if libc else ""
        answer = fit_to_build(name, target.with_floor(own), facts)
        if isinstance(answer, Python):
            pythons[name], libcs[name] = answer, own
        else:
            refused[name] = answer.reason
    if not pythons:
        problem = _no_builder(target, refused, chosen=chosen)
        return NamedTarget(target=target, refused=refused, problem=problem)
    floor = min(libcs.values(), key=version_key)
    able = [name for name in pythons if libcs[name] == floor]
    family = target.libc.family
    refused |= {
        name: f"{name} has {family} {libcs[name]}, and {able[0]} has the older {floor}"
        for name in pythons
        if name not in able
    }
    target = target.with_floor(floor)
    oldest = facts[able[0]].for_builds
    known = Facts(
        arch=target.arch,
        isa=target.isa,
        features=target.features or _BASELINE,
        sms=target.sms,
        libc=oldest.libc,
        libstdcxx=oldest.libstdcxx,
        pythons=(pythons[able[0]],),
    )
    return NamedTarget(target=target, facts=known, builders=tuple(able), refused=refused)


def _no_builder(target: Target, refused: Mapping[str, str], *, chosen: bool) -> Problem:
    whose = "of the named builders " if chosen else ""
    why = "; ".join(list(refused.values())[:_SHOWN]) or "the inventory has no nodes"
    if len(refused) > _SHOWN:
        why += f"; and {len(refused) - _SHOWN} more"
    needs = ", ".join(
        (
            f"an {target.arch} CPU with {target.isa}",
            f"{target.libc.family}",
            f"Python {python_of(target.python)} with venv",
        )
    )
    where = "name it in build.builders" if chosen else "add it to the inventory"
    return Problem(
        f"No node {whose}can build for {target.name}: {why}.",
        f"A builder needs {needs}: {where}, and plan again.",
    )
