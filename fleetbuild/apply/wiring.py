"""The real `Tools` of a run: probe by SSH, playbooks by Ansible, store, audit, followers.

In: configuration, state directory, inventory. Out: `Tools` for `apply/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from fleetbuild.ansible import Playbooks, Secrets
from fleetbuild.ansible.role_results import AnyReply
from fleetbuild.ansible.settings import interpreter_for_modules
from fleetbuild.apply.audit import audit_findings
from fleetbuild.apply.context import Tools
from fleetbuild.apply.fleet_task import FleetTask, run_fleet_task
from fleetbuild.apply.followers import Followers
from fleetbuild.apply.remove import remove_releases
from fleetbuild.apply.verify import Checks
from fleetbuild.audit.import_names import import_names
from fleetbuild.config import base_folder
from fleetbuild.extension import FollowedRun, Follower, extensions
from fleetbuild.models import (
    Config,
    Facts,
    Inventory,
    Manifest,
    ManifestWheel,
    Node,
    OnEvent,
    Plan,
    PlannedGroup,
    Result,
)
from fleetbuild.models.hooks import HookCall, HookFailure
from fleetbuild.models.role_parameters import RemoveSpec
from fleetbuild.models.serving import Serving
from fleetbuild.plan.document.fingerprint import changes_since_plan
from fleetbuild.probe.facts import probe_nodes
from fleetbuild.state import StateDir
from fleetbuild.store.index_config import settings_of
from fleetbuild.store.wheels import Store

# A busy node answers later than an idle one: it gets this many times a probe's deadline.
_SILENCE_FACTOR = 2


@dataclass
class FleetAccess:
    """Access to the nodes by SSH and Ansible. Their answers are saved in the state directory."""

    inventory: Inventory
    state: StateDir
    secrets: Secrets
    timeout: float
    forks: int
    install_path: str
    cluster: Any = None  # that the user named, for followers
    # Node -> the interpreter for Ansible's modules, as the last probe found it.
    _interpreters: dict[str, str] = field(default_factory=dict, init=False)

    def probe(
        self, nodes: Sequence[Node], on_event: OnEvent, *, save: Path | None = None
    ) -> dict[str, Facts]:
        """Return the facts of these nodes as they are now. `save` is a folder for captures."""
        facts = probe_nodes(
            nodes,
            timeout=self.timeout,
            forks=self.forks,
            install_path=self.install_path,
            on_event=on_event,
            state=self.state,
            save=save,
        )
        self.note(nodes, facts)
        return facts

    def note(self, nodes: Sequence[Node], facts: Mapping[str, Facts]) -> None:
        """Keep what Ansible needs to know of these nodes."""
        for node in nodes:
            if interpreter := interpreter_for_modules(node, facts[node.name]):
                self._interpreters[node.name] = interpreter

    def run_hook(self, call: HookCall) -> Mapping[str, HookFailure]:
        """Run a hook for its nodes; return the failures by node."""
        until = time.monotonic() + call.hook.timeout
        try:
            hosts = replace(
                self.playbooks,
                stopping=lambda: time.monotonic() > until,
            ).run(
                call.hook.playbook,
                limit=list(call.nodes),
                extravars={"fleetbuild_hook": call.model_dump(exclude={"hook"})},
                on_event=lambda _: None,
            )
        except KeyboardInterrupt:
            if time.monotonic() <= until:
                raise
            late = HookFailure(reason=f"it did not end within {call.hook.timeout} s.")
            return dict.fromkeys(call.nodes, late)
        return {
            name: HookFailure(reason=host.message or "unreachable", log=host.log or None)
            for name, host in hosts.items()
            if host.state != "ok"
        }

    @cached_property
    def playbooks(self) -> Playbooks:
        """Ansible on these nodes. A probe must have reached the nodes that a playbook runs on."""
        return Playbooks(
            inventory=self.inventory.source,
            secrets=self.secrets,
            state_dir=self.state.root,
            forks=self.forks,
            interpreters=self._interpreters,
            silence=_SILENCE_FACTOR * self.timeout,
        )


def apply_tools(access: FleetAccess, config: Config, follower: Follower) -> Tools:
    """Return the tools of an apply.

    A plan contains no passwords, so package indexes and their logins come from the configuration.
    """
    folder = base_folder(config, access.inventory)
    indexes = settings_of(config, folder)
    signers = (extension.signer(config, folder) for extension in extensions())
    store = Store(access.state.store, indexes)
    return Tools(
        probe=access.probe,
        find_changes=changes_since_plan,
        run_playbook=access.playbooks.run,
        wheels=store,
        audit=partial(audit_findings, revoked=store.revocations),
        revoked=lambda plan: store.revocations.in_plan(plan),  # noqa: PLW0108 (read when asked)
        import_names_of=cache(import_names),
        follower=follower,
        written=partial(_written, store, config),
        hook=access.run_hook,
        hook_exists=lambda hook: Path(hook.playbook).is_file(),
        allow_files=indexes.allow_files,
        sign=next(filter(None, signers), None),
    )


def _written(
    store: Store, config: Config, plan: Plan, groups: Sequence[PlannedGroup], serving: Serving
) -> dict[str, str]:
    """Return the files of all extensions."""
    files: dict[str, str] = {}
    for extension in extensions():
        files |= extension.written(plan, groups, serving, store.root, config)
    return files


@contextmanager
def open_followers(
    command: str, access: FleetAccess, config: Config, plan: Plan | None
) -> Iterator[Follower]:
    """Provide the followers of a run, as one. `plan` is the one to apply, else the last one."""
    run = FollowedRun(
        command, access.inventory, config, plan, access.state.root, access.playbooks.run,
        access.cluster,
    )  # fmt: skip
    with ExitStack() as stack:
        opened = [each for extension in extensions() if (each := extension.follower(run))]
        yield Followers([stack.enter_context(each) for each in opened])


def remove_from_fleet(
    spec: RemoveSpec,
    access: FleetAccess,
    config: Config,
    last_plan: Plan | None,
    *,
    on_event: OnEvent,
) -> Result:
    """Remove releases from the nodes."""
    with open_followers("remove", access, config, last_plan) as follower:
        return remove_releases(
            access.inventory,
            spec,
            state=access.state,
            probe=access.probe,
            run_playbook=access.playbooks.run,
            follower=follower,
            on_event=on_event,
        )


def run_on_fleet(
    task: FleetTask[AnyReply],
    access: FleetAccess,
    config: Config,
    last_plan: Plan | None,
    *,
    on_event: OnEvent,
) -> Result:
    """Run a task on the nodes, and notify followers of the release that serves there."""
    expected = access.state.left_there(config.release)
    command = "rollback" if task.changes else "verify"
    with open_followers(command, access, config, last_plan) as follower:
        return run_fleet_task(
            task,
            access.inventory,
            release=config.release,
            expected={name: str(result.release_id) for name, result in expected.items()},
            state=access.state,
            probe=access.probe,
            run_playbook=access.playbooks.run,
            follower=follower,
            on_event=on_event,
        )


def checks_by_manifest(
    plan: Plan | None, store: Store, recipe_folders: Sequence[Path]
) -> Callable[[Manifest], Checks]:
    """Return a release's checks: from the plan that made it, else from the recipes."""
    from fleetbuild.recipes import choose_recipe, known_recipes  # noqa: PLC0415 (0.1 s)

    recipes = known_recipes(recipe_folders)
    planned = plan.wheels_by_key if plan else {}

    def of_wheel(wheel: ManifestWheel) -> Checks:
        source_of_checks = planned.get(wheel.artifact_key) or choose_recipe(wheel.package, recipes)
        stored = store.of_key(wheel.artifact_key)
        imports = source_of_checks.import_names or (import_names(stored[0].path) if stored else ())
        return Checks(imports=imports, snippets=source_of_checks.checks)

    def of_release(manifest: Manifest) -> Checks:
        checks = [of_wheel(wheel) for wheel in manifest.wheels]
        return Checks(
            imports=tuple(name for wheel in checks for name in wheel.imports),
            snippets=tuple(snippet for wheel in checks for snippet in wheel.snippets),
        )

    return of_release
