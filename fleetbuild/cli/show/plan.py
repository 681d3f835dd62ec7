"""The report of `fleetbuild plan`: wheels to build, their builders and nodes, blocked nodes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleetbuild.cli.show.markdown import escaped, table_lines
from fleetbuild.cli.show.output import fits
from fleetbuild.cli.show.targets import (
    members,
    narrowed_targets,
    next_for_targets,
    supply_first,
    targets_line,
    to_supply,
    why_for_target,
)
from fleetbuild.cli.show.text import advice, duration, troubles
from fleetbuild.models import Plan, PlannedGroup, PlannedNode, PlannedTarget, PlannedWheel
from fleetbuild.models.plan import toolkit_origin
from fleetbuild.state import StateDir
from fleetbuild.text import clean, count, fold
from fleetbuild.this_machine import INSTALL_PATH, is_this_machine, users_folder

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SYMBOLS = {"build": "+", "blocked": "!"}
EVIDENCE = {
    "released": "released",
    "reported": "reported to work",
    "buildable": "buildable, not reported",
}
_SOURCES = {"captures": "from captures", "cluster": "from the cluster's labels"}
STYLES = {"+": "green", "~": "yellow", "=": "dim", "!": "red"}
_LONG = 60  # minutes of a build from which a plan says what it takes, even if only estimated
_MOST_CHANGES = 8  # versions that are shown for a group
_UNKNOWN: Mapping[str, float] = MappingProxyType({})


def heading(plan: Plan, seconds: float | None = None, resolving: float | None = None) -> str:
    """Return the first line: 14 nodes probed in 1.6 s, resolved and planned in 12 s · torch 2."""
    how = _SOURCES.get(plan.facts_source, "probed")
    took = "" if seconds is None or how != "probed" else f" in {duration(seconds)}"
    packages = ", ".join(clean(package).replace("==", " ") for package in plan.packages)
    planned = f", resolved and planned in {duration(resolving)}" if resolving is not None else ""
    skipped = sum(node.state == "skipped" for node in plan.nodes.values())
    left_out = f", {skipped} skipped" if skipped else ""
    return f"{count(len(plan.nodes), 'node')} {how}{took}{left_out}{planned} · {packages}"


def shared_lines(plan: Plan) -> list[str]:
    """Return the published packages that all groups get in the same version, in one line."""
    shared = dict([*_shared(plan)])
    others = [clean(package) for package in plan.package_names if package not in shared]
    names = [f"{clean(package)} {clean(version)}" for package, version in shared.items()]
    if len(others) < len(names):  # the heading has their versions
        names = [f"all but {', '.join(others)}" if others else "all packages"]
    where = "In all groups, as" if len(plan.unblocked_groups) > 1 else "As"
    return [f"{where} published: {', '.join(names)}"] if shared else []


def _shared(plan: Plan) -> dict[tuple[str, str], None]:
    """Return package and version of what the groups share, in order."""
    versions = [
        {(wheel.package, wheel.wheel_version): None for wheel in group.wheels if wheel.published}
        for group in plan.unblocked_groups
    ]
    first, *others = versions or [{}]
    return {each: None for each in first if all(each in other for other in others)}


def plan_body(plan: Plan, width: int) -> RenderableType:
    """Return the groups as a table if it fits, else as a few lines each."""
    from rich.text import Text

    if not plan.groups and not plan.summary.nodes_blocked and not plan.targets:
        return Text("No node can be planned for.")
    if fits(table := _table(plan), width):
        return table
    cards = [Text(line, style=STYLES[symbol]) for symbol, line in _cards(plan)]
    return Text("\n").join(cards)


def markdown_lines(plan: Plan) -> list[str]:
    """Return the plan as Markdown: the count, and the rest folded."""
    counts = summary_line(plan)
    lines = (*shared_lines(plan), *(line for line in plan_ending(plan) if line != counts))
    folded = [*table_lines(_table(plan)), "", *(f"- {escaped(line)}" for line in lines)]
    title = f"<summary>{escaped(heading(plan))}</summary>"
    return [f"**{escaped(counts)}**", "", "<details>", title, "", *folded, "", "</details>"]


def plan_ending(
    plan: Plan, step_seconds: Mapping[str, float] = _UNKNOWN, *, verbose: bool = False
) -> list[str]:
    """Return what needs attention, then the plan in one line.

    `step_seconds` is how long a batch of nodes took in the last apply of these packages, by group.
    """
    lines = [f"warning: {clean(warning)}" for warning in plan.warnings]
    if verbose:
        lines += [
            f"warning: {clean(name)}: {clean(warning)}"
            for name, node in plan.nodes.items()
            for warning in node.warnings
        ]
    lines += _not_planned_for(plan)
    lines += narrowed_targets(plan)
    lines += to_supply(plan)
    lines += _in_image(plan)
    lines += _in_containers(plan)
    if plan.summary.nodes_to_change:
        lines += rollout_lines(plan) if verbose else ()
        lines += (*_time(plan, step_seconds), *hook_lines(plan))
    lines += _in_users_folder(plan)
    lines.append(summary_line(plan))
    if plan.lock == "missing":
        why = clean(plan.lock_problem or "no index could be reached")
        lines.append(f"This plan cannot be applied: its dependencies are not locked. {why}")
    return lines


def _in_users_folder(plan: Plan) -> Iterator[str]:
    """Yield where the release of this machine goes, if the user may not write the default path."""
    if is_this_machine(plan.inventory) and plan.install_path == str(users_folder()):
        yield (
            f"The release goes to {plan.install_path}: you may not write to {INSTALL_PATH}."
            " Use it with: fleetbuild run -- COMMAND"
        )


def _in_containers(plan: Plan) -> Iterator[str]:
    """Yield the image that builds run in on nodes, and its id."""
    building = [wheel for wheel in plan.wheels if wheel.action == "build"]
    images = {wheel.built_on: wheel.build_images.get(wheel.built_on or "") for wheel in building}
    for image in sorted({image for image in images.values() if image}):
        nodes = fold(sorted(node for node, each in images.items() if node and each == image))
        yield f"Builds on {nodes} run in a container of {plan.build_container}, image {image[:12]}."


def rollout_lines(plan: Plan) -> list[str]:
    """Return the rollout: its batches, and in numbers when each group stops."""
    rollout = plan.rollout
    if all(len(group.nodes) < 2 for group in plan.groups):
        return []
    first = f"{count(rollout.canary, 'canary')} in each group, then " if rollout.canary else ""
    steps = ", then ".join(_share(step) for step in rollout.steps)
    canary = "after a failed canary, " if rollout.canary else ""
    return [
        (
            f"Rollout: {first}{steps} at a time. A group stops {canary}after more than"
            f" {_share(rollout.max_fail)} failed, or after more than"
            f" {_share(rollout.max_unreachable)} stopped answering."
        ),
        *_stops(plan),
    ]


def _time(plan: Plan, step_seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield how long the rollout takes, if an apply has told. Groups install side by side."""
    if not step_seconds:
        return
    usual = mean(step_seconds.values())
    steps = {group.name: _steps(plan, group) for group in plan.groups}
    seconds = {name: number * step_seconds.get(name, usual) for name, number in steps.items()}
    last = max(seconds, key=lambda name: seconds[name])
    each = duration(step_seconds.get(last, usual))
    slowest = f": {count(steps[last], 'step')} of {each} each in {last}" if steps[last] > 1 else ""
    yield f"The rollout takes about {duration(seconds[last])}{slowest}, as in the last apply."


