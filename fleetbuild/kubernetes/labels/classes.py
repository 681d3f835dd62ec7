"""Hardware classes: what CPU and GPUs alone decide, as the groups of a plan see them.

There is a class for every rung and set of SMs that some group is built for. A node is of exactly
one of them, the best that it meets, whether it was planned for or joined yesterday; a node that
meets none has no class, and no wheel of the plan runs there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS, Rung
from fleetbuild.kubernetes.labels.node_labels import (
    class_labels,
    class_name,
    has_wheels,
    labels_of_class,
)
from fleetbuild.models import NodeHardware, Plan, Target

_POSITION = {name: position for position, name in enumerate(RUNGS)}


@dataclass(frozen=True)
class HardwareClass:
    """What a node must have for the wheels of some groups to run on it, and to be of use.

    A class without SMs is met with any GPUs: they are not used. One with SMs wants GPUs, and code
    for all of them, since a pod cannot choose which it is given.
    """

    rung: Rung
    sms: tuple[str, ...]  # sorted; empty: no GPU is used

    @property
    def name(self) -> str:
        """As the label `class` says it: sm86-avx2, cpu-avx512."""
        return class_name(self.rung.name, self.sms)

    def is_met_by(self, node: NodeHardware) -> bool:
        """Would its wheels run on this node, and on each of its GPUs?"""
        cpu = node.arch == self.rung.arch and self.rung.features <= set(node.features)
        return cpu and (not self.sms or (bool(node.sms) and set(node.sms) <= set(self.sms)))


def classes(plan: Plan) -> tuple[HardwareClass, ...]:
    """The classes of a plan's groups, the best first."""
    return classes_of(group.target for group in plan.groups if has_wheels(group))


def hardware_of_hosts(plan: Plan) -> dict[str, dict[str, str]]:
    """The hardware labels of each host whose hardware is known; none where it meets no class.

    The host of a group is of the group's class. One that is blocked is of the class that the rules
    of Node Feature Discovery give it: the best that its hardware meets.
    """
    ours = classes(plan)
    labels = {
        name: _met(plan, ours, node.hardware) for name, node in plan.nodes.items() if node.hardware
    }
    for group in filter(has_wheels, plan.groups):
        labels |= dict.fromkeys(group.nodes, class_labels(plan, group))
    return labels


def _met(plan: Plan, ours: Iterable[HardwareClass], hardware: NodeHardware) -> dict[str, str]:
    for each in ours:
        if each.is_met_by(hardware):
            return labels_of_class(each.rung.name, each.sms, plan.label_domain, plan.release)
    return {}


def classes_of(targets: Iterable[Target]) -> tuple[HardwareClass, ...]:
    """The classes that these targets are of, the best first.

    Use of the GPU comes before the rung, as it decides more; then the better rung; then the fewer
    SMs, which is the wheel with less code that this node has no use for.
    """
    return tuple(sorted({class_of_target(target) for target in targets}, key=_order))


def class_of_target(target: Target) -> HardwareClass:
    """The class that a group of this target is of."""
    return HardwareClass(RUNGS[target.isa], tuple(sorted(target.sms, key=sm_order)))


def _order(each: HardwareClass) -> tuple[object, ...]:
    return (
        not each.sms,
        -_POSITION[each.rung.name],
        len(each.sms),
        [sm_order(sm) for sm in each.sms],
    )
