"""Steps that several commands share: each is a call of `Fleet` with its progress shown."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fleetbuild
from fleetbuild.cli.options import ClusterOptions, NodeOptions
from fleetbuild.cli.session import Session, at_terminal, read_secrets
from fleetbuild.cli.show.progress import listening, waiting
from fleetbuild.extension import extensions
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild import (
        Facts,
        Fleet,
        InstalledRelease,
        NodeStatus,
        OnEvent,
        Plan,
        RequirementList,
        Result,
    )


def fleet_options(
    nodes: NodeOptions | None = None, cluster: ClusterOptions | None = None
) -> dict[str, Any]:
    """Return the options that the user named. The library knows the defaults of the others."""
    given = {name: getattr(nodes, name, None) for name in ("config", "timeout", "forks")}
    if cluster and cluster != ClusterOptions():
        given["cluster"] = fleetbuild.Cluster(cluster.kubeconfig, cluster.context)
    return {name: value for name, value in given.items() if value is not None}


def open_fleet(
    run: Session,
    source: str | None,
    *,
    command: str,
    nodes: NodeOptions,
    cluster: ClusterOptions | None = None,
    probes: bool = True,
    plans: bool = False,
) -> Fleet:
    """Read the inventory, and return the fleet of its nodes. A fix names `command`.

    Without a source, the inventory, limit and configuration are the last plan's, as for an apply.
    """
    if source is None:
        source, nodes = _of_last_plan(run, nodes)
    run.out.hints.note(inventory=source, limit=nodes.limit, config=nodes.config)
    secrets = read_secrets(nodes)
    read_inventory = fleetbuild.read_inventory
    used = ["fleet", *(["apply.wiring"] if probes else [])]
    used += ["plan.plan_fleet"] if plans else []
    used += ["apply.stages"] if command == "apply" else []
    loading = threading.Thread(target=_load, args=(used,))  # while Ansible reads
    loading.start()
    with waiting(run.out, f"Reading {source}"):
        try:
            inventory = read_inventory(source, limit=nodes.limit, secrets=secrets)
        except fleetbuild.ConfigAsInventoryError as error:
            run.out.hints.note(inventory="INVENTORY", what=None)
            raise fleetbuild.ConfigAsInventoryError(error.source, command) from None
        finally:
            loading.join()  # two threads that import may wait for each other
    for sentence in inventory.warnings:
        run.out.warn(f"warning: {sentence}")
    options = fleet_options(nodes, cluster)
    return fleetbuild.Fleet(inventory, state_dir=run.state_dir, secrets=secrets, **options)


def _load(modules: Sequence[str]) -> None:
    """Import what a command uses later; what cannot be imported fails there."""
    with suppress(ImportError):
        for name in modules:
            import_module(f"fleetbuild.{name}")


def release_here(name: str, config: Path | None) -> InstalledRelease:
    """Return the current release on this machine, by fleetbuild.yml if it names an install path."""
    file = config or fleetbuild.find_config(fleetbuild.THIS_MACHINE)
    install = fleetbuild.load_config(file).install if file else None
    paths = [install.path] if install and "path" in install.model_fields_set else []
    installed = fleetbuild.installed_release(name, paths)
    installed.remove_old_caches()
    return installed


def _of_last_plan(run: Session, nodes: NodeOptions) -> tuple[str, NodeOptions]:
    """Return what the last plan was made for, and say so; options of this run come before."""
    if not plan_file(run).exists():
        return chosen_inventory(run, None), nodes
    plan = fleetbuild.read_plan(plan_file(run))
    plan.require_ssh()
    nodes = as_planned(nodes, plan)
    limited = f" --limit {shlex.quote(nodes.limit)}" if nodes.limit else ""
    run.out.warn(f"No inventory is named: taking the last plan's, {plan.inventory}{limited}.")
    return plan.inventory, nodes


def as_planned(nodes: NodeOptions, plan: Plan) -> NodeOptions:
    """Return the options, with the plan's limit, configuration and vaults if none are named."""
    limit = plan.limit if nodes.limit is None else nodes.limit
    config = nodes.config or (Path(plan.config) if plan.config else None)
    files, ids = nodes.vault_password_file, nodes.vault_id
    if not (files or ids):
        files = list(plan.options.get("vault_password_file", ()))
        ids = list(plan.options.get("vault_id", ()))
    return replace(nodes, limit=limit, config=config, vault_password_file=files, vault_id=ids)


def chosen_inventory(run: Session, named: str | None) -> str:
    """Return the inventory that was named, else the one beside, else this machine; say which."""
    if named is not None:
        return named
    source = fleetbuild.default_inventory()
    run.out.warn(  # standard output starts with the plan, if there is one
        "No inventory is named, and none is here: taking this machine (localhost,)."
        if source == fleetbuild.THIS_MACHINE
        else f"No inventory is named: taking {source}, which is here."
    )
    return source


