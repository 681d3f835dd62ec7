"""The GPUs of Nodes from ResourceSlices, as NVIDIA's DRA driver publishes them. No I/O.

In: ResourceSlice objects (resource.k8s.io/v1). Out: GPUs of each Node. The cluster's objects are
not trusted: values of another form are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import Gpu

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,9})?", re.ASCII)
DRIVER = "gpu.nvidia.com"
CAPABILITY = "cudaComputeCapability"
_DRIVER = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}", re.ASCII)
_MEBIBYTES = re.compile(r"(\d{1,9})(Mi|Gi)", re.ASCII)
_MOST = 64  # GPUs of a node


class Devices(NamedTuple):
    """The whole GPUs of a Node, and the version of NVIDIA's driver."""

    gpus: tuple[Gpu, ...]
    driver: str | None = None


def devices_by_node(slices: Iterable[Mapping[str, Any]]) -> dict[str, Devices]:
    """Return the whole GPUs of each Node. Of a pool only its newest generation counts."""
    newest: dict[tuple[str, str], tuple[int, list[Mapping[str, Any]]]] = {}
    for each in slices:
        spec = _mapping(each.get("spec"))
        if spec.get("driver") != DRIVER or not isinstance(spec.get("nodeName"), str):
            continue
        pool = _mapping(spec.get("pool"))
        key, generation = (spec["nodeName"], str(pool.get("name"))), pool.get("generation")
        age = generation if isinstance(generation, int) else 0
        latest = newest.get(key, (age, []))
        if age >= latest[0]:
            newest[key] = (age, [*(latest[1] if age == latest[0] else []), spec])
    by_node: dict[str, Devices] = {}
    for (node, _), (_, specs) in sorted(newest.items()):
        devices = list(_whole_gpus(specs))
        gpus = (*by_node.get(node, Devices(())).gpus, *(_gpu(device) for device in devices))[:_MOST]
        versions = filter(_DRIVER.fullmatch, (_value(d, "driverVersion") for d in devices))
        if gpus:
            by_node[node] = Devices(gpus, next(versions, None))
    return by_node


def _whole_gpus(specs: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for spec in specs:
        devices = spec.get("devices")
        for device in devices if isinstance(devices, list) else ():
            if _value(_mapping(device), "type") == "gpu":
                yield device


def _gpu(device: Mapping[str, Any]) -> Gpu:
    match = _VERSION.fullmatch(_value(device, CAPABILITY))
    sm = f"{int(match[1])}.{int(match[2])}" if match else ""
    memory = _mapping(_mapping(device.get("capacity")).get("memory")).get("value")
    size = _MEBIBYTES.fullmatch(str(memory))
    name = "".join(filter(str.isprintable, _value(device, "productName")[:200])) or "GPU"
    return Gpu(
        name=name,
        sm=sm if sm in SMS else None,
        memory_mb=int(size[1]) * (1024 if size[2] == "Gi" else 1) if size else None,
    )


def _value(device: Mapping[str, Any], name: str) -> str:
    """Return an attribute, with or without the driver's domain in its name."""
    attributes = _mapping(device.get("attributes"))
    about = _mapping(attributes.get(name, attributes.get(f"{DRIVER}/{name}")))
    return str(about.get("string", about.get("version", "")))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