def hook_lines(plan: Plan) -> Iterator[str]:
    """Yield the commands that the plan runs on this machine around each switch."""
    rollout = plan.rollout
    for name, hook in (("before", rollout.before), ("after", rollout.after)):
        if hook:
            yield f"{name.capitalize()} each switch: {clean(str(hook))} (at most {hook.timeout} s)"


def _stops(plan: Plan) -> Iterator[str]:
    """Yield what percentages come to, for groups of the same size."""
    rollout = plan.rollout
    shares = (*rollout.steps, rollout.max_fail, rollout.max_unreachable)
    if not any(isinstance(share, str) for share in shares):
        return
    alike: dict[tuple[int, int], list[str]] = {}
    for group in plan.groups:
        if group.name in plan.changes:
            alike.setdefault((len(group.nodes), _steps(plan, group)), []).append(group.name)
    for (size, steps), groups in alike.items():
        batches = [str(each) for each in islice(rollout.batches(size), len(rollout.steps))]
        limits = (
            (rollout.failures(size) + 1, "failed node"),
            (rollout.losses(size) + 1, "unreachable node"),
        )
        known = [(most, what) for most, what in limits if most <= size]
        stops = " or ".join(count(most, what) for most, what in known)
        verb = "stops" if len(known) == 1 and known[0][0] == 1 else "stop"
        pace = "one by one" if set(batches) == {"1"} else f"{', then '.join(batches)} at a time"
        pace += f", in {count(steps, 'step')}" if size > 1 else ""
        ends = f"; {stops} {verb} the rest of the group, and no other group" if size > 1 else ""
        yield f"  {fold(groups)} ({count(size, 'node')}): {pace}{ends if stops else ''}."


