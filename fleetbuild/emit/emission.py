"""What a kind of `emit` gets, and what it returns.

In: a plan, the nodes' releases and the store. Out: file names, texts and
warnings; only `EmittedFiles.written` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetbuild.emit.kinds import emit_kind
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.files import raise_if_full
from fleetbuild.foreign_settings import refuse_outside
from fleetbuild.models import Config, Plan, ReleaseFile
from fleetbuild.models.serving import Serving
from fleetbuild.store.fetch_locked import fetch_releases, lacking, way_on
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store


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
        refuse_outside(Path(folder), self.files)
        for path, text in zip(paths, self.files.values(), strict=True):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
            except OSError as problem:
                problem.filename = str(path)
                raise_if_full(problem)
                raise UsageError(
                    f"{path} cannot be written: {problem.strerror}.",
                    "Name another folder with --out.",
                ) from problem
        return replace(self, paths=paths)


@dataclass(frozen=True, kw_only=True)
class Emission:
    """The inputs of `emit`: plan, serving releases and store."""

    plan: Plan
    serving: Serving
    store: Store
    config: Config = field(default_factory=Config)  # as it is now, not as it was planned with
    whole: Plan | None = None  # with the groups that need a revoked wheel, if `plan` lacks some

    def write(self, name: str, options: Mapping[str, object] | None = None) -> EmittedFiles:
        """Return the files of one kind. Groups that need a revoked wheel are left out."""
        kind = emit_kind(name)
        make: Callable[..., EmittedFiles] = kind.load()
        options = options or {}
        revoked = self.store.revocations.in_plan(self.plan) if kind.has_releases else {}
        if not revoked:
            return make(self, **options)
        groups = tuple(group for group in self.plan.groups if group.name not in revoked)
        if not groups:
            raise BlockedError(
                f"Nothing can be emitted. {next(iter(revoked.values()))}",
                "Plan and apply again: fleetbuild plan INVENTORY",
            )
        rest = replace(self, plan=self.plan.model_copy(update={"groups": groups}), whole=self.plan)
        emitted = make(rest, **options)
        left_out = (
            f"{group} is left out: {why} Plan and apply again." for group, why in revoked.items()
        )
        return EmittedFiles(emitted.files, (*left_out, *emitted.warnings))

    def releases(self, made: str) -> tuple[dict[str, tuple[ReleaseFile, ...]], tuple[str, ...]]:
        """Fetch missing files; return the files of each complete release, and warnings.

        `made` names the product for the warnings about groups without a complete release.
        """
        _, problems = fetch_releases(self.plan, self.store)
        wheels = release_files(self.plan, self.store)
        if not wheels:
            lacks = " ".join(lacking(self.plan, self.store).values()) or "Every group is blocked."
            raise BlockedError(
                f"The store has no complete release, so no {made} can be written. {lacks}",
                f"{way_on(self.plan, self.store)}.",
            )
        left_out = (
            f"{sentence} It gets no {made}. {way_on(self.plan, self.store)}."
            for sentence in lacking(self.plan, self.store).values()
        )
        not_fetched = (f"{problem.message} {problem.fix or ''}".strip() for problem in problems)
        return wheels, (*not_fetched, *left_out)
