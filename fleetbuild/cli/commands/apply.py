"""`fleetbuild apply`: carry out a saved plan, or plan for an inventory, ask, and carry that out."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetbuild import FleetbuildError, UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import Session, at_terminal, secrets

if TYPE_CHECKING:
    from fleetbuild import Fleet

What = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAN|INVENTORY", help="A saved plan (default: the last one), or an inventory."
    ),
]


RollbackOnFailure = Annotated[
    bool,
    typer.Option(
        "--rollback-on-failure",
        help="If the rollout of a group stops, switch its nodes back to what they served before.",
    ),
]


def apply(
    what: What = None,
    config: options.Config = None,
    package: options.Packages = None,
    target: options.Targets = None,
    limit: options.Limit = None,
    yes: options.Yes = False,
    rollback_on_failure: RollbackOnFailure = False,
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
    become_password_file: options.BecomePasswordFile = None,
    vault_password_file: options.VaultFiles = None,
    vault_id: options.VaultIds = None,
) -> None:
    """Carry out a plan: build, install and verify.

    An INVENTORY is planned for first; then apply shows the plan and asks.
    """
    with Session(state_dir=state_dir, json=json, verbose=verbose, no_color=no_color) as run:
        import fleetbuild
        from fleetbuild.cli import steps
        from fleetbuild.report import result as report

        keys = secrets(
            ask_pass, ask_become_pass, vault_password_file, vault_id, become_password_file
        )
        given = steps.fleet_options(
            config=config, timeout=timeout, forks=forks, kubeconfig=kubeconfig, context=context
        )
        if what is None or steps.is_plan(what):
            file = what or steps.plan_file(run)
            _refuse_planning_options(
                file, config=config, package=package, target=target, limit=limit, yes=yes
            )
            made = fleetbuild.read_plan(file)
            made.require_ssh()
            fleet = steps.open_fleet(
                run, made.inventory, command="apply", limit=made.limit, secrets=keys, **given
            )
        else:
            fleet = steps.open_fleet(run, what, command="apply", limit=limit, secrets=keys, **given)
            package = package or _packages_of_last_plan(run, fleet, yes=yes)
            facts, seconds = steps.probe(run, fleet)
            made, resolving = steps.plan(run, fleet, facts, packages=package, targets=target)
            fleet.save_plan(made)
            steps.show_plan(run, made, seconds, resolving)
            if not _agreed(run, made.summary.nodes_to_change, yes=yes):
                run.out.say("Nothing was changed.")
                return
        work = partial(fleet.apply, made, rollback_on_failure=rollback_on_failure)
        result = steps.run_task(run, fleet, work, made.changes)
        run.out.say(
            *report.places(made, result, state_dir),
            report.next_command(made, result, state_dir),
        )


def _refuse_planning_options(file: Path | str, **given: Any) -> None:
    for name, value in given.items():
        if value or value == "":
            values = value if isinstance(value, list) else [value]
            named = (shlex.quote(str(each)) if each else name.upper() for each in values)
            options = " ".join(f"--{name} {each}" for each in named)
            raise UsageError(
                f"--{name} does not go with a saved plan, which already contains it."
                if name in ("config", "package")
                else f"--{name} does not go with a saved plan, which is applied as a whole.",
                "Leave it out: a saved plan is applied without asking."
                if name == "yes"
                else f"Plan again with it: fleetbuild apply {_inventory_of(file)} {options}",
            )


def _inventory_of(file: Path | str) -> str:
    import fleetbuild

    try:
        return fleetbuild.read_plan(file).inventory
    except FleetbuildError:
        return "INVENTORY"


def _packages_of_last_plan(run: Session, fleet: Fleet, *, yes: bool) -> list[str] | None:
    """Offer the last plan's packages if neither the configuration nor the inventory names any."""
    last = None if fleet.packages else fleet.last_plan()
    if last is None or last.inventory != fleet.inventory.source:
        return None
    named = " ".join(f"--package {shlex.quote(package)}" for package in last.packages)
    if not yes and not at_terminal():
        raise UsageError(
            "No package is named.",
            f"To take the packages of the last plan: fleetbuild apply {last.inventory} {named}",
        )
    packages = ", ".join(last.packages)
    run.out.say(f"No package is named. The packages of the last plan: {packages}")
    if not yes and not run.out.ask("Take these packages?"):
        raise UsageError("No package is named.", f"Name packages, such as: {named}")
    return list(last.packages)


def _agreed(run: Session, nodes_to_change: int, *, yes: bool) -> bool:
    if yes or nodes_to_change == 0:
        return True
    if not at_terminal():
        raise UsageError(
            "fleetbuild apply INVENTORY asks before it changes nodes, but standard input is not a"
            " terminal.",
            "Add --yes, or apply the saved plan: fleetbuild apply",
        )
    return run.out.ask("Apply this plan?")
