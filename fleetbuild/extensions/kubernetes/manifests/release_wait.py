"""DaemonSets that mount a release from their nodes, and keep their pods while releases change.

A DaemonSet's pod is deleted as soon as its node no longer matches the selector. The labels of a
release change with each release, so a DaemonSet selects by its group, and an init container waits
until the release is verified on the node. A new DaemonSet is then rolled out node by node.
"""

from __future__ import annotations

from dataclasses import replace

from fleetbuild.extensions.kubernetes.labels.affinity import selector
from fleetbuild.extensions.kubernetes.manifests import security
from fleetbuild.extensions.kubernetes.manifests.options import PodParts
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note
from fleetbuild.models import Plan, PlannedGroup, release_root

VOLUME = "fleetbuild-release"
_WAIT = """\
trap 'exit 1' TERM
until grep -q '"verified": true' "$0"; do
  [ "${said-}" ] || echo "waiting until this release is verified here: $0"
  said=yes
  sleep 5
done 2>/dev/null
"""
_ABOUT = """

A DaemonSet loses its pods when its node no longer has the labels that it selects by, so it selects
by the group, whose label stays while releases change. An init container waits until this release is
verified on the node. For the next release run fleetbuild apply, then kubectl apply its manifest."""
# How pods are replaced then. While both run, each needs its own GPU or port of the node.
SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
BOTH_RUN = """
Each new pod starts beside the old one, which runs until the new one is ready."""
ENDS_FIRST = """
Each old pod ends before the new one starts, since both cannot have the node's GPU or port at once:
apply the manifest after `fleetbuild apply`, so that the new pod need not wait."""


def release_path(plan: Plan, group: PlannedGroup) -> str:
    """Return the folder of the group's release on its nodes."""
    return f"{_releases(plan)}/{group.release_id}"


def daemonset_parts(plan: Plan, group: PlannedGroup, parts: PodParts) -> PodParts:
    """Return what the pod of a DaemonSet needs, given what other pods that mount the release need.

    The folder of all releases is the volume, since the release may not exist when the pod starts;
    `subPath` is looked up when the container starts, after the wait.
    """
    path, releases = release_path(plan, group), _releases(plan)
    host_path = Note(
        {"path": releases, "type": "Directory"},
        "All releases: this one may be installed after the pod has started.",
    )
    return replace(
        parts,
        waits=True,
        about=parts.about + _ABOUT,
        selector=selector(plan, group, "group"),
        why_selector="Nodes of this group, whichever release they serve.",
        volume={"name": VOLUME, "hostPath": host_path},
        mount={
            "name": VOLUME,
            "mountPath": path,
            "subPath": group.release_id,
            "readOnly": True,
        },
        init_container={
            "name": "fleetbuild-wait",
            "command": ["sh", "-c", _WAIT, f"{path}/manifest.json"],
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"memory": "64Mi"},
            },
            "securityContext": security.CONTAINER,
            "volumeMounts": [{"name": VOLUME, "mountPath": releases, "readOnly": True}],
        },
    )


def _releases(plan: Plan) -> str:
    return f"{release_root(plan.install_path, plan.release)}/releases"
