"""The plan: the saved, exact statement of what will be built, moved, installed and removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from fleetbuild.errors import BlockedError, worst
from fleetbuild.models._base import Frozen
from fleetbuild.models.config import Rollout
from fleetbuild.models.target import Target

FactsSource = Literal["probe", "captures", "cluster"]
LabelsBy = Literal["files", "nfd", "api"]
FORMAT_VERSION = "1.0"  # minor: fields added; major: older readers must refuse


class Commit(NamedTuple):
    """A commit of a git repository."""

    address: str
    id: str
    submodules: bool


class LockedFile(Frozen):
    """A file of the dependency lock, which the controller fetches once, by hash.

    The controller makes the file itself from a source in git: the url is git+ADDRESS@COMMIT, with
    #flat at the end if submodules are left out, and the sha256 is empty.
    """

    name: str
    version: str
    file: str
    sha256: str
    url: str  # never with a user or password
    size: int | None = Field(None, ge=0)  # in bytes; None: the index does not tell

    @property
    def commit(self) -> Commit | None:
        """The commit that the file is made from, if it is a source in git."""
        if not self.url.startswith("git+"):
            return None
        address, _, tail = self.url.removeprefix("git+").rpartition("@")
        commit, _, how = tail.partition("#")
        return Commit(address, commit, how != "flat")

    @property
    def identity(self) -> str:
        """What identifies the content: the hash, or the commit."""
        return self.sha256 or "git-" + self.url.rpartition("@")[2].replace("#", "-")


def toolkit_origin(files: Sequence[LockedFile]) -> str:
    """Return what a CUDA toolkit's files are, in words; empty without any."""
    if not files:
        return ""
    return "NVIDIA's wheels" if files[0].file.endswith(".whl") else "NVIDIA's archives"


class Requires(Frozen):
    """What a build needs: tools that are present, to be installed, or to be supplied."""

    compiler: str  # "gcc 12.2.0 (present)", "gcc (to be installed by the toolchain role)"
    cuda: str | None = None
    disk_gb: float = 1
    memory_gb: float = 1
    libraries: dict[str, str] = {}  # system libraries that every node needs: name -> description
    # Programs beside compilers: name, with ">=" and an oldest version if there is one -> origin.
    tools: dict[str, str] = {}
    to_supply: tuple[
        str, ...
    ] = ()  # sentences; with any of them, apply stops before the first build
    in_image: tuple[str, ...] = ()  # sentences: what build.image has to hold, for builds in pods


class PlannedBuilder(Frozen):
    """A node that may build a wheel, and what it builds with."""

    node: str
    python: str = "python3"  # path of its interpreter
    gcc: str = ""  # major version of another gcc than the node's default
    image: str = ""  # id of the image that it builds in; "": on the node itself
    jobs: int = 1  # that fit


