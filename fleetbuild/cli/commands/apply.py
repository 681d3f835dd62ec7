"""`fleetbuild apply`: carry out a saved plan, or plan for an inventory, ask, and carry that out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import Session, at_terminal

if TYPE_CHECKING:
    from fleetbuild import Fleet

PlanOrInventoryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAN|INVENTORY",
        help="A saved plan, or an inventory; default: the last"
        " plan, else the inventory here, else this machine.",
    ),
]


RollbackOnFailure = Annotated[
    bool,
    typer.Option(
        "--rollback-on-failure",
        help="If the rollout of a group stops, switch its nodes back to what they served before.",
    ),
]

Wait = Annotated[
    bool,
    typer.Option("--wait", help="Wait for nodes that another controller is changing, then go on."),
]


def apply(
    *,
    what: PlanOrInventoryArgument = None,
    packages: options.PackageOptions,
    yes: options.Yes = False,
    rollback_on_failure: RollbackOnFailure = False,
    wait: Wait = False,
    nodes: options.NodeOptions,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Carry out a plan: build, install and verify.

    An INVENTORY is planned for first; then apply shows the plan and asks.
    """
    with output.session(events=True) as run:
        import fleetbuild
        from fleetbuild.cli import steps
        from fleetbuild.cli.show import result as report
        from fleetbuild.cli.show.plan import hook_lines

        planning = {"config": nodes.config, "limit": nodes.limit, **vars(packages)}
        if steps.is_plan(what) if what is not None else _means_last_plan(run, **planning):
            file = what or steps.plan_file(run)
            _refuse_planning_options(run, file, **planning)
            made = fleetbuild.read_plan(file)
            made.require_ssh()
            run.out.say(*hook_lines(made))
            run.out.hints.recall(made.options)
            nodes, shown = steps.as_planned(nodes, made), None
            fleet = steps.open_fleet(
                run, made.inventory, command="apply", nodes=nodes, cluster=cluster
            )
            # A named plan may have come with a checkout, whose files are all new.
            if what is None and (changed := fleet.changed_inputs(made)):
                run.out.warn(
                    f"warning: {', '.join(map(str, changed))} changed after this plan was made, and"
                    " the plan is applied as it is. To plan again: fleetbuild plan INVENTORY"
                )
        else:
            listed, package = packages.listed(), packages.package
            source = steps.chosen_inventory(run, what)
            fleet = steps.open_fleet(
                run, source, command="apply", nodes=nodes, cluster=cluster, plans=True
            )
            if not listed.requirements:
                package = package or _packages_of_last_plan(run, fleet, yes=yes)
            run.out.hints.note(package=package)
            facts, seconds = steps.probe(run, fleet)
            shown, resolving = steps.plan(
                run, fleet, facts, packages=package, requirements=listed, targets=packages.target
            )
            made = shown
            steps.show_plan(run, fleet, made, seconds, resolving)
            if made.summary.nodes_to_change and not steps.agreed(
                run, "Apply this plan?", "fleetbuild apply INVENTORY --yes", yes=yes
            ):
                return
            fleet.save_plan(made)  # an apply of a saved plan asks nothing
        work = partial(fleet.apply, made, rollback_on_failure=rollback_on_failure, wait=wait)
        result = steps.run_task(run, work, made.changes, shown=shown)
        run.out.say(*report.places(made, result), report.next_command(made, result))


def _means_last_plan(run: Session, **planning: Any) -> bool:
    """Whether an apply that names nothing carries out the last plan.

    With options that make a plan, it plans again for the inventory here or this machine, if the
    last plan was made for the same.
    """
    import fleetbuild

    file = run.state_dir / "plan.json"
    names_none = not any(value or value == "" for value in planning.values())
    if not file.exists():
        if names_none:
            run.out.warn(f"{run.state_dir} has no plan yet, so apply makes one first.")
        return False
    return names_none or fleetbuild.read_plan(file).inventory != fleetbuild.default_inventory()


def _refuse_planning_options(run: Session, file: Path | str, **options_: Any) -> None:
    import fleetbuild

    for name, value in options_.items():
        if value or value == "":
            run.out.hints.note(inventory=fleetbuild.read_plan(file).inventory)
            raise UsageError(
                f"--{name} does not go with a saved plan, which names its own."
                if name in ("config", "package")
                else f"--{name} does not go with a saved plan, which is applied as a whole.",
                "Plan again with it: fleetbuild apply INVENTORY",
            )


def _packages_of_last_plan(run: Session, fleet: Fleet, *, yes: bool) -> list[str] | None:
    """Offer the last plan's packages if neither the configuration nor the inventory names any."""
    last = None if fleet.packages else fleet.last_plan()
    if last is None or last.inventory != fleet.inventory.source:
        return None
    run.out.hints.note(package=list(last.packages))
    if not yes and not at_terminal():
        raise UsageError(
            "No package is named.",
            "To take the packages of the last plan: fleetbuild apply INVENTORY",
        )
    packages = ", ".join(last.packages)
    run.out.say(f"No package is named. The packages of the last plan: {packages}")
    if not yes and not run.out.ask("Take these packages?"):
        raise UsageError("No package is named.", "Name some, such as: fleetbuild apply INVENTORY")
    return list(last.packages)
