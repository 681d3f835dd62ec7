"""Facts of a Node from NodeFeature objects and ResourceSlices, else from its labels. Pure.

The cluster knows the CPU, the GPUs and the system; Python and C library are the image's. A fact
that the cluster does not have is unknown, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleetbuild.extensions.kubernetes.jobs.builder_image import BuilderImage
from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES as CALLED
from fleetbuild.extensions.kubernetes.labels.devices import Devices
from fleetbuild.extensions.kubernetes.labels.features import (
    GFD_MAJOR,
    GFD_MINOR,
    GPU,
    features_of,
    shown_flags,
)
from fleetbuild.hardware.gpus import SMS, sm_of_device, sm_order
from fleetbuild.hardware.rungs import ARCHITECTURES, best
from fleetbuild.models import Facts, Gpu, Os

INSTANCE_TYPE = "node.kubernetes.io/instance-type"

Document = Mapping[str, Any]

NODE_OF = "nfd.node.kubernetes.io/node-name"
# What every CPU has that the architecture is named after.
_BASELINE = {"x86_64": ("sse", "sse2"), "aarch64": ("asimd", "fp")}
_BY_LABELS = (
    "Its CPU is known by labels alone, which lack flags that Node Feature Discovery hides; with"
    " NodeFeature objects the rung may be better."
)
_BY_NOTHING = (
    "Only the architecture of its CPU is known: Node Feature Discovery has no data about it."
)
_KEPT_AWAY = "It has taints ({keys}) that build Jobs do not tolerate, so it builds nothing."
_UNKNOWN_GPU = (
    "A GPU's compute capability is unknown ({what}), so no GPU is used. GPU Feature Discovery adds"
    " a label for it."
)
NOT_PUBLISHED = (
    "Node Feature Discovery does not publish pci.device there (core.noPublishFeatures of"
    " nfd-worker), so the rules of nodefeaturerule.yaml know this GPU only if GPU Feature Discovery"
    " writes a feature file. Take pci.device out of core.noPublishFeatures."
)
# Of MIG devices under the strategy `mixed`, and of shared GPUs under renameByDefault.
_AS_GPUS = (
    "the device plugin offers those as nvidia.com/gpu under the MIG strategy single, or where it"
    " does not rename shared GPUs"
)
_GPU_CLASSES = ("0300", "0302")  # of labels, as NFD comes
_NVIDIA = "10de"
_LONGEST = 200  # characters of a name or value that a message quotes
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}
_QUANTITY = re.compile(r"(\d{1,18})(m|Ki|Mi|Gi|Ti|k|M|G)?", re.ASCII)
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}", re.ASCII)


def facts_of_node(
    node: Document,
    features: Sequence[Document],
    image: BuilderImage,
    devices: Devices | None = None,
) -> Facts:
    """Return the facts of a Node, from its NodeFeature objects and ResourceSlices."""
    info = _texts(node, "status", "nodeInfo")
    arch = next((ours for ours, theirs in CALLED.items() if theirs == info.get("architecture")), "")
    system = info.get("operatingSystem", "")
    problem = _not_ready(node)
    reported = system or not problem  # else its kubelet has said nothing about itself yet
    if reported and (system != "linux" or arch not in ARCHITECTURES):
        what = f"{system} on {info.get('architecture')}"
        return Facts(state="unsupported", reason=f"It runs {what}, which is not supported.")
    if problem:
        fix = "Look at it with: kubectl describe node"
        return Facts(state="unreachable", reason=problem, fix=fix)
    labels = _texts(node, "metadata", "labels")
    flags, flag_warnings = _flags(features, labels)
    cpu_features = frozenset(_BASELINE[arch]) | features_of(flags)
    rung = best(cpu_features, arch)
    sms, gpus, unusable = _gpus(node, features, labels, devices)
    # What pods may have; the rest of the capacity is the system's and the kubelet's.
    room = {**_at(node, "status", "capacity"), **_at(node, "status", "allocatable")}
    taints = _taints(node)
    away = (_KEPT_AWAY.format(keys=", ".join(taints)),) if taints else ()
    return Facts(
        arch=arch,
        isa=rung.name if rung else None,
        features=tuple(sorted(cpu_features)),
        sms=sms,
        gpus=gpus,
        driver=_driver(labels) or (devices.driver if devices else None),
        os=_os(info, labels),
        libc=image.libc,
        pythons=(image.python(arch),),
        cpus=_whole(_size(room.get("cpu"))),
        memory_gb=_gb(_size(room.get("memory"))),
        disk_gb=_gb(_size(_at(node, "status", "allocatable").get("ephemeral-storage"))),
        toolchain={name: (version,) for name, version in image.toolchain},
        taints=taints,
        instance_type=labels.get(INSTANCE_TYPE) or None,
        warnings=(*flag_warnings, *unusable, *_unpublished(features, labels), *away),
    )


def by_node(features: Iterable[Document]) -> dict[str, list[Document]]:
    """Return NodeFeature objects by their Node."""
    by_name: dict[str, list[Document]] = {}
    for feature in features:
        name = _at(feature, "metadata", "labels").get(NODE_OF)
        if isinstance(name, str):
            by_name.setdefault(name, []).append(feature)
    return by_name


def _flags(
    features: Sequence[Document], labels: Mapping[str, str]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the flags of cpu.cpuid, and a warning if some are missing."""
    flags_of_feature = [
        frozenset(map(str, elements))
        for feature in features
        if (elements := _at(feature, "spec", "features", "flags", "cpu.cpuid", "elements"))
    ]
    if flags_of_feature:
        # Objects may lie in any namespace, whose owner may not add flags that the CPU lacks.
        return frozenset.intersection(*flags_of_feature), ()
    shown = shown_flags(labels)
    if shown:
        return shown, (_BY_LABELS,)
    return shown, (_BY_NOTHING,)


