"""What an extension may do: the one page on which the core and its guests meet.

The core finds extensions and names none: each package in `fleetbuild/extensions/`, and each entry
point of the group `fleetbuild.extensions`. Both hold an `Extension` called `extension`. Delete
`fleetbuild/extensions/` and the core still probes, groups, plans, builds, installs and verifies.
"""

from __future__ import annotations

import pkgutil
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fleetbuild.errors import UsageError

if TYPE_CHECKING:
    from fleetbuild.models import (
        Cluster,
        Config,
        Facts,
        Inventory,
        LockedFile,
        Node,
        NodeStatus,
        Plan,
        PlannedGroup,
        PlannedWheel,
        Target,
    )
    from fleetbuild.models._base import Frozen
    from fleetbuild.models.plan import MergedTargets
    from fleetbuild.models.problem import Problem
    from fleetbuild.models.result import LabelResult
    from fleetbuild.models.revocation import Revocations
    from fleetbuild.models.serving import InUse, Serving
    from fleetbuild.models.stored import BuildContext, Signer, WheelRecord
    from fleetbuild.models.verdict import Code, Verdict

ENTRY_POINTS = "fleetbuild.extensions"
Answer = TypeVar("Answer")
_OWN = "fleetbuild.extensions"


class EmitKind(NamedTuple):
    """One kind of files that `fleetbuild emit` writes, and the function that makes them."""

    name: str  # the word after `fleetbuild emit`
    # module:name. It takes an Emission and returns EmittedFiles; its keyword parameters are options
    # of the command, and its docstring is the command's help.
    function: str
    has_releases: bool = True  # groups that need a revoked wheel are left out
    has_wheels: bool = False  # the wheels are fetched, and copied beside the files

    def load(self) -> Callable[..., Any]:
        """Return the function."""
        try:
            function: Callable[..., Any] = pkgutil.resolve_name(self.function)
        except Exception as problem:  # a stranger's package may fail in any way
            raise UsageError(
                f"The kind {self.name} of emit cannot be loaded from {self.function}:"
                f" {type(problem).__name__}: {problem}.",
                "Repair or uninstall the package of that module.",
            ) from problem
        return function


class PlanBasis(NamedTuple):
    """What a plan is made from."""

    inventory: Inventory
    facts: Mapping[str, Facts]
    config: Config
    builders: Sequence[str]  # the nodes that build.builders names


class Members(NamedTuple):
    """What a plan is made for in place of the nodes, which then only build."""

    facts: Mapping[str, Facts]  # of a machine of each kind, by name
    builders: Mapping[str, tuple[str, ...]]  # the nodes that can build for each
    # Takes the group of each member, and the problems of members that are blocked. It returns the
    # fields `nodes`, `targets` and `fingerprint` of the plan.
    plan_fields: Callable[[Mapping[str, str], Mapping[str, Problem]], Mapping[str, Any]]


class FollowedRun(NamedTuple):
    """What a follower is opened for."""

    command: str  # apply, verify, rollback or remove
    inventory: Inventory
    config: Config
    plan: Plan | None  # the one to apply, else the last one
    state: Path  # the state directory
    run_playbook: Callable[..., Any]  # see RunPlaybook
    cluster: Cluster | None  # that the user named


class Follower:
    """Is notified around each change of a node: override what it needs.

    The results, by the inventory's names, say what it did to nodes. A run reports them.
    """

    def prepare(self, *, installs: bool = False) -> str:
        """Raise if it cannot follow; return a warning, or "". Called before the first node changes.

        With `installs` the run is going to replace releases.
        """
        return ""

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        """Let go of these nodes, which are about to change; one with a result that is not `ok` is
        not changed. With `serves` its release serves until another one is switched to.
        """
        return {}

    def after(self, served: Serving) -> dict[str, LabelResult]:
        """Say which verified release serves on each of these nodes now, or None.

        Called after a change and after a verification, and at the end for nodes that are up to
        date, in case an interrupted run could not.
        """
        return {}

    def in_use(self, names: Collection[str], root: str) -> InUse:
        """Return the releases below `root` to keep, and why. Called before old ones are removed."""
        return {}