class PlannedWheel(Frozen):
    """One wheel of a group, and where it comes from."""

    package: str
    version: str
    wheel_version: str
    recipe: str
    target: Target
    libstdcxx: str | None = None  # the oldest known GLIBCXX among the nodes
    artifact_key: str | None  # None if the lock is missing
    action: Literal["build", "reuse", "published", "blocked"]
    reason: str
    evidence: str | None = None
    built_on: str | None = None
    why_there: str = ""  # what built_on has before the next node that can build, in words
    fallbacks: tuple[str, ...] = ()  # nodes that build if built_on cannot, in order
    build_pythons: dict[str, str] = {}  # built_on and fallbacks -> path of their interpreter
    build_gccs: dict[str, str] = {}  # nodes that need another gcc than their default -> its major
    # built_on and fallbacks -> id of the image that they build in; {}: on the nodes themselves.
    build_images: dict[str, str] = {}
    jobs: int = 1
    build_jobs: dict[str, int] = {}  # built_on and fallbacks -> number of jobs that fit
    minutes: float | None = None  # an estimate of the build, by its recipe and the jobs
    measured: bool = False  # whether `minutes` rests on timed builds
    cuda: str | None = None  # version of the CUDA toolkit to build with
    cuda_why: str | None = None  # why this version
    environment: dict[str, str]
    config_settings: dict[str, str] = {}  # for the build backend
    files: dict[str, str] = {}  # files to put beside the source: name -> text
    patches: dict[str, str] = {}  # name -> text, in the order in which they are applied
    libraries: Literal["system", "bundle"] = "system"  # where shared libraries come from
    # Artifact keys of the wheels of this release that the build uses and pins.
    built_against: tuple[str, ...] = ()
    requires: Requires
    # The sdist, or a local source packed as one (with a file: url). None: the lock is missing.
    source: LockedFile | None = None
    published: LockedFile | None = None  # the wheel from an index, if that is used
    source_path: str | None = None  # where the user keeps a local source tree or archive
    build_dependencies: tuple[LockedFile, ...] = ()
    # NVIDIA's wheels or archives that make up the CUDA toolkit; (): it is installed, or not needed.
    toolkit_wheels: tuple[LockedFile, ...] = ()
    checks: tuple[str, ...] = ()  # Python snippets that must run on every node
    import_names: tuple[str, ...] = ()
    top_level: tuple[str, ...] = ()  # the only names that the wheel may bring; (): not limited
    allow_files: tuple[str, ...] = ()  # patterns of files to allow that wheels may not hold

    @property
    def builders(self) -> tuple[PlannedBuilder, ...]:
        """The nodes that may build it, in order."""
        return tuple(map(self.builder, filter(None, (self.built_on, *self.fallbacks))))

    def builder(self, node: str) -> PlannedBuilder:
        """Return what a node builds it with."""
        return PlannedBuilder(
            node=node,
            python=self.build_pythons.get(node, "python3"),
            gcc=self.build_gccs.get(node, ""),
            image=self.build_images.get(node, ""),
            jobs=self.build_jobs.get(node, self.jobs),
        )

    @property
    def timeout_seconds(self) -> int:
        """The time limit of the build: 4 hours, or three times the estimate if that is longer."""
        return max(4 * 3600, round(3 * 60 * (self.minutes or 0)))


class Installs(Frozen):
    """The nodes of a group by what an apply does there."""

    install: tuple[str, ...] = ()
    up_to_date: tuple[str, ...] = ()
    upgrade: tuple[str, ...] = ()


class VersionChange(Frozen):
    """A package of which nodes of a group get another version, or another wheel of this version."""

    package: str
    installed: tuple[str, ...] = ()  # the versions there now; (): none
    planned: str | None = None  # None: it goes


class PlannedGroup(Frozen):
    """A group: the nodes with the same targets, their wheels, and the node that builds."""

    name: str
    nodes: tuple[str, ...]
    representative: str
    fallbacks: tuple[str, ...] = ()
    target: Target
    wheels: tuple[PlannedWheel, ...]
    release_id: str | None  # None where the lock is missing
    dependencies: (
        tuple[LockedFile, ...] | None
    )  # None: no index could be reached, the lock is missing
    installs: Installs
    changes: tuple[VersionChange, ...] = ()  # on the nodes to upgrade; new dependencies come last

    @property
    def is_blocked(self) -> bool:
        """Whether one of its wheels is blocked, so that no release of the group can be made."""
        return any(wheel.action == "blocked" for wheel in self.wheels)


def version_skew(groups: Sequence[PlannedGroup]) -> tuple[str, ...]:
    """Return a sentence for torch, CUDA's major and NCCL each if groups with GPUs differ in it.

    One distributed job needs the same version in all of its processes: NCCL refuses another one.
    """
    found: dict[str, dict[str, list[str]]] = {"torch": {}, "CUDA": {}, "NCCL": {}}
    for group in groups:
        for what, version in (_stack(group) if group.target.sms else {}).items():
            found[what].setdefault(version, []).append(group.name)
    return tuple(
        f"Groups with GPUs have different versions of {what}: "
        + "; ".join(f"{version} in {', '.join(names)}" for version, names in versions.items())
        + ". A distributed job cannot span them: run each job on nodes of one version."
        for what, versions in found.items()
        if len(versions) > 1
    )


