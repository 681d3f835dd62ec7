"""Hardware classes: a rung and a set of SMs for which the plan has a group.

Each node has exactly one class, the best that its hardware meets, whether it was planned for or
joined later. A node that meets none has no class, and no wheel of the plan runs there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetbuild.extensions.kubernetes.labels.node_labels import (
    class_labels,
    class_name,
    labels_of_class,
)
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS, Rung
from fleetbuild.models import NodeHardware, Plan, Target

_POSITION = {name: position for position, name in enumerate(RUNGS)}


@dataclass(frozen=True)
class HardwareClass:
    """The hardware that a node needs for the wheels of some groups.

    A class without SMs accepts any GPUs and does not use them. A class with SMs needs GPUs and has
    code for all of them, because a pod cannot choose its GPU.
    """

    rung: Rung
    sms: tuple[str, ...]  # sorted; empty: no GPU is used

    @property
    def name(self) -> str:
        """Return the value of the label `class`: sm86-avx2, cpu-avx512."""
        return class_name(self.rung.name, self.sms)

    def is_met_by(self, node: NodeHardware) -> bool:
        """Return whether its wheels run on this node, and on each of its GPUs."""
        cpu = node.arch == self.rung.arch and self.rung.features <= set(node.features)
        return cpu and (not self.sms or (bool(node.sms) and set(node.sms) <= set(self.sms)))


def classes(plan: Plan) -> tuple[HardwareClass, ...]:
    """Return the classes of a plan's groups, the best first."""
    return classes_of(group.target for group in plan.unblocked_groups)


def hardware_of_hosts(plan: Plan) -> dict[str, dict[str, str]]:
    """Return the hardware labels of each host whose hardware is known; {} if it meets no class.

    A host in a group has the group's class. A blocked host has the best class that its hardware
    meets, as by the rules of Node Feature Discovery.
    """
    ours = classes(plan)
    labels = {
        name: _met(plan, ours, node.hardware) for name, node in plan.nodes.items() if node.hardware
    }
    for group in plan.unblocked_groups:
        labels |= dict.fromkeys(group.nodes, class_labels(plan, group))
    return labels


def _met(plan: Plan, ours: Iterable[HardwareClass], hardware: NodeHardware) -> dict[str, str]:
    for class_ in ours:
        if class_.is_met_by(hardware):
            return labels_of_class(class_.rung.name, class_.sms, plan.label_domain, plan.release)
    return {}


def classes_of(targets: Iterable[Target]) -> tuple[HardwareClass, ...]:
    """Return the classes of these targets, the best first.

    With a GPU before without; then the better rung; then fewer SMs, since such a wheel has less
    code that a node does not need.
    """
    return tuple(sorted({class_of_target(target) for target in targets}, key=_order))


def class_of_target(target: Target) -> HardwareClass:
    """Return the class of a target."""
    return HardwareClass(RUNGS[target.isa], tuple(sorted(target.sms, key=sm_order)))


def _order(each: HardwareClass) -> tuple[object, ...]:
    return (
        not each.sms,
        -_POSITION[each.rung.name],
        len(each.sms),
        [sm_order(sm) for sm in each.sms],
    )
