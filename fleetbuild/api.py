"""The library: what the command line does, as calls. Import these from `fleetbuild`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fleetbuild.ansible import Secrets
from fleetbuild.apply.check import refuse_without_ssh
from fleetbuild.apply.context import Run
from fleetbuild.apply.stages import carry_out
from fleetbuild.audit import WheelAudit, audit_wheel
from fleetbuild.cluster import Cluster
from fleetbuild.cluster.read_fleet import read_fleet
from fleetbuild.config import base_folder, load_config
from fleetbuild.errors import FleetbuildError, UsageError
from fleetbuild.inventory import read_inventory
from fleetbuild.kubernetes import Delivery, Serving
from fleetbuild.kubernetes.builds.builder_image import builder_image
from fleetbuild.labelling.labeller import label_targets, targets_of_plan
from fleetbuild.labelling.serving import serving_now
from fleetbuild.models import (
    Config,
    Event,
    Facts,
    Inventory,
    Node,
    NodeResult,
    NodeStatus,
    OnEvent,
    Plan,
    Result,
    WheelResult,
    ignore,
    now,
)
from fleetbuild.models.plan import FactsSource
from fleetbuild.models.result import Labelled, LabelResult
from fleetbuild.planner.facts import probe_nodes, stored_facts
from fleetbuild.planner.plan_files import last_plan, read_plan, save_plan
from fleetbuild.planner.plan_fleet import named_builders, plan_fleet
from fleetbuild.state.directory import StateDir
from fleetbuild.state.journal import Journal
from fleetbuild.state.run_lock import hold_run_lock
from fleetbuild.store import Store
from fleetbuild.tasks import garbage
from fleetbuild.tasks.cluster_builds import add_built_wheels
from fleetbuild.tasks.cluster_labels import compare_labels, label_cluster, unlabel_cluster
from fleetbuild.tasks.emit import Emission, What, read_workload
from fleetbuild.tasks.explain import Explanation, explain_name
from fleetbuild.tasks.export import export_indexes
from fleetbuild.tasks.rollback import rollback_task
from fleetbuild.tasks.status import compare_releases
from fleetbuild.tasks.verify import verify_task
from fleetbuild.wiring import (
    FleetAccess,
    apply_tools,
    checks_by_manifest,
    open_labeller,
    run_on_fleet,
)

__all__ = [
    "Cluster",
    "Config",
    "Delivery",
    "Event",
    "Explanation",
    "Facts",
    "FleetbuildError",
    "Inventory",
    "LabelResult",
    "Labelled",
    "Node",
    "NodeResult",
    "NodeStatus",
    "Plan",
    "Result",
    "Secrets",
    "WheelAudit",
    "WheelResult",
    "add_wheels",
    "apply",
    "audit_wheel",
    "collect_garbage",
    "explain",
    "export_store",
    "label",
    "load_config",
    "plan",
    "probe",
    "read_cluster",
    "read_inventory",
    "read_plan",
    "render_manifests",
    "rollback",
    "save_plan",
    "status",
    "unlabel",
    "verify",
]

STATE_DIR = Path(".fleetbuild")
TIMEOUT, FORKS = 30.0, 64


def _unheard(_: str) -> None:
    """The callback of those who do not listen."""


def probe(
    inventory: Inventory,
    *,
    config: Config | None = None,
    captures: Path | str | None = None,
    save: Path | str | None = None,
    timeout: float = TIMEOUT,
    forks: int = FORKS,
    state_dir: Path | str | None = None,
    on_event: OnEvent = ignore,
) -> dict[str, Facts]:
    """The facts of every node: from the node itself, or from a folder of captures.

    `save` names a folder for the captures; with `state_dir` they are kept there for `status`.
    """
    if captures is not None:
        return stored_facts(Path(captures), inventory.nodes)
    return probe_nodes(
        inventory.nodes,
        timeout=timeout,
        forks=forks,
        install_path=(config or Config()).install.path,
        on_event=on_event,
        state=_state(state_dir) if state_dir is not None else None,
        save=Path(save) if save is not None else None,
    )


def read_cluster(
    cluster: Cluster | None = None, *, config: Config | None = None
) -> tuple[Inventory, dict[str, Facts]]:
    """A cluster's Nodes as an inventory, and what it tells of each as facts, for `plan` with
    facts_source="cluster". Python and C library are those of the configuration's build.image."""
    config = config or Config()
    image = builder_image(config.build, config.python)
    with (cluster or Cluster()).connect() as client:
        return read_fleet(client, image)


