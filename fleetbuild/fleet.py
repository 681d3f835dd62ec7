"""`Fleet`: everything that fleetbuild does, as calls on one object. Import it from `fleetbuild`.

In: an inventory or a cluster, configuration, state directory, secrets. Out: facts, plans, results
and files. Nothing here prints or exits; an error is a FleetbuildError with a message and a fix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import fleetbuild
from fleetbuild.ansible import Secrets
from fleetbuild.config import base_folder, config_model, find_config, load_config
from fleetbuild.errors import BlockedError, PlanFileError, UsageError
from fleetbuild.extension import PlanBasis, extensions, first_answer
from fleetbuild.foreign_settings import refuse_foreign_folder, refuse_foreign_home
from fleetbuild.models import (
    Cluster,
    Config,
    Event,
    Facts,
    Inventory,
    NodeStatus,
    OnEvent,
    Plan,
    Result,
    ignore,
)
from fleetbuild.models.event import now
from fleetbuild.models.plan import FactsSource
from fleetbuild.probe.inventory import read_inventory
from fleetbuild.state import StateDir
from fleetbuild.text import fold
from fleetbuild.this_machine import is_this_machine, with_users_folder

# A call imports what it needs: all of it takes half a second, and `status --offline` a part.
# Public annotations say `fleetbuild.NAME`, which typing.get_type_hints can look up.
if TYPE_CHECKING:
    from fleetbuild.ansible.role_results import AnyReply
    from fleetbuild.apply.fleet_task import FleetTask
    from fleetbuild.apply.stages import StageFunction
    from fleetbuild.apply.wiring import FleetAccess

TIMEOUT = 30.0  # seconds for a node's probe
FRESH = 60.0  # seconds from a probe on, for which an apply needs no other one


class Fleet:
    """The nodes of an inventory, with the configuration and the state directory to manage them.

    Files are read when a call needs them. Without `inventory`, calls use the inventory of the last
    plan. Without `config`, they use fleetbuild.yml beside the inventory, if there is one. `timeout`
    is each node's deadline in seconds: for an apply the plan's by default, else 30. `forks` is the
    number of nodes asked at once. `on_event` of a call gets its events.
    """

    def __init__(
        self,
        inventory: Inventory | Path | str | None = None,
        *,
        config: Config | Path | str | None = None,
        state_dir: Path | str = ".fleetbuild",
        secrets: Secrets | None = None,
        limit: str | None = None,
        timeout: float | None = None,
        forks: int = 64,
        cluster: Cluster | None = None,
    ) -> None:
        if limit is not None and isinstance(inventory, Inventory):
            raise UsageError(
                "This inventory was read already, so no limit applies to it.",
                "Pass the limit to read_inventory, or pass the inventory's path.",
            )
        refuse_foreign_home()
        self._nodes = inventory
        self._limit = limit
        self._config = config
        self._state = StateDir(Path(state_dir).absolute()).checked()
        self._secrets = secrets or Secrets()
        self._timeout, self._forks = timeout, forks
        self.cluster = cluster
        self._cluster_facts: dict[str, Facts] | None = None  # of a fleet that SSH does not reach
        self._last: Plan | None = None
        self._probed: tuple[Mapping[str, Facts], float] = ({}, 0.0)  # and when it began
        self._made_now: str | None = None  # digest of the plan that was made of these facts

    @classmethod
    def from_cluster(
        cls,
        cluster: Cluster | None = None,
        *,
        config: Config | Path | str | None = None,
        state_dir: Path | str = ".fleetbuild",
    ) -> Fleet:
        """Read a cluster's Nodes, to plan for them and to emit builds and manifests.

        The facts come from the cluster's data about its Nodes; Python and C library come from
        `build.image`. Without `config`, fleetbuild.yml in the current directory is read.
        """
        read = _configuration(config, ".")
        found = first_answer(lambda each: each.read_fleet(cluster or Cluster(), read))
        if found is None:
            raise UsageError(
                "No extension of this fleetbuild reads a cluster.", "Name an INVENTORY instead."
            )
        inventory, facts, read = found
        fleet = cls(inventory, config=read, state_dir=state_dir, cluster=cluster)
        fleet._cluster_facts = facts
        return fleet

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes, as Ansible or the cluster lists them. Read once."""
        if isinstance(self._nodes, Inventory):
            return self._nodes
        if self._nodes is not None:
            return read_inventory(self._nodes, limit=self._limit, secrets=self._secrets)
        plan = self._plan()
        plan.require_ssh()
        limit = self._limit if self._limit is not None else plan.limit
        return read_inventory(plan.inventory, limit=limit, secrets=self._secrets)

    @cached_property
    def config(self) -> Config:
        """The configuration: the argument, else the one of the last plan, which names the inventory
        too, else fleetbuild.yml beside the inventory, else the defaults.

        On this machine alone, releases go to the user's data folder if /opt/fleetbuild cannot be
        written.
        """
        plan = self._plan() if self._nodes is None else None
        source, planned = (plan.inventory, plan.config) if plan else (self._source, None)
        config = _configuration(self._config or planned, source)
        if not is_this_machine(source):
            return config
        may_become = self._secrets.become_pass is not None
        return with_users_folder(config, self.inventory, may_become=may_become)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that the configuration, or else the inventory, names."""
        from fleetbuild.plan.decide.packages import named_packages
        from fleetbuild.plan.resolve.requirement_files import listed_packages

        listed = listed_packages(self.config, base_folder(self.config, self.inventory))
        return listed.requirements or named_packages(self.config, self.inventory)

    @property
    def _config_file(self) -> str | None:
        named = self._config
        return None if named is None or isinstance(named, Config) else str(named)

    @property
    def store(self) -> fleetbuild.FleetStore:
        """The wheels in the state directory."""
        from fleetbuild.fleet_store import FleetStore

        return FleetStore(self._state, self._plan, lambda: self.config)

    def probe(
        self,
        *,
        captures: Path | str | None = None,
        save: Path | str | None = None,
        on_event: OnEvent = ignore,
    ) -> dict[str, Facts]:
        """Return each node's facts, read from the node itself or from a folder of captures.

        `save` names a folder for the captures; the state directory keeps them in any case.
        """
        from fleetbuild.probe.facts import stored_facts

        if captures is not None:
            return stored_facts(Path(captures), self.inventory.nodes)
        if self._cluster_facts is not None:
            return self._cluster_facts
        began = monotonic()
        facts = self._access(self.config.install.path).probe(
            self.inventory.nodes, on_event, save=Path(save) if save is not None else None
        )
        self._probed = facts, began
        return facts

    def plan(
        self,
        packages: Sequence[str] = (),
        *,
        targets: Sequence[str] = (),
        facts: Mapping[str, Facts] | None = None,
        captures: Path | str | None = None,
        requirements: fleetbuild.RequirementList | None = None,
        on_event: OnEvent = ignore,
    ) -> Plan:
        """Return a plan of what an apply would do; `save_plan` saves it.

        `packages`, `requirements` (of files) and `targets` replace the configuration's. With
        targets, nodes only build. `facts` come from an earlier `probe` with the same `captures`;
        else the nodes are probed.
        """
        from fleetbuild.plan.plan_fleet import named_builders, plan_fleet

        source: FactsSource = "captures" if captures is not None else "probe"
        if self._cluster_facts is not None:
            source = "cluster"
        config = self.config
        facts = asked = self.probe(captures=captures, on_event=on_event) if facts is None else facts
        builders = named_builders(self.inventory, config, self._secrets)
        if source != "cluster" and config.build.policy != "published":
            facts = self._in_image(facts, builders, asks=source == "probe")
        self._set_aside_damaged_result(on_event)
        plan = plan_fleet(
            self.inventory,
            facts,
            config,
            packages,
            state_dir=self._state.create().root,
            builders=builders,
            targets=targets,
            facts_source=source,
            captures=captures,
            requirements=requirements,
            secrets=self._secrets,
            timeout=self._timeout,
            config_file=self._config_file,
            on_event=on_event,
        )
        self._made_now = plan.digest if asked is self._probed[0] else None
        return plan

    def _in_image(
        self, facts: Mapping[str, Facts], builders: Sequence[str], *, asks: bool
    ) -> Mapping[str, Facts]:
        """Return the facts with what builds find in the image of build.container, if it is set."""
        if self.config.build.container is None:
            return facts
        basis = PlanBasis(self.inventory, facts, self.config, builders)
        timeout = (self._timeout or TIMEOUT) if asks else None
        found = first_answer(
            lambda each: each.facts_in_image(basis, timeout=timeout, forks=self._forks)
        )
        if found is None:
            raise UsageError(
                "No extension of this fleetbuild builds in containers, as build.container asks.",
                "Remove build.container, or install fleetbuild with its extensions.",
            )
        return found

    def save_plan(self, plan: Plan, path: Path | str | None = None) -> Path:
        """Write a plan to `path`, or to where `apply` and all later calls look for it."""
        from fleetbuild.plan.document.files import save_plan

        if path is None:
            path, self._last = self._state.plan_file, plan
        save_plan(plan, path)
        return Path(path)

    def last_plan(self) -> Plan | None:
        """Return the plan that was saved or applied last; None if no plan was saved yet."""
        from fleetbuild.plan.document.files import last_plan

        return self._last or last_plan(self._state)

    def changed_inputs(self, plan: Plan) -> list[Path]:
        """Return the configuration and lists of packages that were written after this plan."""
        from fleetbuild.plan.document.files import changed_inputs

        file = self._config_file or plan.config
        source = Path(file) if file else find_config(self._source)
        folder = base_folder(self.config, self.inventory)
        return changed_inputs(plan, source, self.config, folder)

    def _readable_plan(self, on_event: OnEvent) -> Plan | None:
        """Return the last plan for calls that can do without it; say if it cannot be read."""
        try:
            return self.last_plan()
        except PlanFileError as error:
            instead = "Paths and names come from fleetbuild.yml instead, and checks from recipes."
            _warn(on_event, f"{error.message} {instead}", error.fix or "")
            return None

    def _set_aside_damaged_result(self, on_event: OnEvent) -> None:
        if sentence := self._state.set_aside_damaged_result():
            _warn(on_event, sentence)

    def apply(
        self,
        plan: Plan | None = None,
        *,
        rollback_on_failure: bool = False,
        wait: bool = False,
        on_event: OnEvent = ignore,
    ) -> Result:
        """Carry out a plan: build, distribute, install, verify, label, write manifests.

        The plan, by default the last one, decides everything; only the logins of package indexes
        come from the configuration. The result lists nodes and groups that failed; the others are
        finished. A FleetbuildError means that nothing was changed: another run holds the run lock,
        or the plan is stale or blocked. `rollback_on_failure` switches a stopped group back. `wait`
        waits for nodes that another controller is changing. Nodes are probed again, unless this
        object probed them within the last minute for this plan.
        """
        from fleetbuild.apply.stages import STAGES
        from fleetbuild.plan.document.files import keep_applied

        plan = plan or self._plan()
        plan.require_ssh()
        with keep_applied(plan, self._state):
            result = self._carry_out(
                plan,
                STAGES,
                on_event,
                rollback_on_failure=rollback_on_failure,
                wait=wait,
                probed=self._facts_of(plan),
            )
        self._last = plan
        return result

    def _carry_out(
        self,
        plan: Plan,
        stages: Sequence[StageFunction],
        on_event: OnEvent,
        *,
        rollback_on_failure: bool = False,
        wait: bool = False,
        probed: Mapping[str, Facts] | None = None,
    ) -> Result:
        from fleetbuild.apply.context import Run
        from fleetbuild.apply.stages import carry_out
        from fleetbuild.apply.wiring import apply_tools, open_followers
        from fleetbuild.journal import Journal

        self._set_aside_damaged_result(on_event)
        access = self._access(plan.install_path, plan.timeout)
        if probed:
            access.note(self.inventory.nodes, probed)
        journal = Journal(self._state.journal / f"{plan.digest[:16]}.jsonl")
        with open_followers("apply", access, self.config, plan) as follower:
            tools = apply_tools(access, self.config, follower)
            run = Run(plan, self.inventory, self._state, tools, journal, on_event,
                      rollback_on_failure, wait, probed)  # fmt: skip
            return carry_out(run, stages)

    def _facts_of(self, plan: Plan) -> Mapping[str, Facts] | None:
        """Return the facts of this plan if they are fresh: once, as an apply changes the nodes."""
        facts, began = self._probed
        fresh = plan.digest == self._made_now and monotonic() - began < FRESH
        self._made_now = None
        return facts if fresh else None

    def verify(self, *, repair: bool = False, on_event: OnEvent = ignore) -> Result:
        """Run the checks of each node's current release again.

        `repair` installs releases that are damaged or lost again, from the last plan.
        """
        from fleetbuild.apply.stages import REPAIR_STAGES
        from fleetbuild.apply.verify import repair_damaged, verify_task
        from fleetbuild.apply.wiring import checks_by_manifest
        from fleetbuild.store.wheels import Store

        plan = self._readable_plan(on_event)
        config = self._installed(plan)
        recipes = base_folder(config, self.inventory) / "recipes"
        checks = checks_by_manifest(plan, Store(self._state.store), [recipes])
        revoked = Store(self._state.store).revocations
        task = verify_task(config.install.path, config.release, checks, revoked)
        result = self._run_task(task, plan, config, on_event)
        if not repair:
            return result
        install = partial(self._carry_out, stages=REPAIR_STAGES, on_event=on_event)
        return repair_damaged(result, plan, self._state, install)

    def rollback(self, *, on_event: OnEvent = ignore) -> Result:
        """Switch each node back to its previous release that holds no revoked wheel."""
        from fleetbuild.apply.rollback import rollback_task
        from fleetbuild.store.wheels import Store

        plan = self._readable_plan(on_event)
        config = self._installed(plan)
        self._set_aside_damaged_result(on_event)
        revoked = (entry.what for entry in Store(self._state.store).revocations.entries)
        controller = self._state.create().controller()
        task = rollback_task(config.install.path, config.release, controller, revoked)
        return self._run_task(task, plan, config, on_event)

    def remove(self, *, on_event: OnEvent = ignore) -> Result:
        """Remove all releases of this name from the nodes; a release in use stays."""
        from fleetbuild.apply.wiring import remove_from_fleet
        from fleetbuild.models.role_parameters import RemoveSpec

        plan = self._readable_plan(on_event)
        config = self._installed(plan)
        self._set_aside_damaged_result(on_event)
        spec = RemoveSpec(
            path=config.install.path,
            release=config.release,
            controller=self._state.create().controller(),
        )
        access = self._access(config.install.path)
        return remove_from_fleet(spec, access, config, plan, on_event=on_event)

    def unfinished_run(self) -> str:
        """Return a sentence about a run under way or an apply that was stopped, else ""."""
        from fleetbuild.journal import Journal
        from fleetbuild.run_lock import why_locked

        if why := why_locked(self._state.lock_file):
            return f"A run is under way: {why}"
        if Journal(self._state.journal / "any").was_stopped():
            return "The last apply was stopped before its end. To go on with it: fleetbuild apply"
        return ""

    def status(self, *, offline: bool = False, on_event: OnEvent = ignore) -> dict[str, NodeStatus]:
        """Return the release that serves on each node, and how it differs from the last apply's.

        `offline` uses the facts of the last probe instead of probing. If a cluster was given, or if
        labels are set through the API, the labels in the cluster are compared too.
        """
        from fleetbuild.apply.status import compare_releases
        from fleetbuild.probe.facts import last_facts
        from fleetbuild.store.wheels import Store

        plan = self._readable_plan(on_event)
        config, inventory = self._installed(plan), self.inventory
        names = [node.name for node in inventory.nodes]
        if offline:
            facts, ages = last_facts(self._state, inventory.nodes)
        else:
            facts = self._access(config.install.path).probe(inventory.nodes, on_event)
            ages = dict.fromkeys(names, now())
        expected = self._state.left_there(config.release)
        if plan and plan.inventory == self._source and inventory.limit is None:
            _tell_departed(on_event, sorted(expected.keys() - set(names)))
        revoked = Store(self._state.store).revocations
        statuses = compare_releases(
            names,
            facts,
            release=config.release,
            expected=expected,
            probed=ages,
            revoked=revoked,
        )
        for extension in extensions():
            statuses = extension.compare(
                statuses, facts, inventory=inventory, config=config, plan=plan, cluster=self.cluster
            )
        return statuses

    def step_seconds(self, plan: Plan) -> dict[str, float]:
        """Return how long a batch of nodes took in the last apply of these packages, by group."""
        from fleetbuild.journal import Journal

        return Journal(self._state.journal / "plan").step_seconds(plan.package_names)

    def explain(
        self, name: str, *, plan: Plan | None = None, captures: Path | str | None = None
    ) -> fleetbuild.Explanation:
        """Explain why a node or group was planned so, from captures or the last probe's facts."""
        from fleetbuild.plan.explain import explain_name

        return explain_name(plan or self._plan(), name, self._state, captures)

    def emit(
        self,
        kind: str,
        *,
        plan: Plan | None = None,
        result: Result | None = None,
        out: Path | str | None = None,
        **options: object,
    ) -> fleetbuild.EmittedFiles:
        """Return manifests and scripts, with a warning for everything that is left out.

        They name the release that serves on each node: by the node's last answer, else by `result`
        or the plan. `plan` is the last one by default. `options` belong to the kind, such as
        `delivery` for pods. `out` is a folder to write the files to; for kinds with wheels, locked
        dependencies are fetched, and the wheels are copied beside the files.
        """
        from fleetbuild.apply.serving import serving_now
        from fleetbuild.emit.emission import Emission
        from fleetbuild.emit.kinds import emit_kind
        from fleetbuild.store.fetch_locked import open_store
        from fleetbuild.store.release_files import export_indexes
        from fleetbuild.store.wheels import Store

        plan = plan or self._plan()
        copies = emit_kind(kind).has_wheels
        config = _configuration(self._config or plan.config, self._named or plan.inventory)
        # Opening the store fetches.
        store = open_store(plan, self._state, config) if copies else Store(self._state.store)
        emission = Emission(
            plan=plan,
            serving=serving_now(plan, self._state, result),
            store=store,
            config=config,
        )
        emitted = emission.write(kind, options).written(out)
        if out is None or not copies:
            return emitted
        return replace(emitted, paths=(*emitted.paths, *export_indexes(plan, store, Path(out))))

    def doctor(self) -> list[fleetbuild.Finding]:
        """Check this machine for everything that a run needs."""
        from fleetbuild.doctor import examine

        return examine(self._state.root)

    @property
    def _source(self) -> str:
        """Return the inventory's path, without reading it."""
        return self._plan().inventory if self._named is None else self._named

    @property
    def _named(self) -> str | None:
        """Return the path of the inventory argument, if there was one."""
        if isinstance(self._nodes, Inventory):
            return self._nodes.source
        return str(self._nodes) if self._nodes is not None else None

    def _plan(self) -> Plan:
        """Return the last plan, which must exist."""
        from fleetbuild.plan.document.files import read_plan

        return self._last or read_plan(self._state.plan_file)

    def _installed(self, plan: Plan | None) -> Config:
        """Return the configuration of the installed release: the argument, else the last plan's if
        it was made for this inventory, else fleetbuild.yml's."""
        from fleetbuild.plan.document.files import config_of

        if self._config is not None or plan is None or plan.inventory != self._source:
            return self.config
        return config_of(plan, self.config)

    def _access(self, install_path: str, planned: float | None = None) -> FleetAccess:
        """Return the way to the nodes. `planned` is the deadline that a plan was made with."""
        from fleetbuild.apply.wiring import FleetAccess

        if self._cluster_facts is not None:
            raise BlockedError(
                "This fleet was read from a cluster; this call needs SSH access to the nodes.",
                "Name an inventory of the same nodes: Fleet('inventory.yml').",
            )
        timeout = self._timeout or planned or TIMEOUT
        return FleetAccess(
            self.inventory, self._state, self._secrets, timeout, self._forks, install_path,
            cluster=self.cluster,
        )  # fmt: skip

    def _run_task(
        self, task: FleetTask[AnyReply], plan: Plan | None, config: Config, on_event: OnEvent
    ) -> Result:
        from fleetbuild.apply.wiring import run_on_fleet

        access = self._access(config.install.path)
        return run_on_fleet(task, access, config, plan, on_event=on_event)


def _warn(on_event: OnEvent, message: str, fix: str = "") -> None:
    on_event(Event(stage="check", state="warning", message=message, fix=fix))


def _tell_departed(on_event: OnEvent, names: Sequence[str]) -> None:
    """Name the nodes that left the inventory with a release on them."""
    if names:
        some = ",".join(names) + ("," if len(names) == 1 else "")
        _warn(
            on_event,
            f"No longer in the inventory, and still with a release: {fold(names)}.",
            "Remove it while the node can be reached. A comma at the end makes a name a list of"
            f" hosts: fleetbuild remove '{some}'",
        )


def _configuration(config: Config | Path | str | None, source: str) -> Config:
    """Return this configuration, else fleetbuild.yml beside this inventory."""
    if isinstance(config, Config):
        return config
    refuse_foreign_folder(source)
    file = config or find_config(source)
    return load_config(file) if file else config_model()()
