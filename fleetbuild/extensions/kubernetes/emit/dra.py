"""DeviceClasses for dynamic resource allocation (DRA): a class of GPUs for each SM.

In: a plan. Out: YAML. The devices come from NVIDIA's driver gpu.nvidia.com, which publishes the
compute capability of each GPU as a version: 8.6 is 8.6.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetbuild.extensions.kubernetes.labels.classes import classes
from fleetbuild.extensions.kubernetes.labels.devices import CAPABILITY, DRIVER
from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain
from fleetbuild.extensions.kubernetes.manifests.names import dns_label, object_head
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import dump
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models import Plan

FILE = "deviceclasses.yaml"

_HEADER = """\
A DeviceClass for each compute capability (SM) that this plan has wheels for, and for each set of
them that one wheel holds code for. Needs Kubernetes 1.34 and NVIDIA's DRA driver:
    kubectl apply -f {file}

A container gets such a GPU by a ResourceClaim whose request names the class:
    exactly: {{deviceClassName: {name}}}
{limit}Ask for this in place of nvidia.com/gpu: both are two GPUs. An SM says nothing of the CPU, so
the pod keeps the nodeSelector of its group."""
_LIMIT = """\
or by a plain limit (Kubernetes 1.36; before that with the feature gate DRAExtendedResource):
    resources: {{limits: {{{resource}: 1}}}}
"""


def device_classes(plan: Plan) -> str | None:
    """Return deviceclasses.yaml, or None if no group of the plan uses a GPU."""
    check_domain(plan.label_domain)
    sets = list(_sm_sets(plan))
    if not sets:
        return None
    documents = [_device_class(plan, sms) for sms in sets]
    resource = resource_name(plan.label_domain, sets[0])
    limit = _LIMIT.format(resource=resource) if resource else ""
    header = _HEADER.format(file=FILE, limit=limit, name=_name(plan, sets[0]))
    first, *rest = documents
    return "---\n".join([dump(first, header), *map(dump, rest)])


def resource_name(domain: str, sms: tuple[str, ...]) -> str | None:
    """Return the extended resource for GPUs of these SMs: fleetbuild.dev/sm86.

    None if Kubernetes does not take a resource of this domain.
    """
    return None if no_limits(domain) else f"{domain}/{_spelled(sms)}"


def no_limits(domain: str) -> str:
    """Return a sentence if a DeviceClass cannot have an extended resource of this domain."""
    if not domain.endswith("kubernetes.io"):
        return ""
    return (
        f"Kubernetes keeps resources of {domain} for itself, so these DeviceClasses work by"
        " ResourceClaims and not by plain limits."
    )


def _sm_sets(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield each SM alone, then each set of several that a class is built for."""
    built = {class_.sms for class_ in classes(plan) if class_.sms}
    alone = {(sm,) for sms in built for sm in sms}
    for some in (alone, built - alone):
        yield from sorted(some, key=lambda sms: [sm_order(sm) for sm in sms])


def _device_class(plan: Plan, sms: tuple[str, ...]) -> dict[str, object]:
    device = f"device.attributes['{DRIVER}']"
    fits = [f"{device}.{CAPABILITY}.compareTo(semver('{sm}.0')) == 0" for sm in sms]
    resource = resource_name(plan.label_domain, sms)
    one_of = fits[0] if len(fits) == 1 else f"({' || '.join(fits)})"
    return {
        **object_head("resource.k8s.io/v1", "DeviceClass", name=_name(plan, sms)),
        "spec": {
            "selectors": [
                {
                    "cel": {
                        "expression": f"device.driver == '{DRIVER}' && {device}.type == 'gpu'"
                        f" && {one_of}"
                    }
                }
            ],
            **({"extendedResourceName": resource} if resource else {}),
        },
    }


def _name(plan: Plan, sms: tuple[str, ...]) -> str:
    """SMs mean the same to every release, so releases share the class."""
    return f"{dns_label(_spelled(sms))}.{plan.label_domain}"


def _spelled(sms: tuple[str, ...]) -> str:
    return "-".join(f"sm{sm.replace('.', '')}" for sm in sms)
