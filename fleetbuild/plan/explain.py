"""`fleetbuild explain`: say why a node or group is planned as it is.

In: a plan, and facts from the last probe or from captures. Out: an `Explanation`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from fleetbuild.errors import UsageError
from fleetbuild.extension import Evidence, extensions, find_evidence
from fleetbuild.hardware.gpus import SMS, sm_of_device
from fleetbuild.hardware.rungs import RUNGS, Rung, why_not
from fleetbuild.models import (
    Facts,
    Gpu,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
)
from fleetbuild.models._base import Frozen
from fleetbuild.models.verdict import VERDICT_WORDS
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.facts import facts_from
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store
from fleetbuild.text import count
from fleetbuild.toolchains.compilers import compiler_of
from fleetbuild.toolchains.constraints import OLDEST, sm_list
from fleetbuild.toolchains.cuda import newest_for_driver

_ACTIONS = {"build": "to be built", "reuse": "already built", "published": "as published"}
_CHANGING = (
    "unknown: an apply is changing this node, or was stopped while it did; ask it:"
    " fleetbuild status INVENTORY"
)


class Explanation(Frozen):
    """The explanation of a node or group, with the age of the facts that it is based on."""

    name: str
    lines: tuple[str, ...]
    planned: str
    probed: str | None = None


def explain_name(
    plan: Plan, name: str, state: StateDir, captures: Path | str | None
) -> Explanation:
    """Explain a node or group from captures, or else from the last probe."""
    group = plan.group_named(name)
    names: tuple[str, ...] = (name,)
    if group:
        names = group.nodes or (group.representative, *group.fallbacks)
    folder = Path(captures) if captures else state.facts
    known = {each for each in names if each in plan.nodes and (captures or state.probed(each))}
    facts = facts_from(load_captures(folder, sorted(known))) if known else {}
    store = Store(state.store)  # an apply of this plan has put wheels there
    built = {wheel.artifact_key or "" for wheel in plan.wheels if store.fitting(wheel)}
    lines = (
        explain_group(plan, facts, name, built)
        if group
        else explain_node(plan, facts.get(name), name, built, changing=state.is_changing(name))
    )
    if evidence := find_evidence():
        lines += _evidence_lines(plan, group, name, evidence)
    ages = () if captures else (state.probed(each) for each in known)
    return Explanation(name=name, lines=tuple(lines), planned=plan.created, probed=_oldest(ages))


def _evidence_lines(
    plan: Plan, group: PlannedGroup | None, name: str, evidence: Evidence
) -> list[str]:
    """Return the evidence about the locked files on the target of this node's group, or of this
    group. The plan judges by it too; a node's own features would find other runs."""
    node = plan.nodes.get(name)
    group = group or (plan.group_named(node.group) if node and node.group else None)
    if group is None:
        return []
    published = (wheel.published for wheel in group.wheels if wheel.published)
    files = (*(group.dependencies or ()), *published)
    lines, unread = [], []
    for file in files:
        found = evidence.verdict(file, group.target, files)
        if found is None:
            # Those for any platform seldom have machine code; to name them all says little.
            unread += [] if file.file.endswith("-any.whl") else [f"{file.name}=={file.version}"]
        elif found.native:
            where = f": {found.where}" if found.where else ""
            word = VERDICT_WORDS[found.verdict]
            lines.append(f"    {file.name} {file.version}: {word} ({found.evidence}){where}")
    if unread:
        lines.append(f"    not known: fleetbuild check {' '.join(unread)} --for {group.name}")
    return ["  evidence about published wheels with machine code:", *lines] if lines else []


def _oldest(ages: Iterator[datetime | None] | tuple[()]) -> str | None:
    known = [age for age in ages if age]
    return min(known).isoformat() if known else None


