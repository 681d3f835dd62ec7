"""The state directory: where a run keeps what the next one needs."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.errors import UsageError
from fleetbuild.models import NodeResult, Result, now
from fleetbuild.models._base import Frozen

_CHANGING = ".changing"  # beside a node's stored facts


class SavedResult(Frozen):
    """The result of the last apply, with what rollbacks changed since; when it began and ended."""

    started: str
    finished: str
    result: Result


@dataclass(frozen=True)
class StateDir:
    """Paths below the state directory. Ansible's artifacts lie in it, so it is ours alone."""

    root: Path

    @property
    def plan_file(self) -> Path:
        return self.root / "plan.json"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def facts(self) -> Path:
        return self.root / "facts"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def runs(self) -> Path:
        """What playbooks printed."""
        return self.root / "runs"

    @property
    def incoming(self) -> Path:
        """Where wheels from builders lie until they are checked: nothing here is trusted."""
        return self.root / "incoming"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def result_file(self) -> Path:
        return self.root / "result.json"

    @property
    def labels_file(self) -> Path:
        return self.root / "labels.json"

    def api_labelled(self) -> dict[str, str]:
        """The releases whose labels are in a cluster by the API, with its kubeconfig context."""
        try:
            known = json.loads(self._api_labels_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def note_api_labels(self, release: str, context: str | None) -> None:
        """Note where a release was labelled by the API; None: its labels were taken off."""
        known = {name: each for name, each in self.api_labelled().items() if name != release}
        known |= {release: context} if context else {}
        write_atomically(self._api_labels_file, one_line(known) + "\n")

    @property
    def _api_labels_file(self) -> Path:
        return self.root / "api-labels.json"

    def create(self) -> StateDir:
        """Make the directory where it is missing; others may not look into it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unfit(error.strerror) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise self._unfit("permission denied")
        return self

    def _unfit(self, why: str | None) -> UsageError:
        return UsageError(
            f"The state directory {self.root} cannot be written: {why}.",
            "Run in a directory of yours, or name another with --state-dir.",
        )

    def save_result(self, result: Result, *, started: str) -> None:
        """Keep the result of an apply for `status`."""
        saved = SavedResult(started=started, finished=now(), result=result)
        write_atomically(self.result_file, saved.model_dump_json(indent=2) + "\n")

    def amend_result(self, nodes: Mapping[str, NodeResult], *, started: str) -> None:
        """Put what a rollback did to nodes into the last result, which `status` compares with."""
        last = self.last_result()
        result = last.result if last else Result(plan_digest="")
        known = {node.node: node for node in result.nodes}
        amended = result.model_copy(update={"nodes": tuple({**known, **nodes}.values())})
        self.save_result(amended, started=last.started if last else started)

    def last_result(self) -> SavedResult | None:
        """The result of the last apply; None where there was none, or its file is damaged."""
        try:
            return SavedResult.model_validate_json(self.result_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def mark_probed(self, name: str, when: str) -> None:
        """Note when a node last said what is there."""
        folder = self.facts / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(folder / ".probed", when + "\n")
        (folder / _CHANGING).unlink(missing_ok=True)

    def mark_changing(self, names: Iterable[str]) -> None:
        """Note that what these nodes serve is about to change: until they say what it is, nobody
        knows."""
        for name in names:
            folder = self.facts / name
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / _CHANGING).touch(mode=0o600)

    def is_changing(self, name: str) -> bool:
        """Did a run change this node, and not hear how that ended?"""
        try:
            return (self.facts / name / _CHANGING).exists()
        except (OSError, ValueError):  # its name is none that a folder could have
            return False

    def probed(self, name: str) -> datetime | None:
        """When the stored facts of a node were read."""
        try:
            text = (self.facts / name / ".probed").read_text().strip()
            return datetime.fromisoformat(text)
        except (OSError, ValueError):  # or its name is none that a folder could have
            return None


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write so that a reader, or a crash, sees the old file or the new one and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> bool:
    """Write atomically, and only where the file does not say so already."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    write_atomically(path, text, mode=mode)
    return True


def one_line(value: object) -> str:
    """A JSON line, the same for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
