"""`fleetbuild emit windows`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetbuild.cli import options
from fleetbuild.cli.commands.emit import Out, folder_of, tell
from fleetbuild.cli.commands.plan import OptionalInventoryArgument
from fleetbuild.text import count

if TYPE_CHECKING:
    from pathlib import Path

    from fleetbuild import Inventory
    from fleetbuild.cli.session import Session
    from fleetbuild.models import Capture, Unreachable
    from fleetbuild.plan.decide.packages import Package


def emit_windows(
    *,
    inventory: OptionalInventoryArgument = None,
    packages: options.Packages = None,
    captures: options.Captures = None,
    out: Out = None,
    nodes: options.NodeOptions,
    output: options.OutputOptions,
) -> None:
    """Write a PowerShell build script per group of Windows nodes.

    fleetbuild itself does not build there.
    """
    with output.session() as run:
        from fleetbuild import EmittedFiles
        from fleetbuild.cli import steps
        from fleetbuild.extensions.windows.build_script import windows_files
        from fleetbuild.extensions.windows.facts import windows_facts
        from fleetbuild.extensions.windows.planning import plan_windows, windows_packages
        from fleetbuild.extensions.windows.show import group_lines, windows_warnings

        if captures:
            steps.refuse_without_ssh("--facts", timeout=nodes.timeout, forks=nodes.forks)
        source = steps.chosen_inventory(run, inventory)
        fleet = steps.open_fleet(run, source, command="emit windows", nodes=nodes, probes=False)
        found = _captures(run, fleet.inventory, captures, nodes)
        facts = {name: windows_facts(capture) for name, capture in found.items()}
        wanted: tuple[Package, ...] = ()
        if any(each.state == "ok" for each in facts.values()):
            store = run.state_dir / "store"
            wanted = windows_packages(fleet.inventory, facts, fleet.config, packages or (), store)
        plan = plan_windows(fleet.inventory.nodes, facts, wanted, fleet.config)
        emitted = EmittedFiles(windows_files(plan.groups), windows_warnings(plan))
        if not output.json:
            for group in plan.groups:
                run.out.say(*group_lines(group))
        tell(run, emitted.written(folder_of(run, "windows", out)))
        run.exit_code = 3 if any(each.state == "unreachable" for each in facts.values()) else 0


def _captures(
    run: Session, inventory: Inventory, folder: Path | None, options: options.NodeOptions
) -> dict[str, Capture | Unreachable]:
    """Return the captures of the Windows nodes: from a folder, or from a probe that keeps them."""
    from fleetbuild.cli.show.progress import waiting
    from fleetbuild.extensions.windows.facts import SECTIONS
    from fleetbuild.extensions.windows.probe import probe_windows
    from fleetbuild.probe.captures import load_captures, save_captures
    from fleetbuild.state import StateDir

    nodes = [node for node in inventory.nodes if node.login.is_windows and not node.skip]
    names = [node.name for node in nodes]
    if folder:
        return load_captures(folder, names, SECTIONS)
    timeout, forks = options.timeout or 30, options.forks or 64
    with waiting(run.out, f"Probing {count(len(nodes), 'node')}", names) as on_event:
        found = probe_windows(nodes, timeout=timeout, forks=forks, on_event=on_event)
    save_captures(StateDir(run.state_dir.absolute()).create().facts, found, SECTIONS)
    return found