def _gpus(
    node: Document,
    features: Sequence[Document],
    labels: Mapping[str, str],
    devices: Devices | None,
) -> tuple[tuple[str, ...], tuple[Gpu, ...], tuple[str, ...]]:
    if devices:  # the DRA driver asked NVIDIA's driver, and offers what it lists
        return _sms_of(devices.gpus)
    gpus = _by_pci(features)
    if all(gpu.sm is None for gpu in gpus):  # as the rules: next to a known one it may be that one
        gpus = _by_gfd(labels) or gpus
    present = any(_is_gpu_label(key) for key in labels)
    if not gpus and not present:
        return (), (), ()
    if problem := _not_offered(node):
        return (), gpus, (problem,)
    return _sms_of(gpus)


def _sms_of(
    gpus: tuple[Gpu, ...],
) -> tuple[tuple[str, ...], tuple[Gpu, ...], tuple[str, ...]]:
    unknown = sorted({gpu.name for gpu in gpus if gpu.sm is None})
    if unknown or not gpus:
        what = ", ".join(unknown) or "by its PCI class alone"
        return (), gpus, (_UNKNOWN_GPU.format(what=what),)
    sms = sorted({gpu.sm for gpu in gpus if gpu.sm}, key=sm_order)
    return tuple(sms), gpus, ()