def _steps(plan: Plan, group: PlannedGroup) -> int:
    """Return how many installs follow one another in a group, its canaries first."""
    changing = len(plan.changes.get(group.name, ()))
    canaries = min(plan.rollout.canary, changing)
    left, steps = changing - canaries, int(canaries > 0)
    for batch in plan.rollout.batches(len(group.nodes)):
        if left <= 0:
            return steps
        left, steps = left - batch, steps + 1
    return steps


def _share(share: int | str) -> str:
    return f"{share} of its nodes" if isinstance(share, str) else count(share, "node")


def summary_line(plan: Plan) -> str:
    """Return the count: Plan: 2 wheels to build, 1 reused. 7 nodes to change, 2 up to date."""
    summary = plan.summary
    if plan.targets:
        return targets_line(plan)
    wheels = [f"{count(summary.wheels_to_build, 'wheel')} to build"]
    if summary.wheels_reused:
        wheels.append(f"{summary.wheels_reused} reused")
    number, every = summary.nodes_to_change, len(plan.nodes)
    of = count(number, "node") if number == every else f"{number} of {count(every, 'node')}"
    nodes = [f"{of} to change"]
    for number, word in (
        (summary.nodes_up_to_date, "up to date"),
        (summary.nodes_blocked, "blocked"),
        (summary.nodes_unreachable, "unreachable"),
        (sum(node.state == "skipped" for node in plan.nodes.values()), "skipped"),
    ):
        if number:
            nodes.append(f"{number} {word}")
    return f"Plan: {', '.join(wheels)}. {', '.join(nodes)}."


def next_lines(plan: Plan, saved: Path, state_dir: Path) -> list[str]:
    """Return where the plan is and the command to run next; then what explains a blocked node."""
    elsewhere = "" if saved == StateDir(state_dir).plan_file else f" {shlex.quote(str(saved))}"
    apply, words = f"fleetbuild apply{elsewhere}", [f"Saved {saved}."]
    if plan.lock == "missing":
        words.append("Next: make the index or source reachable, then plan again.")
    elif plan.targets:
        words.append(next_for_targets(plan, apply))
    elif plan.summary.nodes_to_change:
        step = "fleetbuild emit builds" if plan.facts_source == "cluster" else apply
        words.append(f"Next: {supply_first(plan)}{step}")
    elif plan.summary.nodes_up_to_date:
        words.append("Nothing to do.")
    elif plan.summary.nodes_unreachable:
        words.append("Nothing to do: no node can be planned for.")
    elif plan.summary.nodes_blocked:
        words.append("Nothing to do: every node is blocked.")
    else:
        words.append("Nothing to do.")
    blocked: dict[str, PlannedNode | PlannedTarget] = {**plan.nodes, **plan.targets}
    odd = next((name for name, each in blocked.items() if each.state == "blocked"), None)
    lines = [" ".join(words)]
    if odd and not elsewhere:  # explain reads the plan in the state directory
        lines.append(f"More: fleetbuild explain {clean(shlex.quote(odd))}")
    return lines


