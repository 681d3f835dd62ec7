"""Node selectors and affinity of each group, to paste into a user's own manifests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetbuild.extensions.kubernetes.labels.affinity import (
    affinity,
    gpu_limits,
    pod_fields,
    selector,
)
from fleetbuild.extensions.kubernetes.labels.classes import class_of_target
from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, comment, dump
from fleetbuild.models import Plan, Target

_HEADER = """\
For pods that bring their packages with them. By fleetbuild's hardware labels, which
nodefeaturerule.yaml or labels.sh set. A pod that mounts a release from its node must also wait
until the release is verified there: `fleetbuild emit k8s` writes such pods."""
_ONE = """\
{group}: a pod with its packages. Put all of it into spec, and the limits into the container."""
_ANY = """\
A pod that runs with the packages of any of these groups, such as an image for several
architectures or a program that chooses for itself:
{groups}
Put all of it into spec, and the limits into the container. Required: the nodes that can run it.
Preferred: the nodes where it is expected to be fastest, by SM and rung, without a measurement."""


def snippets(plan: Plan, *, runtime_class: str | None = None) -> dict[str, str]:
    """Return affinity.yaml: a document per group and per choice of groups."""
    check_domain(plan.label_domain)
    header = "\n".join(comment(_HEADER)) + "\n"
    return {"affinity.yaml": "---\n".join([header, *_documents(plan, runtime_class)])}


def _documents(plan: Plan, runtime_class: str | None) -> Iterator[str]:
    groups = sorted(plan.groups, key=lambda group: group.name)
    for group in groups:
        pod = _pod({"nodeSelector": selector(plan, group)}, group.target, runtime_class)
        yield dump(pod, _ONE.format(group=group.name))
    # A pod asks for a GPU or it does not.
    for gpu in (True, False):
        some = [group for group in groups if bool(group.target.sms) == gpu]
        if len({class_of_target(group.target) for group in some}) > 1:
            names = "\n".join(f"  {group.name}" for group in some)
            placement = {"affinity": _short(affinity(plan, some))}
            pod = _pod(placement, some[0].target, runtime_class)
            yield dump(pod, _ANY.format(groups=names))


def _pod(
    placement: dict[str, object], target: Target, runtime_class: str | None
) -> dict[str, object]:
    limits = gpu_limits(target)
    containers = {"containers": [{"resources": {"limits": limits}}]} if limits else {}
    return {**placement, **pod_fields(target, runtime_class), **containers}


def _short(value: Any) -> Any:
    """Return the value with each expression on one line."""
    if isinstance(value, dict):
        return FlowStyle(value) if "operator" in value else {k: _short(v) for k, v in value.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value
