"""One step of a rollout: install, verify and activate releases on the next nodes of each group.

In: a batch of nodes for each group, the wheels. Out: the progress with a result for each node. A
node installs the release beside the current one, verifies it with its own interpreter, and only
then switches to it (see playbooks/install.yml), so a failure leaves the previous release serving.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetbuild.ansible.role_results import (
    ReleaseReply,
    Reply,
    VerifyReply,
    more_severe,
    reply_in,
)
from fleetbuild.ansible.silent_nodes import is_held, result_without_reply, stage_of, tell_waiting
from fleetbuild.ansible.steps import step_of
from fleetbuild.apply.context import Progress, Run, StageOutcome
from fleetbuild.apply.followers import notify_after, notify_before
from fleetbuild.apply.hooks import around_switch, has_hooks
from fleetbuild.apply.installers import installer_for
from fleetbuild.apply.pending import key_of
from fleetbuild.audit.downloads import contents_of
from fleetbuild.models import (
    LockedFile,
    Manifest,
    ManifestWheel,
    NodeResult,
    PlannedGroup,
    PlannedWheel,
    Stage,
    release_root,
)
from fleetbuild.models.problem import Problem
from fleetbuild.models.release import ENVIRONMENT_BYTES
from fleetbuild.models.role_parameters import InstalledWheel, InstallSpec
from fleetbuild.text import count

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, TaskEvent


_PAUSE = 15  # seconds between two questions whether another controller has ended
_LEASE = 1800  # seconds; a dead run blocks other controllers for as long
_SLOWEST = 500_000  # bytes a second; a copy over a slower link may lose its lease
_IMPORT_SECONDS = 60  # for all dependencies together; the rest is not imported
_DEPENDENCY_CHECK = """\
# import the dependencies
import signal, subprocess, sys, time
ends = time.monotonic() + {seconds}
for name, wheel in {modules!r}.items():
    if name in sys.modules:
        continue
    try:
        code = subprocess.call(
            [sys.executable, "-I", "-c", "import " + name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=max(ends - time.monotonic(), 0.1),
        )
    except subprocess.TimeoutExpired:
        break
    if code == -signal.SIGILL:
        raise SystemExit("This CPU cannot import %s of %s: illegal instruction." % (name, wheel))
"""


class Batch(NamedTuple):
    """The nodes of a group that get its release in the same step; `who` is "canary" or "node"."""

    group: PlannedGroup
    names: Sequence[str]
    who: str


def wave(run: Run, progress: Progress, batches: Sequence[Batch]) -> Progress:
    """Install the releases on these nodes; followers are notified before and after."""
    progress = notify_before(run, progress, [name for batch in batches for name in batch.names])
    batches = [
        batch._replace(names=names)
        for batch in batches
        if (names := [name for name in batch.names if name not in progress.nodes])
    ]
    if not batches:
        return progress
    names = [name for batch in batches for name in batch.names]
    manifests = {
        name: manifest(run, progress, batch.group, name)
        for batch in batches
        for name in batch.names
    }
    specs = _specs(run, progress, batches, manifests)
    run.state.mark_changing(names)
    with ExitStack() as stages:
        outcomes = [stages.enter_context(_stage(run, batch)) for batch in batches]
        work = _Install(run, progress, specs)
        results = work.with_hooks(names) if has_hooks(run) else work.install(names)
        for batch, outcome in zip(batches, outcomes, strict=True):
            outcome.nodes = tuple(n for n in batch.names if results[n].state == "installed")
            outcome.failures = len(batch.names) - len(outcome.nodes)
    run.state.mark_ended(name for name in names if results[name].state == "installed")
    for result in results.values():
        run.journal.note("node ended", node=result.node, state=result.state)
        work.report(result, work.hosts.get(result.node))
    progress = replace(progress, nodes={**progress.nodes, **results}, changed=True)
    return notify_after(run, progress, manifests)


def _stage(run: Run, batch: Batch) -> AbstractContextManager[StageOutcome]:
    about = {"group": batch.group.name, "nodes": tuple(batch.names)}
    return run.stage("install", count(len(batch.names), batch.who), **about)


def _specs(
    run: Run, progress: Progress, batches: Sequence[Batch], manifests: Mapping[str, Manifest]
) -> dict[str, dict[str, Any]]:
    """Return the parameters of the install role for each node."""
    root = release_root(run.plan.install_path, run.plan.release)
    in_use = run.tools.follower.in_use(list(manifests), root)
    specs = {}
    for batch in batches:
        shared = shared_parameters(run, progress, batch.group)
        for name in batch.names:
            own = _own_parameters(run, progress, manifests[name], name, in_use.get(name, {}))
            installer = installer_for(progress.facts[name], run.state.installer)
            spec = InstallSpec(**shared, **own, installer=installer)
            specs[name] = spec.model_dump(mode="json", exclude_unset=True)
    return specs


class _Install:
    """Runs playbooks/install.yml on nodes, at once or with hooks around the switch."""

    def __init__(self, run: Run, progress: Progress, specs: Mapping[str, dict[str, Any]]) -> None:
        self.hosts: dict[str, HostRun] = {}  # how the last playbook ended on each node
        self._reported = set[str]()  # failed nodes that the operator knows
        self._awaited = set[str]()  # nodes that another controller holds, and the operator knows
        self._run, self._progress, self._specs = run, progress, specs
        self._groups = run.plan.groups_by_node

    def with_hooks(self, names: Sequence[str]) -> dict[str, NodeResult]:
        """Install and verify, then switch between `rollout.before` and `rollout.after`."""
        replies = self._play(names, activate=False)
        ready = [name for name in names if _is_verified(replies.get(name), self.hosts.get(name))]
        released = set[str]()

        def switch(some: Sequence[str]) -> dict[str, NodeResult]:
            released.update(some)
            return self.install(some, verify={})

        switched = around_switch(self._run, ready, switch)
        if held := [name for name in ready if name not in released]:
            # `before` failed there: without both steps, the playbook ends the node's lease.
            self._play(held, verify={}, activate=False)
        failed = {
            name: self._result(name, replies, self.hosts.get(name))
            for name in names
            if name not in ready
        }
        return {name: (switched | failed)[name] for name in names}

    def install(self, names: Sequence[str], **changes: Any) -> dict[str, NodeResult]:
        """Install, verify and switch; `verify={}` leaves out the verification."""
        replies = self._play(names, **changes) if names else {}
        return {name: self._result(name, replies, self.hosts.get(name)) for name in names}

    def report(self, result: NodeResult, host: HostRun | None) -> None:
        """Tell of a failure, once: the end of the reservation can fail, or lose the node."""
        known = result.state == "installed" or result.node in self._reported
        if result.hook_failed or not known:
            self._reported.add(result.node)
            _tell_failure(self._run, result, host)

    def _play(self, names: Sequence[str], **changes: Any) -> dict[str, Reply]:
        """Play the playbook; with `--wait`, again where another controller held the node."""
        replies = self._play_once(names, changes)
        while self._run.wait and (held := [name for name in names if is_held(replies.get(name))]):
            sleep(_PAUSE)
            replies |= self._play_once(held, changes)
        return replies

    def _play_once(self, names: Sequence[str], changes: Mapping[str, Any]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}

        def on_event(event: TaskEvent) -> None:
            if event.host not in names:
                return
            group = self._groups[event.host].name
            _listen(self._run, group, replies, event)
            if not event.ended:
                return
            reply = replies.get(event.host)
            if self._run.wait and is_held(reply):
                self._tell_held(event.host, reply.reason if reply else "")
            else:
                self.report(self._result(event.host, replies, event.ended), event.ended)

        self.hosts |= self._run.tools.run_playbook(
            "install.yml",
            limit=sorted(names),
            extravars={
                "fleetbuild_installs": {name: {**self._specs[name], **changes} for name in names}
            },
            on_event=on_event,
        )
        return replies

    def _tell_held(self, name: str, reason: str) -> None:
        if name not in self._awaited:
            self._awaited.add(name)
            about = {"node": name, "group": self._groups[name].name}
            self._run.tell("install", "warning", f"{reason} Waiting for it to end.", **about)

    def _result(self, name: str, replies: Mapping[str, Reply], host: HostRun | None) -> NodeResult:
        before = _serving(self._run, self._progress, name)
        return _result(self._groups[name], name, replies.get(name), host, before)


def _is_verified(reply: Reply | None, host: HostRun | None) -> bool:
    ended_well = host is not None and host.state == "ok"
    return isinstance(reply, VerifyReply) and reply.ok and ended_well


def _own_parameters(
    run: Run,
    progress: Progress,
    manifest: Manifest,
    name: str,
    in_use: Mapping[str, str] | Problem,
) -> dict[str, Any]:
    """Return the parameters of the install role that differ between the nodes of a group.

    `in_use` is the releases to keep, and why. Where that is not known, the node itself sees its
    mounts; a follower has warned.
    """
    facts = progress.facts[name]
    now = facts.release.get(run.plan.release)
    return {
        "replaces": now.id if now else "",
        "login_uid": facts.needs_root.get(run.plan.release, 0),
        "python": str(run.plan.nodes[name].python),
        "manifest": manifest.model_dump(mode="json"),
        "in_use": {} if isinstance(in_use, Problem) else dict(in_use),
    }


def shared_parameters(run: Run, progress: Progress, group: PlannedGroup) -> dict[str, Any]:
    """Return the parameters of the install role that all nodes of a group share."""
    wheels = installed_wheels(progress, group)
    copied = _size(wheels)
    return {
        "controller": run.state.controller(),
        "plan": run.plan.digest[:16],
        "space": needed_space(wheels),
        "lease": max(_LEASE, copied // _SLOWEST),
        "path": run.plan.install_path,
        "release": run.plan.release,
        "release_id": str(group.release_id),
        "wheels": wheels,
        "keep": run.plan.keep,
        "verify": {
            "imports": [name for wheel in group.wheels for name in _imports(run, progress, wheel)],
            "checks": [
                *(check for wheel in group.wheels for check in wheel.checks),
                *_dependency_check(run, progress, group),
            ],
            "features": list(group.target.features),
        },
        **sign_release(run, progress, group, wheels),
    }


def sign_release(
    run: Run, progress: Progress, group: PlannedGroup, wheels: Sequence[InstalledWheel]
) -> dict[str, Any]:
    """Return the signed statement about a release; empty if signing.key is not set."""
    if run.tools.sign is None:
        return {}
    own = {"python", "verified", "files_sha256"}  # differ between the nodes of a group
    about = manifest(run, progress, group, group.nodes[0]).model_dump(mode="json", exclude=own)
    signed = run.tools.sign(
        {
            "manifest": about,
            "plan": run.plan.digest,
            "root": release_root(run.plan.install_path, run.plan.release),
            "wheels": {wheel.file: wheel.sha256 for wheel in wheels},
        }
    )
    return {"statement": signed.statement, "signature": signed.signature}


def installed_wheels(progress: Progress, group: PlannedGroup) -> tuple[InstalledWheel, ...]:
    """Return the wheels of the group's release, dependencies included."""
    return (
        *(_built(progress, wheel) for wheel in group.wheels),
        *(_fetched(progress, file) for file in group.dependencies or ()),
    )


def names_of(group: PlannedGroup) -> tuple[tuple[str, str], ...]:
    """Return the name and version of each of the wheels that `installed_wheels` returns."""
    built = ((wheel.package, wheel.wheel_version) for wheel in group.wheels)
    return (*built, *((file.name, file.version) for file in group.dependencies or ()))


def needed_space(wheels: Sequence[InstalledWheel]) -> int:
    """Return the bytes that a release needs on a node: copied wheels, their files, the
    environment."""
    unpacked = sum(contents_of(Path(wheel.path)).size for wheel in wheels)
    return ENVIRONMENT_BYTES + unpacked + _size(wheels)


def kept_space(progress: Progress, group: PlannedGroup, served: Manifest | None) -> int:
    """Return the bytes of the group's wheels that are in the release that a node serves.

    The node keeps them, and links them. At its turn it looks whether they are there, and can be.
    """
    if served is None:
        return 0
    wheels = zip(installed_wheels(progress, group), names_of(group), strict=True)
    return _size(wheel for wheel, name in wheels if served.names(*name, wheel.sha256))


def _size(wheels: Iterable[InstalledWheel]) -> int:
    return sum(wheel.size for wheel in wheels)


def _built(progress: Progress, wheel: PlannedWheel) -> InstalledWheel:
    stored = progress.stored_wheels[key_of(wheel)]
    return _installed(stored.path, stored.path.name, stored.sha256)


def _imports(run: Run, progress: Progress, wheel: PlannedWheel) -> tuple[str, ...]:
    return wheel.import_names or run.tools.import_names_of(
        progress.stored_wheels[key_of(wheel)].path
    )


def _dependency_check(run: Run, progress: Progress, group: PlannedGroup) -> tuple[str, ...]:
    """Return a check that imports the dependencies with machine code, each in its own process.

    Only a death by an illegal instruction fails it: a module may refuse for reasons of its own.
    """
    modules = {
        name: f"{file.name} {file.version}"
        for file in group.dependencies or ()
        if file.file.endswith(".whl") and not file.file.endswith("-any.whl")
        for name in run.tools.import_names_of(progress.files[file.identity])
    }
    return (_DEPENDENCY_CHECK.format(modules=modules, seconds=_IMPORT_SECONDS),) if modules else ()


def _fetched(progress: Progress, file: LockedFile) -> InstalledWheel:
    return _installed(progress.files[file.identity], file.file, file.sha256)


def _installed(path: Path, file: str, sha256: str) -> InstalledWheel:
    commands = contents_of(path).commands
    try:
        size = os.path.getsize(path)  # noqa: PTH202 (asked for each wheel of each wave)
    except FileNotFoundError:
        size = 0
    return InstalledWheel(path=str(path), file=file, sha256=sha256, size=size, commands=commands)


def manifest(run: Run, progress: Progress, group: PlannedGroup, name: str) -> Manifest:
    """Return the manifest to install with the release; the node sets `verified` in it."""
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


def _listen(run: Run, group: str, replies: dict[str, Reply], event: TaskEvent) -> None:
    """Keep the reply in an event of a node, and tell what the operator should know of it."""
    if event.state == "waiting":
        tell_waiting(run.on_event, event, group, "install")
        return
    about = {"node": event.host, "group": group}
    if reply := reply_in(event):
        replies[event.host] = more_severe(replies.get(event.host), reply)
    for stage, text in _warnings(event.result):
        run.tell(stage, "warning", text, **about)
    step, verification = step_of(event.task), event.result.get("verification")
    # A release that fails its verification is installed.
    if step and step.ends and (event.state in ("ok", "changed") or verification):
        run.tell(step.stage, "ok", **about)
    if isinstance(verification, dict) and verification.get("ok") is True:
        run.tell("verify", "ok", **about)
    if isinstance(reply, ReleaseReply) and reply.active:
        run.tell("activate", "ok", "verified and active", **about)


def _warnings(result: Mapping[str, Any]) -> Iterator[tuple[Stage, str]]:
    """Yield what an operator should know of a step that went well."""
    if took_over := str(result.get("took_over") or "")[:600]:
        yield "install", took_over
    if result.get("made_by") == "pip":
        yield "install", "pip installed the wheels: nothing faster could be used here"


def _serving(run: Run, progress: Progress, name: str) -> str:
    before = progress.facts[name].release.get(run.plan.release)
    return before.id if before else ""


def _result(
    group: PlannedGroup, name: str, reply: Reply | None, host: HostRun | None, before: str
) -> NodeResult:
    about = {"node": name, "group": group.name}
    if isinstance(reply, ReleaseReply) and reply.active:
        return NodeResult(state="installed", release_id=group.release_id, kept=reply.kept, **about)
    if isinstance(reply, VerifyReply) and not reply.ok:
        return NodeResult(
            state="verify_failed",
            reason=reply.why,
            fix=reply.fix
            or "The previous release still serves. Correct the recipe, then plan again.",
            log=(host.log if host else "") or None,
            **about,
        )
    return result_without_reply(name, group.name, host, reply, before)


def _tell_failure(run: Run, result: NodeResult, host: HostRun | None) -> None:
    stage: Stage = "verify" if result.state == "verify_failed" else "install"
    if result.hook_failed and result.state == "installed":
        stage = "activate"
    run.tell(
        stage_of(host.task, stage) if host and result.state == "unreachable" else stage,
        "unreachable" if result.state == "unreachable" else "failed",
        result.reason or "",
        node=result.node,
        group=result.group,
        fix=result.fix or "",
        log=result.log,
    )
