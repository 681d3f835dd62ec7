"""A fleet of real SSH nodes in containers, each showing the hardware of a capture folder."""

from tests.lab.fleet import default_fleet, runnable
from tests.lab.lab import Lab, LabNode
from tests.lab.podman import LabError

__all__ = ["Lab", "LabError", "LabNode", "default_fleet", "runnable"]