def _table(plan: Plan) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("group", no_wrap=True, overflow="fold")
    table.add_column("targets" if plan.targets else "nodes", justify="right", no_wrap=True)
    table.add_column("", overflow="fold", max_width=28)
    table.add_column("builds on", overflow="fold")
    table.add_column("why there", overflow="fold", max_width=48)
    table.add_column("wheels", no_wrap=True, overflow="fold")
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("about", justify="right", no_wrap=True)
    table.add_column("" if plan.targets else "nodes get", overflow="fold")
    for group in plan.groups:
        symbol, own = _symbol(group), _own_wheels(plan, group)
        lead = _lead(own)
        table.add_row(
            symbol,
            clean(group.name),
            str(len(shared := members(plan, group))),
            fold(shared),
            _builder(group),
            "\n".join((_why(plan, group, lead) if lead else "", *_fixes(plan, group))),
            "\n".join(line for wheel in own for line in (_file(wheel), *_rests_on(wheel))),
            str(lead.jobs) if lead and symbol == "+" else "",
            _about(group),
            "" if plan.targets else "\n".join((_changes(group), *_version_changes(group))),
            style=STYLES[symbol],
        )
    for names, node in _blocked(plan):
        why = "\n".join(filter(None, (clean(node.reason or ""), advice(node.fix))))
        table.add_row("!", "-", str(len(names)), fold(names), "-", why, style=STYLES["!"])
    return table


def _cards(plan: Plan) -> Iterator[tuple[str, str]]:
    for group in plan.groups:
        symbol = _symbol(group)
        yield symbol, f" {symbol} {clean(group.name)}"
        what, shared = "target" if plan.targets else "node", members(plan, group)
        yield symbol, f"     {count(len(shared), what)}: {fold(shared)}"
        for wheel in () if group.is_blocked else _own_wheels(plan, group):
            where = f" on {_place(wheel, group)}" if wheel.action == "build" else ""
            yield symbol, f"     {wheel.action} {_file(wheel)}{where}: {_why(plan, group, wheel)}"
            yield from ((symbol, f"     {line}") for line in _rests_on(wheel))
        if group.is_blocked:
            reasons = dict.fromkeys(wheel.reason for wheel in group.wheels)
            yield from ((symbol, f"     {clean(reason)}") for reason in reasons)
        yield from ((symbol, f"     {fix}") for fix in _fixes(plan, group))
        if group.nodes and not group.is_blocked:
            yield symbol, f"     {_changes(group)}"
            yield from ((symbol, f"       {line}") for line in _version_changes(group))
    for names, node in _blocked(plan):
        yield "!", " ! blocked"
        what = "target" if plan.targets else "node"
        yield "!", f"     {count(len(names), what)}: {fold(names)}"
        for said in filter(None, (clean(node.reason or ""), advice(node.fix))):
            yield "!", f"     {said}"


def _symbol(group: PlannedGroup) -> str:
    actions = [wheel.action for wheel in group.wheels]
    first = next((action for action in ("blocked", "build") if action in actions), None)
    return SYMBOLS[first] if first else "~" if group.installs.upgrade else "="


def _own_wheels(plan: Plan, group: PlannedGroup) -> list[PlannedWheel]:
    """Return the wheels that not all groups get."""
    shared = _shared(plan)
    return [each for each in group.wheels if (each.package, each.wheel_version) not in shared]


def _lead(wheels: Sequence[PlannedWheel]) -> PlannedWheel | None:
    """Return the wheel that decides how the group is shown."""
    order = ("blocked", "build", "reuse", "published")
    return min(wheels, key=lambda wheel: order.index(wheel.action), default=None)


def _about(group: PlannedGroup) -> str:
    """Return how long the group's builds may take, one after another, if that was measured."""
    built = [wheel for wheel in group.wheels if wheel.action == "build"]
    minutes = sum(wheel.minutes or 0 for wheel in built)
    return _roughly(minutes) if minutes and all(wheel.measured for wheel in built) else ""


def _roughly(minutes: float) -> str:
    """Return an estimate, rounded: 4 min, 50 min, 1 h 50, 8 h."""
    whole = max(1, round(minutes))
    hours = f"{whole // 60} h {whole % 60 // 10 * 10:02d}".removesuffix(" 00")
    return hours if whole >= 60 else f"{whole} min"


def _builder(group: PlannedGroup) -> str:
    places = [_place(wheel, group) for wheel in group.wheels if wheel.action == "build"]
    return ", ".join(dict.fromkeys(places)) or "-"


def _place(wheel: PlannedWheel, group: PlannedGroup) -> str:
    return clean(wheel.built_on or group.representative)


