"""Feature files: labels that Node Feature Discovery reads from a file on the node."""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.kubernetes.labels.node_labels import is_reserved
from fleetbuild.extensions.kubernetes.labels.release_labels import labelled_hosts
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import comment
from fleetbuild.models import Plan
from fleetbuild.models.serving import Serving

DIRECTORY = "/etc/kubernetes/node-feature-discovery/features.d"
LIMIT = 64 * 1024  # NFD ignores larger files

_HEADER = """\
Written by fleetbuild: what the hardware of this node is and, while a release is verified on it,
which. nfd-worker reads it and nfd-master makes labels of it; without the file they go away."""


def needs_permission(domain: str) -> str:
    """Return a sentence if NFD ignores labels of this domain until its configuration allows it."""
    if not is_reserved(domain):
        return ""
    return (
        f"Node Feature Discovery sets labels with the prefix {domain}/ only if the configuration of"
        f" nfd-master names it: extraLabelNs: [{domain}]"
    )


def feature_path(release: str) -> str:
    """Return the path of a release's feature file on a node."""
    return f"{DIRECTORY}/fleetbuild" + ("" if release == "default" else f"-{release}")


def feature_files(plan: Plan, serving: Serving | None) -> dict[str, str]:
    """Return {host: text of its feature file}.

    Without a verified release it has hardware labels only.
    """
    return {host: feature_file(labels.on) for host, labels in labelled_hosts(plan, serving)}


def feature_file(labels: Mapping[str, str]) -> str:
    """Return the text of a feature file with these labels."""
    lines = [*comment(_HEADER), *(f"{key}={value}" for key, value in sorted(labels.items()))]
    text = "\n".join(lines) + "\n"
    if len(text.encode()) >= LIMIT:
        raise ConfigError(
            f"{len(labels)} labels make a feature file of {len(text)} bytes, "
            f"but Node Feature Discovery ignores files of {LIMIT} bytes or more.",
            "Put fewer packages into the release, or label with labels.sh.",
        )
    return text
