"""Image compatibility: what a node must have for a group's image, in the form of NFD (v1alpha1).

In: a group. Out: YAML, which build.sh attaches to the image as an OCI artifact. `nfd compat
validate-node` reads it there; nothing schedules by it yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetbuild.extensions.kubernetes.labels.features import rung_flags
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, dump
from fleetbuild.hardware.gpus import devices_of_sm
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import PlannedGroup

FILE = "image-compatibility.yaml"
ARTIFACT = "application/vnd.nfd.image-compatibility.v1alpha1"
SPEC = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"

_HEADER = """\
What a node must have to run the images of the group {group}. build.sh --push attaches it to them,
with oras. A node is compared with it by:
    nfd compat validate-node --image IMAGE"""
_NO_IDS = " The SM is not among its conditions: it is no PCI device."


def image_compatibility(group: PlannedGroup) -> str:
    """Return image-compatibility.yaml of a group."""
    target = group.target
    ids = all(devices_of_sm(sm) for sm in target.sms)
    sms = f", GPU of SM {' or '.join(target.sms)}" if target.sms else ""
    document = {
        "version": "v1alpha1",
        "compatibilities": [
            {
                "description": f"CPU features of {target.isa}{sms}.{'' if ids else _NO_IDS}",
                "rules": list(_rules(group)),
            }
        ],
    }
    return dump(document, _HEADER.format(group=group.name))


def _rules(group: PlannedGroup) -> Iterator[dict[str, object]]:
    target = group.target
    flags = {flag: {"op": "Exists"} for flag in rung_flags(RUNGS[target.isa])}
    yield {"name": f"CPU {target.isa}", "matchFeatures": [_feature("cpu.cpuid", flags)]}
    if not target.sms:
        return
    driver = {"nvidia": {"op": "Exists"}}
    yield {"name": "NVIDIA driver", "matchFeatures": [_feature("kernel.loadedmodule", driver)]}
    if all(devices_of_sm(sm) for sm in target.sms):  # a Jetson's GPU is on no PCI bus
        ids = sorted(device for sm in target.sms for device in devices_of_sm(sm))
        gpu = {
            "vendor": {"op": "In", "value": ["10de"]},
            "device": {"op": "In", "value": ids},
        }
        yield {"name": "GPU", "matchFeatures": [_feature("pci.device", gpu)]}


def _feature(name: str, expressions: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    rows = {key: FlowStyle(dict(value)) for key, value in expressions.items()}
    return {"feature": name, "matchExpressions": rows}
