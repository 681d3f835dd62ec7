"""Kubernetes as a follower of runs: the labels of nodes, and the files of an apply.

In: a run and kubernetes.labels. Out: the labeller that follows it; the workloads of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.apply.followers import Followers
from fleetbuild.errors import ClusterError, KubeconfigError, UsageError
from fleetbuild.extension import FollowedRun, Follower
from fleetbuild.extensions.kubernetes.api import connect
from fleetbuild.extensions.kubernetes.config import Kubernetes
from fleetbuild.extensions.kubernetes.labels.labeller import (
    LabelTargets,
    ManualLabels,
    label_targets,
    targets_of_plan,
)
from fleetbuild.extensions.kubernetes.labels.nfd_labeller import NfdLabeller
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models import Cluster, Config, Plan, PlannedGroup
from fleetbuild.models.serving import InUse, Serving
from fleetbuild.state import StateDir
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store

if TYPE_CHECKING:
    from fleetbuild.extensions.kubernetes.api.client import Client


@contextmanager
def open_labeller(run: FollowedRun) -> Iterator[Follower]:
    """Provide the labeller that kubernetes.labels asks for: of the plan, if one is applied.

    A removal asks which releases pods mount in any case: in the cluster that is named, else in the
    one that the last labels were set in.
    """
    by, cluster, removes = (
        run.config.section(Kubernetes).labels,
        run.cluster,
        run.command == "remove",
    )
    if run.command == "apply" and run.plan:
        by, targets = run.plan.labels, targets_of_plan(run.plan)
    else:
        targets = label_targets(run.inventory, run.config, run.plan)
    state = StateDir(run.state)
    files = NfdLabeller(targets, run.run_playbook, state)
    with ExitStack() as stack:
        context = state.api_labelled().get(run.config.release) if removes else None
        if context and cluster is None:
            stack.enter_context(_hint_if_gone(state))
            cluster = Cluster(context=context)
        if by == "api":
            from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller  # noqa: PLC0415 few use it

            client = stack.enter_context(connect(cluster or Cluster()))
            yield ApiLabeller(targets, client, asked=True, state=state, former=files)
            return
        labeller = files if by == "nfd" else ManualLabels(files)
        if cluster is None:
            yield labeller
        elif removes:
            yield Followers([labeller, _Pods(targets, stack.enter_context(connect(cluster)))])
        else:
            raise UsageError(
                f"A cluster was named, but kubernetes.labels: {by} does not use one.",
                "Leave out --kubeconfig and --context, or set kubernetes.labels: api in"
                " fleetbuild.yml and plan again.",
            )


class _Pods(Follower):
    """Knows the releases that pods mount, and labels nothing."""

    def __init__(self, targets: LabelTargets, client: Client) -> None:
        from fleetbuild.extensions.kubernetes.labels.api_labeller import ApiLabeller  # noqa: PLC0415 few use it

        self._api = ApiLabeller(targets, client)

    def in_use(self, names: Collection[str], root: str) -> InUse:
        """See Follower."""
        return self._api.in_use(names, root)


@contextmanager
def _hint_if_gone(state: StateDir) -> Iterator[None]:
    """Say what to do if the cluster that the state names does not exist any more."""
    try:
        yield
    except (ClusterError, KubeconfigError) as error:
        error.fix += f" If that cluster is gone for good, first: rm {state.api_labels_file}"
        raise


def workloads(
    plan: Plan, groups: Sequence[PlannedGroup], serving: Serving, store: Path, config: Config
) -> dict[str, str]:
    """Return the workloads of these groups, and the labels of all nodes."""
    some = plan.model_copy(update={"groups": tuple(groups)})
    delivery = Delivery(pods=config.section(Kubernetes).pods)
    wheels = release_files(some, Store(store))
    return render(some, serving=serving, delivery=delivery, wheels=wheels, whole=plan)
