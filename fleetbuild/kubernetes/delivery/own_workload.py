"""The user's own workload as a variant for each group: add what a pod needs, keep the rest.

In: the file's name and text, a plan, a group and its pod parts. Out: the changed text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.delivery.options import PodParts
from fleetbuild.kubernetes.delivery.workload import with_image
from fleetbuild.kubernetes.labels.node_labels import label_key
from fleetbuild.kubernetes.names import dns_label, label_value
from fleetbuild.kubernetes.yaml_edit.dump import comment, flow
from fleetbuild.kubernetes.yaml_edit.edit import (
    EditableWorkload,
    plain_name,
    pod_templates,
    value_at,
    workloads,
)
from fleetbuild.kubernetes.yaml_edit.insert import Path
from fleetbuild.kubernetes.yaml_edit.parse import read
from fleetbuild.models import Plan, PlannedGroup

_SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
# A CronJob adds eleven characters to the names of its Jobs, a StatefulSet to its pods' label of the
# revision.
# A LeaderWorkerSet makes a StatefulSet for each group, whose names end in its index.
_LONGEST = {"CronJob": 52, "StatefulSet": 52, "LeaderWorkerSet": 45}
_UNCHANGEABLE = ("Job", "JobSet")  # their pods cannot be changed
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_GPU = "nvidia.com/"
_REQUIRED: Path = (
    "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)  # fmt: skip

_HEADER = """\
Written by fleetbuild from {name}, for the nodes of the group {group}:
with the parts that a pod of the group needs, and a name and a label of its own. The rest is
unchanged.

{about}"""
_APART = "So that variants for other groups do not select these pods."


class DoesNotFit(Exception):
    """The workload gets no variant for a group; the message says why."""


def variant_name(name: str, group: PlannedGroup) -> str:
    """Return the file name of a group's variant."""
    path = PurePath(name)
    return f"{path.stem}-{label_value(group.name)}{path.suffix or '.yaml'}"


def variant(name: str, text: str, plan: Plan, group: PlannedGroup, parts: PodParts) -> str:
    """Return the file with each workload in it changed for the group; raises DoesNotFit."""
    changed, about = text, parts.about
    for index in workloads(name, text):
        draft = EditableWorkload(name, changed, index, group)
        needs = parts.of(draft.kind)
        _name_and_select(draft, plan)
        for template in draft.templates:
            draft.turn_to(template)
            _mark(draft, plan)
            _place(draft, needs)
            _change_container(draft, needs, plan.label_domain)
            _add_volume(draft, needs)
        about = needs.about
        changed = draft.text
    mark = "\ufeff" if changed.startswith("\ufeff") else ""
    header = _HEADER.format(name=PurePath(name).name, group=group.name, about=about)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = "".join(line + newline for line in (*comment(header), ""))
    return mark + lines + changed.removeprefix(mark)


def name_references(name: str, text: str) -> Iterator[str]:
    """Yield a warning for each object that names a workload, since variants have other names."""
    holding, documents = workloads(name, text), read(text)
    named = [(documents[index]["kind"], plain_name(documents[index])) for index in holding]
    for document in documents:
        spec = document.get("spec") if isinstance(document, dict) else None
        target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        if isinstance(target, dict) and (target.get("kind"), target.get("name")) in named:
            yield (
                f"{PurePath(name).name}: the {document.get('kind')} {plain_name(document)} scales "
                f"{target['kind']} {target['name']}, and the variants have other names; "
                "write one for each."
            )


def early_init_containers(name: str, text: str) -> Iterator[str]:
    """Yield a warning for init containers of the user, which run before the packages are there."""
    for index in workloads(name, text):
        document = read(text)[index]
        inits = (
            value_at(document, (*template, "spec", "initContainers"))
            for template in pod_templates(document)
        )
        if any(isinstance(each, list) and each for each in inits):
            yield (
                f"{PurePath(name).name}: {document['kind']} {plain_name(document)}: its init "
                "containers are left as they are, so they do not see the packages; with --way init "
                "they run before these are installed."
            )


