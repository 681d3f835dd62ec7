"""One policy for all groups: a pod with the label `wants` gets the selector and image of a group.

In: a plan and the repository of the groups' images. Out: YAML of a MutatingAdmissionPolicy, and of
a ValidatingAdmissionPolicy that refuses names of no group.
"""

from __future__ import annotations

import json

from fleetbuild.extensions.kubernetes.labels.affinity import selector
from fleetbuild.extensions.kubernetes.labels.features import GPU, GPU_TOLERATION
from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain, label_key
from fleetbuild.extensions.kubernetes.manifests.images import image_name
from fleetbuild.extensions.kubernetes.manifests.names import dns_label, label_value, object_head
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, dump
from fleetbuild.models import Plan, PlannedGroup

FILE = "policy.yaml"
_ADMISSION = "admissionregistration.k8s.io/v1"
_HEADER = """\
A pod with the label {key}: GROUP gets, when it is created,
{what}:
{groups}
So one manifest serves all groups, and only this label differs. Any other name is refused. Other
selectors of the pod stay. {gpus}Needs Kubernetes 1.36 (MutatingAdmissionPolicy).
    kubectl apply -f {file}"""
_GPUS = f"A container asks for its GPUs itself ({GPU}).\n"
_PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
    "scope": "*",  # the default; without it `kubectl apply` reports a change each time
}


def wants_policy(plan: Plan, delivery: Delivery) -> str:
    """Return policy.yaml, or "" if the plan has no group."""
    check_domain(plan.label_domain)
    groups = sorted(plan.groups, key=lambda group: group.name)
    if not groups:
        return ""
    key = label_key(plan.label_domain, "wants", plan.release)
    name = "-".join(
        ["wants", *([] if plan.release == "default" else [dns_label(plan.release, 40)])]
    )
    name = f"{name}.{plan.label_domain}"
    wanted = f"object.metadata.?labels[?{json.dumps(key)}].orValue('')"
    common = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [FlowStyle(_PODS)]},
        "matchConditions": [{"name": "wants", "expression": f"{wanted} != ''"}],
    }
    mutating = {
        **common,
        "reinvocationPolicy": "Never",
        "variables": [{"name": "wants", "expression": wanted}],
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(plan, group, delivery)}}
            for group in groups
        ],
    }
    names = [label_value(group.name) for group in groups]
    known = {
        "expression": f"{wanted} in {json.dumps(names)}",
        "message": f"The label {key} names no group of the plan. Groups: {', '.join(names)}.",
        "reason": "Invalid",
    }
    bind = {"policyName": name}
    deny = {**bind, "validationActions": FlowStyle(["Deny"])}
    documents: list[dict[str, object]] = [
        {**object_head(_ADMISSION, "MutatingAdmissionPolicy", name=name), "spec": mutating},
        {**object_head(_ADMISSION, "MutatingAdmissionPolicyBinding", name=name), "spec": bind},
        {
            **object_head(_ADMISSION, "ValidatingAdmissionPolicy", name=name),
            "spec": {**common, "validations": [known]},
        },
        {**object_head(_ADMISSION, "ValidatingAdmissionPolicyBinding", name=name), "spec": deny},
    ]
    first, *rest = documents
    header = _HEADER.format(
        key=key,
        what=_what(delivery),
        groups="\n".join(f"  {label_value(group.name)}" for group in groups),
        gpus=_GPUS if any(group.target.sms for group in groups) else "",
        file=FILE,
    )
    return "---\n".join([dump(first, header), *map(dump, rest)])


def _what(delivery: Delivery) -> str:
    if delivery.image_prefix:
        return "the node selector of that group, and its image in the first container"
    return "the node selector of that group"


def _patch(plan: Plan, group: PlannedGroup, delivery: Delivery) -> str:
    """Return the JSON patch for pods that want this group, as a CEL expression."""
    labels = selector(plan, group, "class")
    one = (
        '  JSONPatch{{op: "add", path: "/spec/nodeSelector/" + jsonpatch.escapeKey({}), value: {}}}'
    )
    single = ",\n".join(
        one.format(json.dumps(key), json.dumps(value)) for key, value in labels.items()
    )
    at_once = f'  JSONPatch{{op: "add", path: "/spec/nodeSelector", value: {json.dumps(labels)}}}'
    parts = [f"(has(object.spec.nodeSelector) ? [\n{single}\n] : [\n{at_once}\n])"]
    if group.target.sms:
        fields = ", ".join(f"{key}: {json.dumps(value)}" for key, value in GPU_TOLERATION.items())
        toleration = f"Object.spec.tolerations{{{fields}}}"
        parts.append(
            "(has(object.spec.tolerations) ? [\n"
            f'  JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {toleration}}}\n] : [\n'
            f'  JSONPatch{{op: "add", path: "/spec/tolerations", value: [{toleration}]}}\n])'
        )
    if delivery.image_prefix:
        image = json.dumps(image_name(delivery.repository, group))
        parts.append(
            f'[JSONPatch{{op: "replace", path: "/spec/containers/0/image", value: {image}}}]'
        )
    name = json.dumps(label_value(group.name))
    return f"variables.wants != {name} ? [] :\n" + "\n+ ".join(parts) + "\n"
