"""The report of an apply, a verify or a rollback, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetbuild.cli.show.text import duration, quoted, troubles
from fleetbuild.models import NodeResult, Plan, Result, WheelResult, release_root
from fleetbuild.models.result import LabelResult
from fleetbuild.text import clean, count, fold

GOOD = {
    "installed": "installed",
    "up_to_date": "up to date",
    "verified": "verified",
    "rolled_back": "rolled back",
    "removed": "cleared",
    "skipped": "skipped",
}
BAD = {
    "unreachable": "unreachable",
    "blocked": "blocked",
    "build_failed": "without a wheel",
    "install_failed": "failed to install",
    "verify_failed": "failed to verify",
    "not_reached": "not reached",
}


def result_lines(
    result: Result, failed: str = BAD["install_failed"], shown: Plan | None = None
) -> list[str]:
    """Return wheels, then problems with their nodes, then the count: the worst is read last.

    `failed` says what nodes failed to do. Reasons that the plan `shown` above gives are left out.
    """
    words = {**GOOD, **BAD, "install_failed": failed}
    lines = list(_wheels([wheel for wheel in result.wheels if wheel.state != "reused"]))
    order = [*GOOD, *BAD]
    untold = sorted(_untold(result), key=lambda node: order.index(node.state))
    known = [node for node in untold if shown and _is_as_planned(node, shown)]
    lines += _as_planned(known, words)
    lines += _troubles([node for node in untold if node not in known], words)
    lines += _kept_releases(result)
    lines += label_troubles(result.labels)
    return [*lines, result_summary(result, words)]


def _is_as_planned(node: NodeResult, plan: Plan) -> bool:
    planned = plan.nodes.get(node.node)
    return planned is not None and (planned.state, planned.reason) == (node.state, node.reason)


def _as_planned(nodes: Iterable[NodeResult], words: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for the nodes that the plan left out, which has said why."""
    alike: dict[str, list[str]] = {}
    for node in nodes:
        alike.setdefault(words[node.state], []).append(node.node)
    if alike:
        names = "; ".join(f"{word}: {fold(each)}" for word, each in alike.items())
        yield f"Left out, as the plan above says. {names}"


def _kept_releases(result: Result) -> Iterator[str]:
    """Yield a line for each release that is still in use somewhere, with its nodes."""
    nodes: dict[str, dict[str, str]] = {}
    for node in result.nodes:
        for kept in node.kept:
            nodes.setdefault(kept.release_id, {})[node.node] = kept.reason
    for release, reasons in sorted(nodes.items()):
        first = next(iter(reasons))
        said = clean(reasons[first], limit=300)
        yield (
            f"kept: release {clean(release)} on {fold(reasons)}. {first} says: {said!r} A later run"
            " removes it, once nothing uses it."
        )


def wheel_lines(wheels: Sequence[WheelResult]) -> list[str]:
    """Return a line per wheel, and how many were taken in."""
    good = sum(wheel.state != "refused" for wheel in wheels)
    lines = [line for wheel in wheels for line in _wheel(wheel)]
    return [*lines, f"{count(good, 'wheel')} taken in, {len(wheels) - good} refused."]


def places(plan: Plan, result: Result) -> list[str]:
    """Return where the release is, if a node serves it."""
    served = [node.node for node in result.nodes if node.state in ("installed", "up_to_date")]
    root = release_root(plan.install_path, plan.release)
    return [f"Serving {root}/current on {fold(served)}."] if served else []


def next_command(plan: Plan, result: Result) -> str:
    """Return the command to run now."""
    if result.exit_code == 0 and plan.targets:
        return "Next: fleetbuild store export DIR"
    if result.exit_code == 0:
        return "Next: fleetbuild status INVENTORY"
    states = {node.state for node in result.nodes}
    planned = {name for name, node in plan.nodes.items() if node.state == "ok"}
    gone = any(node.state == "unreachable" and node.node in planned for node in result.nodes)
    gone = gone or bool(plan.targets)  # a build failed, and only builds were planned
    undone = states & {"build_failed", "install_failed", "verify_failed", "not_reached"}
    retry = gone or undone or any(node.hook_failed for node in result.nodes)
    command = "again: fleetbuild apply" if retry else "fleetbuild plan INVENTORY"
    if any(wheel.state == "failed" for wheel in result.wheels):  # the plan holds its recipe
        command += "; if you changed a recipe or a setting: fleetbuild plan INVENTORY"
    problems = {(node.state, node.reason) for node in result.nodes if node.state in BAD}
    word = "error" if len(problems) == 1 else "errors"
    return f"Next: fix the {word} above, then run {command}"


