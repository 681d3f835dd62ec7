"""The user's own workload for each group: a Kustomize overlay, and what it makes of the file.

In: the file's name and text, a plan, and each group's pod parts. Out: file names and texts. The
file is a resource of the overlays and stays as it is; each group has a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.labels.node_labels import label_key
from fleetbuild.kubernetes.manifests.kustomize import kustomization_file
from fleetbuild.kubernetes.manifests.names import dns_label, label_value
from fleetbuild.kubernetes.manifests.options import PodParts
from fleetbuild.kubernetes.manifests.pod_settings import with_cpu_limit
from fleetbuild.kubernetes.manifests.release_wait import (
    BOTH_RUN,
    ENDS_FIRST,
    OWN_STRATEGY,
    SURGE,
)
from fleetbuild.kubernetes.manifests.user_workload import (
    ObjectId,
    PatchedObject,
    Path,
    UserManifest,
    pod_templates,
)
from fleetbuild.kubernetes.manifests.workload import with_image
from fleetbuild.kubernetes.manifests.yaml_dump import comment, dump, flow
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

_ALL = """\
{file} for each group: kubectl apply -k .
For one group: kubectl apply -k overlays/GROUP; objects that all groups share are in shared/.
Labels of nodes are not included: `fleetbuild emit labels` writes them."""
_BASE = "{file} as it is. The overlays patch it; put changes there into {file} and emit again."
_SHARED = "The objects of {file} that all groups share."
_OVERLAY = """\
The workloads of {file} for the nodes of the group {group}, each with its patch. Objects that all
groups share are removed here."""
_PATCH = """\
What the pods of {title} need for the group {group}, and a name and a label of its own.

{about}"""
_SCALER = "The workload that it scales has another name in the group {group}."
_RENDERED = """\
Written by fleetbuild from {file}, for the nodes of the group {group}: what overlays/{folder} and
the objects that all groups share make together, for use without Kustomize: kubectl apply -f

{about}"""
_APART = "So that variants for other groups do not select these pods."


class DoesNotFit(Exception):
    """The workload gets no variant for a group; the message says why."""


def overlays(manifest: UserManifest, groups: Iterable[GroupPatches]) -> dict[str, str]:
    """Return {file name: text}: base/, shared/, overlays/GROUP/ and the rendered variants."""
    file = manifest.file
    shared = manifest.shared
    files = {
        "base/workload.yaml": manifest.text,
        "base/kustomization.yaml": kustomization_file(["workload.yaml"], _BASE.format(file=file)),
    }
    folders = []
    if shared:
        mine = [id_ for id_ in manifest.objects if id_ not in shared]
        files["shared/kustomization.yaml"] = kustomization_file(
            ["../base"], _SHARED.format(file=file), patches=list(map(_removal, mine))
        )
        folders.append("shared")
    for patches in groups:
        folder = f"overlays/{label_value(patches.group.name)}"
        folders.append(folder)
        files |= {f"{folder}/{name}": text for name, text in patches.files().items()}
        files[variant_name(file, patches.group)] = patches.rendered()
    files["kustomization.yaml"] = kustomization_file(folders, _ALL.format(file=file))
    return dict(sorted(files.items()))


def variant_name(name: str, group: PlannedGroup) -> str:
    """Return the file name of a group's variant."""
    path = PurePath(name)
    return f"{path.stem}-{label_value(group.name)}{path.suffix or '.yaml'}"