def _why(plan: Plan, group: PlannedGroup, wheel: PlannedWheel) -> str:
    """Return why this node builds, or why the wheel is not built."""
    if wheel.action != "build":
        return clean(wheel.reason)
    if plan.targets:
        return why_for_target(plan, group)
    if wheel.built_on not in (None, *group.nodes):
        of = plan.groups_by_node.get(wheel.built_on or "")
        alike = [each.artifact_key for each in of.wheels] if of else []
        if of and wheel.artifact_key in alike:
            return f"the same wheel as for {of.name}"
        return "named in build.builders"
    if len(group.nodes) == 1:
        return "the only node"
    floor = f" {group.target.libc.floor}" if wheel.why_there == "oldest libc" else ""
    return f"{wheel.why_there}{floor}"


def _fixes(plan: Plan, group: PlannedGroup) -> list[str]:
    """Return the fixes for a group that is blocked as a whole."""
    fixes = [node.fix for name in group.nodes if (node := plan.nodes.get(name))]
    fixes += [target.fix for target in plan.targets.values() if target.group == group.name]
    return list(dict.fromkeys(advice(fix) for fix in fixes if fix))


def _file(wheel: PlannedWheel) -> str:
    return f"{clean(wheel.package)}-{clean(wheel.wheel_version)}"


def _rests_on(wheel: PlannedWheel) -> Iterator[str]:
    """Yield what a long build takes, and the evidence that this CUDA builds the wheel."""
    if wheel.action == "build" and (wheel.minutes or 0) >= _LONG:
        said = "" if wheel.measured else " (the recipe's estimate)"
        yield (
            f"  about {_roughly(wheel.minutes or 0)} with {count(wheel.jobs, 'job')}{said},"
            f" {wheel.requires.disk_gb:g} GB on the builder"
        )
    if wheel.evidence and wheel.action != "blocked":
        said = EVIDENCE.get(wheel.evidence, wheel.evidence)
        origin = toolkit_origin(wheel.toolkit_wheels)
        yield f"  CUDA {clean(wheel.cuda or '')}: {clean(said)}{origin and f', from {origin}'}"


def _changes(group: PlannedGroup) -> str:
    installs = group.installs
    parts = [
        f"{word} {len(names)}"
        # Not "upgrade": a release may also be older, or lack a package.
        for word, names in (("install", installs.install), ("change", installs.upgrade))
        if names
    ]
    if installs.up_to_date:
        parts.append(f"{len(installs.up_to_date)} up to date")
    return ", ".join(parts) or "nothing"


def _version_changes(group: PlannedGroup) -> Iterator[str]:
    """Yield what changes on nodes that have a release: httpx 0.28.1 → 0.27.2."""
    for change in group.changes[:_MOST_CHANGES]:
        there, planned = " or ".join(change.installed) or "none", change.planned or "none"
        again = ", another build" if there == planned else ""
        yield clean(f"{change.package} {there} → {planned}{again}")
    if (more := len(group.changes) - _MOST_CHANGES) > 0:
        yield f"and {count(more, 'more version')}"


def _blocked(plan: Plan) -> list[tuple[list[str], PlannedNode | PlannedTarget]]:
    """Return the blocked nodes and targets without a group, by reason and fix."""
    alike: dict[tuple[str | None, ...], list[str]] = {}
    known: dict[str, PlannedNode | PlannedTarget] = {**plan.nodes, **plan.targets}
    for name, each in known.items():
        if each.state == "blocked" and each.group is None:
            alike.setdefault((each.reason, each.fix), []).append(name)
    return [(names, known[names[0]]) for names in alike.values()]


def _not_planned_for(plan: Plan) -> list[str]:
    return troubles(
        {
            name: (node.state, node.reason or "no reason given", node.fix)
            for name, node in plan.nodes.items()
            # With targets, nodes are skipped because they only build.
            if node.state == "unreachable" or (node.state == "skipped" and not plan.targets)
        }
    )


def _in_image(plan: Plan) -> list[str]:
    """Return what the image of builds in pods must contain, each sentence once."""
    told = (
        sentence
        for group in plan.groups
        for wheel in group.wheels
        if wheel.action == "build"
        for sentence in wheel.requires.in_image
    )
    return [clean(sentence) for sentence in dict.fromkeys(told)]
