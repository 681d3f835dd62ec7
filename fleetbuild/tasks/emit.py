"""Emit: render the files for Kubernetes, NFD, containers, Nix, Flox, Windows and cluster builds.

In: a plan, the nodes' releases, the delivery options and the store. Out: file names, texts and
warnings; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.kubernetes import (
    Delivery,
    Serving,
    Wheel,
    containers,
    feature_files,
    node_feature_rule,
    node_warnings,
    render,
    render_kustomize,
    render_labels,
    render_workload,
    snippets,
    warnings,
)
from fleetbuild.kubernetes.delivery.containerfile import index_warnings
from fleetbuild.kubernetes.delivery.libraries import library_warnings
from fleetbuild.kubernetes.labels.feature_files import needs_permission
from fleetbuild.kubernetes.labels.node_facts import NOT_PUBLISHED
from fleetbuild.kubernetes.labels.rules import FILE as RULES
from fleetbuild.kubernetes.login import login_files
from fleetbuild.kubernetes.scheduling.device_classes import FILE as DEVICE_CLASSES
from fleetbuild.kubernetes.scheduling.device_classes import device_classes, no_limits
from fleetbuild.kubernetes.scheduling.flavors import FILE as FLAVORS
from fleetbuild.kubernetes.scheduling.flavors import resource_flavors
from fleetbuild.kubernetes.scheduling.node_pools import node_pools
from fleetbuild.models import Config, Plan
from fleetbuild.nix import flox_files, flox_warnings, nix_files
from fleetbuild.planner.plan_files import config_of
from fleetbuild.store import Store
from fleetbuild.tasks.cluster_builds import cluster_builds
from fleetbuild.tasks.publish.export import release_files
from fleetbuild.tasks.wheels.store_fetch import fetch_releases, lacking, way_on
from fleetbuild.text import fold
from fleetbuild.windows import windows_files, windows_warnings

What = Literal[
    "k8s", "labels", "nfd", "affinity", "kustomize", "containers", "builds", "nix", "flox",
    "dra", "kueue", "nodepools", "rbac", "windows",
]  # fmt: skip
_WITHOUT_RELEASES = (
    "labels",
    "nfd",
    "dra",
    "kueue",
    "windows",
)  # `serving` decides what labels say
WITH_WHEELS = ("containers", "nix", "flox")  # the wheels are copied beside their files


@dataclass(frozen=True)
class EmittedFiles:
    """File names and texts, with a warning for everything that was left out."""

    files: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()  # paths of the written files, if any

    def written(self, folder: Path | str | None) -> EmittedFiles:
        """Write the files into a folder, if there is one; return them with their paths."""
        if folder is None:
            return self
        paths = tuple(Path(folder) / name for name in self.files)
        for path, text in zip(paths, self.files.values(), strict=True):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
            except OSError as problem:
                raise UsageError(
                    f"{path} cannot be written: {problem.strerror}.",
                    "Name another folder with --out.",
                ) from problem
        return replace(self, paths=paths)


def read_workload(path: Path) -> tuple[str, str]:
    """Return name and text of the user's own workload; line ends are kept."""
    try:
        return path.name, path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}.", "Name another file.") from None


def emit_login(config: Config, delivery: Delivery) -> EmittedFiles:
    """Return the files of fleetbuild's login. They depend on no plan."""
    return EmittedFiles(login_files(config.kubernetes.label_domain, delivery.namespace))


