"""The data that fleetbuild works with, as frozen pydantic models. No I/O here."""

from fleetbuild.models.capture import Capture, Unreachable
from fleetbuild.models.config import PYTORCH, Config, Install
from fleetbuild.models.event import Event, OnEvent, Stage, ignore, now
from fleetbuild.models.facts import Container, Facts, Gpu, Libc, Os, Python
from fleetbuild.models.node import Become, Inventory, Login, Node
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
from fleetbuild.models.release import Manifest, ManifestWheel, release_root
from fleetbuild.models.result import Labelled, LabelResult, NodeResult, Result, WheelResult
from fleetbuild.models.status import NodeStatus
from fleetbuild.models.target import (
    PLANNED_ONLY,
    Target,
    TargetLibc,
    WindowsGroup,
    WindowsSource,
    WindowsTarget,
    WindowsWheel,
)

__all__ = [
    "FORMAT_VERSION",
    "PLANNED_ONLY",
    "PYTORCH",
    "Become",
    "Capture",
    "Commit",
    "Config",
    "Container",
    "Event",
    "Facts",
    "Gpu",
    "Install",
    "Installs",
    "Inventory",
    "LabelResult",
    "Labelled",
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
    "Requires",
    "Result",
    "Stage",
    "Summary",
    "Target",
    "TargetLibc",
    "Tradeoff",
    "Unreachable",
    "WheelResult",
    "WindowsGroup",
    "WindowsSource",
    "WindowsTarget",
    "WindowsWheel",
    "ignore",
    "now",
    "release_root",
]
