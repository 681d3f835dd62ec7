"""A user's manifest: its workloads, its other objects, and a workload with its JSON patch.

In: the name and text of a file. Out: objects. The file itself is never changed: what a group needs
is collected as a JSON patch (RFC 6902) for Kustomize, and applied here to show its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.manifests.yaml_dump import Note, Verbatim
from fleetbuild.text import is_nested_deeply, yaml_mistake

_MOST = 100_000  # values in a document, so that nested aliases cannot fill the memory
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Keep the text of scalars without quotes: to another reader 0644 or 1e3 is another value."""

    def compose_scalar_node(self, anchor: Any) -> Any:
        read_event: Any = self.peek_event
        event = read_event()
        node = super().compose_scalar_node(anchor)
        node.is_bare = event.implicit[0] and "\n" not in node.value  # type: ignore[attr-defined]
        return node

    def text(self, node: Any) -> str:
        value = str(self.construct_scalar(node))
        return Verbatim(value) if node.is_bare or not node.tag.endswith(":str") else value

    def refuse(self, node: Any) -> Any:
        raise yaml.constructor.ConstructorError(
            None, None, f"{node.tag} has no meaning in Kubernetes", node.start_mark
        )


for _name in ("str", "bool", "int", "float", "timestamp", "value"):
    _Loader.add_constructor(_TAG + _name, _Loader.text)
for _name in ("binary", "set", "omap", "pairs"):
    _Loader.add_constructor(_TAG + _name, _Loader.refuse)


def _load_documents(text: str) -> list[Any]:
    """Return the content of each document that is not empty."""
    loader: Any = _Loader(text)
    documents = []
    try:
        while loader.check_data():
            documents.append(_written_out(loader.get_data(), [_MOST]))
    finally:
        loader.dispose()
    return [document for document in documents if document is not None]