def plan(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    packages: Sequence[str] = (),
    *,
    config: Config | None = None,
    state_dir: Path | str = STATE_DIR,
    facts_source: FactsSource = "probe",
    secrets: Secrets | None = None,
    on_event: OnEvent = ignore,
) -> Plan:
    """What an apply would do. `packages` go before those of the configuration."""
    config = config or Config()
    if facts_source == "cluster":  # they are called what the cluster calls them
        kubernetes = config.kubernetes.model_copy(update={"node_name": "{{ inventory_hostname }}"})
        config = config.model_copy(update={"kubernetes": kubernetes})
    return plan_fleet(
        inventory,
        facts,
        config,
        packages,
        state_dir=_state(state_dir).create().root,
        builders=named_builders(inventory, config, secrets),
        facts_source=facts_source,
        on_event=on_event,
    )


def apply(
    plan: Plan,
    inventory: Inventory,
    *,
    config: Config | None = None,
    state_dir: Path | str = STATE_DIR,
    secrets: Secrets | None = None,
    timeout: float = TIMEOUT,
    forks: int = FORKS,
    cluster: Cluster | None = None,
    on_event: OnEvent = ignore,
) -> Result:
    """Do what the plan says: build, distribute, install, verify, write manifests.

    The plan decides everything; of the configuration only the logins of indexes are used.

    A node or group that fails stands in the result and stops no other. A FleetbuildError means
    that nothing could be done: the lock is held, the plan is stale or blocked. `cluster` is the
    one whose nodes are labelled, where the plan says so.
    """
    refuse_without_ssh(plan)
    state = _state(state_dir)
    reach = FleetAccess(inventory, state, secrets or Secrets(), timeout, forks, plan.install_path)
    tools = apply_tools(reach, config)
    journal = Journal(state.journal / f"{plan.digest[:16]}.jsonl")
    with open_labeller(plan.labels, targets_of_plan(plan), reach, cluster or Cluster()) as labels:
        tools = replace(tools, labels=labels)
        return carry_out(Run(plan, inventory, state, tools, journal, on_event))


def verify(
    inventory: Inventory,
    *,
    config: Config | None = None,
    state_dir: Path | str = STATE_DIR,
    secrets: Secrets | None = None,
    timeout: float = TIMEOUT,
    forks: int = FORKS,
    cluster: Cluster | None = None,
    on_event: OnEvent = ignore,
) -> Result:
    """Try on every node what serves there, by the checks that it was installed with."""
    config, state = config or Config(), _state(state_dir)
    made = last_plan(state)
    checks = checks_by_manifest(
        made, Store(state.store), [base_folder(config, inventory) / "recipes"]
    )
    task = verify_task(config.install.path, config.release, checks)
    reach = FleetAccess(inventory, state, secrets or Secrets(), timeout, forks, config.install.path)
    return run_on_fleet(task, reach, config, made, cluster, on_event=on_event)


def rollback(
    inventory: Inventory,
    *,
    config: Config | None = None,
    state_dir: Path | str = STATE_DIR,
    secrets: Secrets | None = None,
    timeout: float = TIMEOUT,
    forks: int = FORKS,
    cluster: Cluster | None = None,
    on_event: OnEvent = ignore,
) -> Result:
    """Switch every node back to the release that served before."""
    config, state = config or Config(), _state(state_dir)
    task = rollback_task(config.install.path, config.release)
    reach = FleetAccess(inventory, state, secrets or Secrets(), timeout, forks, config.install.path)
    return run_on_fleet(task, reach, config, last_plan(state), cluster, on_event=on_event)


def status(
    inventory: Inventory,
    *,
    config: Config | None = None,
    offline: bool = False,
    state_dir: Path | str = STATE_DIR,
    timeout: float = TIMEOUT,
    forks: int = FORKS,
    cluster: Cluster | None = None,
    on_event: OnEvent = ignore,
) -> dict[str, NodeStatus]:
    """What runs on each node, and how that differs from what the last apply left.

    `offline` asks no node and takes what the last probe said, with its age. With a `cluster`, or
    where the configuration labels by the API, labels are compared with what is on the nodes.
    """
    config, state = config or Config(), _state(state_dir)
    names = [node.name for node in inventory.nodes]
    if offline:
        ages = {
            name: age.isoformat()
            for name in names
            if (age := state.probed(name)) and not state.is_changing(name)
        }
        known = [node for node in inventory.nodes if node.name in ages]
        facts = stored_facts(state.facts, known) if known else {}
    else:
        facts = probe(
            inventory, config=config, timeout=timeout, forks=forks, state_dir=state.root,
            on_event=on_event,
        )  # fmt: skip
        ages = dict.fromkeys(names, now())
    last = state.last_result()
    found = compare_releases(
        names, facts, release=config.release, last=last.result if last else None, probed=ages
    )
    if cluster is None and config.kubernetes.labels != "api":
        return found
    called = label_targets(inventory, config, last_plan(state))
    limited = inventory.limit is not None
    return compare_labels(found, facts, called, cluster or Cluster(), limited=limited)