def _stack(group: PlannedGroup) -> dict[str, str]:
    """Return the versions of torch, CUDA and NCCL that a group gets, as far as they are known."""
    versions = {file.name: file.version for file in group.dependencies or ()}
    versions |= {wheel.package: wheel.wheel_version for wheel in group.wheels}
    torch, _, label = ("" if group.is_blocked else versions.get("torch", "")).partition("+")
    found = {"torch": torch} if torch else {}
    for name, version in versions.items():
        if name.startswith("nvidia-cuda-runtime"):
            found["CUDA"] = version.partition(".")[0]
        elif name.startswith("nvidia-nccl-"):
            found["NCCL"] = version
    if match := re.match(r"cu(\d+)\d\b", label):  # cu126
        found["CUDA"] = match[1]
    return found


class NodeHardware(Frozen):
    """The hardware of a blocked node, which is in no group: it decides its hardware class."""

    arch: str
    features: tuple[str, ...]  # CPU features that rungs use, or the features of fleetbuild_isa
    sms: tuple[str, ...] = ()


class PlannedNode(Frozen):
    """What the plan does for a node, or why it does nothing."""

    state: Literal["ok", "unreachable", "blocked", "skipped"]
    group: str | None = None
    merged_from: str | None = None  # the group that it would be in if no groups were merged
    reason: str | None = None
    fix: str | None = None
    warnings: tuple[str, ...] = ()
    isa: str | None = None  # fleetbuild_isa, if the inventory sets it
    python: str | None = None  # path of the interpreter for the release
    kubernetes_node: str | None = None
    taints: tuple[str, ...] = ()  # of the Kubernetes Node; builds do not run there
    instance_type: str | None = None  # the Kubernetes Node's label
    current: str | None = None  # id of the release that serves now
    hardware: NodeHardware | None = None  # of a blocked node that was probed


class PlannedTarget(Frozen):
    """A target that the user named, and the group that has its wheels; or why it is blocked."""

    state: Literal["ok", "blocked"]
    group: str | None = None
    reason: str | None = None
    fix: str | None = None
    builders: tuple[str, ...] = ()  # nodes that can build for it
    refused: dict[str, str] = {}  # other nodes -> why they cannot


class Summary(Frozen):
    """The plan in six numbers."""

    wheels_to_build: int = 0
    wheels_reused: int = 0
    nodes_to_change: int = 0
    nodes_up_to_date: int = 0
    nodes_blocked: int = 0
    nodes_unreachable: int = 0


class Loss(Frozen):
    """What nodes lose if their group is merged into another wheel set."""

    group: str  # their own group
    nodes: int  # number of nodes
    wheel_set: str  # the wheel set that serves them instead
    rung: str | None = None  # the rung that they lose
    slower: float = 0  # expected slowdown on the CPU: 0.5 means 50 % longer
    sms: tuple[str, ...] = ()  # GPU code in their wheels that only others use


class Tradeoff(Frozen):
    """The cheapest plan with a given number of wheel sets."""

    wheel_sets: int
    chosen: bool  # whether this is the plan
    minutes: float  # to build all their wheels, as the recipes estimate
    size_mb: float  # of all their wheels
    cost: float  # the cost to minimize, in minutes of building
    exact: bool = True  # whether every combination was compared
    losses: tuple[Loss, ...] = ()


class MergedTargets(Frozen):
    """The target of each node after groups were merged."""

    targets: dict[str, Target]
    merged_from: dict[str, str] = {}  # node -> its group without merging
    tradeoffs: tuple[Tradeoff, ...] = ()


