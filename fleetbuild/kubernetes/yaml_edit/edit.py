"""A user's workload while it is changed into a variant for a group.

In: the text of a file. Out: the changed text; all other bytes stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.yaml_edit.dump import Note
from fleetbuild.kubernetes.yaml_edit.insert import CannotEditError, Path, put
from fleetbuild.kubernetes.yaml_edit.parse import read
from fleetbuild.models import PlannedGroup
from fleetbuild.text import is_nested_deeply, yaml_mistake

# The path of the pod template in kinds with one; pod_templates() knows the others.
_TEMPLATES: dict[str, Path] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
KINDS = (*_TEMPLATES, "JobSet", "LeaderWorkerSet")


def pod_templates(document: Mapping[str, Any]) -> list[Path]:
    """Return the paths of a workload's pod templates."""
    kind = str(document.get("kind"))
    if kind == "JobSet":
        jobs = value_at(document, ("spec", "replicatedJobs"))
        several = range(len(jobs) if isinstance(jobs, list) else 0)
        return [("spec", "replicatedJobs", job, "template", "spec", "template") for job in several]
    if kind == "LeaderWorkerSet":
        both = (("spec", "leaderWorkerTemplate", f"{who}Template") for who in ("leader", "worker"))
        return [path for path in both if value_at(document, path) is not None]
    return [_TEMPLATES[kind]]


def workloads(name: str, text: str) -> list[int]:
    """Return the indexes of the documents with pods; refuse a file without any."""
    if is_nested_deeply(text):
        raise UsageError(
            f"{name} has more than 100 brackets open at once.", "Close them, or write blocks."
        )
    try:
        documents = read(text)
    except (yaml.YAMLError, RecursionError) as problem:
        if "{{" in text:
            raise _unrendered(name) from None
        raise UsageError(
            f"{name} is not valid YAML{yaml_mistake(problem)}.", "Correct it."
        ) from None
    holding = [
        index
        for index, document in enumerate(documents)
        if isinstance(document, dict) and str(document.get("kind")) in KINDS
    ]
    if not holding:
        kinds = ", ".join(KINDS)
        raise UsageError(
            f"{name} contains no workload of a supported kind: {kinds}.",
            "Name the file with the workload. Write the objects of a List as documents.",
        )
    return holding


def _unrendered(name: str) -> UsageError:
    return UsageError(
        f"{name} is a template: it contains {{{{ }}}}.",
        "Render it first, such as with helm template, and name the result.",
    )


class EditableWorkload:
    """One workload of a file while it is changed into a variant."""

    def __init__(self, name: str, text: str, index: int, group: PlannedGroup) -> None:
        self.text = text
        self.group = group
        self._file = PurePath(name).name
        self._index = index
        document = self.get()
        self.kind: str = document["kind"]
        self.title = f"{self._file}: {self.kind} {plain_name(document)}"
        if "{{" in self.title:
            raise _unrendered(self._file)
        self.templates = pod_templates(document)
        if not self.templates:
            raise UsageError(f"{self.title} has no pod template.", "Add one.")
        self.template: Path = ()
        for template in reversed(self.templates):
            self.turn_to(template)
            if not self.items(*self.pod, "containers"):
                raise UsageError(f"{self.title} has no containers.", "Add one.")

    def turn_to(self, template: Path) -> None:
        """Select the pod template to change."""
        self.template = template
        self.pod: Path = (*template, "spec")

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None."""
        return value_at(read(self.text)[self._index], path)

    def entries(self, *path: str | int) -> dict[str, Any]:
        """Return the mapping at a path, or {}."""
        there = self.get(*path)
        if there is None or isinstance(there, dict):
            return there or {}
        raise self._malformed(path, "mapping")

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """Return the list of mappings at a path, or []."""
        there = self.get(*path)
        if there is None:
            return []
        if isinstance(there, list) and all(isinstance(each, dict) for each in there):
            return there
        raise self._malformed(path, "list of mappings")

    def _malformed(self, path: Sequence[str | int], what: str) -> UsageError:
        return UsageError(f"{self.title}: {_shown(path)} is not a {what}.", "Correct it.")

    def put(self, path: Path, value: object, why: str = "") -> None:
        """Write a value."""
        try:
            self.text = put(self.text, self._index, path, value, why)
        except CannotEditError:
            raise UsageError(
                f"{self.title}: {_shown(path)} cannot be changed without changing something else "
                "in the file.",
                "Write that part with one key per line, without anchors and tags.",
            ) from None

    def merge(self, path: Path, entries: Mapping[str, Any], why: str) -> None:
        """Add entries to a mapping; the caller has checked that none contradicts."""
        there = self.entries(*path)
        missing = {key: value for key, value in entries.items() if key not in there}
        if missing and self.get(*path) is None:
            self.put(path, Note(missing, why))
        elif missing:
            first = next(iter(missing))
            for key, value in missing.items():
                self.put((*path, key), value, why if key == first else "")

    def append(self, path: Path, item: Mapping[str, Any], key: str = "", why: str = "") -> None:
        """Add an item to a list; refuse a second item with the same key."""
        there = self.items(*path)
        if key and any(each.get(key) == item[key] for each in there):
            raise UsageError(
                f"{self.title}: {_shown(path)} already has a {key} {item[key]}.",
                "Name the workload as it was before fleetbuild changed it, or rename that entry.",
            )
        if self.get(*path) is None:
            self.put(path, [Note(item, why) if why else item])
        else:
            self.put((*path, len(there)), item, why)


def value_at(document: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of a document, or None."""
    for step in path:
        if isinstance(step, int) and isinstance(document, list):
            document = document[step]
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def plain_name(document: Mapping[str, Any]) -> str:
    """Return the name of an object, or the prefix of a generated name."""
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return str(known.get("name") or known.get("generateName") or "without a name")


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(f"{step}" for step in path if isinstance(step, str))
