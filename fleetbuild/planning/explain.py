"""Why: the whole story of a node or a group, as lines of text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetbuild.errors import UsageError
from fleetbuild.hardware.cuda import newest_for_driver
from fleetbuild.hardware.gpus import SMS, sm_of_device
from fleetbuild.hardware.rungs import RUNGS, Rung, why_not
from fleetbuild.models import Facts, Gpu, Plan, PlannedGroup, PlannedNode, PlannedWheel
from fleetbuild.planning.compatibility.compilers import compiler_of
from fleetbuild.planning.compatibility.constraints import OLDEST, sm_list
from fleetbuild.planning.merging.tradeoffs import group_story, node_story
from fleetbuild.text import count


def explain_node(plan: Plan, facts: Facts | None, name: str) -> list[str]:
    """Everything that decides what this node gets."""
    node = plan.nodes.get(name)
    if node is None:
        raise UsageError(
            f"The plan has no node or group {name!r}.",
            f"Its nodes are: {', '.join(plan.nodes)}; "
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
        lines += _other_lines(facts, node.python)
    elif facts is None and plan.facts_source == "captures":
        lines.append(
            "  its CPU, GPUs and interpreters: the plan was made from captures; "
            "name them here again, with --facts, and they are told"
        )
    lines += [f"  {line}" for line in node_story(plan, name)]
    lines += [f"  warning: {warning}" for warning in node.warnings]
    if node.group:
        group = _group(plan, node.group)
        for wheel in group.wheels:
            lines += _wheel_lines(wheel)
        lines.append(f"  release: {_release_line(group, name, node.current)}")
        if name == group.representative:
            lines.append(f"  it is the representative of {group.name}: it builds.")
    return lines


def explain_group(plan: Plan, facts: Mapping[str, Facts], name: str) -> list[str]:
    """Everything that decides what this group is and who builds for it."""
    group = _group(plan, name)
    target = group.target
    lines = [
        f"{name}: {count(len(group.nodes), 'node')}: {', '.join(group.nodes)}",
        f"  target: {target.os} {target.arch}, {target.python}, "
        f"{target.libc.family} {target.libc.floor} or newer"
        + (f", SM {', '.join(target.sms)}" if target.sms else ", no GPU code"),
        f"  rung: {target.isa}: {_features(RUNGS[target.isa])}",
        f"  oldest C library: {_oldest(group, facts)}",
        f"  representative: {_who(group.representative, facts)}",
        f"  fallbacks: {', '.join(group.fallbacks) or 'none'}",
    ]
    lines += [f"  {line}" for line in group_story(plan, name)]
    for wheel in group.wheels:
        lines += [*_wheel_lines(wheel), *_build_lines(wheel)]
    if group.dependencies is None:
        lines.append(f"  dependencies: not locked: {plan.lock_problem or 'see the wheels'}")
    else:
        locked = ", ".join(f"{file.name} {file.version}" for file in group.dependencies)
        lines.append(f"  dependencies: {locked or 'none'}")
    return lines


def _cpu_lines(plan: Plan, facts: Facts, node: PlannedNode) -> list[str]:
    detected = RUNGS.get(facts.isa or "")
    kind = f", {facts.microarchitecture}" if facts.microarchitecture else ""
    sve = f", SVE of {facts.sve_bits} bits" if facts.sve_bits else ""
    lines = [f"  CPU: {facts.arch}{kind}, {len(facts.features)} flags{sve}"]
    if detected:
        lines.append(f"  detected rung: {detected.name}: {_features(detected)}")
        lines += [f"  not better: {sentence}" for sentence in _next_better(detected, facts)]
    if facts.hypervisor_masked:
        machine = "hypervisor" in facts.features  # the flag by which a guest knows of one
        whose = "hypervisor, firmware or kernel" if machine else "firmware or kernel"
        lines.append(
            f"  hidden by its {whose}: {', '.join(facts.hypervisor_masked)} (its model has them)"
        )
    # Of a merged group another line says why its rung is no better.
    if detected and node.group and not node.merged_from:
        rung = _group(plan, node.group).target.isa
        best = "the best that its recipes build for (grouping: rungs, optimize_for)"
        why = "as the inventory says" if node.isa == rung else best
        if rung != detected.name:
            lines.append(f"  planned for: {rung}, {why}")
    return lines


def _next_better(rung: Rung, facts: Facts) -> list[str]:
    """Why it is none of the rungs that stand right above."""
    above = [other for other in RUNGS.values() if other > rung]
    nearest = [other for other in above if not any(rung < each < other for each in above)]
    return [sentence for other in nearest if (sentence := why_not(other, facts.features))]


def _gpu_lines(plan: Plan, facts: Facts, node: PlannedNode) -> list[str]:
    """Its GPUs, the toolkits that their SMs and their driver leave, and what it gets code for."""
    gpus = ", ".join(f"{gpu.name} ({_sm(gpu, facts.driver)})" for gpu in facts.gpus)
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
            code = sm_list(sms) if sms else "no GPU"
            why = "as the inventory says" if sms else "no package has any, or the inventory says so"
            lines.append(f"  GPU code: for {code}, {why}")
    return lines


def _sm(gpu: Gpu, driver: str | None) -> str:
    """Of a GPU that no driver serves, what the table has for its PCI device."""
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
        return f"SM {sm} is in no table"
    last = f"to {known.last_cuda}" if known.last_cuda else "or newer"
    return f"SM {sm} ({known.architecture}) needs {known.first_cuda} {last}"


def _other_lines(facts: Facts, python: str | None) -> list[str]:
    pythons = ", ".join(f"{each.path} {each.version}" for each in facts.pythons)
    libc = f"{facts.libc.family} {facts.libc.version}" if facts.libc else "unknown"
    compiler = compiler_of(facts)
    return [
        f"  C library: {libc}",
        f"  interpreters: {pythons or 'none'}" + (f"; planned for {python}" if python else ""),
        f"  compiler: {f'{compiler.kind} {compiler.version}' if compiler else 'none'}",
    ]


def _wheel_lines(wheel: PlannedWheel) -> list[str]:
    """Which wheel it is, and why that one."""
    lines = [
        f"  wheel: {wheel.package} {wheel.wheel_version}, by recipe {wheel.recipe}: {wheel.action}",
        f"    because: {wheel.reason}",
    ]
    if wheel.cuda:
        lines.append(f"    CUDA {wheel.requires.cuda}: {wheel.cuda_why}")
    words = wheel.requires.libraries.values()
    return lines + [f"    on every node: {each}, which no wheel brings" for each in words]


def _build_lines(wheel: PlannedWheel) -> list[str]:
    """How and of what it is made."""
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


def _release_line(group: PlannedGroup, name: str, current: str | None) -> str:
    if name in group.installs.up_to_date:
        return f"{current} is current, and is what the plan wants"
    if name in group.installs.upgrade:
        return f"{current} is current; {group.release_id or 'a new one'} will replace it"
    if name in group.installs.install:
        return f"none is current; {group.release_id or 'a new one'} will be installed"
    return f"{current or 'none'} is current, and nothing changes"


def _who(name: str, facts: Mapping[str, Facts]) -> str:
    known = facts.get(name)
    if known is None:
        return name
    libc = f"{known.libc.family} {known.libc.version}" if known.libc else "an unknown libc"
    compiler = compiler_of(known)
    has = f"{compiler.kind} {compiler.version}" if compiler else "no compiler yet"
    memory = f"{known.memory_gb:g} GB" if known.memory_gb else "unknown memory"
    return (
        f"{name}: {libc}, {has}, {memory}, {known.cpus or 'unknown'} CPUs "
        "(the oldest libc comes first, then compilers, memory and cores)"
    )


def _oldest(group: PlannedGroup, facts: Mapping[str, Facts]) -> str:
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
    for group in plan.groups:
        if group.name == name:
            return group
    raise UsageError(
        f"The plan has no group {name!r}.",
        f"Its groups are: {', '.join(group.name for group in plan.groups) or 'none'}.",
    )
