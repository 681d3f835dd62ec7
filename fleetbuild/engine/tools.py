"""The ways out of this process, as they really are: SSH, Ansible, the store, the audit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fleetbuild.ansible import Secrets
from fleetbuild.cluster import Cluster
from fleetbuild.config import base_folder, find_config, load_config
from fleetbuild.engine.accept import findings
from fleetbuild.engine.errand import Errand, run_errand
from fleetbuild.engine.housekeeping import release_files
from fleetbuild.engine.imports import import_names
from fleetbuild.engine.labelling import Files, Labeller, Names, names_for
from fleetbuild.engine.labelling_api import Api
from fleetbuild.engine.labelling_nfd import Nfd
from fleetbuild.engine.plans import left_on_nodes
from fleetbuild.engine.playbooks import AnsiblePlaybooks, interpreter_for_modules
from fleetbuild.engine.probing import probe_nodes
from fleetbuild.engine.run import Tools
from fleetbuild.engine.state import StateDir
from fleetbuild.engine.verify import Checks
from fleetbuild.kubernetes import render
from fleetbuild.models import (
    Config,
    Facts,
    Inventory,
    Manifest,
    ManifestWheel,
    Node,
    OnEvent,
    Plan,
    Result,
)
from fleetbuild.models.config import LabelsBy
from fleetbuild.planning import stale
from fleetbuild.recipes import choose_recipe, known_recipes
from fleetbuild.store import Store, index_settings


@dataclass(frozen=True)
class Reach:
    """How nodes are reached, and where what they say is kept."""

    inventory: Inventory
    state: StateDir
    secrets: Secrets
    timeout: float
    forks: int
    install_path: str
    # By the last probe; playbooks start only after one.
    interpreters: dict[str, str] = field(default_factory=dict)

    def probe(self, nodes: Sequence[Node], on_event: OnEvent) -> dict[str, Facts]:
        """The facts of these nodes as they are now."""
        facts = probe_nodes(
            nodes,
            timeout=self.timeout,
            forks=self.forks,
            install_path=self.install_path,
            on_event=on_event,
            state=self.state,
        )
        for node in nodes:
            if interpreter := interpreter_for_modules(node, facts[node.name]):
                self.interpreters[node.name] = interpreter
        return facts

    @property
    def playbooks(self) -> AnsiblePlaybooks:
        """Our playbooks on the same nodes."""
        return AnsiblePlaybooks(
            inventory=self.inventory.source,
            secrets=self.secrets,
            state_dir=self.state.root,
            forks=self.forks,
            interpreters=self.interpreters,
        )


def connect(reach: Reach, config: Config | None) -> Tools:
    """The tools of an apply. A plan says no password: where packages come from, and who we are
    there, is in fleetbuild.yml, the one beside the inventory where none is given."""
    if config is None:
        beside = find_config(reach.inventory.source)
        config = load_config(beside) if beside else Config()
    folder = base_folder(config, reach.inventory)
    indexes = index_settings(config.index, folder, mirrors=config.mirrors)
    store = Store(reach.state.store, indexes)
    return Tools(
        probe=reach.probe,
        differences=stale,
        playbook=reach.playbooks,
        wheels=store,
        findings=findings,
        imports=import_names,
        manifests=partial(_manifests, store),
    )


@contextmanager
def labeller(by: LabelsBy, names: Names, reach: Reach, cluster: Cluster) -> Iterator[Labeller]:
    """Who labels, as fleetbuild.yml says."""
    if by == "files":
        yield Files()
    elif by == "nfd":
        yield Nfd(names, reach.playbooks, reach.state)
    else:
        with cluster.connect() as client:
            yield Api(names, client)


def _manifests(store: Store, plan: Plan, verified: Collection[str]) -> dict[str, str]:
    return render(plan, verified=verified, wheels=release_files(plan, store))


def send(
    errand: Errand,
    reach: Reach,
    config: Config,
    made: Plan | None,
    cluster: Cluster | None,
    *,
    on_event: OnEvent,
) -> Result:
    """Run an errand on the nodes, and keep their labels to what serves there."""
    names = names_for(reach.inventory, config, made)
    with labeller(config.kubernetes.labels, names, reach, cluster or Cluster()) as labels:
        return run_errand(
            errand,
            reach.inventory,
            release=config.release,
            left=left_on_nodes(reach.state, made, config.release),
            state=reach.state,
            probe=reach.probe,
            playbook=reach.playbooks,
            labels=labels,
            on_event=on_event,
        )


def checks_for(
    plan: Plan | None, store: Store, recipe_folders: Sequence[Path]
) -> Callable[[Manifest], Checks]:
    """How a release is verified: as the plan says that made it, else as the recipes say."""
    recipes = known_recipes(recipe_folders)
    planned = {
        wheel.artifact_key: wheel
        for group in (plan.groups if plan else ())
        for wheel in group.wheels
    }

    def of_wheel(wheel: ManifestWheel) -> Checks:
        knows = planned.get(wheel.artifact_key) or choose_recipe(wheel.package, recipes)
        stored = store.of_key(wheel.artifact_key)
        imports = knows.import_names or (import_names(stored[0].path) if stored else ())
        return Checks(imports=imports, snippets=knows.checks)

    return partial(_of_all, of_wheel)


def _of_all(of_wheel: Callable[[ManifestWheel], Checks], manifest: Manifest) -> Checks:
    each = [of_wheel(wheel) for wheel in manifest.wheels]
    return Checks(
        imports=tuple(name for checks in each for name in checks.imports),
        snippets=tuple(snippet for checks in each for snippet in checks.snippets),
    )
