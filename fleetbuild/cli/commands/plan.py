"""`fleetbuild plan`: probe nodes or read a cluster, group the nodes, save the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Save the plan here; default: .fleetbuild/plan.json."
    ),
]
Fleet = Annotated[
    str | None,
    typer.Argument(metavar="INVENTORY", help="An Ansible inventory: file, directory, script."),
]
Detailed = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 10 if there is something to do.")
]


FromCluster = Annotated[
    bool,
    typer.Option(
        "--from-cluster",
        help="Plan for the Nodes of a Kubernetes cluster instead of an INVENTORY, without SSH.",
    ),
]


def plan(
    inventory: Fleet = None,
    from_cluster: FromCluster = False,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    config: options.Config = None,
    package: options.Packages = None,
    target: options.Targets = None,
    limit: options.Limit = None,
    captures: options.Captures = None,
    out: Out = None,
    detailed_exitcode: Detailed = False,
    timeout: options.Timeout = None,
    forks: options.Forks = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
    ask_pass: options.AskPass = False,
    ask_become_pass: options.AskBecomePass = False,
    become_password_file: options.BecomePasswordFile = None,
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Probe the nodes, group them and save a plan."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.cli import steps
        from fleetbuild.report import plan as report

        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        if from_cluster:
            _refuse_with_cluster(
                INVENTORY=inventory,
                limit=limit,
                facts=captures,
                target=target,
                timeout=timeout,
                forks=forks,
            )
            named = fleetbuild.Cluster(kubeconfig, context)
            fleet = fleetbuild.Fleet.from_cluster(named, config=config, state_dir=state_dir)
            facts, seconds = steps.read_cluster(run, fleet)
        else:
            source = _given(inventory, kubeconfig, context)
            if captures:
                steps.refuse_without_ssh("--facts", timeout=timeout, forks=forks)
            given = steps.fleet_options(config=config, timeout=timeout, forks=forks)
            fleet = steps.open_fleet(
                run, source, command="plan", limit=limit, secrets=keys, **given
            )
            facts, seconds = steps.probe(run, fleet, captures=captures)
        made, resolving = steps.plan(
            run, fleet, facts, packages=package, targets=target, captures=captures
        )
        fleet.save_plan(made, out)
        saved = out or steps.plan_file(run)
        if json:
            run.out.text(saved.read_text(encoding="utf-8"))
        else:
            steps.show_plan(run, made, seconds, resolving)
            run.out.say(report.next_line(made, saved, state_dir, captures))
        run.exit_code = made.detailed_exit_code if detailed_exitcode else made.exit_code


def _given(inventory: str | None, kubeconfig: Path | None, context: str | None) -> str:
    if inventory is None:
        raise UsageError(
            "No nodes are named.", "Name an inventory: fleetbuild plan FILE, or add --from-cluster."
        )
    for option, value in (("--kubeconfig", kubeconfig), ("--context", context)):
        if value is not None:
            raise UsageError(f"{option} needs --from-cluster.", f"Leave out {option}.")
    return inventory


def _refuse_with_cluster(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            option = name if name.isupper() else f"--{name}"
            raise UsageError(f"{option} does not go with --from-cluster.", f"Leave out {option}.")
