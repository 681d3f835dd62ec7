"""Find the releases that pods mount from their nodes, so that they are not removed there.

In: a client, names of Nodes, the folder of the releases. Out: the release ids for each Node, with
the pod, and the Nodes whose pods could not be listed. A pod that waits for its image or restarts
after a crash holds no mount at the moment, so only the API server knows of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetbuild.errors import FleetbuildError
from fleetbuild.extensions.kubernetes.api.client import Client, path_of
from fleetbuild.extensions.kubernetes.api.errors import NoResponse, Refusal, as_error, forbidden
from fleetbuild.extensions.kubernetes.manifests.names import is_subdomain
from fleetbuild.models.problem import Problem
from fleetbuild.workers import Workers

PODS = ("api", "v1", "pods")
_AT_ONCE = 8
# Anyone who makes pods writes these paths, and the ids go into a playbook.
_RELEASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ENDED = ("Succeeded", "Failed")
CURRENT = "current"  # in place of a release id: whichever release serves


def may_list_pods(client: Client) -> str:
    """Return "", or a warning with its consequences if this login may not list pods."""
    try:
        client.get(path_of(*PODS), limit="1")
    except Refusal as problem:
        if problem.code == 403:
            reason, fix = forbidden(client.access, "list", "/pods", problem.message)
            return (
                f"{reason} So a release is kept for a pod only while the node itself sees it"
                f" mounted. {fix}"
            )
        raise as_error(problem, client.access, "list", "/pods") from None
    except NoResponse as problem:
        raise as_error(problem, client.access, "list", "/pods") from None
    return ""


def releases_of_pods(
    client: Client, nodes: Sequence[str], root: str
) -> dict[str, dict[str, str] | Problem]:
    """Return {Node: {release id: reason}} for releases below `root` that pods mount.

    A Node whose pods could not be listed has the problem instead.
    """
    with Workers(_AT_ONCE) as pool:
        mounted = pool.map(lambda node: _on_node(client, node, root), nodes)
        return {node: uses for node, uses in zip(nodes, mounted, strict=True) if uses}


def _on_node(client: Client, node: str, root: str) -> dict[str, str] | Problem:
    try:
        pods = list(client.all(path_of(*PODS), fieldSelector=f"spec.nodeName={node}"))
    except (Refusal, NoResponse) as problem:
        error = as_error(problem, client.access, "list", "/pods")
        return Problem(error.message, error.fix)
    except FleetbuildError as error:
        return Problem(error.message, error.fix)
    return {
        release: f"The pod {_name(pod)} mounts it."
        for pod in sorted(pods, key=_name, reverse=True)
        for release in _mounted(pod, _plain(root))
    }


def _mounted(pod: Mapping[str, Any], root: str) -> Iterator[str]:
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return
    spec = pod.get("spec") or {}
    paths = {
        str(volume.get("name")): str((volume.get("hostPath") or {}).get("path", ""))
        for volume in spec.get("volumes") or ()
    }
    below = [
        posixpath.join(paths.get(str(mount.get("name")), ""), str(part))
        for kind in ("containers", "initContainers", "ephemeralContainers")
        for container in spec.get(kind) or ()
        for mount in container.get("volumeMounts") or ()
        if (part := mount.get("subPath") or mount.get("subPathExpr"))
    ]
    folder = f"{root}/releases/"
    for path in map(_plain, filter(None, (*paths.values(), *below))):
        release = path.removeprefix(folder).partition("/")[0]
        if path.startswith(folder) and _RELEASE_ID.fullmatch(release):
            yield release
        elif f"{path}/".startswith((f"{root}/current/", f"{folder}$(")) or path == root:
            yield CURRENT


def _plain(path: str) -> str:
    """Return a path in its one form; POSIX keeps two slashes at its beginning."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _name(pod: Mapping[str, Any]) -> str:
    metadata = pod.get("metadata") or {}
    names = (str(metadata.get(part)) for part in ("namespace", "name"))
    return "/".join(name if is_subdomain(name) else "?" for name in names)
