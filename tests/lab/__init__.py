"""A fleet of real SSH nodes in containers, each showing the hardware of a capture folder."""

from tests.lab.fleet import default_fleet, runnable
from tests.lab.lab import Lab, LabNode
from tests.lab.podman import LabError, LesserCpuError

__all__ = ["Lab", "LabError", "LabNode", "LesserCpuError", "default_fleet", "runnable"]
