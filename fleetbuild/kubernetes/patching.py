"""The user's own workload, a variant for each group: what a pod needs is added, the rest stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.delivery import Parts
from fleetbuild.kubernetes.document import Note, comment
from fleetbuild.kubernetes.labels import label_key
from fleetbuild.kubernetes.meaning import read
from fleetbuild.kubernetes.names import dns_label, label_value
from fleetbuild.kubernetes.splice import CannotSpliceError, Path, put
from fleetbuild.models import Plan, PlannedGroup

# Where the pod stands in each kind of workload.
TEMPLATES: dict[str, Path] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
# A CronJob adds eleven characters to the names of its Jobs, a StatefulSet to its pods' label of the
# revision.
_LONGEST = {"CronJob": 52, "StatefulSet": 52}
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_GPU = "nvidia.com/"

_HEADER = """\
Written by fleetbuild from {name}, for the nodes of the group {group}:
what a pod needs of the group was added, and the workload has a name and a label of its own. All
else is as it was.

{about}"""
_APART = "So that the variants for other groups leave these pods alone."


class DoesNotFit(Exception):
    """Why a workload gets no variant for a group, in a sentence."""


def workloads(name: str, text: str) -> list[int]:
    """Which documents of a file hold pods. A file without any is refused."""
    try:
        documents = read(text)
    except (yaml.YAMLError, RecursionError) as problem:
        reason = " ".join(str(problem).split())
        raise UsageError(f"{name} cannot be read as YAML: {reason}", "correct it") from None
    found = [
        index
        for index, document in enumerate(documents)
        if isinstance(document, dict) and document.get("kind") in TEMPLATES
    ]
    if not found:
        kinds = ", ".join(TEMPLATES)
        raise UsageError(
            f"{name} holds no workload that fleetbuild knows: {kinds}",
            "name the file that holds it; objects in a List have to stand as documents",
        )
    return found


def variant_name(name: str, group: PlannedGroup) -> str:
    """The file of a group's variant."""
    path = PurePath(name)
    return f"{path.stem}-{label_value(group.name)}{path.suffix or '.yaml'}"


def variant(name: str, text: str, plan: Plan, group: PlannedGroup, parts: Parts) -> str:
    """The file with each workload in it made the group's own; raises DoesNotFit."""
    changed = text
    for index in workloads(name, text):
        draft = _Draft(name, changed, index, group)
        _tell_apart(draft, plan)
        _place(draft, parts)
        _equip(draft, parts)
        _furnish(draft, parts)
        changed = draft.text
    mark = "\ufeff" if changed.startswith("\ufeff") else ""
    header = _HEADER.format(name=PurePath(name).name, group=group.name, about=parts.about)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = "".join(line + newline for line in (*comment(header), ""))
    return mark + lines + changed.removeprefix(mark)


def dangling(name: str, text: str) -> Iterator[str]:
    """What else in the file speaks of a workload by its name, which no variant has."""
    holding, documents = workloads(name, text), read(text)
    named = {(documents[index]["kind"], _plain_name(documents[index])) for index in holding}
    for document in documents:
        spec = document.get("spec") if isinstance(document, dict) else None
        target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        if isinstance(target, dict) and (target.get("kind"), target.get("name")) in named:
            yield (
                f"{PurePath(name).name}: the {document.get('kind')} {_plain_name(document)} scales "
                f"{target['kind']} {target['name']}, and the variants have other names; "
                "write one for each."
            )


class _Draft:
    """One workload of a file on its way to a variant."""

    def __init__(self, name: str, text: str, index: int, group: PlannedGroup) -> None:
        self.text = text
        self.group = group
        self._file = PurePath(name).name
        self._index = index
        document = self.get()
        self.kind: str = document["kind"]
        self.template = TEMPLATES[self.kind]
        self.pod: Path = (*self.template, "spec")
        self.title = f"{self._file}: {self.kind} {_plain_name(document)}"
        if not self.items(*self.pod, "containers"):
            raise UsageError(f"{self.title} has no containers", "complete it first")

    def get(self, *path: str | int) -> Any:
        """What is there; None where nothing is."""
        found = read(self.text)[self._index]
        for step in path:
            if isinstance(step, int) and isinstance(found, list):
                found = found[step]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found

    def entries(self, *path: str | int) -> dict[str, Any]:
        """The mapping that is there, if any."""
        found = self.get(*path)
        if found is None or isinstance(found, dict):
            return found or {}
        raise self._malformed(path, "mapping")

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """The list of mappings that is there, if any."""
        found = self.get(*path)
        if found is None:
            return []
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            return found
        raise self._malformed(path, "list of mappings")

    def _malformed(self, path: Sequence[str | int], what: str) -> UsageError:
        return UsageError(f"{self.title}: {_shown(path)} is no {what}", "correct it")

    def put(self, path: Path, value: object, why: str = "") -> None:
        """Write a value."""
        try:
            self.text = put(self.text, self._index, path, value, why)
        except CannotSpliceError:
            raise UsageError(
                f"{self.title}: {_shown(path)} is written in a way that cannot be added to without "
                "changing something else",
                "write that part with one key a line, without anchors and tags",
            ) from None

    def merge(self, path: Path, entries: Mapping[str, Any], why: str) -> None:
        """Add these entries to a mapping; the caller has seen that none contradicts."""
        there = self.entries(*path)
        missing = {key: value for key, value in entries.items() if key not in there}
        if missing and self.get(*path) is None:
            self.put(path, Note(missing, why))
        elif missing:
            first = next(iter(missing))
            for key, value in missing.items():
                self.put((*path, key), value, why if key == first else "")

    def append(self, path: Path, item: Mapping[str, Any], key: str, why: str = "") -> None:
        """Add an item to a list that may have no other of its key."""
        there = self.items(*path)
        if any(each.get(key) == item[key] for each in there):
            raise UsageError(
                f"{self.title}: {_shown(path)} has a {key} {item[key]} already",
                "give fleetbuild the workload as it was before, or rename yours",
            )
        if self.get(*path) is None:
            self.put(path, [Note(item, why) if why else item])
        else:
            self.put((*path, len(there)), item, why)


