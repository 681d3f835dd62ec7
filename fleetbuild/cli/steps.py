"""The steps that several commands share, each a call of the library with its progress shown."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypedDict, Unpack

import fleetbuild
from fleetbuild.ansible import Secrets
from fleetbuild.cli.session import Session
from fleetbuild.cluster import Cluster
from fleetbuild.config import find_config
from fleetbuild.errors import UsageError, worst
from fleetbuild.models import Config, Facts, Install, Inventory, NodeStatus, OnEvent, Plan, Result
from fleetbuild.models.config import Kubernetes
from fleetbuild.models.plan import FactsSource
from fleetbuild.models.result import Labelled
from fleetbuild.report import plan as plan_report
from fleetbuild.report import result as result_report
from fleetbuild.report.progress import listening, waiting
from fleetbuild.state.directory import StateDir
from fleetbuild.text import count


@dataclass(frozen=True)
class Probed:
    """What a probe found, and how long it took."""

    facts: dict[str, Facts]
    seconds: float
    source: FactsSource


def read(run: Session, source: str, *, limit: str | None, secrets: Secrets) -> Inventory:
    """The nodes of the inventory."""
    reading = fleetbuild.read_inventory
    # What comes after is loaded while Ansible reads.
    threading.Thread(target=import_module, args=("fleetbuild.api",)).start()
    with waiting(run.out, f"Reading {source}"):
        return reading(source, limit=limit, secrets=secrets)


def read_cluster(
    run: Session, config: Config, kubeconfig: Path | None, context: str | None
) -> tuple[Inventory, Probed]:
    """The nodes of a cluster, and what it tells of them."""
    began = time.monotonic()
    with waiting(run.out, "Reading the cluster"):
        fleet, facts = fleetbuild.read_cluster(Cluster(kubeconfig, context), config=config)
    for sentence in fleet.warnings:
        run.out.warn(f"warning: {sentence}")
    return fleet, Probed(facts, time.monotonic() - began, "cluster")


def settings(source: str, config: Path | None) -> Config:
    """fleetbuild.yml: the one named, else the one beside the inventory, else the defaults."""
    found = config or find_config(source)
    return fleetbuild.load_config(found) if found else Config()


def settings_of_last_plan(run: Session, source: str, config: Path | None) -> Config:
    """The same for what is installed already: as the last plan for this inventory had it."""
    last = StateDir(run.state_dir).plan_file
    if config is None and last.exists():
        made = fleetbuild.read_plan(last)
        if made.inventory == source:
            return Config(
                release=made.release,
                install=Install(path=made.install_path),
                kubernetes=Kubernetes(label_domain=made.label_domain, labels=made.labels),
            )
    return settings(source, config)


def cluster(labels: str, kubeconfig: Path | None, context: str | None) -> Cluster:
    """The cluster whose nodes are labelled, where that is how labels are set."""
    for option, given in (("--kubeconfig", kubeconfig), ("--context", context)):
        if given is not None and labels != "api":
            raise UsageError(
                f"{option} does not go with kubernetes.labels: {labels}, which asks no cluster",
                "leave it out, or set kubernetes.labels: api in fleetbuild.yml",
            )
    return Cluster(kubeconfig, context)


def cluster_options(kubeconfig: Path | None, context: str | None) -> str:
    """The options that name the same cluster in the next command."""
    given = (("--kubeconfig", kubeconfig), ("--context", context))
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given if value)


def label(
    run: Session, made: Plan, kubeconfig: Path | None, context: str | None, *, force: bool
) -> Labelled:
    """Label the plan's nodes in the cluster, and show how that ended."""
    with waiting(run.out, "Labelling"):
        labelled = fleetbuild.label(
            made, cluster=Cluster(kubeconfig, context), force=force, state_dir=run.state_dir
        )
    run.out.say(*result_report.labelled_lines(labelled))
    run.exit_code = labelled.exit_code
    return labelled


def unlabel(
    run: Session, made: Plan, kubeconfig: Path | None, context: str | None, *, force: bool
) -> Labelled:
    """Take the labels of the plan's release off the cluster's nodes, and show how that ended."""
    with waiting(run.out, "Taking labels off"):
        labelled = fleetbuild.unlabel(
            made, cluster=Cluster(kubeconfig, context), force=force, state_dir=run.state_dir
        )
    run.out.say(*result_report.unlabelled_lines(labelled))
    run.exit_code = labelled.exit_code
    return labelled


class ProbeOptions(TypedDict, total=False):
    """How nodes are asked, where the command line says so."""

    timeout: float
    forks: int


def probe_options(timeout: float | None, forks: int | None) -> ProbeOptions:
    """What was given of both; the library knows the rest."""
    given: ProbeOptions = {}
    if timeout is not None:
        given["timeout"] = timeout
    if forks is not None:
        given["forks"] = forks
    return given


def probe(
    run: Session,
    fleet: Inventory,
    config: Config,
    *,
    captures: Path | None = None,
    save: Path | None = None,
    **how: Unpack[ProbeOptions],
) -> Probed:
    """The facts of all nodes, by SSH or from captures."""
    if captures:
        _refuse_without_ssh("--facts", {"--save": save, **how})
    began = time.monotonic()
    with waiting(run.out, f"Probing {count(len(fleet.nodes), 'node')}") as on_event:
        facts = fleetbuild.probe(
            fleet, config=config, captures=captures, save=save, state_dir=run.state_dir,
            on_event=on_event, **how,
        )  # fmt: skip
    source: FactsSource = "captures" if captures else "probe"
    return Probed(facts, time.monotonic() - began, source)


