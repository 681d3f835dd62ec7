"""The store: wheels by artifact key, downloads by sha256; files appear atomically.

In: audited wheels and locked files. Out: their paths, for reuse by later runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from fleetbuild.audit import needed_libraries
from fleetbuild.audit.downloads import RULES, audit_download
from fleetbuild.audit.import_names import import_names
from fleetbuild.errors import AuditError, InstallError
from fleetbuild.extension import extensions
from fleetbuild.files import remove_old, sha256_of
from fleetbuild.models import Commit, Floors, LockedFile, PlannedWheel, now
from fleetbuild.models.revocation import TAKE_BACK, Revocations
from fleetbuild.models.stored import NO_CONTEXT, BuildContext, StoredWheel, WheelRecord
from fleetbuild.store.address_secrets import reveal, without_login
from fleetbuild.store.fetch import fetch
from fleetbuild.store.git import pack_commit, read_file
from fleetbuild.store.index_config import IndexSettings, mirrored
from fleetbuild.store.sources import SourceMetadata, read_pyproject, read_source

_PROVENANCE = "provenance.json"
_SHORTEST_HASH = 8
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)


class Store:
    """The controller's folder of wheels and downloads."""

    def __init__(self, root: Path, settings: IndexSettings | None = None) -> None:
        self.root = root
        self.settings = settings or IndexSettings()

    @property
    def revocations(self) -> Revocations:
        """Return the wheels that must not be used any more."""
        return self.revocations_of(())

    def revocations_of(self, seen: Iterable[tuple[str, str]]) -> Revocations:
        """Return the wheels that must not be used; `seen`: the hash and artifact key of others."""
        known = (each.revocations(self.root, seen).entries for each in extensions())
        return Revocations(entries=tuple(chain.from_iterable(known)))

    def add(
        self,
        path: Path,
        wheel: PlannedWheel,
        *,
        built_on: str,
        seconds: float,
        context: BuildContext = NO_CONTEXT,
    ) -> StoredWheel:
        """Store a wheel that was built for this target. A published wheel keeps its bytes."""
        self.root.mkdir(parents=True, exist_ok=True)
        delivered = sha256_of(path)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".part-") as folder:
            if not wheel.published:
                for number, extension in enumerate(extensions()):
                    own = Path(folder) / str(number)
                    own.mkdir()
                    path = extension.prepare(path, own, wheel)
            record = WheelRecord(
                artifact_key=wheel.artifact_key or "",
                package=wheel.package,
                version=wheel.version,
                wheel_version=wheel.wheel_version,
                file=path.name,
                sha256=sha256_of(path),
                delivered_sha256=delivered,
                size=path.stat().st_size,
                group=wheel.target.name,
                libc=wheel.target.libc,
                libstdcxx=wheel.libstdcxx,
                recipe=wheel.recipe,
                environment=wheel.environment,
                compiler=wheel.requires.compiler,
                built_on=built_on,
                built_at=now("seconds"),
                seconds=round(seconds, 1),
                source_sha256=wheel.source.identity if wheel.source else None,
                build_lock=(*wheel.build_dependencies, *wheel.toolkit_wheels),
                needs=needed_libraries(path),
                imports=import_names(path),
            )
            home = self.root / "wheels" / record.artifact_key / record.sha256
            with self._whole(home) as part:
                shutil.copyfile(path, part / path.name)
                for extension in extensions():
                    extension.accompany(part, wheel, record, context)
                (part / _PROVENANCE).write_text(record.model_dump_json(indent=2) + "\n")
        return StoredWheel(path=home / record.file, provenance=record)

    def find(self, wheel: PlannedWheel) -> StoredWheel | None:
        """Return an intact stored wheel that fits, or None. Damaged ones are removed."""
        return next(filter(self._keep_intact, self.fitting(wheel)), None)

    def fitting(self, wheel: PlannedWheel) -> tuple[StoredWheel, ...]:
        """Return the stored wheels that fit this target, the newest first; never a revoked one."""
        wanted = Floors(wheel.target.libc.floor, wheel.libstdcxx)
        fitting = [
            stored
            for stored in self.of_key(wheel.artifact_key or "")
            if stored.floors.satisfies(wanted) and not stored.revoked
        ]
        return tuple(sorted(fitting, key=lambda each: each.provenance.built_at, reverse=True))

    def _keep_intact(self, stored: StoredWheel) -> bool:
        """Return whether a wheel has the hash that it was stored with; remove it if not."""
        if sha256_of(stored.path) == stored.sha256:
            return True
        shutil.rmtree(stored.path.parent)
        return False

    def of_key(self, key: str) -> tuple[StoredWheel, ...]:
        """Return the stored wheels of an artifact key; empty for an invalid key."""
        named = _KEY.fullmatch(key)
        return tuple(_stored(self.root / "wheels" / key, self.revocations)) if named else ()

    def list(self) -> tuple[StoredWheel, ...]:
        """Return all wheels, sorted by package and target."""
        keys, revocations = self._children("wheels"), self.revocations
        stored = [wheel for key in keys for wheel in _stored(key, revocations)]
        return tuple(
            sorted(stored, key=lambda w: (w.provenance.package, w.provenance.group, w.sha256))
        )

    def floors(self) -> dict[str, tuple[Floors, ...]]:
        """Return the floors of the usable wheels by artifact key, for planning.

        A wheel that was written to after it was stored is read first, and removed if it is damaged.
        """
        by_key: dict[str, tuple[Floors, ...]] = {}
        for wheel in self.list():
            if wheel.revoked or (_written_since(wheel) and not self._keep_intact(wheel)):
                continue
            key = wheel.provenance.artifact_key
            by_key[key] = (*by_key.get(key, ()), wheel.floors)
        return by_key

    def missing_bytes(self, files: Iterable[LockedFile]) -> int:
        """Return the size of the files that are not here yet, as far as it is known."""
        return sum(file.size or 0 for file in files if not self.path_of(file).is_file())

    def fetch(self, file: LockedFile) -> Path:
        """Return the path of a locked file; download it the first time."""
        if file.file.endswith(".whl") and (why := self.revocations.of_file(file)):
            raise InstallError(
                why, f"Plan again with another version of {file.name}, or {TAKE_BACK}"
            )
        if file.commit:
            return self._fetch_commit(file, file.commit)
        path = fetch(
            reveal(without_login(mirrored(file.url, self.settings.mirrors)), self.settings.tokens),
            file.sha256,
            self.path_of(file),
            size=file.size,
            credentials=self.settings.credentials,
        )
        if file.file.endswith(".whl"):
            self._audit(path, file)
        return path

    def _audit(self, path: Path, file: LockedFile) -> None:
        """Refuse a wheel that holds what it may not; a hash is audited once."""
        allowed = self.settings.allow_files.get(file.name, ())
        passed = f"{RULES} {' '.join(allowed)}\n"
        note = path.with_name(".audited")
        if note.is_file() and note.read_text("utf-8", "replace") == passed:
            return
        if problems := audit_download(path, file.name, file.version, allowed):
            raise AuditError(
                f"{file.file} is not used: {'; '.join(problems)}.",
                "Look into it (fleetbuild audit WHEEL). If the files belong there, allow them in "
                f"fleetbuild.yml: allow_files: {{{file.name}: [PATTERN]}}, and run this again.",
            )
        note.write_text(passed, "utf-8")

    def _fetch_commit(self, file: LockedFile, commit: Commit) -> Path:
        path = self.path_of(file)
        hash_file = path.with_name(f"{path.name}.sha256")
        if path.is_file() and not (
            hash_file.is_file()
            and hash_file.read_text("ascii", "replace").strip() == sha256_of(path)
        ):
            shutil.rmtree(path.parent)  # damaged, or changed: the commit is packed again
        if not path.is_file():
            with self._whole(path.parent) as part:
                pack_commit(
                    commit.address,
                    commit.id,
                    part / path.name,
                    path.name.removesuffix(".tar.gz"),
                    submodules=commit.submodules,
                    mirrors=self.settings.mirrors,
                )
                (part / hash_file.name).write_text(f"{sha256_of(part / path.name)}\n")
        return path

    def metadata_of(self, file: LockedFile) -> SourceMetadata:
        """Return a source's metadata; of an unfetched commit only the metadata files are read."""
        commit = file.commit
        if commit is None or self.path_of(file).is_file():
            return read_source(self.fetch(file))
        text = read_file(commit.address, commit.id, "pyproject.toml", self.settings.mirrors)
        return read_pyproject(text, without_login(commit.address))

    def path_of(self, file: LockedFile) -> Path:
        """Return the path of a download. Folders in a file name from a lock are ignored."""
        return self.root / "files" / Path(file.identity).name / Path(file.file).name

    def download_of(self, sha256: str) -> str:
        """Return the package of a downloaded wheel, as name==version; empty if it is unknown.

        Published wheels that a plan names as its own packages are in the store as wheels too.
        """
        home = self.root / "files" / sha256
        own = {wheel.sha256 for wheel in self.list()}
        for path in home.glob("*.whl") if sha256 not in own else ():
            name, version = path.name.split("-")[:2]
            return f"{canonicalize_name(name)}=={version}"
        return ""

    def add_file(self, make: Callable[[Path], object], name: str) -> tuple[Path, str]:
        """Store a file made here, such as a packed source tree; return its path and sha256."""
        self.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".part-") as folder:
            made = Path(folder) / name
            make(made)
            sha256 = sha256_of(made)
            with self._whole(self.root / "files" / sha256) as part:
                made.rename(part / name)
        return self.root / "files" / sha256 / name, sha256

    def check(self) -> tuple[Path, ...]:
        """Read every wheel and download; remove the damaged ones and return their paths."""
        wheels = [wheel.path for wheel in self.list() if not self._keep_intact(wheel)]
        intact = {wheel.path.parent for wheel in self.list()}
        # A folder without a whole wheel and its provenance is never read, and holds nothing.
        broken = [
            home for key in self._children("wheels") for home in key.iterdir() if home not in intact
        ]
        for home in broken:
            shutil.rmtree(home)
        downloads = [
            path
            for home in self._children("files")
            for path in (sorted(home.iterdir()) if _SHA256.fullmatch(home.name) else ())
            if path.is_file() and not path.name.startswith(".") and sha256_of(path) != home.name
        ]
        for path in downloads:
            path.unlink()
        return (*wheels, *broken, *downloads)

    def remove(self, name: str) -> tuple[Path, ...]:
        """Remove the wheels of this name; return their paths.

        A name is a package, NAME==VERSION (with the local version), or the first eight or more
        characters of an artifact key or sha256.
        """
        doomed = self.named(name)
        for wheel in doomed:
            shutil.rmtree(wheel.path.parent)
        return tuple(wheel.path for wheel in doomed)

    def named(self, name: str) -> tuple[StoredWheel, ...]:
        """Return the wheels of this name, as `remove` takes it."""
        return tuple(
            wheel for wheel in self.list() if name in _names(wheel) or _begins(wheel, name)
        )

    def gc(self, keep_keys: Collection[str], keep_files: Collection[str] = ()) -> tuple[Path, ...]:
        """Remove all wheels and downloads except the given keys and hashes; return the paths.

        Also removes unfinished files older than a day; newer ones may belong to a running command.
        """
        doomed = (
            *(path for path in self._children("wheels") if path.name not in keep_keys),
            *(path for path in self._children("files") if path.name not in keep_files),
        )
        for path in doomed:
            shutil.rmtree(path)
        parts = (*self.root.glob(".part-*"), *self.root.glob("files/*/.part-*"))
        return (*doomed, *remove_old(parts, days=1))

    def _children(self, folder: str) -> tuple[Path, ...]:
        path = self.root / folder
        return tuple(sorted(path.iterdir())) if path.is_dir() else ()

    @contextmanager
    def _whole(self, home: Path) -> Iterator[Path]:
        """Yield a folder to fill; it is then moved to `home` atomically."""
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".part-") as temporary:
            part = Path(temporary) / "whole"
            part.mkdir()
            yield part
            try:
                part.rename(home)
            except OSError:
                # Named by content, so an existing folder is equal unless it is damaged.
                if not home.is_dir():
                    raise
                for file in part.iterdir():
                    os.replace(file, home / file.name)  # noqa: PTH105