class GroupPatches:
    """The patches of a user's workloads for one group; raises DoesNotFit."""

    def __init__(
        self, manifest: UserManifest, plan: Plan, group: PlannedGroup, parts: PodParts
    ) -> None:
        self.group = group
        self._manifest = manifest
        self._about: dict[ObjectId, str] = {}
        self._objects = {
            id_: PatchedObject(manifest.file, id_, document)
            for id_, document in manifest.objects.items()
        }
        for id_ in manifest.workloads:
            draft = Draft(manifest.file, id_, manifest.objects[id_], group)
            needs = parts.of(id_.kind)
            self._about[id_] = needs.about + _add_parts(draft, plan, needs)
            self._objects[id_] = draft
        for id_, target in manifest.scalers.items():
            name = dns_label(f"{id_.name}-{dns_label(group.name)}")
            self._objects[id_].put(("metadata", "name"), name)
            renamed = self._objects[target].get("metadata", "name")
            self._objects[id_].put(("spec", "scaleTargetRef", "name"), renamed)
            self._about[id_] = ""

    def files(self) -> dict[str, str]:
        """Return the overlay: its kustomization, and a patch for each object that is changed."""
        patches: list[dict[str, Any]] = []
        files: dict[str, str] = {}
        for id_, about in self._about.items():
            name = f"{dns_label(f'{id_.kind}-{id_.name}'.lower())}.yaml"
            if name in files:  # one name in two namespaces
                name = f"{len(files)}-{name}"
            header = _PATCH if about else _SCALER
            text = header.format(title=id_, group=self.group.name, about=about)
            files[name] = dump(self._objects[id_].operations, text)
            patches.append({"target": _target(id_), "path": name})
        files["kustomization.yaml"] = kustomization_file(
            ["../../base"],
            _OVERLAY.format(file=self._manifest.file, group=self.group.name),
            patches=[*map(_removal, self._manifest.shared), *patches],
        )
        return files

    def rendered(self) -> str:
        """Return the whole file as the overlay changes it."""
        header = _RENDERED.format(
            file=self._manifest.file,
            group=self.group.name,
            folder=label_value(self.group.name),
            about=next(iter(self._about.values())),
        )
        documents = [dump(patched.document) for patched in self._objects.values()]
        return "\n".join(comment(header)) + "\n" + "---\n".join(documents)


def _removal(id_: ObjectId) -> dict[str, Any]:
    """Return the patch that removes an object."""
    metadata = {"name": id_.name, **({"namespace": id_.namespace} if id_.namespace else {})}
    document = {
        "$patch": "delete",
        "apiVersion": id_.api_version,
        "kind": id_.kind,
        "metadata": metadata,
    }
    return {"patch": dump(document)}


def _target(id_: ObjectId) -> dict[str, str]:
    """Return how a patch finds its object; Kustomize reads names as regular expressions."""
    group, _, version = id_.api_version.rpartition("/")
    target = {"group": group, "version": version, "kind": id_.kind}
    target["name"] = id_.name.replace(".", "\\.")
    target["namespace"] = id_.namespace.replace(".", "\\.")
    return {key: value for key, value in target.items() if value}


class Draft(PatchedObject):
    """A workload while it is changed for a group, with the pod template that is changed now."""

    def __init__(
        self, file: str, id_: ObjectId, document: dict[str, Any], group: PlannedGroup
    ) -> None:
        super().__init__(file, id_, document)
        self.group, self.kind = group, id_.kind
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


def _add_parts(draft: Draft, plan: Plan, needs: PodParts) -> str:
    """Add what the pods need to each template; return how a DaemonSet replaces its pods."""
    _name_and_select(draft, plan)
    for template in draft.templates:
        draft.turn_to(template)
        _mark(draft, plan)
        _place(draft, needs)
        _change_container(draft, needs, plan.label_domain)
        _add_volume(draft, needs)
    return _update_pods(draft, needs)


def _name_and_select(draft: Draft, plan: Plan) -> None:
    """Give the workload a name of its own, and its selector the label of the group."""
    suffix = dns_label(draft.group.name)
    if draft.kind in _UNCHANGEABLE:  # the next release is another object
        suffix += f"-{(draft.group.release_id or '')[:8]}"
    longest = _longest_name(draft)
    made = f"{draft.get('metadata', 'name')}-{suffix}"
    draft.put(("metadata", "name"), made if len(made) <= longest else dns_label(made, longest))
    # A Job makes its own selector, unless it says that it has one.
    if draft.kind in _SELECTING or draft.get("spec", "selector"):
        draft.merge(("spec", "selector", "matchLabels"), _group_label(draft, plan), _APART)


def _longest_name(draft: Draft) -> int:
    """Return the longest name from which Kubernetes can still make the names of pods."""
    if draft.kind == "JobSet":  # a pod is called NAME-JOB-INDEX-INDEX-RANDOM
        names = [str(job.get("name", "")) for job in draft.items("spec", "replicatedJobs")]
        return max(20, 63 - len("--999-999-12345") - max(map(len, names)))
    return _LONGEST.get(draft.kind, 63)


def _group_label(draft: Draft, plan: Plan) -> dict[str, str]:
    key = label_key(plan.label_domain, "group", plan.release)
    return {key: label_value(draft.group.name)}


def _mark(draft: Draft, plan: Plan) -> None:
    """Give the pods the label of the group."""
    draft.merge((*draft.template, "metadata", "labels"), _group_label(draft, plan))