def probe(
    run: Session, fleet: Fleet, *, captures: Path | None = None, save: Path | None = None
) -> tuple[dict[str, Facts], float]:
    """Return the facts of all nodes, and the seconds that it took to read them."""
    began = time.monotonic()
    with _probing(run, fleet) as on_event:
        facts = fleet.probe(captures=captures, save=save, on_event=on_event)
    return facts, time.monotonic() - began


def read_cluster(
    run: Session, cluster: ClusterOptions, config: Path | None
) -> tuple[Fleet, dict[str, Facts], float]:
    """Return the fleet of a cluster's Nodes, their facts, and the seconds that it took to ask."""
    began = time.monotonic()
    named = fleetbuild.Cluster(cluster.kubeconfig, cluster.context)
    with waiting(run.out, "Reading the cluster"):
        fleet = fleetbuild.Fleet.from_cluster(named, config=config, state_dir=run.state_dir)
    for sentence in fleet.inventory.warnings:
        run.out.warn(f"warning: {sentence}")
    return fleet, fleet.probe(), time.monotonic() - began


def status(run: Session, fleet: Fleet, *, offline: bool) -> dict[str, NodeStatus]:
    """Return what serves on each node, by a new probe or by the last one."""
    reading = waiting(run.out, "Reading the last probe") if offline else _probing(run, fleet)
    with reading as on_event:
        return fleet.status(offline=offline, on_event=on_event)


def _probing(run: Session, fleet: Fleet) -> AbstractContextManager[OnEvent]:
    names = [node.name for node in fleet.inventory.nodes]
    return waiting(run.out, f"Probing {count(len(names), 'node')}", names)


def refuse_without_ssh(option: str, **options: object) -> None:
    """Refuse an argument and options about SSH together with an option that asks no node."""
    for name, value in options.items():
        if value is not None:
            named = name if name.isupper() else f"--{name}"
            raise fleetbuild.UsageError(
                f"{named} does not go with {option}, which asks no node.", f"Leave out {named}."
            )


def plan(
    run: Session,
    fleet: Fleet,
    facts: Mapping[str, Facts],
    *,
    packages: Sequence[str] | None,
    requirements: RequirementList,
    targets: Sequence[str] | None = None,
    captures: Path | None = None,
) -> tuple[Plan, float]:
    """Return the plan for these facts, and the seconds that it took to make."""
    began = time.monotonic()
    with waiting(run.out, "Resolving and planning") as on_event:
        made = fleet.plan(
            tuple(packages or ()),
            targets=tuple(targets or ()),
            facts=facts,
            captures=captures,
            requirements=requirements,
            on_event=on_event,
        )
    return made, time.monotonic() - began


def show_plan(run: Session, fleet: Fleet, plan: Plan, probing: float, resolving: float) -> None:
    """Show the plan as a table, what needs attention, and the count."""
    from fleetbuild.cli.show import plan as plan_report

    out = run.out
    out.say(plan_report.heading(plan, probing, resolving), *plan_report.shared_lines(plan), "")
    out.show(plan_report.plan_body(plan, out.columns))
    for table in filter(None, (each.plan_table(plan) for each in extensions())):
        out.say("")
        out.show(table)
    seconds = fleet.step_seconds(plan)
    out.say("", *plan_report.plan_ending(plan, seconds, verbose=out.verbose))


_LARGEST = 256 << 20  # bytes of a plan or an inventory


def is_plan(what: str) -> bool:
    """Whether a file is to be read as a plan, even a damaged one; an inventory as JSON is not."""
    path = Path(what)
    if not path.is_file():
        return path.suffix == ".json" and not path.exists()
    try:
        text = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
    except OSError:
        text = b""  # reading it as a plan, or an inventory, names the error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return path.suffix == ".json" or text[:4096].find(b'"format_version"') >= 0
    if not isinstance(document, dict):
        return path.suffix == ".json"
    return not all(isinstance(group, dict | None) for group in document.values())


def plan_file(run: Session) -> Path:
    """Return the path of the last plan."""
    return run.state_dir / "plan.json"


def agreed(run: Session, question: str, command: str, *, yes: bool) -> bool:
    """Ask before nodes are changed, unless --yes has answered; without a terminal, refuse.

    `command` does the same without a question.
    """
    if yes:
        return True
    if run.out.json or not at_terminal():
        raise fleetbuild.UsageError(
            "Nothing was changed: this command asks first, and standard input is not a terminal.",
            f"Run: {command}",
        )
    if run.out.ask(question):
        return True
    run.out.say("Nothing was changed.")
    return False


def run_task(
    run: Session,
    work: Callable[..., Result],
    groups: Mapping[str, Sequence[str]] | None = None,
    failed: str = "failed to install",
    shown: Plan | None = None,
) -> Result:
    """Do the work while its events are shown, then say how it ended; `shown` is a plan above it."""
    from fleetbuild.cli.show.result import result_lines

    with listening(run.out, groups) as on_event:
        result = work(on_event=on_event)
    run.out.say(*result_lines(result, failed, shown))
    run.exit_code = result.exit_code
    return result
