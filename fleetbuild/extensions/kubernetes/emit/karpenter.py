"""Node pools that declare the class label, so that autoscalers start nodes for pods of a class.

In: a plan. Out: YAML for Karpenter and for cluster-autoscaler. Instance types come from nodes
that were seen; none is inferred from a product or a family, since one type can be two CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.emit.kueue import flavor_name
from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES
from fleetbuild.extensions.kubernetes.labels.classes import (
    HardwareClass,
    classes,
    hardware_of_hosts,
)
from fleetbuild.extensions.kubernetes.labels.node_facts import INSTANCE_TYPE
from fleetbuild.extensions.kubernetes.labels.node_labels import (
    check_domain,
    is_reserved,
    label_key,
    labels_of_class,
)
from fleetbuild.extensions.kubernetes.manifests.names import label_value, object_head
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import Plan
from fleetbuild.text import fold

KARPENTER, AUTOSCALER = "karpenter.yaml", "cluster-autoscaler.yaml"

_SHARED = """\
A pod that asks for a class finds no node while none of that class runs, and an autoscaler starts
one only where a pool declares the label. What a pool declares is a promise: Node Feature Discovery
gives a node the class that it meets, whatever its pool says, so a pool whose instances are of two
classes starts nodes that the pod cannot use."""
_KARPENTER = """\
A NodePool for each hardware class:
    kubectl apply -f {file}

{shared}"""
_AUTOSCALER = """\
For each hardware class, what to put on its node group so that cluster-autoscaler knows the labels
of nodes that do not exist yet. The node group has to give the labels to its nodes as well (the
kubelet's --node-labels, or the cloud's own setting).

  aws          tags of the Auto Scaling group
  azure        tags of the virtual machine scale set
  cluster_api  annotations of the MachineDeployment or MachineSet

{shared}"""
_UNSEEN = "No node of this class with an instance type was seen. Name types with its CPU{gpu}."
_MIXED = "Seen in several classes, so left out: {types}."
_NO_NODE_CLASS = (
    f"{KARPENTER} is not written: a NodePool refers to a node class of the cluster. Name it with"
    " --node-class GROUP/KIND/NAME, such as karpenter.k8s.aws/EC2NodeClass/default."
)
_RESERVED = (
    "A kubelet may not give its Node labels of kubernetes.label_domain, so --node-labels does not"
    " work: cluster-autoscaler starts nodes that have no class until fleetbuild labels them."
)


class NodeClass(NamedTuple):
    """The provider's settings that a Karpenter pool starts nodes with."""

    group: str
    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> NodeClass:
        """Return the node class that `--node-class` names."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise UsageError(
                f"{text!r} is not a node class.",
                "Name group, kind and name, such as karpenter.k8s.aws/EC2NodeClass/default",
            )
        return cls(*parts)


def node_pools(plan: Plan, node_class: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the files, and a sentence for each thing left out."""
    check_domain(plan.label_domain)
    ours = classes(plan)
    if not ours:
        return {}, ("No group of the plan has wheels, so no node pool is written.",)
    files = {AUTOSCALER: dump(_autoscaler(plan), _AUTOSCALER.format(shared=_SHARED))}
    reserved = (_RESERVED,) if is_reserved(plan.label_domain) else ()
    if node_class is None:
        return files, (_NO_NODE_CLASS, *reserved)
    wanted, seen = NodeClass.parse(node_class), instance_types(plan)
    pools = [_node_pool(plan, class_, wanted, seen) for class_ in ours]
    header = _KARPENTER.format(file=KARPENTER, shared=_SHARED)
    first, *rest = pools
    files[KARPENTER] = "---\n".join([dump(first, header), *map(dump, rest)])
    return dict(sorted(files.items())), (*_unseen(plan, seen), *reserved)


def instance_types(plan: Plan) -> dict[str, set[str]]:
    """Return {instance type: the classes of the nodes that were seen to have it}."""
    hardware = hardware_of_hosts(plan)
    key = label_key(plan.label_domain, "class", plan.release)
    types: dict[str, set[str]] = {}
    for name, node in plan.nodes.items():
        if node.instance_type:
            types.setdefault(node.instance_type, set()).add(hardware.get(name, {}).get(key, ""))
    return types


def _node_pool(
    plan: Plan, each: HardwareClass, node_class: NodeClass, seen: Mapping[str, set[str]]
) -> dict[str, object]:
    requirements: list[object] = [
        _in("kubernetes.io/os", ["linux"]),
        _in("kubernetes.io/arch", [ARCHITECTURES[each.rung.arch]]),
    ]
    types, why = _types(each, seen)
    if types:
        requirements.append(Note(_in(INSTANCE_TYPE, types), why))
    elif why:
        requirements[-1] = Note(requirements[-1], why)
    return {
        **object_head("karpenter.sh/v1", "NodePool", name=flavor_name(plan, each)),
        "spec": {
            "template": {
                "metadata": {"labels": _labels(plan, each)},
                "spec": {
                    "nodeClassRef": node_class._asdict(),
                    "requirements": requirements,
                },
            }
        },
    }


def _types(each: HardwareClass, seen: Mapping[str, set[str]]) -> tuple[list[str], str]:
    """Return the types seen in this class alone, and what the reader has to know of the others."""
    label = label_value(each.name)
    mine = sorted(name for name, found in seen.items() if found == {label})
    mixed = sorted(name for name, found in seen.items() if label in found and len(found) > 1)
    why = "Instance types of nodes that were seen in this class."
    if not mine:
        why = _UNSEEN.format(gpu=" and GPU" if each.sms else "")
    return mine, f"{why} {_MIXED.format(types=fold(mixed))}" if mixed else why


def _unseen(plan: Plan, seen: Mapping[str, set[str]]) -> Iterator[str]:
    without = [class_.name for class_ in classes(plan) if not _types(class_, seen)[0]]
    if without:
        yield (
            f"{fold(without)}: no instance type was seen in this class alone, so {KARPENTER} names"
            " no type; add the types that you know. They are read from a cluster: fleetbuild plan"
            " --from-cluster."
        )


def _autoscaler(plan: Plan) -> dict[str, object]:
    return {class_.name: _tags(_labels(plan, class_)) for class_ in classes(plan)}


def _tags(labels: Mapping[str, str]) -> dict[str, object]:
    prefix = "k8s.io/cluster-autoscaler/node-template/label/"
    azure = prefix.replace("/", "_")  # Azure's tags have no slash
    joined = ",".join(f"{key}={value}" for key, value in labels.items())
    return {
        "aws": {prefix + key: value for key, value in labels.items()},
        "azure": {azure + key.replace("/", "_"): value for key, value in labels.items()},
        "cluster_api": {"capacity.cluster-autoscaler.kubernetes.io/labels": joined},
    }


def _labels(plan: Plan, each: HardwareClass) -> dict[str, str]:
    return labels_of_class(each.rung.name, each.sms, plan.label_domain, plan.release)


def _in(key: str, values: list[str]) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": values}