def _name_and_select(draft: EditableWorkload, plan: Plan) -> None:
    """Give the workload a name of its own, and its selector the label of the group."""
    suffix = dns_label(draft.group.name)
    if draft.kind in _UNCHANGEABLE:  # the next release is another object
        suffix += f"-{(draft.group.release_id or '')[:8]}"
    if name := draft.entries("metadata").get("name"):
        longest = _longest_name(draft)
        made = f"{name}-{suffix}"
        draft.put(("metadata", "name"), made if len(made) <= longest else dns_label(made, longest))
    elif prefix := draft.get("metadata", "generateName"):
        draft.put(("metadata", "generateName"), f"{prefix}{suffix}-")
    else:
        raise UsageError(f"{draft.title} has no name.", "Set metadata.name.")
    # A Job makes its own selector, unless it says that it has one.
    if draft.kind in _SELECTING or draft.get("spec", "selector"):
        draft.merge(("spec", "selector", "matchLabels"), _group_label(draft, plan), _APART)


def _longest_name(draft: EditableWorkload) -> int:
    """Return the longest name from which Kubernetes can still make the names of pods."""
    if draft.kind == "JobSet":  # a pod is called NAME-JOB-INDEX-INDEX-RANDOM
        names = [str(job.get("name", "")) for job in draft.items("spec", "replicatedJobs")]
        return max(20, 63 - len("--999-999-12345") - max(map(len, names)))
    return _LONGEST.get(draft.kind, 63)


def _group_label(draft: EditableWorkload, plan: Plan) -> dict[str, str]:
    key = label_key(plan.label_domain, "group", plan.release)
    return {key: label_value(draft.group.name)}


def _mark(draft: EditableWorkload, plan: Plan) -> None:
    """Give the pods the label of the group."""
    draft.merge((*draft.template, "metadata", "labels"), _group_label(draft, plan), "")


def _place(draft: EditableWorkload, parts: PodParts) -> None:
    """Add the selector, tolerations and runtime class; raise DoesNotFit if they contradict."""
    if node := draft.get(*draft.pod, "nodeName"):
        raise UsageError(
            f"{draft.title} names its node ({node}), so selectors have no effect.",
            "Remove nodeName from it.",
        )
    wanted = draft.entries(*draft.pod, "nodeSelector")
    for key, value in parts.selector.items():
        if wanted.get(key, value) != value:
            raise _misfit(draft, parts, key, f"={wanted[key]}")
    if barring := _excluding_expression(draft, parts):
        values = f" {flow(barring['values'])}" if barring.get("values") else ""
        raise _misfit(draft, parts, barring["key"], f" {barring['operator']}{values}")
    draft.merge((*draft.pod, "nodeSelector"), parts.selector, parts.why_selector)
    theirs = draft.items(*draft.pod, "tolerations")
    for toleration in parts.tolerations:
        if not any(_covers(each, toleration["key"]) for each in theirs):
            draft.append((*draft.pod, "tolerations"), toleration)
    if parts.runtime_class and not draft.get(*draft.pod, "runtimeClassName"):
        draft.put((*draft.pod, "runtimeClassName"), parts.runtime_class)


def _excluding_expression(draft: EditableWorkload, parts: PodParts) -> Mapping[str, Any] | None:
    """Return the expression of a required affinity that excludes the group's nodes, or None.

    One of its terms must hold, and all expressions of that term.
    """
    terms = (*draft.pod, *_REQUIRED)
    barring = [
        next((each for each in expressions if _excludes(each, parts.selector)), None)
        for index in range(len(draft.items(*terms)))
        for expressions in [draft.items(*terms, index, "matchExpressions")]
    ]
    return barring[0] if all(barring) and barring else None


