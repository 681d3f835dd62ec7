"""Rollback: every node back to its previous release; or, after a failure, a group as it was before.

In: for `fleetbuild rollback`, the release that serves; else a group whose rollout stopped. Out: a
task for all nodes; else the progress, in which every node that switched in this run is rolled back,
or says why it still serves the new release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetbuild.ansible.role_results import Failure, ReleaseReply, Reply, more_severe, reply_in
from fleetbuild.ansible.silent_nodes import result_without_reply, tell_waiting
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.fleet_task import FleetTask
from fleetbuild.apply.followers import notify_after, notify_before
from fleetbuild.apply.hooks import around_switch, has_hooks
from fleetbuild.apply.wave import manifest
from fleetbuild.models import Facts, Manifest, NodeResult, PlannedGroup
from fleetbuild.models.role_parameters import RollbackSpec
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent


def roll_back(run: Run, progress: Progress, stopped: Mapping[str, str]) -> Progress:
    """Switch the nodes of stopped groups back that switched in this run.

    `stopped` says why, by the name of the group.
    """
    groups = {
        name: group for name, group in run.plan.groups_by_node.items() if group.name in stopped
    }
    switched = {
        name: progress.nodes[name] for name in groups if progress.nodes[name].state == "installed"
    }
    kept = {name: _why_not(run, groups[name], progress.facts[name]) for name in switched}
    progress = notify_before(run, progress, [name for name in switched if not kept[name]])
    labels = "its release labels could not be removed: {}"
    kept |= {
        name: labels.format(progress.labels[name].reason)
        for name, result in switched.items()
        if progress.nodes[name] is not result
    }
    stay = {
        name: switched[name].model_copy(update={"reason": f"Not rolled back: {reason}"})
        for name, reason in kept.items()
        if reason
    }
    for name, result in stay.items():
        run.tell("activate", "warning", result.reason or "", node=name, group=result.group)
    progress = replace(progress, nodes={**progress.nodes, **stay})
    names = [name for name in switched if name not in stay]
    if not names:
        return progress
    run.state.mark_changing(names)
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(groups[name].name, []).append(name)
    with ExitStack() as stages:
        outcomes = {
            group: stages.enter_context(
                run.stage("activate", count(len(some), "node"), group=group, nodes=tuple(some))
            )
            for group, some in members.items()
        }
        task = _Rollback(run, progress, stopped)
        results = around_switch(run, names, task) if has_hooks(run) else task(names)
        results = {name: _as_rollback_failure(result) for name, result in results.items()}
        for group, outcome in outcomes.items():
            outcome.failures = sum(results[n].state != "rolled_back" for n in members[group])
    run.state.mark_ended(n for n, each in results.items() if each.state == "rolled_back")
    for result in results.values():
        run.journal.note("node ended", node=result.node, state=result.state)
        if result.state != "rolled_back" or result.hook_failed:
            about_node = {"node": result.node, "group": result.group, "log": result.log}
            reason, fix = result.reason or "", result.fix or ""
            run.tell("activate", "failed", reason, fix=fix, **about_node)
    progress = replace(progress, nodes={**progress.nodes, **results}, changed=True)
    return notify_after(
        run, progress, {name: manifest(run, progress, groups[name], name) for name in names}
    )


def _as_rollback_failure(result: NodeResult) -> NodeResult:
    """Return a result which says that a failure, also of `rollout.before`, is the rollback's."""
    if result.state == "rolled_back":
        return result
    reason = f"The rollback failed, so the new release may still serve: {result.reason}"
    return result.model_copy(update={"reason": reason})


def _why_not(run: Run, group: PlannedGroup, before: Facts) -> str | None:
    """Return why a node keeps the new release; None if it can go back."""
    release = run.plan.release
    current = before.release.get(release)
    if release in before.damaged or (current and current.id == group.release_id):
        return "the release that served before was damaged or not verified."
    if current and not current.verified:
        return f"release {current.id}, which served before, was not verified."
    return None