def render_manifests(
    plan: Plan,
    result: Result | None = None,
    *,
    kind: What = "k8s",
    image: str | None = None,
    delivery: Delivery | None = None,
    workload: Path | str | None = None,
    state_dir: Path | str | None = None,
    on_warning: Callable[[str], None] = _unheard,
) -> dict[str, str]:
    """File names and texts for Kubernetes. Labels say what serves on each node: what the node
    said last, where `state_dir` knows it; else by a result of apply; else by the plan.

    `delivery` says how a release gets into a pod, `image` in which image it
    runs. `workload` is a manifest of yours, to be made into one for each group. `on_warning` is
    told what had to be left out.
    """
    emission = Emission(
        plan=plan,
        serving=_serving(plan, result, state_dir),
        delivery=delivery or Delivery(image=image),
        store=Store(_state(state_dir).store) if state_dir is not None else None,
        workload=read_workload(Path(workload)) if workload is not None else None,
    )
    written = emission.write(kind)
    for sentence in written.warnings:
        on_warning(sentence)
    return dict(written.files)


def label(
    plan: Plan,
    result: Result | None = None,
    *,
    cluster: Cluster | None = None,
    force: bool = False,
    state_dir: Path | str | None = None,
) -> Labelled:
    """Label the plan's nodes in a cluster by server-side apply, as `render_manifests` would.

    A node of which nobody knows what it serves keeps the release labels that it has.
    `force` takes over labels of ours that others have set.
    """
    serving = _serving(plan, result, state_dir)
    state = _state(state_dir) if state_dir is not None else None
    return label_cluster(plan, serving, cluster or Cluster(), force=force, state=state)


def unlabel(
    plan: Plan,
    *,
    cluster: Cluster | None = None,
    force: bool = False,
    state_dir: Path | str | None = None,
) -> Labelled:
    """Take the labels of the plan's release off the Nodes of a cluster, before something else
    labels. `force` takes off those that others have set."""
    state = _state(state_dir) if state_dir is not None else None
    return unlabel_cluster(plan, cluster or Cluster(), force=force, state=state)


def explain(
    plan: Plan,
    name: str,
    *,
    captures: Path | str | None = None,
    state_dir: Path | str = STATE_DIR,
) -> Explanation:
    """Why a node or group is what it is, by captures or by what the last probe brought."""
    folder = Path(captures) if captures is not None else None
    return explain_name(plan, name, _state(state_dir), folder)


def collect_garbage(state_dir: Path | str = STATE_DIR) -> tuple[Path, ...]:
    """Remove from the store what neither the last plan nor a release on a node needs, and what
    runs left behind: journals, output and delivered wheels after 30 days."""
    state = _state(state_dir)
    saved = read_plan(state.plan_file)
    with hold_run_lock(state.create().lock_file):
        return garbage.collect_garbage(saved, state)


def add_wheels(folder: Path | str, *, state_dir: Path | str = STATE_DIR) -> tuple[WheelResult, ...]:
    """Take into the store the last plan's wheels that Jobs built in a cluster; each is held to its
    target first, as one that comes from a node is."""
    state = _state(state_dir)
    saved = read_plan(state.plan_file)
    with hold_run_lock(state.create().lock_file):
        return add_built_wheels(saved, Path(folder), Store(state.store))


def export_store(folder: Path | str, *, state_dir: Path | str = STATE_DIR) -> tuple[Path, ...]:
    """Write an index for each group of the last plan, for pip and uv; say where each is."""
    state = _state(state_dir)
    saved = read_plan(state.plan_file)
    try:
        return export_indexes(saved, Store(state.store), Path(folder))
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be written: {error.strerror}.",
            "Name another folder.",
        ) from None


def _serving(plan: Plan, result: Result | None, state_dir: Path | str | None) -> Serving:
    return serving_now(plan, _state(state_dir) if state_dir is not None else None, result)


def _state(state_dir: Path | str) -> StateDir:
    return StateDir(Path(state_dir).absolute())
