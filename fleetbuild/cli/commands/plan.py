"""`fleetbuild plan`: probe nodes or read a cluster, group the nodes, save the plan."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Save the plan here; default: .fleetbuild/plan.json."
    ),
]
OptionalInventoryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="INVENTORY",
        help="An Ansible inventory: file, directory, script; default: the one here, else this"
        " machine.",
    ),
]


FromCluster = Annotated[
    bool,
    typer.Option(
        "--from-cluster",
        help="Plan for the Nodes of a Kubernetes cluster instead of an INVENTORY, without SSH.",
    ),
]


class Format(StrEnum):
    """Formats of the report."""

    table = "table"
    markdown = "markdown"


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="A table for people, or Markdown for a pull request."),
]


def plan(
    *,
    inventory: OptionalInventoryArgument = None,
    from_cluster: FromCluster = False,
    cluster: options.ClusterOptions,
    packages: options.PackageOptions,
    captures: options.Captures = None,
    out: Out = None,
    detailed_exitcode: options.Detailed = False,
    format: FormatOption = Format.table,  # noqa: A002 (the option's name)
    nodes: options.NodeOptions,
    output: options.OutputOptions,
) -> None:
    """Probe the nodes, group them and save a plan."""
    with output.session() as run:
        from fleetbuild.cli import steps
        from fleetbuild.cli.show import plan as report

        output.refuse_format(format)
        listed = packages.listed()
        if from_cluster:
            steps.refuse_without_ssh(
                "--from-cluster",
                INVENTORY=inventory,
                facts=captures,
                target=packages.target,
                **_only_for_ssh(nodes),
            )
            fleet, facts, seconds = steps.read_cluster(run, cluster, nodes.config)
        else:
            _refuse_without_cluster(cluster)
            source = steps.chosen_inventory(run, inventory)
            if captures:
                steps.refuse_without_ssh("--facts", timeout=nodes.timeout, forks=nodes.forks)
            fleet = steps.open_fleet(run, source, command="plan", nodes=nodes, plans=True)
            facts, seconds = steps.probe(run, fleet, captures=captures)
        made, resolving = steps.plan(
            run,
            fleet,
            facts,
            packages=packages.package,
            requirements=listed,
            targets=packages.target,
            captures=captures,
        )
        fleet.save_plan(made, out)
        saved = out or steps.plan_file(run)
        if output.json:
            run.out.text(saved.read_text(encoding="utf-8"))
        elif format is Format.markdown:
            run.out.say(*report.markdown_lines(made))
        else:
            steps.show_plan(run, fleet, made, seconds, resolving)
            run.out.say(*report.next_lines(made, saved, output.state_dir))
        run.exit_code = made.detailed_exit_code if detailed_exitcode else made.exit_code


def _only_for_ssh(nodes: options.NodeOptions) -> dict[str, object]:
    """Return the options that have no effect on a cluster's Nodes, as they are spelled."""
    return {
        field.name.replace("_", "-"): getattr(nodes, field.name) or None
        for field in fields(nodes)
        if field.name != "config"
    }


def _refuse_without_cluster(cluster: options.ClusterOptions) -> None:
    for option, value in (("--kubeconfig", cluster.kubeconfig), ("--context", cluster.context)):
        if value is not None:
            raise UsageError(f"{option} needs --from-cluster.", f"Leave out {option}.")
