"""How a release gets into a pod: the options that the user chose, and the parts of a pod."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.config import Pods
from fleetbuild.extensions.kubernetes.labels.features import GPU, GPU_TOLERATION
from fleetbuild.extensions.kubernetes.manifests.names import is_dns_label, is_subdomain

Way = Literal["hostpath", "image", "volume", "init"]
WorkloadKind = Literal["deployment", "job", "daemonset"]

_REPOSITORY = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*",
    re.ASCII,
)
_URL = re.compile(r"https?://(?P<host>[A-Za-z0-9.\[\]:-]+)(?:/[A-Za-z0-9._~/%-]*)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The user's options: the way, the kind of workload, where images and wheels are."""

    way: Way = "hostpath"
    kind: WorkloadKind = "deployment"
    image: str | None = None  # in place of the official Python images
    image_prefix: str | None = None  # the repository of the groups' own images
    index_url: str | None = None  # where an export of the store is served
    runtime_class: str | None = None  # of pods with GPUs, where their runtime is not the default
    node_class: str | None = None  # what Karpenter's pools start nodes with: GROUP/KIND/NAME
    namespace: str = "fleetbuild"  # of the ServiceAccount that fleetbuild logs in with
    pods: Pods = field(default_factory=Pods)  # what the site asks of every pod

    def __post_init__(self) -> None:
        if self.image_prefix is not None and not _REPOSITORY.fullmatch(self.image_prefix):
            raise UsageError(
                f"{self.image_prefix!r} is not a valid repository of images.",
                "Name one without a tag, such as registry.example.com/team/fleet",
            )
        if self.index_url is not None and not _URL.fullmatch(self.index_url):
            raise UsageError(
                f"{self.index_url!r} is not a valid index URL: it must be http or https, without "
                "password and query.",
                "Write it like http://wheels.example.com:8000",
            )

        if self.runtime_class is not None and not is_subdomain(self.runtime_class):
            raise UsageError(
                f"{self.runtime_class!r} is not a valid name of a RuntimeClass.",
                "Name one that `kubectl get runtimeclass` lists, such as nvidia.",
            )
        if not is_dns_label(self.namespace):
            raise UsageError(
                f"{self.namespace!r} is not a valid name of a namespace.",
                "Use lower case letters, digits and dashes, such as fleetbuild.",
            )

    @property
    def repository(self) -> str:
        """Return the repository of the groups' images."""
        if self.image_prefix is None:
            raise UsageError(
                "The repository of the groups' images is not named.",
                "Name the repository that they are pushed to: "
                "--image-prefix registry.example.com/team/fleet",
            )
        return self.image_prefix

    @property
    def index(self) -> str:
        """Return the URL of the exported store, without a slash at its end."""
        if self.index_url is None:
            raise UsageError(
                "An init container needs the URL of the wheels.",
                "Write them with: fleetbuild store export DIR; serve that folder and name its URL: "
                "--index-url http://wheels.example.com:8000",
            )
        return self.index_url.rstrip("/")

    @property
    def index_host(self) -> str | None:
        """Return the host that pip must trust because the URL is plain http, or None."""
        match = _URL.fullmatch(self.index)
        return match["host"] if match and self.index.startswith("http:") else None


@dataclass(frozen=True, kw_only=True)
class PodParts:
    """The parts of a pod that it needs to run a group's release."""

    about: str  # how the packages get there, for the reader of the manifest
    selector: Mapping[str, str]
    why_selector: str
    site_packages: str  # what PYTHONPATH leads to
    gpu: bool
    compiled: str  # the folder for what the packages compile as they run
    imports: tuple[str, ...] = ()  # the modules that a smoke workload imports
    runtime_class: str | None = None
    image: str | None = None  # the container's, where it holds the packages itself
    volume: Mapping[str, Any] | None = None
    mount: Mapping[str, Any] | None = None
    why_mount: str = ""
    init_container: Mapping[str, Any] | None = None  # without an image it runs the container's
    daemonset: PodParts | None = None  # what a DaemonSet needs instead
    waits: bool = False  # the init container waits for the release
    pods: Pods = field(default_factory=Pods)  # what the site asks of every pod

    def of(self, kind: str) -> PodParts:
        """Return what a workload of this kind needs."""
        return self.daemonset if self.daemonset and kind.lower() == "daemonset" else self

    @property
    def tolerations(self) -> tuple[Mapping[str, str | int], ...]:
        """Return the tolerations of taints on GPU nodes, and the site's own."""
        return (*((GPU_TOLERATION,) if self.gpu else ()), *self.pods.tolerations)

    @property
    def limits(self) -> Mapping[str, int]:
        """Return the GPU limit; without one a container sees no GPU."""
        return {GPU: 1} if self.gpu else {}
