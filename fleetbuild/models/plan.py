"""The plan: the saved, exact statement of what will be built, moved, installed and removed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from fleetbuild.models._base import Frozen
from fleetbuild.models.config import LabelsBy, Rollout
from fleetbuild.models.target import Target

FactsSource = Literal["probe", "captures", "cluster"]
FORMAT_VERSION = "1.0"  # minor: fields added; major: older readers must refuse


class Commit(NamedTuple):
    """A commit of a git repository."""

    address: str
    id: str
    submodules: bool


class LockedFile(Frozen):
    """A file of the lock: fetched once by the controller, by hash.

    A source in git is a file that the controller makes: its url is git+ADDRESS@COMMIT, with #flat
    at the end where it is without its submodules, and its sha256 is empty until then.
    """

    name: str
    version: str
    file: str
    sha256: str
    url: str  # never with a user or password

    @property
    def commit(self) -> Commit | None:
        """What it is made of, for a source in git."""
        if not self.url.startswith("git+"):
            return None
        address, _, tail = self.url.removeprefix("git+").rpartition("@")
        commit, _, how = tail.partition("#")
        return Commit(address, commit, how != "flat")

    @property
    def identity(self) -> str:
        """What its content is known by: its hash, or the commit."""
        return self.sha256 or "git-" + self.url.rpartition("@")[2].replace("#", "-")


class Requires(Frozen):
    """What a builder must have: each tool is present, to be installed, or to be supplied."""

    compiler: str  # "gcc 12.2.0 (present)", "gcc (to be installed by the toolchain role)"
    cuda: str | None = None
    disk_gb: float = 1
    memory_gb: float = 1
    libraries: dict[str, str] = {}  # the system's, that every node must have, too: name -> words
    to_supply: tuple[
        str, ...
    ] = ()  # sentences; apply stops before the first build where any is here


class PlannedWheel(Frozen):
    """One wheel of a group, and where it comes from."""

    package: str
    version: str
    wheel_version: str
    recipe: str
    target: Target
    libstdcxx: str | None = None  # the oldest GLIBCXX among the nodes, as far as they say
    artifact_key: str | None  # None where the lock is missing
    action: Literal["build", "reuse", "published", "blocked"]
    reason: str
    evidence: str | None = None
    built_on: str | None = None
    fallbacks: tuple[str, ...] = ()  # who builds where that node cannot, in order
    build_pythons: dict[str, str] = {}  # built_on and fallbacks -> path of their interpreter
    build_gccs: dict[str, str] = {}  # those that need a gcc beside their default -> its major
    jobs: int = 1
    build_jobs: dict[str, int] = {}  # built_on and fallbacks -> how many there is room for
    minutes: float | None = None  # an estimate of the build, by its recipe and the jobs
    measured: bool = False  # whether that rests on builds that were timed: others are not shown
    cuda: str | None = None  # the toolkit that it is built with
    cuda_why: str | None = None  # and why that one
    environment: dict[str, str]
    config_settings: dict[str, str] = {}  # for the build backend
    files: dict[str, str] = {}  # laid beside the source
    patches: dict[str, str] = {}  # name -> text, in the order in which they are applied
    libraries: Literal["system", "bundle"] = "system"  # that it is linked with
    # Artifact keys of the release's wheels that are there while it is built, and pinned by it.
    built_against: tuple[str, ...] = ()
    requires: Requires
    # The sdist, or a local source packed as one (its url is a file then). None: lock missing.
    source: LockedFile | None = None
    published: LockedFile | None = None  # the wheel that others built, where it is taken
    source_path: str | None = None  # where the user keeps a local source tree or archive
    build_dependencies: tuple[LockedFile, ...] = ()
    checks: tuple[str, ...] = ()  # Python snippets that must run on every node
    import_names: tuple[str, ...] = ()

    @property
    def timeout_seconds(self) -> int:
        """The seconds that its build may take: 4 hours, or three times what is estimated."""
        return max(4 * 3600, round(3 * 60 * (self.minutes or 0)))


class Installs(Frozen):
    """What happens on each node of a group."""

    install: tuple[str, ...] = ()
    up_to_date: tuple[str, ...] = ()
    upgrade: tuple[str, ...] = ()


class PlannedGroup(Frozen):
    """The nodes with one target, what they get, and who builds it."""

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


class NodeHardware(Frozen):
    """What decides the hardware class of a node that is blocked: it is of none of the groups."""

    arch: str
    features: tuple[str, ...]  # all that rungs ask about, or those of fleetbuild_isa
    sms: tuple[str, ...] = ()


class PlannedNode(Frozen):
    """What the plan does for a node, or why it does nothing."""

    state: Literal["ok", "unreachable", "blocked", "skipped"]
    group: str | None = None
    merged_from: str | None = None  # the group that it would be in if no groups were merged
    reason: str | None = None
    fix: str | None = None
    warnings: tuple[str, ...] = ()
    isa: str | None = None  # fleetbuild_isa, where the inventory keeps it to a rung
    python: str | None = None  # path of the interpreter that the release is made with
    kubernetes_node: str | None = None
    taints: tuple[str, ...] = ()  # as the cluster says: no build of ours runs there
    current: str | None = None  # release id that serves now
    hardware: NodeHardware | None = None  # where it is blocked, and the probe told


class Summary(Frozen):
    """The plan in six numbers."""

    wheels_to_build: int = 0
    wheels_reused: int = 0
    nodes_to_change: int = 0
    nodes_up_to_date: int = 0
    nodes_blocked: int = 0
    nodes_unreachable: int = 0


class Loss(Frozen):
    """What nodes lose where their group is merged into another wheel set."""

    group: str  # that they would be in
    nodes: int  # how many they are
    wheel_set: str  # that serves them
    rung: str | None = None  # that they lose
    slower: float = 0  # how much longer the CPU's work is expected to take: 0.5, half again
    sms: tuple[str, ...] = ()  # GPU code that they carry for others


class Tradeoff(Frozen):
    """What a number of wheel sets comes to, at the least cost."""

    wheel_sets: int
    chosen: bool  # whether the plan is made so
    minutes: float  # to build all their wheels, as the recipes estimate
    size_mb: float  # of all their wheels
    cost: float  # what is made least, in minutes of building
    exact: bool = True  # whether all ways were weighed
    losses: tuple[Loss, ...] = ()


class Plan(Frozen):
    """See SPEC: saved, exact, versioned, stable in order, without secrets."""

    format_version: str = FORMAT_VERSION
    created: str  # ISO 8601, UTC
    digest: str = ""  # sha256 over the document with this field empty
    inventory: str
    limit: str | None = None
    facts_source: FactsSource
    lock: Literal["complete", "missing"] = "complete"
    lock_problem: str | None = None
    release: str = "default"
    install_path: str = "/opt/fleetbuild"
    keep: int = 2
    packages: tuple[str, ...]
    label_domain: str = "fleetbuild.dev"
    labels: LabelsBy = "files"
    build_image: str | None = None  # what builds in a cluster run in
    cache: Literal["ccache", "sccache", "none"] = "ccache"
    fingerprint: dict[str, dict[str, Any]]  # node -> the facts that decide its target
    nodes: dict[str, PlannedNode]
    groups: tuple[PlannedGroup, ...]
    # Most wheel sets first; empty where nothing asks for fewer.
    tradeoffs: tuple[Tradeoff, ...] = ()
    rollout: Rollout = Rollout()
    warnings: tuple[str, ...] = ()
    summary: Summary = Summary()

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
