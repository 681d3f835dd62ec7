"""Run the script on the controller itself, for ansible_connection=local."""

from __future__ import annotations

from collections.abc import Sequence

from fleetbuild.models import Become
from fleetbuild.probe.transport.base import Answer, Deadline, remote_command
from fleetbuild.probe.transport.process import Process


class LocalTransport:
    """Runs the script in a local shell."""

    def __init__(self, become: Become | None = None) -> None:
        self._become = become
        self._process: Process | None = None

    def run(self, script: bytes, arguments: Sequence[str], deadline: Deadline) -> Answer:
        """See Transport."""
        command, stdin = remote_command(self._become, script, arguments)
        self._process = Process(["/bin/sh", "-c", command])
        return self._process.run(stdin, deadline)

    def abandon(self) -> None:
        """See Transport."""
        if self._process is not None:
            self._process.kill()