class Plan(Frozen):
    """An exact, versioned statement of what an apply will do. It holds no secrets."""

    format_version: str = FORMAT_VERSION
    created: str  # ISO 8601, UTC
    digest: str = ""  # sha256 over the document with this field empty
    inventory: str
    config: str | None = None  # of --config, if it was given: an apply reads the same file
    limit: str | None = None
    # What named packages, kinds and vaults when it was made, by option, for commands that follow.
    options: dict[str, tuple[str, ...]] = {}
    timeout: float | None = None  # of --timeout, if it was given: an apply takes the same
    facts_source: FactsSource
    lock: Literal["complete", "missing"] = "complete"
    lock_problem: str | None = None
    release: str = "default"
    install_path: str = "/opt/fleetbuild"
    keep: int = 2
    packages: tuple[str, ...]
    label_domain: str = "fleetbuild.dev"
    package_labels: bool = False  # whether nodes get a label for each planned package
    labels: LabelsBy = "files"
    build_image: str | None = None  # the image for builds in a cluster
    build_container: str | None = None  # the image for builds on nodes, if they run in containers
    cache: Literal["ccache", "sccache", "none"] = "ccache"
    isolation: Literal["required", "preferred", "off"] = "preferred"  # of builds
    fingerprint: dict[str, dict[str, Any]]  # node -> the facts that decide its target
    nodes: dict[str, PlannedNode]
    # Named targets, by name. With any, groups have no nodes: nodes only build.
    targets: dict[str, PlannedTarget] = {}
    groups: tuple[PlannedGroup, ...]
    # Most wheel sets first; empty if no cap or option asks for fewer.
    tradeoffs: tuple[Tradeoff, ...] = ()
    rollout: Rollout = Rollout()
    warnings: tuple[str, ...] = ()
    summary: Summary = Summary()

    @property
    def unblocked_groups(self) -> tuple[PlannedGroup, ...]:
        """The groups of which a release can be made; a blocked group offers no class."""
        return tuple(group for group in self.groups if not group.is_blocked)

    @property
    def wheels(self) -> tuple[PlannedWheel, ...]:
        """The wheels of all groups; a wheel that two groups share occurs twice."""
        return tuple(wheel for group in self.groups for wheel in group.wheels)

    @property
    def wheels_by_key(self) -> dict[str, PlannedWheel]:
        """The wheels of all groups, by artifact key; without wheels whose lock is missing."""
        return {wheel.artifact_key: wheel for wheel in self.wheels if wheel.artifact_key}

    def group_named(self, name: str) -> PlannedGroup | None:
        """Return the group with this name, if there is one."""
        return next((group for group in self.groups if group.name == name), None)

    @property
    def groups_by_node(self) -> dict[str, PlannedGroup]:
        """The group of each node that is in one, by node name."""
        return {name: group for group in self.groups for name in group.nodes}

    def require_ssh(self) -> None:
        """Raise BlockedError if the plan's nodes were read from a cluster."""
        if self.facts_source == "cluster":
            raise BlockedError(
                "This plan was made with --from-cluster, so it names no inventory: no node can be"
                " reached by SSH.",
                "Build in the cluster: fleetbuild emit builds; once the wheels are in the store:"
                " fleetbuild emit containers. To reach nodes, name an INVENTORY.",
            )

    @property
    def exit_code(self) -> int:
        """0, 3 if nodes are unreachable, or 4 if a node or wheel is blocked."""
        states = {target.state for target in self.targets.values()}
        blocked = self.summary.nodes_blocked or "blocked" in states
        blocked = blocked or any(wheel.action == "blocked" for wheel in self.wheels)
        return worst([3 if self.summary.nodes_unreachable else 0, 4 if blocked else 0])

    @property
    def detailed_exit_code(self) -> int:
        """The exit code, but 10 instead of 0 if there is something to do."""
        if self.exit_code == 0 and (self.summary.wheels_to_build or self.summary.nodes_to_change):
            return 10
        return self.exit_code

    @property
    def package_names(self) -> list[str]:
        """The packages that have wheels in this plan."""
        return sorted({wheel.package for wheel in self.wheels})

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """The groups with nodes to change, and these nodes."""
        nodes = {
            group.name: (*group.installs.install, *group.installs.upgrade) for group in self.groups
        }
        return {group: names for group, names in nodes.items() if names}
