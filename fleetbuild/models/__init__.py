"""The data that fleetbuild works with, as frozen pydantic models. No I/O here."""

from fleetbuild.models.cluster import Cluster
from fleetbuild.models.config import PYTORCH, Config, Install
from fleetbuild.models.event import Event, OnEvent, Stage, ignore, now
from fleetbuild.models.facts import Container, Facts, Gpu, Libc, Os, Python
from fleetbuild.models.node import Become, Capture, Inventory, Login, Node, Unreachable
from fleetbuild.models.plan import (
    FORMAT_VERSION,
    Commit,
    Installs,
    LockedFile,
    Loss,
    NodeHardware,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedTarget,
    PlannedWheel,
    Requires,
    Summary,
    Tradeoff,
)
from fleetbuild.models.release import Manifest, ManifestWheel, ReleaseFile, release_root
from fleetbuild.models.result import (
    LabelResult,
    NodeResult,
    NodeStatus,
    Result,
    WheelResult,
)
from fleetbuild.models.target import (
    Floors,
    Target,
    TargetLibc,
)

__all__ = [
    "FORMAT_VERSION",
    "PYTORCH",
    "Become",
    "Capture",
    "Cluster",
    "Commit",
    "Config",
    "Container",
    "Event",
    "Facts",
    "Floors",
    "Gpu",
    "Install",
    "Installs",
    "Inventory",
    "LabelResult",
    "Libc",
    "LockedFile",
    "Login",
    "Loss",
    "Manifest",
    "ManifestWheel",
    "Node",
    "NodeHardware",
    "NodeResult",
    "NodeStatus",
    "OnEvent",
    "Os",
    "Plan",
    "PlannedGroup",
    "PlannedNode",
    "PlannedTarget",
    "PlannedWheel",
    "Python",
    "ReleaseFile",
    "Requires",
    "Result",
    "Stage",
    "Summary",
    "Target",
    "TargetLibc",
    "Tradeoff",
    "Unreachable",
    "WheelResult",
    "ignore",
    "now",
    "release_root",
]
