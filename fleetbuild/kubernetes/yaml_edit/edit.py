"""A workload of the user's own on its way to a variant: what is there, and what is put there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.yaml_edit.dump import Note
from fleetbuild.kubernetes.yaml_edit.insert import CannotSpliceError, Path, put
from fleetbuild.kubernetes.yaml_edit.parse import read
from fleetbuild.models import PlannedGroup
from fleetbuild.text import is_nested_deeply

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


def workloads(name: str, text: str) -> list[int]:
    """Which documents of a file hold pods. A file without any is refused."""
    if is_nested_deeply(text):
        raise UsageError(
            f"{name} has more than 100 brackets open at once", "close them, or write blocks"
        )
    try:
        documents = read(text)
    except (yaml.YAMLError, RecursionError) as problem:
        if "{{" in text:
            raise _unrendered(name) from None
        reason = " ".join(str(problem).split())
        raise UsageError(f"{name} cannot be read as YAML: {reason}", "correct it") from None
    holding = [
        index
        for index, document in enumerate(documents)
        if isinstance(document, dict) and str(document.get("kind")) in TEMPLATES
    ]
    if not holding:
        kinds = ", ".join(TEMPLATES)
        raise UsageError(
            f"{name} holds no workload that fleetbuild knows: {kinds}",
            "name the file that holds it; objects in a List have to stand as documents",
        )
    return holding


def _unrendered(name: str) -> UsageError:
    return UsageError(
        f"{name} is a template, and no workload yet: {{{{ }}}} stands in it",
        "render it first, such as with helm template, and name what comes out",
    )


class EditableWorkload:
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
        self.title = f"{self._file}: {self.kind} {plain_name(document)}"
        if "{{" in self.title:
            raise _unrendered(self._file)
        if not self.items(*self.pod, "containers"):
            raise UsageError(f"{self.title} has no containers", "complete it first")

    def get(self, *path: str | int) -> Any:
        """What is there; None where nothing is."""
        return find_workloads(read(self.text)[self._index], path)

    def entries(self, *path: str | int) -> dict[str, Any]:
        """The mapping that is there, if any."""
        there = self.get(*path)
        if there is None or isinstance(there, dict):
            return there or {}
        raise self._malformed(path, "mapping")

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """The list of mappings that is there, if any."""
        there = self.get(*path)
        if there is None:
            return []
        if isinstance(there, list) and all(isinstance(each, dict) for each in there):
            return there
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

    def append(self, path: Path, item: Mapping[str, Any], key: str = "", why: str = "") -> None:
        """Add an item to a list that may have no other of its key, where it has one."""
        there = self.items(*path)
        if key and any(each.get(key) == item[key] for each in there):
            raise UsageError(
                f"{self.title}: {_shown(path)} has a {key} {item[key]} already",
                "give fleetbuild the workload as it was before, or rename yours",
            )
        if self.get(*path) is None:
            self.put(path, [Note(item, why) if why else item])
        else:
            self.put((*path, len(there)), item, why)


def find_workloads(document: Any, path: Sequence[str | int]) -> Any:
    """What a document has there; None where it has nothing."""
    for step in path:
        if isinstance(step, int) and isinstance(document, list):
            document = document[step]
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def plain_name(document: Mapping[str, Any]) -> str:
    """The name of an object, or what its name begins with."""
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return str(known.get("name") or known.get("generateName") or "without a name")


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(f"{step}" for step in path if isinstance(step, str))
