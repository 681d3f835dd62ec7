"""`fleetbuild apply`: do what a plan says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session, secrets
from fleetbuild.errors import UsageError

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
        from fleetbuild.apply.check import refuse_without_ssh
        from fleetbuild.cli import steps
        from fleetbuild.report import result as report

        keys = secrets(ask_pass, ask_become_pass, vault_password_file, vault_id)
        if what is None or steps.is_plan(what):
            _refuse_planning_options(config=config, package=package, limit=limit, yes=yes)
            made = steps.read_plan(run, what)
            refuse_without_ssh(made)
            fleet = steps.read(run, made.inventory, limit=made.limit, secrets=keys)
        else:
            fleet = steps.read(run, what, limit=limit, secrets=keys)
            settings = steps.settings(what, config)
            probed = steps.probe(run, fleet, settings, **steps.probe_options(timeout, forks))
            made = steps.plan(run, fleet, probed, settings, packages=package, secrets=keys)
            saved = steps.save_plan(run, made, None)
            steps.show_plan(run, made, probed.seconds, saved, next_step=False)
            if not _agreed(run, made.summary.nodes_to_change, yes=yes):
                run.out.say("Nothing was changed.")
                return
        cluster = steps.cluster(made.labels, kubeconfig, context)
        result = steps.showing(
            run,
            lambda on_event: fleetbuild.apply(
                made, fleet, state_dir=state_dir, secrets=keys, cluster=cluster,
                on_event=on_event, **steps.probe_options(timeout, forks),
            ),
            steps.to_change(made),
        )  # fmt: skip
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