class Evidence:
    """Knows more of wheels than their audit says: override what it knows.

    A target has the features and SMs of a group, or of some of its nodes.
    """

    def verdict(
        self, file: LockedFile, target: Target, beside: Iterable[LockedFile]
    ) -> Verdict | None:
        """Return whether a wheel runs there, installed with those beside it; None: not known.

        Called for the dependencies of each kind of node in a plan, and for a group's wheels when it
        is explained.
        """
        return None

    def code(self, file: LockedFile, target: Target) -> Code | None:
        """Return what the code of a wheel needs, and how it ran there; None: it is audited.

        Called for published wheels that a plan may take.
        """
        return None

    def judge(
        self,
        wheel: Path,
        kinds: Sequence[str],
        *,
        requires: Sequence[str],
        emulate: bool,
        state_dir: Path,
        progress: Callable[[str], None],
    ) -> Mapping[str, Verdict]:
        """Return whether a wheel runs on each of these kinds of machines; run it to `emulate` them.

        Called by `audit --for`, with what the wheel requires.
        """
        return {}


class Extension:
    """A guest of the core: override what it needs. Imports that take time belong in the methods."""

    def sections(self) -> Mapping[str, type[Frozen]]:
        """Return the sections that it adds to fleetbuild.yml, by their key.

        Called when a configuration is read. `config.section(TYPE)` returns the section.
        """
        return {}

    def commands(self) -> Sequence[Callable[..., None]]:
        """Return its commands, as functions with Typer's annotations.

        Called when the command line starts. `store_push` becomes `fleetbuild store push`.
        """
        return ()

    def emit_kinds(self) -> Sequence[EmitKind]:
        """Return its kinds of `fleetbuild emit`. Called when one of them or their list is asked."""
        return ()

    def read_fleet(
        self, cluster: Cluster, config: Config
    ) -> tuple[Inventory, dict[str, Facts], Config] | None:
        """Return the nodes of a cluster, their facts, and the configuration for them.

        Called when a plan is made from a cluster instead of an inventory.
        """
        return None

    def facts_in_image(
        self, basis: PlanBasis, *, timeout: float | None, forks: int
    ) -> Mapping[str, Facts] | None:
        """Return the facts with what builds find in the image of build.container on each node.

        Called before a plan if that names an image. Without a `timeout` no node can be asked,
        because the plan is made from captures.
        """
        return None

    def members(self, names: Sequence[str], basis: PlanBasis) -> Members | None:
        """Return what to plan for in place of the nodes.

        Called when a plan is made and --target or targets: names kinds of machines.
        """
        return None

    def merge(
        self,
        targets: Mapping[str, Target],
        features: Mapping[str, Collection[str]],
        facts: Mapping[str, Facts],
        packages: Sequence[Any],
        config: Config,
    ) -> MergedTargets | None:
        """Return the target of each node where groups share wheels.

        Called each time nodes are grouped. `targets` and the CPU `features` are of each node that
        can be planned for; a package has a name, a version and a recipe.
        """
        return None

    def explain(self, plan: Plan, name: str) -> Sequence[str]:
        """Return lines for `fleetbuild explain NAME`. Called for a node, a group or another name.

        Of another name, the first line is a heading.
        """
        return ()

    def plan_table(self, plan: Plan) -> Any:
        """Return what rich prints below the table of a plan, or None. Called by `plan`."""
        return None

    def plan_fields(self, config: Config) -> Mapping[str, Any]:
        """Return the fields of the plan document that are its own. Called when a plan is made."""
        return {}

    def node_fields(self, node: Node, config: Config) -> Mapping[str, Any]:
        """Return the fields that are its own of each node in a plan. Called when it is made."""
        return {}

    def installed_sections(self, plan: Plan, config: Config) -> Mapping[str, Frozen]:
        """Return its sections of fleetbuild.yml as the release of this plan was installed with.

        Called by commands on installed releases; `config` is the configuration as it is now.
        """
        return {}

    def revocations(self, store: Path, seen: Iterable[tuple[str, str]] = ()) -> Revocations:
        """Return the wheels that must not be used any more, and why.

        Called when the store in this folder or a plan asks for a wheel. `seen` are the hashes of
        wheels on nodes and in the store, each with its artifact key.
        """
        from fleetbuild.models.revocation import NOTHING_REVOKED

        return NOTHING_REVOKED

    def evidence(self, fetch: Callable[[LockedFile], Path] | None) -> Evidence | None:
        """Return its evidence about wheels.

        Called when a plan is made, with a function that fetches a wheel to read; and when a node is
        explained or a wheel audited, without.
        """
        return None

    def prepare(self, wheel: Path, folder: Path, planned: PlannedWheel) -> Path:
        """Return the wheel to store in place of this one, written to `folder`, or the same path.

        Called when a wheel that was built has passed its audit, before it is hashed and stored.
        """
        return wheel

    def accompany(
        self, home: Path, planned: PlannedWheel, record: WheelRecord, context: BuildContext
    ) -> None:
        """Write files beside a stored wheel. Called once for each, before its folder appears."""

    def signer(self, config: Config, folder: Path) -> Signer | None:
        """Return what signs statements about releases, if the configuration asks for that.

        Called before the first stage of an apply; paths are relative to `folder`.
        """
        return None

    def follower(self, run: FollowedRun) -> AbstractContextManager[Follower] | None:
        """Open the follower of a run.

        Called when an apply, a verify, a rollback or a remove begins; closed when it has ended.
        """
        return None

    def compare(
        self,
        statuses: dict[str, NodeStatus],
        facts: Mapping[str, Facts],
        *,
        inventory: Inventory,
        config: Config,
        plan: Plan | None,
        cluster: Cluster | None,
    ) -> dict[str, NodeStatus]:
        """Return these statuses with what it knows of each node. Called at the end of a status."""
        return statuses

    def written(
        self,
        plan: Plan,
        groups: Sequence[PlannedGroup],
        serving: Serving,
        store: Path,
        config: Config,
    ) -> Mapping[str, str]:
        """Return files for the state directory, by name.

        Called in the last stage of an apply. `groups` are those with a verified node, and `serving`
        is the release of each node of the plan.
        """
        return {}


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions, first the ones that come with fleetbuild."""
    own = find_spec(_OWN)
    folders = (own.submodule_search_locations or ()) if own else ()
    names = sorted(module.name for module in pkgutil.iter_modules(folders) if module.ispkg)
    return (*(import_module(f"{_OWN}.{name}").extension for name in names), *_of_others())


def _of_others() -> Iterator[Extension]:
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            extension = point.load()
            if not isinstance(extension, Extension):
                raise TypeError(f"{point.value} is not an Extension")
        except Exception as problem:  # a stranger's package may fail in any way
            package = point.dist.name if point.dist else "its package"
            raise UsageError(
                f"The extension {point.name} cannot be loaded: {type(problem).__name__}:"
                f" {problem}.",
                f"Repair or uninstall {package}.",
            ) from problem
        yield extension


def first_answer(ask: Callable[[Extension], Answer | None]) -> Answer | None:
    """Return the answer of the first extension that has one, else None."""
    return next((each for each in map(ask, extensions()) if each is not None), None)


def find_evidence(fetch: Callable[[LockedFile], Path] | None = None) -> Evidence | None:
    """Return the evidence about wheels; `fetch` is as for the hook."""
    return first_answer(lambda each: each.evidence(fetch))


def plan_fields(config: Config) -> dict[str, Any]:
    """Return the fields of a plan that extensions fill."""
    return dict(ChainMap(*(dict(each.plan_fields(config)) for each in extensions())))


def node_fields(node: Node, config: Config) -> dict[str, Any]:
    """Return the fields of a planned node that extensions fill."""
    return dict(ChainMap(*(dict(each.node_fields(node, config)) for each in extensions())))