def _place(draft: Draft, parts: PodParts) -> None:
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
        if not any(_covers(present, toleration) for present in theirs):
            draft.append((*draft.pod, "tolerations"), toleration)
    if parts.runtime_class and not draft.get(*draft.pod, "runtimeClassName"):
        draft.put((*draft.pod, "runtimeClassName"), parts.runtime_class)


def _excluding_expression(draft: Draft, parts: PodParts) -> Mapping[str, Any] | None:
    """Return the expression of a required affinity that excludes the group's nodes, or None.

    One of its terms must hold, and all expressions of that term.
    """
    terms = (*draft.pod, *_REQUIRED)
    barring = [
        next(
            (expression for expression in expressions if _excludes(expression, parts.selector)),
            None,
        )
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


def _misfit(draft: Draft, parts: PodParts, key: str, wanted: str) -> DoesNotFit:
    return DoesNotFit(
        f"{draft.title} selects nodes with {key}{wanted}, but nodes of the group "
        f"{draft.group.name} have {parts.selector[key]}, so they get no variant."
    )


def _covers(toleration: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a toleration covers every taint of this key that affects scheduling."""
    return toleration == wanted or (
        toleration.get("key") in (None, "", wanted.get("key"))
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") in (None, "", "NoSchedule")
    )


def _change_container(draft: Draft, parts: PodParts, domain: str) -> None:
    """Change the container: image or mount, PYTHONPATH, and a GPU unless it asks for one."""
    container = (*draft.pod, "containers", _main_container(draft))
    if parts.image:
        draft.put((*container, "image"), parts.image)
    _set_python_path(draft, container, parts)
    if parts.mount:
        draft.append((*container, "volumeMounts"), parts.mount, "mountPath", parts.why_mount)
    asked = [
        key
        for container_at in _concurrent_containers(draft)
        for part in ("limits", "requests")
        for key in draft.entries(*container_at, "resources", part)
    ]
    claims = [claim for at in _concurrent_containers(draft)
              for claim in draft.items(*at, "resources", "claims")]  # fmt: skip
    # Theirs may be a slice of one, two, or one by dynamic resource allocation.
    if not claims and not any(key.startswith((_GPU, f"{domain}/sm")) for key in asked):
        draft.merge((*container, "resources", "limits"), parts.limits)


def _concurrent_containers(draft: Draft) -> Iterator[Path]:
    """Yield the containers that run at the same time; their requests add up."""
    for kind in ("containers", "initContainers"):
        for index, each in enumerate(draft.items(*draft.pod, kind)):
            if kind == "containers" or each.get("restartPolicy") == "Always":
                yield (*draft.pod, kind, index)


def _main_container(draft: Draft) -> int:
    """Return the index of the container that kubectl takes by default."""
    named = draft.entries(*draft.template, "metadata", "annotations").get(_DEFAULT_CONTAINER)
    names = [container.get("name") for container in draft.items(*draft.pod, "containers")]
    return names.index(named) if named in names else 0


def _set_python_path(draft: Draft, container: Path, parts: PodParts) -> None:
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


def _add_volume(draft: Draft, parts: PodParts) -> None:
    """Add the volume, and the init container that fills it or waits for it."""
    if parts.init_container:
        main = draft.entries(*draft.pod, "containers", _main_container(draft))
        container = with_image(parts.init_container, str(main.get("image", "")))
        container = with_cpu_limit(container, parts.pods)
        draft.append((*draft.pod, "initContainers"), container, "name")
    if parts.volume:
        draft.append((*draft.pod, "volumes"), parts.volume, "name")


def _update_pods(draft: Draft, parts: PodParts) -> str:
    """Let a DaemonSet's new pod start beside the old one, if it may; return what happens."""
    if draft.kind != "DaemonSet" or not parts.waits:
        return ""
    if draft.get("spec", "updateStrategy"):
        return OWN_STRATEGY
    ports = [
        port.get("hostPort")
        for index in range(len(draft.items(*draft.pod, "containers")))
        for port in draft.items(*draft.pod, "containers", index, "ports")
    ]
    alone = any(ports) or draft.get(*draft.pod, "hostNetwork") == "true" or parts.gpu
    if not alone:
        draft.put(("spec", "updateStrategy"), SURGE)
    return ENDS_FIRST if alone else BOTH_RUN
