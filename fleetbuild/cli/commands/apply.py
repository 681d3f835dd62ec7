"""`fleetbuild apply`: do what a plan says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets

What = Annotated[
    str | None,
    typer.Argument(
        metavar="[PLAN|INVENTORY]", help="A saved plan, or an inventory to plan for first."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Answer yes: apply the plan made from an INVENTORY.")
]


def apply(
    what: What = None,
    config: options.Config = None,
    package: options.Packages = None,
    limit: options.Limit = None,
    yes: Yes = False,
    timeout: options.Timeout = None,
    forks: options.Forks = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
    state_dir: options.StateDir = options.STATE_DIR,
    ask_pass: options.AskPass = False,
    ask_become_pass: options.AskBecomePass = False,
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Build, distribute, install and verify, as the plan says."""
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.cli import steps
        from fleetbuild.report import result as report

        keys = secrets(ask_pass, ask_become_pass, vault_password_file, vault_id)
        given = steps.fleet_options(
            config=config, timeout=timeout, forks=forks, kubeconfig=kubeconfig, context=context
        )
        if what is None or steps.is_plan(what):
            _refuse_planning_options(config=config, package=package, limit=limit, yes=yes)
            made = fleetbuild.read_plan(what or steps.plan_file(run))
            made.require_ssh()
            fleet = steps.open_fleet(run, made.inventory, limit=made.limit, secrets=keys, **given)
        else:
            fleet = steps.open_fleet(run, what, limit=limit, secrets=keys, **given)
            facts, seconds = steps.probe(run, fleet)
            made, resolving = steps.plan(run, fleet, facts, packages=package)
            fleet.save_plan(made)
            steps.show_plan(run, made, seconds, resolving)
            if not _agreed(run, made.summary.nodes_to_change, yes=yes):
                run.out.say("Nothing was changed.")
                return
        result = steps.run_task(run, fleet, lambda: fleet.apply(made), made.changes)
        run.out.say(
            *report.places(made, result, state_dir),
            report.next_command(made, result, state_dir),
        )


def _refuse_planning_options(**given: object) -> None:
    names = {"config": "--config", "package": "--package", "limit": "--limit", "yes": "--yes"}
    for name, value in given.items():
        if value:
            raise UsageError(
                f"{names[name]} does not go with a saved plan: the plan says everything already",
                "name the inventory in place of the plan, or make a new plan with this option",
            )


def _agreed(run: Session, nodes_to_change: int, *, yes: bool) -> bool:
    if yes or nodes_to_change == 0:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask at whether this plan may be applied",
            "add --yes, or apply the saved plan: fleetbuild apply",
        )
    return run.out.ask("Apply this plan?")