def explain_node(
    plan: Plan,
    facts: Facts | None,
    name: str,
    built: Collection[str] = (),
    *,
    changing: bool = False,
) -> list[str]:
    """Return everything that decides this node's or named target's group, as lines.

    `built` are the artifact keys in the store. `changing` says that an apply has begun to change
    the node and has not heard how that ended.
    """
    node, additions = plan.nodes.get(name), _additions(plan, name)
    if node is None and additions:
        return [additions[0], *(f"  {line}" for line in additions[1:])]
    if node is None:
        targets = f"its targets: {', '.join(plan.targets)}; " if plan.targets else ""
        raise UsageError(
            f"The plan has no node, target or group {name!r}.",
            f"Its nodes are: {', '.join(plan.nodes)}; {targets}"
            f"its groups: {', '.join(group.name for group in plan.groups) or 'none'}.",
        )
    lines = [f"{name}: {node.state}" + (f", in group {node.group}" if node.group else "")]
    if node.reason:
        lines.append(f"  because: {node.reason}")
    if node.fix:
        lines.append(f"  fix: {node.fix}")
    if facts is not None and facts.state == "ok":
        lines += _cpu_lines(plan, facts, node)
        lines += _gpu_lines(plan, facts, node)
        lines += _software_lines(facts, node.python)
    elif facts is None and plan.facts_source == "captures":
        lines.append(
            "  CPU, GPUs and interpreters: not known, because the plan was made from captures; "
            "repeat --facts to show them"
        )
    lines += [f"  {line}" for line in additions]
    lines += [f"  warning: {warning}" for warning in node.warnings]
    if not node.group:
        return lines
    group = _group(plan, node.group)
    told = f"    because: {node.reason}"  # of the node, and of each wheel of a blocked group
    lines += [line for each in group.wheels for line in _wheel_lines(each, built) if line != told]
    release = _CHANGING if changing else _release_line(plan, group, name, facts)
    lines.append(f"  release: {release}")
    if name == group.representative and node.state == "ok":
        lines.append(f"  it is the representative of {group.name} and builds its wheels.")
    return lines


def explain_group(
    plan: Plan, facts: Mapping[str, Facts], name: str, built: Collection[str] = ()
) -> list[str]:
    """Return everything that decides this group's target, wheels and builder, as lines."""
    group = _group(plan, name)
    target = group.target
    lines = [
        f"{name}: {_members(plan, group)}",
        f"  target: {target.os} {target.arch}, {target.python}, "
        f"{target.libc.family} {target.libc.floor} or newer"
        + (f", SM {', '.join(target.sms)}" if target.sms else ", no GPU code"),
        f"  rung: {target.isa}: {_features(RUNGS[target.isa])}",
        f"  oldest C library: {_oldest_libc(group, facts)}",
        f"  representative: {_describe_builder(group.representative, facts)}",
        f"  fallbacks: {', '.join(group.fallbacks) or 'none'}",
    ]
    lines += [f"  {line}" for line in _additions(plan, name)]
    for wheel in group.wheels:
        known = lines if wheel.action == "blocked" else ()  # all have the same reason
        lines += [line for line in _wheel_lines(wheel, built) if line not in known]
        lines += _build_lines(wheel)
    if group.dependencies is None:
        lines.append(f"  dependencies: not locked: {plan.lock_problem or 'see the wheels'}")
    else:
        locked = ", ".join(f"{file.name} {file.version}" for file in group.dependencies)
        lines.append(f"  dependencies: {locked or 'none'}")
    return lines


def _additions(plan: Plan, name: str) -> list[str]:
    """Return the lines that extensions add for this name."""
    return [line for extension in extensions() for line in extension.explain(plan, name)]


def _members(plan: Plan, group: PlannedGroup) -> str:
    if group.nodes:
        return f"{count(len(group.nodes), 'node')}: {', '.join(group.nodes)}"
    names = [name for name, target in plan.targets.items() if target.group == group.name]
    return f"{count(len(names), 'named target')}: {', '.join(names)}; nothing is installed"