def _excludes(expression: Mapping[str, Any], selector: Mapping[str, str]) -> bool:
    """Return whether the expression is false on nodes with these labels."""
    value, values = selector.get(str(expression.get("key"))), expression.get("values")
    listed = isinstance(values, list) and value in values
    operator = expression.get("operator")
    barred = {"In": not listed, "NotIn": listed, "DoesNotExist": True}
    return value is not None and barred.get(str(operator), False)


def _misfit(draft: EditableWorkload, parts: PodParts, key: str, wanted: str) -> DoesNotFit:
    return DoesNotFit(
        f"{draft.title} selects nodes with {key}{wanted}, but nodes of the group "
        f"{draft.group.name} have {parts.selector[key]}, so there is no variant for them."
    )


def _covers(toleration: Mapping[str, Any], key: str) -> bool:
    """Return whether a toleration covers every taint of this key that affects scheduling."""
    return (
        toleration.get("key") in (None, "", key)
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") in (None, "", "NoSchedule")
    )


def _change_container(draft: EditableWorkload, parts: PodParts, domain: str) -> None:
    """Change the container: image or mount, PYTHONPATH, and a GPU unless it asks for one."""
    container = (*draft.pod, "containers", _main_container(draft))
    if parts.image:
        draft.put((*container, "image"), parts.image)
    _set_python_path(draft, container, parts)
    if parts.mount:
        draft.append((*container, "volumeMounts"), parts.mount, "mountPath", parts.why_mount)
    asked = [
        key
        for each in _concurrent_containers(draft)
        for part in ("limits", "requests")
        for key in draft.entries(*each, "resources", part)
    ]
    claims = [each for at in _concurrent_containers(draft)
              for each in draft.items(*at, "resources", "claims")]  # fmt: skip
    # Theirs may be a slice of one, two, or one by dynamic resource allocation.
    if not claims and not any(key.startswith((_GPU, f"{domain}/sm")) for key in asked):
        draft.merge((*container, "resources", "limits"), parts.limits, "")


def _concurrent_containers(draft: EditableWorkload) -> Iterator[Path]:
    """Yield the containers that run at the same time; their requests add up."""
    for kind in ("containers", "initContainers"):
        for index, each in enumerate(draft.items(*draft.pod, kind)):
            if kind == "containers" or each.get("restartPolicy") == "Always":
                yield (*draft.pod, kind, index)


def _main_container(draft: EditableWorkload) -> int:
    """Return the index of the container that kubectl takes by default."""
    named = draft.entries(*draft.template, "metadata", "annotations").get(_DEFAULT_CONTAINER)
    names = [each.get("name") for each in draft.items(*draft.pod, "containers")]
    return names.index(named) if named in names else 0


def _set_python_path(draft: EditableWorkload, container: Path, parts: PodParts) -> None:
    """Put the release's packages before everything else in PYTHONPATH."""
    for index, variable in enumerate(draft.items(*container, "env")):
        if variable.get("name") != "PYTHONPATH":
            continue
        if "valueFrom" in variable:
            raise UsageError(
                f"{draft.title} takes PYTHONPATH from elsewhere (valueFrom), so nothing can be "
                "put before it.",
                "Write PYTHONPATH as a value.",
            )
        path = (*container, "env", index, "value")
        theirs = variable.get("value")
        draft.put(path, f"{parts.site_packages}:{theirs}" if theirs else parts.site_packages)
        return
    if not parts.image:  # an image of our own says it itself
        entry = {"name": "PYTHONPATH", "value": parts.site_packages}
        why = f"Where the packages of {draft.group.name} are."
        draft.append((*container, "env"), entry, "name", why)


def _add_volume(draft: EditableWorkload, parts: PodParts) -> None:
    """Add the volume, and the init container that fills it or waits for it."""
    if parts.init_container:
        main = draft.entries(*draft.pod, "containers", _main_container(draft))
        container = with_image(parts.init_container, str(main.get("image", "")))
        draft.append((*draft.pod, "initContainers"), container, "name")
    if parts.volume:
        draft.append((*draft.pod, "volumes"), parts.volume, "name")
