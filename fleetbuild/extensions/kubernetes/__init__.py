"""Kubernetes: labels that name each node's release, and manifests for pods that use it.

In: runs that change or verify nodes. Out: labels around each change, files after an apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.extension import Extension, FollowedRun, Follower

if TYPE_CHECKING:
    from fleetbuild.models import Config, Plan, PlannedGroup
    from fleetbuild.models.serving import Serving


class Kubernetes(Extension):
    """See the module."""

    def follower(self, run: FollowedRun) -> AbstractContextManager[Follower]:
        from fleetbuild.kubernetes.follower import open_labeller

        return open_labeller(run)

    def written(
        self,
        plan: Plan,
        groups: Sequence[PlannedGroup],
        serving: Serving,
        store: Path,
        config: Config,
    ) -> Mapping[str, str]:
        from fleetbuild.kubernetes.follower import workloads

        return workloads(plan, groups, serving, store, config)


extension = Kubernetes()