@dataclass(frozen=True, kw_only=True)
class Emission:
    """The inputs of `emit`: plan, serving releases, delivery options, store and workload."""

    plan: Plan
    serving: Serving
    delivery: Delivery
    store: Store
    workload: tuple[str, str] | None = None  # file name and text of the user's own

    def write(self, what: What) -> EmittedFiles:
        """Return the files of one kind. Groups that need a revoked wheel are left out."""
        revoked = self.store.revocations.in_plan(self.plan)
        if not revoked or what in _WITHOUT_RELEASES:
            return self._write(what)
        groups = tuple(group for group in self.plan.groups if group.name not in revoked)
        if not groups:
            raise BlockedError(
                f"Nothing can be emitted. {next(iter(revoked.values())).rstrip('.')}.",
                f"Plan and apply again: {self.plan.command()}",
            )
        rest = self.plan.model_copy(update={"groups": groups})
        emitted = replace(self, plan=rest)._write(what)
        labels = render_labels(self.plan, self.serving) if what == "k8s" else {}
        left_out = (
            f"{group} is left out: {why.rstrip('.')}. Plan and apply again."
            for group, why in revoked.items()
        )
        return EmittedFiles({**emitted.files, **labels}, (*left_out, *emitted.warnings))

    def _write(self, what: What) -> EmittedFiles:
        return {
            "k8s": self._workloads,
            "labels": self._labels,
            "nfd": self._for_nfd,
            "affinity": self._affinity,
            "kustomize": self._kustomize,
            "containers": self._containers,
            "builds": self._builds,
            "dra": self._device_classes,
            "kueue": self._flavors,
            "nodepools": self._node_pools,
            "rbac": self._login,
            "nix": self._nix,
            "flox": self._flox,
            "windows": self._windows,
        }[what]()

    def _workloads(self) -> EmittedFiles:
        wheels = release_files(self.plan, self.store)
        if self.workload:
            files, messages = render_workload(
                self.plan,
                *self.workload,
                serving=self.serving,
                delivery=self.delivery,
                wheels=wheels,
            )
        else:
            files = render(self.plan, serving=self.serving, delivery=self.delivery, wheels=wheels)
            messages = warnings(
                self.plan, serving=self.serving, delivery=self.delivery, wheels=wheels
            )
        return EmittedFiles(files, (*messages, *self._libraries(wheels)))

    def _kustomize(self) -> EmittedFiles:
        wheels = release_files(self.plan, self.store)
        messages = warnings(self.plan, delivery=self.delivery, wheels=wheels)
        files = render_kustomize(self.plan, delivery=self.delivery, wheels=wheels)
        return EmittedFiles(files, (*messages, *self._libraries(wheels)))

    def _labels(self) -> EmittedFiles:
        return EmittedFiles(
            render_labels(self.plan, self.serving), node_warnings(self.plan, self.serving)
        )

    def _for_nfd(self) -> EmittedFiles:
        """Return the feature files for nfd-worker and the rules for nfd-master."""
        files = feature_files(self.plan, self.serving)
        messages = (
            *node_warnings(self.plan, self.serving),
            *self._not_published(),
            *filter(None, [needs_permission(self.plan.label_domain)]),
        )
        return EmittedFiles({**files, RULES: node_feature_rule(self.plan)}, messages)

    def _not_published(self) -> tuple[str, ...]:
        hidden = [name for name, node in self.plan.nodes.items() if NOT_PUBLISHED in node.warnings]
        return (f"{fold(hidden)}: {NOT_PUBLISHED}",) if hidden else ()

    def _affinity(self) -> EmittedFiles:
        return EmittedFiles(snippets(self.plan, runtime_class=self.delivery.runtime_class))

    def _containers(self) -> EmittedFiles:
        wheels, messages = self._releases("image")
        about_indexes = index_warnings(self.plan, self.delivery, wheels)
        files = containers(self.plan, self.delivery, wheels)
        return EmittedFiles(files, (*messages, *about_indexes, *self._libraries(wheels)))

    def _nix(self) -> EmittedFiles:
        wheels, messages = self._releases("Nix expression")
        return EmittedFiles(nix_files(self.plan, wheels), messages)

    def _flox(self) -> EmittedFiles:
        wheels, messages = self._releases("Flox environment")
        return EmittedFiles(flox_files(self.plan, wheels), (*messages, *flox_warnings(self.plan)))

    def _windows(self) -> EmittedFiles:
        return EmittedFiles(windows_files(self.plan), windows_warnings(self.plan))

    def _releases(self, made: str) -> tuple[dict[str, tuple[Wheel, ...]], tuple[str, ...]]:
        """Fetch missing files; return the files of each complete release, and warnings.

        `made` names the product for the warnings about groups without a complete release.
        """
        fetched = fetch_releases(self.plan, self.store)
        wheels = release_files(self.plan, self.store)
        if not wheels:
            lacks = " ".join(lacking(self.plan, self.store).values())
            raise BlockedError(
                f"The store has no complete release, so no {made} can be written. {lacks}",
                f"{way_on(self.plan, self.store)}.",
            )
        left_out = (
            f"{sentence} It gets no {made}. {way_on(self.plan, self.store)}."
            for sentence in lacking(self.plan, self.store).values()
        )
        not_fetched = (f"{each.message} {each.fix or ''}".strip() for each in fetched.problems)
        return wheels, (*not_fetched, *left_out)

    def _builds(self) -> EmittedFiles:
        return EmittedFiles(*cluster_builds(self.plan))

    def _device_classes(self) -> EmittedFiles:
        if text := device_classes(self.plan):
            without = no_limits(self.plan.label_domain)
            return EmittedFiles({DEVICE_CLASSES: text}, (without,) if without else ())
        return EmittedFiles({}, ("No group of the plan uses a GPU, so no DeviceClass is written.",))

    def _flavors(self) -> EmittedFiles:
        if text := resource_flavors(self.plan):
            return EmittedFiles({FLAVORS: text})
        return EmittedFiles({}, ("No group of the plan has wheels, so no flavor is written.",))

    def _node_pools(self) -> EmittedFiles:
        return EmittedFiles(*node_pools(self.plan, self.delivery.node_class))

    def _login(self) -> EmittedFiles:
        return emit_login(config_of(self.plan), self.delivery)

    def _libraries(self, wheels: Mapping[str, Sequence[Wheel]]) -> tuple[str, ...]:
        """Return warnings about libraries that the image lacks; with --image a comment says so."""
        if self.delivery.image or self.delivery.way == "image":
            return ()
        return library_warnings(self.plan, wheels, official=self.workload is None)