def _tell_apart(draft: _Draft, plan: Plan) -> None:
    """A name of its own, and a label that its selector asks for."""
    suffix = dns_label(draft.group.name)
    if draft.kind == "Job":  # its pod cannot be changed: the next release is another Job
        suffix += f"-{(draft.group.release_id or '')[:8]}"
    if name := draft.entries("metadata").get("name"):
        longest = _LONGEST.get(draft.kind, 63)
        made = f"{name}-{suffix}"
        draft.put(("metadata", "name"), made if len(made) <= longest else dns_label(made, longest))
    elif prefix := draft.get("metadata", "generateName"):
        draft.put(("metadata", "generateName"), f"{prefix}{suffix}-")
    else:
        raise UsageError(f"{draft.title} has no name", "give it one: metadata.name")
    label = {label_key(plan.label_domain, "group", plan.release): label_value(draft.group.name)}
    # A Job makes its own selector, unless it says that it has one.
    if draft.kind in _SELECTING or draft.get("spec", "selector"):
        draft.merge(("spec", "selector", "matchLabels"), label, _APART)
    draft.merge((*draft.template, "metadata", "labels"), label, "")


def _place(draft: _Draft, parts: Parts) -> None:
    """Where the pod may run."""
    if node := draft.get(*draft.pod, "nodeName"):
        raise UsageError(
            f"{draft.title} names its node ({node}), so no selector has a say",
            "take nodeName out of it",
        )
    wanted = draft.entries(*draft.pod, "nodeSelector")
    for key, value in parts.selector.items():
        if wanted.get(key, value) != value:
            raise DoesNotFit(
                f"{draft.title} wants nodes with {key}={wanted[key]}, and those of the group "
                f"{draft.group.name} have {value}, so it has no variant for them."
            )
    draft.merge((*draft.pod, "nodeSelector"), parts.selector, parts.why_selector)
    tolerated = {each.get("key") for each in draft.items(*draft.pod, "tolerations")}
    for toleration in parts.tolerations:
        if not tolerated & {None, toleration["key"]}:  # one without a key tolerates all
            draft.append((*draft.pod, "tolerations"), toleration, "key")
    if parts.runtime_class and not draft.get(*draft.pod, "runtimeClassName"):
        draft.put((*draft.pod, "runtimeClassName"), parts.runtime_class)


def _equip(draft: _Draft, parts: Parts) -> None:
    """What the container gets: its image or where the packages are, and a GPU."""
    container = (*draft.pod, "containers", _main_container(draft))
    if parts.image:
        draft.put((*container, "image"), parts.image)
    _lead_python(draft, container, parts)
    if parts.mount:
        draft.append((*container, "volumeMounts"), parts.mount, "mountPath", parts.why_mount)
    asked = {
        **draft.entries(*container, "resources", "limits"),
        **draft.entries(*container, "resources", "requests"),
    }
    if not any(key.startswith(_GPU) for key in asked):  # theirs may be a slice of one, or two
        draft.merge((*container, "resources", "limits"), parts.limits, "")


def _main_container(draft: _Draft) -> int:
    """The container that kubectl takes too: the one that an annotation names, else the first."""
    named = draft.entries(*draft.template, "metadata", "annotations").get(_DEFAULT_CONTAINER)
    names = [each.get("name") for each in draft.items(*draft.pod, "containers")]
    return names.index(named) if named in names else 0


def _lead_python(draft: _Draft, container: Path, parts: Parts) -> None:
    """PYTHONPATH: ours goes before what is there."""
    for index, variable in enumerate(draft.items(*container, "env")):
        if variable.get("name") != "PYTHONPATH":
            continue
        if "valueFrom" in variable:
            raise UsageError(
                f"{draft.title} takes PYTHONPATH from elsewhere (valueFrom), so nothing can be "
                "put before it",
                "write PYTHONPATH as a value",
            )
        path = (*container, "env", index, "value")
        theirs = variable.get("value")
        draft.put(path, f"{parts.site_packages}:{theirs}" if theirs else parts.site_packages)
        return
    if not parts.image:  # an image of our own says it itself
        entry = {"name": "PYTHONPATH", "value": parts.site_packages}
        why = f"Where the packages of {draft.group.name} are."
        draft.append((*container, "env"), entry, "name", why)


def _furnish(draft: _Draft, parts: Parts) -> None:
    """What the pod gets: a volume, and what fills it."""
    if parts.init_container:
        draft.append((*draft.pod, "initContainers"), parts.init_container, "name")
    if parts.volume:
        draft.append((*draft.pod, "volumes"), parts.volume, "name")


def _plain_name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return str(known.get("name") or known.get("generateName") or "without a name")


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(f"{step}" for step in path if isinstance(step, str))
