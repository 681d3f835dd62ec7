"""A values file for each group, for a Helm chart that takes the usual keys.

In: a plan's groups with their pod parts. Out: file names and texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetbuild.extensions.kubernetes.manifests.names import label_value
from fleetbuild.extensions.kubernetes.manifests.options import PodParts, WorkloadKind
from fleetbuild.extensions.kubernetes.manifests.pod_settings import with_cpu_limit
from fleetbuild.extensions.kubernetes.manifests.workload import about, environment, with_image
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note, dump
from fleetbuild.models import PlannedGroup

_HEADER = """\
Values for the group {group}. Install your chart once for each group, under another name:
    helm upgrade --install NAME CHART --values {file}
A list here replaces the chart's list of that name, so add your own volumes and tolerations to it.

{about}"""
_OWN = """\
Charts that `helm create` made do not take this key. Add to the {where} in their template:
  {{{{- with .Values.{key} }}}}
  {key}: {{{{- toYaml . | nindent {indent} }}}}
  {{{{- end }}}}"""


def helm_values(
    kind: WorkloadKind, delivered: Iterable[tuple[PlannedGroup, PodParts, str]]
) -> dict[str, str]:
    """Return {values-GROUP.yaml: text}."""
    files = {}
    for group, needs, image in delivered:
        file, parts = f"values-{label_value(group.name)}.yaml", needs.of(kind)
        header = _HEADER.format(group=group.name, file=file, about=about(parts))
        files[file] = dump(_values(parts, image), header)
    return files


def _values(parts: PodParts, image: str) -> dict[str, Any]:
    pods, init = parts.pods, parts.init_container
    repository, _, tag = (parts.image or "").rpartition(":")
    limits = {**({"cpu": pods.cpu_limit} if pods.cpu_limit else {}), **parts.limits}
    usual = {
        "image": {"repository": repository, "tag": tag} if tag else None,
        "imagePullSecrets": [{"name": name} for name in pods.image_pull_secrets],
        "podLabels": dict(pods.labels),
        "nodeSelector": Note(dict(parts.selector), parts.why_selector),
        "tolerations": list(parts.tolerations),
        "resources": {"limits": limits} if limits else None,
        "volumes": [parts.volume] if parts.volume else None,
        "volumeMounts": [Note(parts.mount, parts.why_mount)] if parts.mount else None,
    }
    of_pod = {
        "initContainers": [with_cpu_limit(with_image(init, image), pods)] if init else None,
        "runtimeClassName": parts.runtime_class,
        "priorityClassName": pods.priority_class,
    }
    return {
        **{key: value for key, value in usual.items() if value},
        "env": _own("env", environment(parts), "container", 12),
        **{key: _own(key, value, "pod", 8) for key, value in of_pod.items() if value},
    }


def _own(key: str, value: Any, where: str, indent: int) -> Note:
    return Note(value, _OWN.format(key=key, where=where, indent=indent))