def _cpu_lines(plan: Plan, facts: Facts, node: PlannedNode) -> list[str]:
    detected = RUNGS.get(facts.isa or "")
    kind = f", {facts.microarchitecture}" if facts.microarchitecture else ""
    sve = f", SVE of {facts.sve_bits} bits" if facts.sve_bits else ""
    lines = [f"  CPU: {facts.arch}{kind}, {len(facts.features)} flags{sve}"]
    if detected:
        lines.append(f"  detected rung: {detected.name}: {_features(detected)}")
        lines += [f"  not better: {sentence}" for sentence in _why_not_higher(detected, facts)]
    if facts.hypervisor_masked:
        machine = "hypervisor" in facts.features  # the flag that virtual machines have
        whose = "hypervisor, firmware or kernel" if machine else "firmware or kernel"
        lines.append(
            f"  hidden by its {whose}: {', '.join(facts.hypervisor_masked)} (its model has them)"
        )
    # For a merged group, the extension that merged it says why.
    if detected and node.group and not node.merged_from:
        rung = _group(plan, node.group).target.isa
        best = "the best that its recipes build for (grouping: rungs, optimize_for)"
        why = "as the inventory says" if node.isa == rung else best
        if rung != detected.name:
            lines.append(f"  planned for: {rung}, {why}")
    return lines


def _why_not_higher(rung: Rung, facts: Facts) -> list[str]:
    """Return why the CPU does not reach the next higher rungs, one sentence each."""
    above = [other for other in RUNGS.values() if other > rung]
    nearest = [other for other in above if not any(rung < each < other for each in above)]
    return [sentence for other in nearest if (sentence := why_not(other, facts.features))]


def _gpu_lines(plan: Plan, facts: Facts, node: PlannedNode) -> list[str]:
    """Return lines about the GPUs, the toolkits they allow, and the GPU code of the plan."""
    gpus = ", ".join(f"{gpu.name} ({_describe_sm(gpu, facts.driver)})" for gpu in facts.gpus)
    lines = [f"  GPUs: {gpus or 'none'}" + (f", driver {facts.driver}" if facts.driver else "")]
    limits = [_toolkits_of(sm) for sm in facts.sms]
    installed = ", ".join(facts.toolchain.get("nvcc", ())) or "none"
    if facts.driver:
        newest = newest_for_driver(facts.driver)
        runs = f"{newest} or older" if newest else f"none from {OLDEST} on"
        limits.append(f"its driver runs {runs}")
    if limits:
        lines.append(f"  CUDA: {'; '.join(limits)}; installed there: {installed}")
    if node.group and not node.merged_from:
        sms = _group(plan, node.group).target.sms
        if sms != facts.sms:
            code = (
                f"for {sm_list(sms)}, as the inventory says"
                if sms
                else "none: these packages have none for its GPUs. An empty fleetbuild_sms in the"
                " inventory has the same effect."
            )
            lines.append(f"  GPU code: {code}")
    return lines


def _describe_sm(gpu: Gpu, driver: str | None) -> str:
    """Return the GPU's SM as text; without a driver, the SM that its PCI device has."""
    if gpu.sm:
        return f"SM {gpu.sm}"
    if driver:
        return "SM unknown"
    device = re.search(r"\[(10de:[0-9a-f]{4})\]\Z", gpu.name)
    known = sm_of_device(device[1]) if device else None
    return f"SM {known} by its PCI device, but no driver" if known else "SM unknown, no driver"


def _toolkits_of(sm: str) -> str:
    known = SMS.get(sm)
    if known is None:
        return f"SM {sm} is not a supported SM"
    last = f"to {known.last_cuda}" if known.last_cuda else "or newer"
    return f"SM {sm} ({known.architecture}) needs {known.first_cuda} {last}"


def _software_lines(facts: Facts, python: str | None) -> list[str]:
    pythons = ", ".join(f"{each.path} {each.version}" for each in facts.pythons)
    libc = f"{facts.libc.family} {facts.libc.version}" if facts.libc else "unknown"
    compiler = compiler_of(facts)
    return [
        f"  C library: {libc}",
        f"  interpreters: {pythons or 'none'}" + (f"; planned for {python}" if python else ""),
        f"  compiler: {f'{compiler.kind} {compiler.version}' if compiler else 'none'}",
    ]


