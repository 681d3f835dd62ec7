"""Failover: build a wheel on its next fallback if a build fails because of its machine.

In: assignments, and a function that builds some of them. Out: the node that builds each wheel in
the end. A build that fails because of its code would fail on every node, so it is not repeated.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import RoleResult, is_disk_full
from fleetbuild.ansible.silent_nodes import describe_loss
from fleetbuild.apply.pending import BuildAssignment, NoBuilder, choose_builder, key_of
from fleetbuild.models import Facts
from fleetbuild.models.result import FailedBuild

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun

_AT_ONCE = 8  # each has an ansible-playbook of its own, which takes 100 MB
# What gcc says. A compiler that crashes by a fault of its own does so on every node; gcc tries
# again, and says so if the fault does not repeat.
_COMPILER_HIT = re.compile(r"signal terminated program|likely a hardware or OS problem")


def machine_failure(reply: RoleResult, log: str = "") -> str | None:
    """Return why the machine made this build fail; None if the build's code or inputs did."""
    said = f"{reply.reason}\n{log}".splitlines()
    if full := next(filter(is_disk_full, said), None):
        return f"Its disk is full: {full.strip()[:300]}"
    by_machine = reply.kind == "machine" or any(map(_COMPILER_HIT.search, said))
    return said[0] if by_machine else None


def failure_before_reply(host: HostRun | None, failure: RoleResult | None) -> str | None:
    """Return why a machine ended before its build did; None if the playbook ended well there."""
    if host is None or host.state == "ok":
        return None
    if host.state == "unreachable" and not is_disk_full(host.message):
        return f"{describe_loss(host)}."
    said = (failure.reason if failure else "") or host.message
    return said.partition("\n")[0] or "Ansible stopped there without giving a reason."


# Builds these wheels; calls its second argument with each node that has ended its builds.
Attempt = Callable[[tuple[BuildAssignment, ...], Callable[[str], None]], None]


class BuilderPool:
    """The nodes that build, and where each wheel is built in the end.

    A fallback starts at once, beside the builds that still run. A node builds for one attempt at a
    time, because jobs are sized for the whole node, and a node that failed builds nothing more.
    """

    def __init__(
        self,
        facts: Mapping[str, Facts],
        failed: Mapping[str, str],
        report: Callable[[BuildAssignment, FailedBuild], None],
    ) -> None:
        """`failed`: nodes that failed before, and why. `report` gets each new assignment."""
        self.failed = dict(failed)
        self.failures: dict[str, tuple[FailedBuild, ...]] = {}  # by artifact key
        self.assignments: dict[str, BuildAssignment] = {}  # by artifact key, as they are now
        self._facts, self._report = facts, report
        self._busy: set[str] = set()
        self._change = threading.Condition(threading.RLock())
        self._attempts: list[Future[None]] = []
        self._begin: Callable[[BuildAssignment], None]
        self._stopped = False

    def build(
        self, assignments: Sequence[BuildAssignment], attempt: Attempt, stop: Callable[[], None]
    ) -> None:
        """Call `attempt` for all assignments, and again for each that a failed machine leaves.

        `attempt` calls `fail_over`; `stop` ends the attempts of other threads.
        """
        self.assignments = {key_of(each.wheel): each for each in assignments}
        for each in assignments:
            if why := self.failed.get(each.node):
                self._move(each, why)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fleetbuild-build") as pool:

            def begin(moved: BuildAssignment) -> None:
                self._attempts.append(pool.submit(self._run, attempt, (moved,)))

            self._begin = begin
            try:
                self._run(attempt, tuple(self.assignments.values()))
                while self._attempts:
                    self._attempts.pop().result()
            except BaseException:
                self._stopped = True
                stop()
                for future in self._attempts:
                    future.cancel()
                raise

    def fail_over(self, assignment: BuildAssignment, why: str) -> bool:
        """Start this build on its next fallback; return whether there is one."""
        with self._change:
            self.failed[assignment.node] = why
            moved = self._move(assignment, why)
        if moved:
            self._begin(moved)
        return moved is not None

    def _move(self, assignment: BuildAssignment, why: str) -> BuildAssignment | None:
        """Assign a build to the next node that can build it, if there is one."""
        left = {name: facts for name, facts in self._facts.items() if name not in self.failed}
        builder = choose_builder(assignment.wheel, left)
        if isinstance(builder, NoBuilder):
            return None
        key, failure = key_of(assignment.wheel), FailedBuild(node=assignment.node, reason=why)
        self.failures[key] = (*self.failures.get(key, ()), failure)
        self.assignments[key] = moved = replace(assignment, node=builder)
        self._report(moved, failure)
        return moved

    def _run(self, attempt: Attempt, assignments: tuple[BuildAssignment, ...]) -> None:
        held = {each.node for each in assignments}

        def release(node: str) -> None:
            with self._change:
                if node in held:
                    held.discard(node)
                    self._busy.discard(node)
                    self._change.notify_all()

        with self._change:
            while self._busy & held:
                self._change.wait(0.2)
                if self._stopped:
                    return
            self._busy |= held
        try:
            attempt(assignments, release)
        finally:
            for node in tuple(held):
                release(node)
