"""Revocations: wheels that must not be used any more, by hash or by version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from packaging.utils import canonicalize_name
from pydantic import Field

from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import LockedFile, Plan, PlannedWheel
from fleetbuild.models.release import Manifest


class Revocation(Frozen):
    """A recalled wheel, or all wheels of a version."""

    what: str  # 64 hex digits of a sha256, or name==version with a normalised name
    reason: str
    time: str  # ISO 8601, UTC
    # Of a wheel that is recalled by its hash and that the store or a node has. Its next build gets
    # another key, so that neither store nor builder answers with the old bytes.
    artifact_key: str | None = None
    # Its hash as the builder delivered it, before the controller added the bill of materials: the
    # same build again is refused, whatever bill it would get.
    delivered: str | None = None

    def sentence(self, package: str, version: str) -> str:
        """Return the sentence that says why this wheel is recalled."""
        return f"{package} {version} is revoked: {self.reason.rstrip('.')}."

    def covers(self, package: str, version: str, sha256: str = "") -> bool:
        """Return whether it recalls this file. A public version covers its local versions too."""
        name, given, wanted = self.what.partition("==")
        if not given:
            return bool(sha256) and sha256 in (self.what, self.delivered)
        versions = (version, version.partition("+")[0])
        return canonicalize_name(package) == name and wanted in versions


class Revocations(Frozen):
    """Everything that was recalled."""

    entries: tuple[Revocation, ...] = Field((), max_length=100_000)

    def of(self, package: str, version: str, sha256: str = "") -> str:
        """Return a sentence that says why this file is recalled; empty if it is not."""
        for entry in self.entries:
            if entry.covers(package, version, sha256):
                return entry.sentence(package, version)
        return ""

    def of_file(self, file: LockedFile) -> str:
        """Return a sentence that says why a locked file is recalled; empty if it is not."""
        return self.of(file.name, file.version, file.sha256)

    def of_manifest(self, manifest: Manifest) -> str:
        """Return why a release on a node holds something recalled; empty if it does not."""
        wheels = [(each.package, each.version, each.sha256) for each in manifest.wheels]
        pinned = [each.partition("==") for each in manifest.dependencies]
        wheels += [(name, version, "") for name, _, version in pinned]
        return next(filter(None, (self.of(*wheel) for wheel in wheels)), "")

    def of_files(
        self, wheels: Sequence[PlannedWheel], dependencies: Sequence[LockedFile] = ()
    ) -> str:
        """Return why a planned release needs something recalled; empty if it does not."""
        recalled = {entry.artifact_key: entry for entry in self.entries if entry.artifact_key}
        found = [self.of_file(file) for file in (*dependencies, *_files(wheels))]
        found += [self.of(each.package, each.wheel_version) for each in wheels]
        found += [
            recalled[each.artifact_key].sentence(each.package, each.wheel_version)
            for each in wheels
            if each.artifact_key in recalled
        ]
        return next(filter(None, found), "")

    def in_plan(self, plan: Plan) -> dict[str, str]:
        """Return the groups of a plan that need something recalled, with the reason."""
        found = {
            group.name: self.of_files(group.wheels, group.dependencies or ())
            for group in plan.groups
        }
        return {name: why for name, why in found.items() if why}

    @property
    def by_key(self) -> dict[str, tuple[str, ...]]:
        """Return the hashes of recalled wheels, by artifact key."""
        found: dict[str, tuple[str, ...]] = {}
        for entry in self.entries:
            if entry.artifact_key:
                known = {*found.get(entry.artifact_key, ()), entry.what}
                found[entry.artifact_key] = tuple(sorted(known))
        return found

    def with_keys(self, wheels: Iterable[tuple[str, str]]) -> Revocations:
        """Return these revocations, with the artifact keys of wheels; wheels: hash, key."""
        known = dict(wheels)
        return Revocations(
            entries=tuple(
                entry
                if entry.artifact_key or entry.what not in known
                else entry.model_copy(update={"artifact_key": known[entry.what]})
                for entry in self.entries
            )
        )

    @property
    def exclusions(self) -> tuple[str, ...]:
        """Return the recalled versions as constraints for a resolver: name!=version."""
        return tuple(entry.what.replace("==", "!=") for entry in self.entries if "==" in entry.what)


NOTHING_REVOKED = Revocations()
TAKE_BACK = "take the revocation back: fleetbuild revoke --undo WHAT (see fleetbuild revoke --list)"


def _files(wheels: Sequence[PlannedWheel]) -> Iterator[LockedFile]:
    for wheel in wheels:
        yield from (file for file in (wheel.source, wheel.published) if file)
        yield from wheel.build_dependencies