def _unpublished(features: Sequence[Document], labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning if NFD knows of a GPU and does not publish its PCI devices."""
    published = [_at(feature, "spec", "features", "instances") for feature in features]
    hidden = published and not any("pci.device" in each for each in published)
    return (NOT_PUBLISHED,) if hidden and any(map(_is_gpu_label, labels)) else ()


def _by_pci(features: Sequence[Document]) -> tuple[Gpu, ...]:
    gpus = []
    for feature in features:
        devices = _at(feature, "spec", "features", "instances", "pci.device").get("elements") or ()
        for device in devices if isinstance(devices, list) else ():
            about = _texts(device, "attributes")
            if about.get("vendor") == _NVIDIA and about.get("class", "").startswith("03"):
                pci = f"{_NVIDIA}:{about.get('device')}"
                gpus.append(Gpu(name=f"PCI device {pci}", sm=sm_of_device(pci)))
    return tuple(gpus)


def _by_gfd(labels: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return GPUs by GPU Feature Discovery, which describes one kind per node."""
    sm = f"{labels.get(GFD_MAJOR)}.{labels.get(GFD_MINOR)}"
    if sm not in SMS:
        return ()
    number, memory = _size(labels.get("nvidia.com/gpu.count")), labels.get("nvidia.com/gpu.memory")
    gpu = Gpu(name=labels.get("nvidia.com/gpu.product", "GPU"), sm=sm, memory_mb=_size(memory))
    return (gpu,) * max(1, min(number or 1, 64))


def _is_gpu_label(key: str) -> bool:
    return any(
        key == f"feature.node.kubernetes.io/pci-{each}_{_NVIDIA}.present" for each in _GPU_CLASSES
    )


def _not_offered(node: Document) -> str | None:
    """Return why no pod can ask for its GPUs, or None. The manifests' limit is nvidia.com/gpu."""
    offered = _texts(node, "status", "allocatable")
    if _size(offered.get(GPU)):
        return None
    others = [name for name, number in offered.items() if _is_share(name) and _size(number)]
    instead = f", but {', '.join(sorted(others)[:5])}; {_AS_GPUS}" if others else ""
    return f"Its GPUs are not used: the cluster offers no {GPU} there{instead}."


def _is_share(name: str) -> bool:
    return name.startswith((f"{GPU}.", "nvidia.com/mig-"))


def _driver(labels: Mapping[str, str]) -> str | None:
    text = labels.get("nvidia.com/cuda.driver-version.full", "")
    if not text:
        older = (f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
        text = ".".join(filter(None, map(labels.get, older)))
    return text if _VERSION.fullmatch(text) else None


def _os(info: Mapping[str, str], labels: Mapping[str, str]) -> Os:
    prefix = "feature.node.kubernetes.io/system-os_release."
    return Os(
        id=labels.get(f"{prefix}ID"),
        version=labels.get(f"{prefix}VERSION_ID"),
        name=info.get("osImage") or None,
        kernel=info.get("kernelVersion") or None,
    )


def _not_ready(node: Document) -> str | None:
    conditions = _at(node, "status").get("conditions") or ()
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, Mapping) and condition.get("type") == "Ready":
            if condition.get("status") == "True":
                return None
            why = _text(condition.get("message") or condition.get("reason"))
            return f"The Node is not ready: {why}"
    return "The Node has never been ready."


def _taints(node: Document) -> tuple[str, ...]:
    """Return the keys of taints that exclude pods. Our pods tolerate the taint of GPU nodes."""
    taints = _at(node, "spec").get("taints") or ()
    keys = {
        _text(taint.get("key"))
        for taint in (taints if isinstance(taints, list) else ())
        if isinstance(taint, Mapping)
        and taint.get("effect") in ("NoSchedule", "NoExecute")
        and taint.get("key") != GPU
    }
    if _at(node, "spec").get("unschedulable"):  # the taint comes a moment later
        keys.add("node.kubernetes.io/unschedulable")
    return tuple(sorted(keys))


def _size(text: object) -> int | None:
    """Return a Kubernetes quantity in units of one: 32Gi, 500m (rounded down), 16."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    number = int(match[1])
    return number // 1000 if match[2] == "m" else number * _UNITS.get(match[2] or "", 1)


def _whole(cpus: int | None) -> int | None:
    """Return a whole number of CPUs; less than one counts as one."""
    return max(1, cpus) if cpus is not None else None


def _gb(size: int | None) -> float | None:
    return round(size / 2**30, 1) if size is not None else None


def _texts(document: object, *keys: str) -> dict[str, str]:
    """Return the mapping at these keys as printable texts."""
    values = _at(document, *keys)
    return {_text(key): _text(value) for key, value in values.items() if value is not None}


def _text(value: object) -> str:
    """Return a bounded, printable text: a cluster's values go to terminals, plans and labels."""
    text = str(value)[:_LONGEST]
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def _at(document: object, *keys: str) -> Document:
    """Return the mapping at these keys, or {}. The cluster's objects are not trusted."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}