def _untold(result: Result) -> Iterator[NodeResult]:
    """Yield the nodes to report. The reason of a failed build is reported once, with its wheel."""
    for node in result.nodes:
        if node.state == "build_failed" and result.wheels:
            yield node.model_copy(update={"reason": None, "fix": None})
        elif node.state in BAD or node.reason:
            yield node


def result_summary(result: Result, words: Mapping[str, str]) -> str:
    """Return the count: Done in 41 s: 3 wheels built. 5 nodes installed, 1 unreachable."""
    built = sum(wheel.state == "built" and not wheel.cached for wheel in result.wheels)
    cached = sum(wheel.state == "built" and wheel.cached for wheel in result.wheels)
    states = [node.state for node in result.nodes]
    nodes = [f"{states.count(state)} {word}" for state, word in words.items() if state in states]
    if nodes:
        number, word = nodes[0].split(" ", 1)
        of = f"{number} of {len(states)} nodes" if len(nodes) > 1 else count(int(number), "node")
        nodes[0] = f"{of} {word}"
    word = "Done" if result.exit_code == 0 else "Ended"
    wheels = f"{count(built, 'wheel')} built. " if built else ""
    wheels += f"{count(cached, 'wheel')} already built. " if cached else ""
    if result.exit_code == 0 and not result.changed and not wheels:
        wheels = "nothing to do. " if "up_to_date" in states else ""
    if not nodes:
        nodes = ["Nothing installed" if wheels else _without_nodes(result)]
    return f"{word} in {duration(result.seconds)}: {wheels}{', '.join(nodes)}."


def _without_nodes(result: Result) -> str:
    """Return what a run did that built nothing and installed nothing."""
    if not result.wheels:
        return "nothing to build or install"
    return "every wheel is in the store" if result.exit_code == 0 else "nothing built"


LABELS = {
    "labelled": "labelled",
    "unchanged": "labelled before",
    "no_node": "not in the cluster",
    "gone": "gone from the cluster",
    "conflict": "labelled by others",
    "kept": "left with stale labels",
    "forbidden": "forbidden to label",
    "unauthorized": "not labelled: login refused",
    "refused": "not labelled",
    "unreachable": "not labelled",
    "failed": "not labelled",
}


def label_troubles(labels: Iterable[LabelResult]) -> list[str]:
    """Return problems with labels, and the hosts that are not in the cluster."""
    return troubles(
        {
            label.node: (LABELS[label.state], label.reason, label.fix)
            for label in labels
            if label.state not in ("labelled", "unchanged")
        }
    )


def _wheels(wheels: Sequence[WheelResult]) -> Iterator[str]:
    """Yield the lines of each wheel; what a package's build says, and its fix, stand once."""
    told: set[tuple[str, str]] = set()
    for wheel in wheels:
        problem = (wheel.package, wheel.fix or "")
        yield from _wheel(wheel, again=problem in told)
        if wheel.fix:
            told.add(problem)


def _wheel(wheel: WheelResult, *, again: bool = False) -> list[str]:
    name = clean("-".join(filter(None, (wheel.package, wheel.wheel_version))))
    if wheel.state in ("failed", "refused"):
        first, *rest = (wheel.reason or "no reason given").strip().splitlines()
        lines = [f"{wheel.state}: {name}: {clean(first)}", *([] if again else quoted(rest))]
        for label, text in (("fix", None if again else wheel.fix), ("log", wheel.log)):
            if text:
                lines.append(f"  {label}: {clean(text)}")
        return [*lines, *_failed_builders(wheel)]
    where = f" on {clean(wheel.built_on)}" if wheel.built_on else ""
    if wheel.cached:
        return [f"already built: {name}{where}", *_failed_builders(wheel)]
    took = f" in {duration(wheel.seconds)}" if wheel.seconds is not None else ""
    return [f"built: {name}{where}{took}", *_failed_builders(wheel)]


def _failed_builders(wheel: WheelResult) -> Iterator[str]:
    """Yield a line for each node that should have built the wheel before, and why it did not."""
    for failed in wheel.failed_on:
        yield f"  not on {clean(failed.node)}: {clean(failed.reason)}"


def _troubles(nodes: Iterable[NodeResult], words: Mapping[str, str]) -> list[str]:
    return troubles(
        {node.node: (words[node.state], node.reason, node.fix, node.log) for node in nodes}
    )