class _Rollback:
    """Runs playbooks/rollback.yml; a node that served no release before serves none again."""

    def __init__(self, run: Run, progress: Progress, why: Mapping[str, str]) -> None:
        self._run, self._progress, self._why = run, progress, why  # why, by the name of the group
        self._groups = run.plan.groups_by_node
        self._replies: dict[str, Reply] = {}

    def __call__(self, names: Sequence[str]) -> dict[str, NodeResult]:
        plan = self._run.plan
        job = RollbackSpec(
            path=plan.install_path, release=plan.release, controller=self._run.state.controller()
        )
        hosts = (
            self._run.tools.run_playbook(
                "rollback.yml",
                limit=sorted(names),
                extravars={
                    "fleetbuild_rollbacks": {
                        name: job.model_copy(
                            update={"withdraw": self._before(name) is None}
                        ).model_dump(mode="json")
                        for name in names
                    }
                },
                on_event=self._listen,
            )
            if names
            else {}
        )
        return {name: self._result(name, hosts.get(name)) for name in names}

    def _before(self, name: str) -> str | None:
        served = self._progress.facts[name].release.get(self._run.plan.release)
        return served.id if served else None

    def _listen(self, event: TaskEvent) -> None:
        if event.host not in self._groups:
            return
        group = self._groups[event.host].name
        if event.state == "waiting":
            tell_waiting(self._run.on_event, event, group, "activate")
        elif reply := reply_in(event):
            self._replies[event.host] = more_severe(self._replies.get(event.host), reply)
            if isinstance(reply, ReleaseReply) and reply.ok:
                about = {"node": event.host, "group": group}
                self._run.tell("activate", "ok", "rolled back", **about)

    def _result(self, name: str, host: HostRun | None) -> NodeResult:
        reply, before = self._replies.get(name), self._before(name)
        group = self._groups[name].name
        if isinstance(reply, ReleaseReply) and (reply.release_id or None) == before:
            now = f"release {before} serves again" if before else "no release serves, as before"
            return NodeResult(
                node=name,
                group=group,
                state="rolled_back",
                release_id=before,
                reason=f"{self._why[group]} Rolled back: {now}.",
            )
        if isinstance(reply, ReleaseReply):
            reason = f"Release {reply.release_id} serves now, and not {before} as before."
            reply = Failure(reason=reason)
        return result_without_reply(name, group, host, reply)


def rollback_task(
    install_path: str, release: str, controller: str, revoked: Iterable[str] = ()
) -> FleetTask[ReleaseReply]:
    """Return the task that switches each node to its previous release without revoked wheels.

    `controller` names this controller to others, and to itself in the next run.
    """
    recalled = tuple(revoked)

    def job(_: str, __: Manifest) -> RollbackSpec:
        return RollbackSpec(
            path=install_path, release=release, revoked=recalled, controller=controller
        )

    return FleetTask(
        "rollback.yml", "fleetbuild_rollbacks", "activate", job, ReleaseReply, _result, changes=True
    )


def _result(name: str, manifest: Manifest, reply: ReleaseReply) -> NodeResult:
    about = {"node": name, "group": manifest.group, "release_id": reply.release_id or manifest.id}
    if reply.ok:
        was = {wheel.package: wheel.version for wheel in manifest.wheels}
        now = dict(package.split("==", 1) for package in reply.packages)
        changes = ", ".join(
            f"{name} {was.get(name, 'none')} → {now.get(name, 'none')}"
            for name in was | now
            if was.get(name) != now.get(name)
        )
        said = f"from release {manifest.id} to {reply.release_id}"
        said += f": {changes}" if changes else ""
        return NodeResult(state="rolled_back", reason=said, **about)
    return NodeResult(
        state="install_failed",
        reason=reply.reason or "No previous release on this node.",
        fix=reply.fix or "Plan and apply the release that you want there.",
        **about,
    )