def _written_out(value: Any, left: list[int]) -> Any:
    """Return a copy in which no two parts are one object."""
    left[0] -= 1
    if left[0] < 0:
        raise yaml.YAMLError("its aliases stand for too many values")
    if isinstance(value, dict):
        return {_key(key): _written_out(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [_written_out(item, left) for item in value]
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise yaml.YAMLError("the key of an entry is not a text")
    return key


Path = tuple[str | int, ...]

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


class ObjectId(NamedTuple):
    """What Kustomize finds an object by."""

    api_version: str
    kind: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class UserManifest:
    """The objects of a user's file, in its order."""

    file: str  # its name, without folders
    text: str
    objects: Mapping[ObjectId, dict[str, Any]]

    @property
    def workloads(self) -> list[ObjectId]:
        """Return the objects that make pods."""
        return [id_ for id_ in self.objects if id_.kind in KINDS]

    @property
    def scalers(self) -> dict[ObjectId, ObjectId]:
        """Return each object that scales one of the workloads, and that workload."""
        by_name = {(workload.kind, workload.name): workload for workload in self.workloads}
        targets = {
            each: value_at(document, ("spec", "scaleTargetRef"))
            for each, document in self.objects.items()
        }
        return {
            each: by_name[target["kind"], target["name"]]
            for each, target in targets.items()
            if isinstance(target, dict)
            and isinstance(target.get("name"), str)
            and (target.get("kind"), target["name"]) in by_name
        }

    @property
    def shared(self) -> list[ObjectId]:
        """Return the objects that all groups share, such as a Service."""
        apart = {*self.workloads, *self.scalers}
        return [id_ for id_ in self.objects if id_ not in apart]


def read_manifest(name: str, text: str) -> UserManifest:
    """Return the objects of a file; refuse one without a workload, or that Kustomize refuses."""
    file = PurePath(name).name
    if is_nested_deeply(text):
        raise UsageError(
            f"{file} has more than 100 brackets open at once.", "Close them, or write blocks."
        )
    try:
        documents = _load_documents(text)
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        if "{{" in text:
            raise _unrendered(file) from None
        raise UsageError(
            f"{file} is not valid YAML{yaml_mistake(problem)}.", "Correct it."
        ) from None
    kinds = [str(document.get("kind")) for document in documents if isinstance(document, dict)]
    if not any(kind in KINDS for kind in kinds):
        raise UsageError(
            f"{file} contains no workload of a supported kind: {', '.join(KINDS)}.",
            "Name the file with the workload. Write the objects of a List as documents.",
        )
    objects: dict[ObjectId, dict[str, Any]] = {}
    for number, document in enumerate(documents, 1):
        id_ = _id_of(file, number, document)
        if id_ in objects:
            raise UsageError(f"{file} contains {id_} twice.", "Remove or rename one of them.")
        objects[id_] = document
    return UserManifest(file, text, objects)


def _id_of(file: str, number: int, document: Any) -> ObjectId:
    """Return the id of an object; refuse one that Kustomize cannot find or would take apart."""
    metadata = value_at(document, ("metadata",))
    if isinstance(document, dict) and metadata is not None and not isinstance(metadata, dict):
        raise UsageError(f"{file}: metadata in document {number} is not a mapping.", "Correct it.")
    words = [
        value_at(document, path) or ""
        for path in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
    ]
    if not all(isinstance(word, str) for word in words) or not all(words[:3]):
        raise UsageError(
            f"{file}: document {number} has no apiVersion, kind or metadata.name, which Kustomize"
            " needs.",
            "Name them all. A metadata.generateName does not replace the name.",
        )
    id_ = ObjectId(*words)
    if any("{{" in word for word in id_):
        raise _unrendered(file)
    if id_.kind.endswith("List"):
        raise UsageError(f"{file} contains a {id_.kind}.", "Write its objects as documents.")
    return id_


def _unrendered(name: str) -> UsageError:
    return UsageError(
        f"{name} is a template: it contains {{{{ }}}}.",
        "Render it first, such as with helm template, and name the result.",
    )


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


class PatchedObject:
    """An object of the user's file with a patch: what it becomes, and the operations that do it."""

    def __init__(self, file: str, id_: ObjectId, document: dict[str, Any]) -> None:
        self.id = id_
        self.document = document
        self.operations: list[object] = []
        self.title = f"{file}: {id_}"

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None."""
        return value_at(self.document, path)

    def entries(self, *path: str | int) -> dict[str, Any]:
        """Return the mapping at a path, or {}."""
        value = self.get(*path)
        if value is None or isinstance(value, dict):
            return value or {}
        raise self._malformed(path, "mapping")

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """Return the list of mappings at a path, or []."""
        value = self.get(*path)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            return value
        raise self._malformed(path, "list of mappings")

    def _malformed(self, path: Sequence[str | int], what: str) -> UsageError:
        return UsageError(f"{self.title}: {_shown(path)} is not a {what}.", "Correct it.")

    def put(self, path: Path, value: object, why: str = "") -> None:
        """Set the value at a path; create missing mappings and lists above it."""
        depth = next(
            (end for end in range(1, len(path)) if self.get(*path[:end]) is None), len(path)
        )
        at, below = path[:depth], path[depth:]
        if not isinstance(self.get(*at[:-1]), list if isinstance(at[-1], int) else dict):
            raise self._malformed(at[:-1], "mapping")
        for step in reversed(below):
            value = [value] if isinstance(step, int) else {step: value}
        operation = {
            "op": "add" if self.get(*at) is None else "replace",
            "path": "".join(f"/{_pointer(step)}" for step in at),
            "value": value,
        }
        self.operations.append(Note(operation, why) if why else operation)
        self.document = _with_value(self.document, at, value)

    def merge(self, path: Path, entries: Mapping[str, Any], why: str = "") -> None:
        """Add entries to a mapping; the caller has checked that none contradicts."""
        present = self.entries(*path)
        missing = {key: value for key, value in entries.items() if key not in present}
        if missing and self.get(*path) is None:
            self.put(path, missing, why)
            return
        for key, value in missing.items():
            self.put((*path, key), value, why)
            why = ""

    def append(self, path: Path, item: Mapping[str, Any], key: str = "", why: str = "") -> None:
        """Add an item to a list; refuse a second item with the same key."""
        present = self.items(*path)
        if key and any(each.get(key) == item[key] for each in present):
            raise UsageError(
                f"{self.title}: {_shown(path)} already has a {key} {item[key]}.",
                "Name the workload as it was before fleetbuild changed it, or rename that entry.",
            )
        self.put((*path, len(present)), dict(item), why)


def value_at(document: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of a document, or None."""
    for step in path:
        if isinstance(step, int):
            fits = isinstance(document, list) and step < len(document)
            document = document[step] if fits else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def _with_value(content: Any, path: Path, value: object) -> Any:
    """Return a copy of the content with this value at a path."""
    if not path:
        return value
    step, below = path[0], path[1:]
    if isinstance(step, int):
        inner = content[step] if step < len(content) else None
        return [*content[:step], _with_value(inner, below, value), *content[step + 1 :]]
    return {**content, step: _with_value(content.get(step), below, value)}


def _pointer(step: str | int) -> str:
    """Return a step as a JSON pointer spells it (RFC 6901)."""
    return str(step).replace("~", "~0").replace("/", "~1")


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(f"{step}" for step in path if isinstance(step, str))


def early_init_containers(manifest: UserManifest) -> Iterator[str]:
    """Yield a warning for init containers of the user, which run before the packages are there."""
    for id_ in manifest.workloads:
        document = manifest.objects[id_]
        inits = (
            value_at(document, (*template, "spec", "initContainers"))
            for template in pod_templates(document)
        )
        if any(isinstance(init, list) and init for init in inits):
            yield (
                f"{manifest.file}: {id_}: its init containers are left as they are, so they do not"
                " see the packages; with --way init they run before these are installed."
            )
