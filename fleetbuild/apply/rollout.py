"""The fifth stage: releases go to the nodes, the weakest of each group first.

On a node a release is installed beside the current one, verified with its own interpreter, and
switched to only then (see playbooks/install.yml), so a failure leaves what served serving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import (
    RoleResult,
    failure_reason,
    more_severe,
    result_without_reply,
    role_result_of,
)
from fleetbuild.apply.context import Progress, Run, results_by_node
from fleetbuild.apply.labels import publish_labels, withdraw_labels
from fleetbuild.apply.pending import canaries, key_of, pending_groups, pending_nodes
from fleetbuild.models import (
    LockedFile,
    Manifest,
    ManifestWheel,
    NodeResult,
    PlannedGroup,
    PlannedWheel,
    Stage,
)
from fleetbuild.models.role_parameters import InstalledWheel, InstallSpec
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent

_STAGES: dict[str, Stage] = {
    "Copy wheels": "distribute",
    "Make the release": "install",
    "Verify the release": "verify",
}


def rollout(run: Run, progress: Progress) -> Progress:
    """Install, verify and switch on the canaries, then a batch of every group after the other."""
    progress = _wave(run, progress, "canary", _first_wave(run, progress))
    progress = _hold_back(run, progress, _canary_failure)
    while batch := _next_batch(run, progress):
        progress = _wave(run, progress, "node", batch)
        progress = _hold_back(run, progress, _too_many_failures)
    return progress


def _open(run: Run, progress: Progress) -> list[PlannedGroup]:
    return list(pending_groups(run.plan, progress.nodes))


def _canaries(run: Run, progress: Progress, group: PlannedGroup) -> tuple[str, ...]:
    return canaries(group, progress.facts, run.plan.rollout.canary)


def _first_wave(run: Run, progress: Progress) -> list[str]:
    return [
        name
        for group in _open(run, progress)
        for name in _canaries(run, progress, group)
        if name not in progress.nodes
    ]


def _next_batch(run: Run, progress: Progress) -> list[str]:
    size = run.plan.rollout.batch
    return [
        name
        for group in _open(run, progress)
        for name in pending_nodes(group, progress.nodes)[: size(len(group.nodes))]
    ]


Stop = Callable[[Run, Progress, PlannedGroup], "tuple[str, str | None] | None"]


def _hold_back(run: Run, progress: Progress, stop: Stop) -> Progress:
    """The rest of groups in which too much failed keeps what it has, with a reason and a fix."""
    held = {
        name: NodeResult(
            node=name, group=group.name, state="not_reached", reason=why[0], fix=why[1]
        )
        for group in _open(run, progress)
        if (why := stop(run, progress, group))
        for name in pending_nodes(group, progress.nodes)
    }
    return replace(progress, nodes={**progress.nodes, **held})


def _canary_failure(
    run: Run, progress: Progress, group: PlannedGroup
) -> tuple[str, str | None] | None:
    results = (progress.nodes.get(name) for name in _canaries(run, progress, group))
    failed = [result for result in results if result and result.state not in _CLEARED]
    if not failed:
        return None
    return f"{failed[0].node}, which goes first in its group, failed.", failed[0].fix


def _too_many_failures(
    run: Run, progress: Progress, group: PlannedGroup
) -> tuple[str, str | None] | None:
    results = [progress.nodes[name] for name in group.nodes if name in progress.nodes]
    failed = [result for result in results if result.state in _FAILED]
    rollout = run.plan.rollout
    if rollout.tolerates(len(failed), len(group.nodes)):
        return None
    names = ", ".join(result.node for result in failed)
    return f"{names} failed, and rollout.max_fail is {rollout.max_fail}.", failed[0].fix


_CLEARED = ("installed", "up_to_date")
_FAILED = ("install_failed", "verify_failed")


def _wave(run: Run, progress: Progress, who: str, names: Sequence[str]) -> Progress:
    progress = withdraw_labels(run, progress, names)
    names = [name for name in names if name not in progress.nodes]
    if not names:
        return progress
    replies: dict[str, RoleResult] = {}
    groups = {name: group for group in run.plan.groups for name in group.nodes}
    with run.stage("install", count(len(names), who)) as ending:
        hosts = run.tools.playbook(
            "install.yml",
            limit=sorted(names),
            extravars={
                "fleetbuild_installs": {
                    name: _install_spec(run, progress, groups[name], name).model_dump(
                        mode="json", exclude_unset=True
                    )
                    for name in names
                }
            },
            on_event=_listener(run, groups, replies),
        )
        results = [
            _result(groups[name], name, replies.get(name), hosts.get(name)) for name in names
        ]
        ending.failures = sum(result.state != "installed" for result in results)
    for result in results:
        run.journal.note("node ended", node=result.node, state=result.state)
        if result.state != "installed":
            _tell_failure(run, result)
    progress = replace(progress, nodes={**progress.nodes, **results_by_node(results)}, changed=True)
    return publish_labels(
        run, progress, {name: release_manifest(run, progress, groups[name], name) for name in names}
    )


def _install_spec(run: Run, progress: Progress, group: PlannedGroup, name: str) -> InstallSpec:
    return InstallSpec(
        path=run.plan.install_path,
        release=run.plan.release,
        release_id=str(group.release_id),
        python=str(run.plan.nodes[name].python),
        wheels=(
            *(_built(progress, wheel) for wheel in group.wheels),
            *(_fetched(progress, file) for file in group.dependencies or ()),
        ),
        manifest=release_manifest(run, progress, group, name).model_dump(mode="json"),
        keep=run.plan.keep,
        imports=tuple(name for wheel in group.wheels for name in _imports(run, progress, wheel)),
        checks=tuple(check for wheel in group.wheels for check in wheel.checks),
        features=tuple(group.target.features),
    )


def _built(progress: Progress, wheel: PlannedWheel) -> InstalledWheel:
    stored = progress.stored_wheels[key_of(wheel)]
    return InstalledWheel(path=str(stored.path), file=stored.path.name, sha256=stored.sha256)


def _imports(run: Run, progress: Progress, wheel: PlannedWheel) -> tuple[str, ...]:
    return wheel.import_names or run.tools.imports(progress.stored_wheels[key_of(wheel)].path)


def _fetched(progress: Progress, file: LockedFile) -> InstalledWheel:
    path = str(progress.files[file.identity])
    return InstalledWheel(path=path, file=file.file, sha256=file.sha256)


def release_manifest(run: Run, progress: Progress, group: PlannedGroup, name: str) -> Manifest:
    """What will lie beside the release on the node; it says verified only once it is."""
    return Manifest(
        release=run.plan.release,
        id=str(group.release_id),
        group=group.name,
        python=str(run.plan.nodes[name].python),
        wheels=tuple(
            ManifestWheel(
                package=wheel.package,
                version=wheel.wheel_version,
                artifact_key=key_of(wheel),
                sha256=progress.stored_wheels[key_of(wheel)].sha256,
            )
            for wheel in group.wheels
        ),
        dependencies=tuple(f"{file.name}=={file.version}" for file in group.dependencies or ()),
    )


def _listener(
    run: Run, groups: Mapping[str, PlannedGroup], replies: dict[str, RoleResult]
) -> Callable[[TaskEvent], None]:
    def listen(event: TaskEvent) -> None:
        if reply := role_result_of(event):
            replies[event.host] = more_severe(replies.get(event.host), reply)
            if reply.of == "install" and reply.active:
                _tell_served(run, groups[event.host], event.host)
            return
        stage = next((_STAGES[end] for end in _STAGES if event.task.endswith(end)), None)
        # The task that verifies is ok where the release is not: it brings home what is wrong.
        well = event.state in ("ok", "changed") and event.result.get("ok") is not False
        if stage and well and event.host in groups:
            run.tell(stage, "ok", node=event.host, group=groups[event.host].name)

    return listen


def _result(
    group: PlannedGroup, name: str, reply: RoleResult | None, host: HostRun | None
) -> NodeResult:
    about = {"node": name, "group": group.name}
    if reply and reply.of == "install" and reply.active:
        return NodeResult(state="installed", release_id=group.release_id, **about)
    if reply and reply.of == "verify" and not reply.ok:
        return NodeResult(
            state="verify_failed",
            reason=failure_reason(reply),
            fix=reply.fix or "What served before still serves. Mend the recipe, and plan again.",
            **about,
        )
    return result_without_reply(name, group.name, host, reply)


def _tell_served(run: Run, group: PlannedGroup, name: str) -> None:
    run.tell("activate", "ok", "verified, and serves now", node=name, group=group.name)


def _tell_failure(run: Run, result: NodeResult) -> None:
    run.tell(
        "verify" if result.state == "verify_failed" else "install",
        "unreachable" if result.state == "unreachable" else "failed",
        result.reason or "",
        node=result.node,
        group=result.group,
        fix=result.fix or "",
    )
