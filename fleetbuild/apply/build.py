"""The third stage: wheels are built on all builders at once, in one Ansible run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetbuild.ansible.role_results import RoleResult, build_progress_of, role_result_of
from fleetbuild.ansible.silent_nodes import loss, tell_waiting
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.known_failures import explain_failure
from fleetbuild.apply.pending import (
    BuildAssignment,
    BuildPlace,
    build_spec,
    key_of,
    results_of_failed_wheels,
    source_of,
    wheel_identity,
)
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile, WheelResult
from fleetbuild.models.role_parameters import BuildSpec, Requirement
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent


def build(run: Run, progress: Progress) -> Progress:
    """Have each ordered wheel built, or say why it was not. None stops another."""
    if not progress.orders:
        return progress
    for order in progress.orders:
        run.journal.note("build started", key=key_of(order.wheel), node=order.node)
    with run.stage("build", count(len(progress.orders), "wheel")) as ending:
        answers, hosts = _run_playbook(run, progress)
        built = {
            key_of(order.wheel): _result(order, answers, hosts.get(order.node))
            for order in progress.orders
        }
        ending.failures = sum(wheel.state == "failed" for wheel in built.values())
    for key in answers.built:
        run.journal.note("build ended", key=key)
    wheels = {**progress.wheels, **built}
    nodes = {**progress.nodes, **results_of_failed_wheels(run.plan, progress.nodes, wheels)}
    return replace(progress, wheels=wheels, nodes=nodes, changed=True)


@dataclass
class _Answers:
    built: dict[str, RoleResult] = field(default_factory=dict)  # by artifact key
    failures: dict[str, RoleResult] = field(default_factory=dict)  # by node
    broken: dict[str, tuple[str, RoleResult]] = field(default_factory=dict)  # the first, by node


def _run_playbook(run: Run, progress: Progress) -> tuple[_Answers, Mapping[str, HostRun]]:
    answers = _Answers()
    hosts = run.tools.playbook(
        "build.yml",
        limit=sorted({order.node for order in progress.orders}),
        extravars={"fleetbuild_builds": build_extravars(run, progress)},
        on_event=_listener(run, progress.orders, answers),
    )
    return answers, hosts


def build_extravars(run: Run, progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """The extra variable fleetbuild_builds: host -> wheels, in the plan's order."""
    builds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for order in progress.orders:
        spec = _build(run, progress, order)
        builds[order.node].append(spec.model_dump(mode="json", exclude_unset=True))
    return dict(builds)


def _build(run: Run, progress: Progress, order: BuildAssignment) -> BuildSpec:
    wheel = order.wheel
    source = source_of(wheel)
    path = progress.files[source.identity]
    bases = [progress.stored_wheels[key] for key in wheel.built_against]
    place = BuildPlace(
        node=order.node,
        python=wheel.build_pythons[order.node],
        cache=run.plan.cache,
        source=str(path),
        source_sha256=source.sha256 or sha256_of(path),
        requirements=(
            *(Requirement(path=str(base.path), sha256=base.sha256) for base in bases),
            *(_requirement(progress, file) for file in wheel.build_dependencies),
        ),
        dest=str(incoming(run, order)),
    )
    return build_spec(run.plan, wheel, place)


def _requirement(progress: Progress, file: LockedFile) -> Requirement:
    return Requirement(path=str(progress.files[file.identity]), sha256=file.sha256)


def incoming(run: Run, order: BuildAssignment) -> Path:
    """Where the controller puts what a build brings, until it is checked."""
    return (run.state.incoming / key_of(order.wheel)).resolve()


def _listener(
    run: Run, orders: tuple[BuildAssignment, ...], answers: _Answers
) -> Callable[[TaskEvent], None]:
    """Turn Ansible's events into ours, and keep the replies."""
    by_host: dict[str, dict[str, BuildAssignment]] = defaultdict(dict)
    for order in orders:
        by_host[order.node][key_of(order.wheel)] = order

    def listen(event: TaskEvent) -> None:
        waiting = by_host[event.host]
        if event.state == "waiting":
            group = next(iter(waiting.values())).group if waiting else None
            tell_waiting(run.on_event, event, group, "build")
            return
        reply = role_result_of(event)
        if reply and reply.of == "failure":
            answers.failures[event.host] = reply
        elif reply:
            # A node answers for what it was asked to build, and once.
            if order := waiting.pop(reply.key, None):
                reply = _explained(run, order, reply)
                answers.built[reply.key] = reply
                if not reply.ok:
                    answers.broken.setdefault(event.host, (order.wheel.package, reply))
                _tell_end(run, order, reply)
        elif waiting:
            _tell_progress(run, next(iter(waiting.values())), event)

    return listen


def _explained(run: Run, order: BuildAssignment, reply: RoleResult) -> RoleResult:
    """The reply in our words, where the node knows no way out and we know the failure."""
    if reply.ok or reply.fix:
        return reply
    where = order.node, order.group, order.wheel.target
    for text in (reply.reason, _end_of_log(incoming(run, order) / "build.log")):
        reason, fix = explain_failure(text, *where)
        if fix:
            errors = reply.reason.partition("\n")[2]
            told = f"{reason}\n{errors}".strip()
            return reply.model_copy(update={"reason": told, "fix": fix})
    return reply


def _end_of_log(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 16)))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _tell_end(run: Run, order: BuildAssignment, reply: RoleResult) -> None:
    run.tell(
        "build",
        "ok" if reply.ok else "failed",
        reply.reason if not reply.ok else "found finished" if reply.cached else "built",
        group=order.group,
        node=order.node,
        package=order.wheel.package,
        fix="" if reply.ok else reply.fix,
        seconds=reply.seconds,
    )


def _tell_progress(run: Run, order: BuildAssignment, event: TaskEvent) -> None:
    news = build_progress_of(event)
    if news is None:
        return
    run.tell(
        "build",
        "progress",
        news.last_line[:200],
        group=order.group,
        node=order.node,
        package=order.wheel.package,
        done=news.done,
        total=news.total,
    )


def _result(order: BuildAssignment, answers: _Answers, host: HostRun | None) -> WheelResult:
    reply = answers.built.get(key_of(order.wheel))
    told = {**wheel_identity(order.wheel), "built_on": order.node}
    if reply is None:
        return WheelResult(state="failed", **told, **_silence(order, answers, host))
    if not reply.ok:
        return WheelResult(
            state="failed",
            **told,
            reason=reply.reason,
            fix=reply.fix or "Read the log, mend it, and apply again.",
            log=reply.log,
            seconds=reply.seconds,
        )
    return WheelResult(
        state="built", **told, file=reply.file, sha256=reply.sha256, seconds=reply.seconds,
        cached=reply.cached,
    )  # fmt: skip


def _silence(order: BuildAssignment, answers: _Answers, host: HostRun | None) -> dict[str, str]:
    """Why a build that was ordered has no end."""
    node = order.node
    if host and host.state == "unreachable":
        return {
            "reason": f"{node}: {loss(host)}.",
            "fix": "Once it answers, apply again: the build goes on there.",
        }
    if node in answers.broken:
        package, why = answers.broken[node]
        return {
            "reason": f"It was not begun, for {package} comes before it on {node} and failed.",
            "fix": why.fix or "Read the log of that, mend it, and apply again.",
        }
    failure = answers.failures.get(node)
    said = (failure.reason if failure else "") or (host.message if host else "")
    return {
        "reason": f"{node} stopped before the build: {said or 'it did not say why'}",
        "fix": (failure.fix if failure else "") or "Mend it there, and apply again.",
    }