def _wheel_lines(wheel: PlannedWheel, built: Collection[str]) -> list[str]:
    """Return which wheel it is, and why."""
    action, why = _ACTIONS.get(wheel.action, wheel.action), wheel.reason
    if wheel.action == "build" and wheel.artifact_key in built:
        action, why = _ACTIONS["reuse"], "Built after this was planned, and in the store."
    lines = [
        f"  wheel: {wheel.package} {wheel.wheel_version}, by recipe {wheel.recipe}: {action}",
        f"    because: {why}",
    ]
    if wheel.cuda:
        lines.append(f"    CUDA {wheel.requires.cuda}: {wheel.cuda_why}")
    words = wheel.requires.libraries.values()
    return lines + [f"    on every node: {each}, which no wheel brings" for each in words]


def _build_lines(wheel: PlannedWheel) -> list[str]:
    """Return how the wheel is built, and from what."""
    lines = [
        f"    file: {wheel.published.file}"
        if wheel.published
        else f"    built on: {wheel.built_on}, {wheel.jobs} jobs, {wheel.requires.compiler}, "
        + (f"about {wheel.minutes or 0:.0f} min, " if wheel.measured else "")
        + f"{wheel.requires.disk_gb:g} GB of disk",
    ]
    lines += [f"    {name}={value}" for name, value in wheel.environment.items()]
    lines += [f"    setting {name}={value}" for name, value in wheel.config_settings.items()]
    lines += [f"    patch: {name}" for name in wheel.patches]
    if wheel.artifact_key:
        lines.append(f"    artifact key: {wheel.artifact_key}")
    needs = ", ".join(f"{file.name} {file.version}" for file in wheel.build_dependencies)
    if needs:
        lines.append(f"    build requirements: {needs}")
    lines += [f"    in the image: {sentence}" for sentence in wheel.requires.in_image]
    return lines + [f"    to supply: {sentence}" for sentence in wheel.requires.to_supply]


def _release_line(plan: Plan, group: PlannedGroup, name: str, facts: Facts | None) -> str:
    """Return what serves by the node's last answer, which may be newer than the plan."""
    installs, current = group.installs, plan.nodes[name].current
    as_planned = name in installs.up_to_date
    if facts and facts.state == "ok":
        served = facts.release.get(plan.release)
        current = served.id if served else None
        as_planned = facts.serves(plan.release, group.release_id)
    now = f"{current or 'no release'} is current"
    if name not in (*installs.up_to_date, *installs.upgrade, *installs.install):
        return f"{now}, and nothing changes"
    if as_planned:
        return f"{now}, as planned"
    wanted = group.release_id or "a new one"
    return f"{now}; {wanted} will {'replace it' if current else 'be installed'}"


def _describe_builder(name: str, facts: Mapping[str, Facts]) -> str:
    known = facts.get(name)
    if known is None:
        return name
    libc = f"{known.libc.family} {known.libc.version}" if known.libc else "an unknown libc"
    compiler = compiler_of(known)
    has = f"{compiler.kind} {compiler.version}" if compiler else "no compiler yet"
    memory = f"{known.memory_gb:g} GB" if known.memory_gb else "unknown memory"
    return (
        f"{name}: {libc}, {has}, {memory}, {known.cpus or 'unknown'} CPUs "
        "(the oldest libc comes first, then compilers, memory and cores, nodes without a bastion,"
        " and load)"
    )


def _oldest_libc(group: PlannedGroup, facts: Mapping[str, Facts]) -> str:
    floor = group.target.libc.floor
    names = [
        name
        for name in group.nodes
        if (known := facts.get(name)) and known.libc and known.libc.version == floor
    ]
    return f"{floor}" + (f" ({', '.join(names)})" if names else "")


def _features(rung: Rung) -> str:
    return " ".join(sorted(rung.features)) or f"the {rung.arch} baseline"


def _group(plan: Plan, name: str) -> PlannedGroup:
    return next(group for group in plan.groups if group.name == name)