def status(
    run: Session,
    fleet: Inventory,
    config: Config,
    *,
    offline: bool,
    cluster: Cluster | None,
    **how: Unpack[ProbeOptions],
) -> dict[str, NodeStatus]:
    """What runs where, by a new probe or by the last one."""
    if offline:
        _refuse_without_ssh("--offline", dict(how))
    with waiting(run.out, f"Probing {count(len(fleet.nodes), 'node')}") as on_event:
        return fleetbuild.status(
            fleet, config=config, offline=offline, state_dir=run.state_dir, cluster=cluster,
            on_event=on_event, **how,
        )  # fmt: skip


def _refuse_without_ssh(option: str, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            other = name if name.startswith("--") else f"--{name}"
            raise UsageError(
                f"{other} does not go with {option}, which asks no node", f"leave out {other}"
            )


def plan(
    run: Session,
    fleet: Inventory,
    probed: Probed,
    config: Config,
    *,
    packages: Sequence[str] | None,
    secrets: Secrets,
) -> Plan:
    """The plan for these facts."""
    with waiting(run.out, "Resolving and planning") as on_event:
        return fleetbuild.plan(
            fleet, probed.facts, tuple(packages or ()), config=config, state_dir=run.state_dir,
            facts_source=probed.source, secrets=secrets, on_event=on_event,
        )  # fmt: skip


def save_plan(run: Session, plan: Plan, file: Path | None) -> Path:
    """Write the plan where `apply` looks for it, or where the user wants it."""
    path = file or StateDir(run.state_dir).plan_file
    fleetbuild.save_plan(plan, path)
    return path


def show_plan(
    run: Session,
    plan: Plan,
    seconds: float,
    saved: Path,
    *,
    captures: Path | None = None,
    next_step: bool = True,
) -> None:
    """The plan document for machines, or the table and what to do next for people."""
    out = run.out
    if out.json and next_step:
        out.text(saved.read_text(encoding="utf-8"))
        return
    out.say(plan_report.heading(plan, seconds), "")
    out.show(plan_report.plan_body(plan, out.console.width))
    if plan.tradeoffs:
        from fleetbuild.report.tradeoffs import tradeoff_table

        out.say("")
        out.show(tradeoff_table(plan))
    out.say("", *plan_report.plan_ending(plan, verbose=out.verbose))
    if next_step:
        out.say(plan_report.next_line(plan, saved, run.state_dir, captures))


def plan_exit_code(plan: Plan, *, detailed: bool) -> int:
    """3 and 4 where nodes are left out; 10 where there is work and it was asked for."""
    blocked = plan.summary.nodes_blocked or any(wheel.action == "blocked" for wheel in plan.wheels)
    code = worst([3 if plan.summary.nodes_unreachable else 0, 4 if blocked else 0])
    if detailed and code == 0 and (plan.summary.wheels_to_build or plan.summary.nodes_to_change):
        return 10
    return code


def to_change(plan: Plan) -> dict[str, int]:
    """The groups in which something is to be done, with the number of nodes."""
    numbers = {
        group.name: len(group.installs.install) + len(group.installs.upgrade)
        for group in plan.groups
    }
    return {name: number for name, number in numbers.items() if number}


def is_plan(what: str) -> bool:
    """Is this file a plan, whole or damaged, and not an inventory written as JSON?"""
    path = Path(what)
    if not path.is_file():
        return path.suffix == ".json" and not path.exists()
    try:
        text = path.read_bytes()
    except OSError:
        return path.suffix == ".json"  # whoever reads it will say what is wrong
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return path.suffix == ".json" or text[:4096].find(b'"format_version"') >= 0
    return isinstance(document, dict) and not {"digest", "format_version"}.isdisjoint(document)


def read_plan(run: Session, what: str | None) -> Plan:
    """The saved plan; the one of the last `plan` where none is named."""
    return fleetbuild.read_plan(Path(what) if what else StateDir(run.state_dir).plan_file)


def errand(
    run: Session,
    call: Callable[..., Result],
    source: str,
    *,
    limit: str | None,
    config: Path | None,
    secrets: Secrets,
    kubeconfig: Path | None,
    context: str | None,
    **reach: Unpack[ProbeOptions],
) -> None:
    """A call of the library that goes to every node of an inventory, and how it ended."""
    fleet = read(run, source, limit=limit, secrets=secrets)
    settings = settings_of_last_plan(run, source, config)
    named = cluster(settings.kubernetes.labels, kubeconfig, context)
    showing(
        run,
        lambda on_event: call(
            fleet, config=settings, state_dir=run.state_dir, secrets=secrets, cluster=named,
            on_event=on_event, **reach,
        ),
    )  # fmt: skip


def showing(
    run: Session, work: Callable[[OnEvent], Result], groups: Mapping[str, int] | None = None
) -> Result:
    """Do the work while its events are shown, then tell how it ended and what to do now."""
    with listening(run.out, groups) as on_event:
        result = work(on_event)
    run.out.say(*result_report.result_lines(result))
    run.exit_code = result.exit_code
    return result
