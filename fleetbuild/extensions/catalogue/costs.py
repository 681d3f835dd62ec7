"""The cost of a wheel set that several groups share, in minutes of building.

In: groups before merging, recipes, weights from speeds.yml. Out: prices for `partition.py`.

A wheel set costs the minutes in which its wheels are built, and for each node that has it:
  weights.slower    x how much longer the CPU's work takes than with a wheel set of its own
  weights.gigabyte  x the gigabytes of GPU code for SMs that the node does not have
  weights.moved     if it is not the node's own set
The slowdown counts the package that loses most. A wheel in two sets is counted in each, so that the
cost is a plain sum over sets, which can be minimised exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.utils import canonicalize_name

from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS, Rung, best
from fleetbuild.models import Config, Facts, Target
from fleetbuild.plan.decide.eligibility import allowed_rungs, wheel_rung
from fleetbuild.plan.decide.packages import Package, cuda_floors
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key
from fleetbuild.toolchains.constraints import combination_of, no_toolkit

_DATA = load("speeds.yml", __package__)

# Why nodes of these targets cannot have one wheel set; None if they can.
SharingConflict = Callable[[Sequence[Target]], str | None]


@dataclass(frozen=True)
class Part:
    """A group before merging."""

    target: Target  # without a libc floor
    features: frozenset[str]  # CPU features that all of its nodes may use
    nodes: int

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.target.name

    @property
    def kind(self) -> tuple[str, ...]:
        """Return the properties that must be equal to share a wheel.

        Nodes with and without GPUs never share: GPU code is useless gigabytes on a CPU node, and a
        GPU node needs it.
        """
        gpu = "with GPU code" if self.target.sms else "without GPU code"
        return self.target.arch, self.target.python, self.target.libc.family, gpu


@dataclass(frozen=True)
class Pricing:
    """Prices of wheel sets, for these recipes and this configuration."""

    recipes: Sequence[Recipe]
    config: Config
    sharing: SharingConflict

    def price(self, parts: tuple[Part, ...]) -> float | None:
        """Return the cost of one wheel set for all these parts; None if they cannot share one."""
        target = self.target(parts)
        if target is None or self.conflict(parts):
            return None
        return self._minutes(target) + sum(
            part.nodes * self._loss(part.target, target) for part in parts
        )

    def conflict(self, parts: Sequence[Part]) -> str | None:
        """Return why these parts share no CUDA toolkit; None if they do."""
        return self.sharing([part.target for part in parts]) if len(parts) > 1 else None

    def target(self, parts: Sequence[Part]) -> Target | None:
        """Return the best target that all these parts can run, if there is one."""
        first = parts[0]
        if len(parts) == 1:
            return first.target
        if any(part.kind != first.kind for part in parts):
            return None
        common = frozenset.intersection(*(part.features for part in parts))
        rung = best(common, first.target.arch, self._allowed)
        if rung is None or not all(
            wheel_rung(recipe, rung, self.config) for recipe in self.recipes
        ):
            return None
        sms = {sm for part in parts for sm in part.target.sms}
        return first.target.model_copy(
            update={
                "isa": rung.name,
                "features": tuple(sorted(rung.features)),
                "sms": tuple(sorted(sms, key=sm_order)),
            }
        )

    def slower(self, own: Target, target: Target) -> float:
        """Return how much longer CPU work takes than with wheels for `own`: 0.5 is 50 % longer."""
        ratios = [self._speed(recipe, own) / self._speed(recipe, target) for recipe in self.recipes]
        return max(1.0, *ratios) - 1

    def megabytes(self, own: Target, target: Target) -> float:
        """Return the megabytes of GPU code for SMs that nodes of `own` do not have."""
        return sum(
            len(set(recipe.sms_of(target.sms)) - set(own.sms)) * recipe.cost.per_sm_mb
            for recipe in self.recipes
        )

    def to_build(self, targets: Sequence[Target]) -> tuple[float, float]:
        """Return minutes and megabytes of all wheels of these sets; a shared wheel counts once."""
        wheels = {
            (number, part_of, self._wheel_rung(recipe, target).name, sms)
            for number, recipe in enumerate(self.recipes)
            for target in targets
            for part_of in [(target.arch, target.python, target.libc.family)]
            for sms in [recipe.sms_of(target.sms)]
        }
        built = [(self.recipes[number].cost, len(sms)) for number, _, _, sms in wheels]
        return (
            sum(cost.minutes + cost.per_sm_minutes * sms for cost, sms in built),
            sum(cost.size_mb + cost.per_sm_mb * sms for cost, sms in built),
        )

    def _minutes(self, target: Target) -> float:
        return self.to_build([target])[0]

    def _loss(self, own: Target, target: Target) -> float:
        if target == own:
            return 0.0
        weights = _DATA["weights"][self.config.grouping.optimize_for]
        share = weights["gpu_node"] if own.sms else 1
        return float(
            weights["moved"]
            + weights["slower"] * share * self.slower(own, target)
            + weights["gigabyte"] * self.megabytes(own, target) / 1000
        )

    def _speed(self, recipe: Recipe, target: Target) -> float:
        """Return the speed of a package with the wheel for this target: measured, else assumed."""
        rung = self._wheel_rung(recipe, target).name
        use = self.config.grouping.optimize_for
        measured = _DATA["measured"].get(recipe.name, {})
        if rung in measured and use not in recipe.rungs_for:
            return float(measured[rung])
        assumed = _DATA["assumed"].get(use, _DATA["assumed"]["fp32"])
        share, throughput = float(assumed["share"]), float(assumed["throughput"][rung])
        return 1 / (1 - share + share / throughput)

    def _wheel_rung(self, recipe: Recipe, target: Target) -> Rung:
        rung = wheel_rung(recipe, RUNGS[target.isa], self.config)
        assert rung  # target() returns None if a recipe has no rung  # noqa: S101
        return rung

    @cached_property
    def _allowed(self) -> tuple[str, ...]:
        return allowed_rungs(self.recipes, self.config)


def toolkit_conflicts(
    targets: Mapping[str, Target],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> SharingConflict:
    """Return a function that says why groups share no CUDA toolkit: by all SMs, oldest driver."""
    versions: dict[str, str] = {
        canonicalize_name(package.name): package.version for package in packages
    }
    members: dict[Target, list[Facts]] = {}
    for name, target in targets.items():
        members.setdefault(target, []).append(facts[name])
    oldest = {target: min(alike, key=_driver) for target, alike in members.items()}

    def reason(together: Sequence[Target]) -> str | None:
        combination = combination_of(
            versions,
            {sm for target in together for sm in target.sms},
            together[0].python,
            [oldest[target] for target in together],
            config.cuda,
            floors=cuda_floors(packages),
        )
        return "; ".join(no_toolkit(combination)) or None

    return reason


def _driver(facts: Facts) -> tuple[object, ...]:
    # An unknown driver sets no limit.
    return facts.driver is None, version_key(facts.driver or "")