def _written_since(wheel: StoredWheel) -> bool:
    """Whether a wheel is younger than its provenance, which is written after it."""
    try:
        written = wheel.path.with_name(_PROVENANCE).stat().st_mtime_ns
        return wheel.path.stat().st_mtime_ns > written
    except FileNotFoundError:  # removed meanwhile
        return True


def _names(wheel: StoredWheel) -> set[str]:
    record = wheel.provenance
    versions = (record.version, record.wheel_version)
    return {record.package, *(f"{record.package}=={version}" for version in versions)}


def _begins(wheel: StoredWheel, name: str) -> bool:
    hashes = (wheel.provenance.artifact_key, wheel.sha256)
    return len(name) >= _SHORTEST_HASH and any(digest.startswith(name.lower()) for digest in hashes)


def _stored(key: Path, revocations: Revocations) -> Iterator[StoredWheel]:
    for home in sorted(key.iterdir()) if key.is_dir() else ():
        try:
            record = WheelRecord.model_validate(json.loads((home / _PROVENANCE).read_text()))
        except (OSError, ValueError, ValidationError, RecursionError):
            continue  # damaged or foreign: treated as absent
        path = home / Path(record.file).name
        if path.is_file() and path.stat().st_size == record.size:
            revoked = revocations.of(record.package, record.wheel_version, record.sha256)
            yield StoredWheel(path=path, provenance=record, revoked=revoked)
