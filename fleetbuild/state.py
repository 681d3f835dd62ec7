"""The state directory: paths, saved results, the age of facts, and atomic writes.

In: results and notes of a run. Out: the same for the next run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.errors import UsageError
from fleetbuild.files import (
    is_there,
    make_folder,
    raise_if_full,
    replace_file,
    write_atomically,
)
from fleetbuild.foreign_settings import user_name
from fleetbuild.models import NodeResult, Result, now
from fleetbuild.models._base import Frozen

_LEFT_THERE = ("installed", "up_to_date", "rolled_back")
_NONE_THERE = ("removed", "skipped")
# Beside a node's stored facts.
_CHANGING = ".changing"
_RESERVED = ".reserved"
_PROBED = ".probed"
_ONE_LINE = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":"))
_WRITABLE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class SavedResult(Frozen):
    """The result of the last apply, updated by later rollbacks, with its start and end times."""

    started: str
    finished: str
    result: Result
    # Release name -> node -> the last result that left a release there, by whatever apply.
    left: dict[str, dict[str, NodeResult]] = {}

    def left_there(self, release: str) -> dict[str, NodeResult]:
        """Return the results that left a release of this name on nodes."""
        return self.left.get(release, {})


@dataclass(frozen=True)
class StateDir:
    """Paths in the state directory. It holds Ansible's output, so only its owner may read it.

    The paths that a run asks for at each step are made once.
    """

    root: Path

    @property
    def plan_file(self) -> Path:
        return self.root / "plan.json"

    @cached_property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @cached_property
    def facts(self) -> Path:
        return self.root / "facts"

    @cached_property
    def _facts(self) -> str:
        return str(self.facts)

    @property
    def store(self) -> Path:
        return self.root / "store"

    @cached_property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def revocations_journal(self) -> Path:
        """When which wheel was revoked, and when that was taken back. It is kept."""
        return self.journal / "revocations.jsonl"

    @property
    def runs(self) -> Path:
        """The output of playbooks."""
        return self.root / "runs"

    @cached_property
    def incoming(self) -> Path:
        """The wheels from builders until their audit, without links: nothing here is trusted."""
        return (self.root / "incoming").resolve()

    @property
    def installer(self) -> Path:
        """The program that nodes install with, packed."""
        return self.root / "installer"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @cached_property
    def result_file(self) -> Path:
        return self.root / "result.json"

    @property
    def labels_file(self) -> Path:
        return self.root / "labels.json"

    def api_labelled(self) -> dict[str, str]:
        """Return the releases that were labelled through the API, with the kubeconfig context."""
        try:
            document = json.loads(self.api_labels_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def note_api_labels(self, release: str, context: str | None) -> None:
        """Save where a release was labelled through the API; None if its labels were removed."""
        contexts = {name: each for name, each in self.api_labelled().items() if name != release}
        contexts |= {release: context} if context else {}
        write_atomically(self.api_labels_file, one_line(contexts) + "\n")

    @property
    def api_labels_file(self) -> Path:
        return self.root / "api-labels.json"

    def known_nodes_file(self, manager: str) -> Path:
        """How the last labelling by this field manager left the Nodes of a cluster."""
        return self.root / f"known-nodes-{manager}.json"

    def checked(self) -> StateDir:
        """Refuse a directory in which another user could have put a plan, a wheel or a link."""
        try:
            status = self.root.lstat()
        except OSError:  # missing, or create() says why
            return self
        if stat.S_ISLNK(status.st_mode):
            problem, fix = "is a link", f"Name what it leads to: --state-dir {self.root.resolve()}."
        elif status.st_uid != os.geteuid():
            problem = (
                f"belongs to {user_name(status.st_uid)}, and this is {user_name(os.geteuid())}"
            )
            fix = "Run as that user, or name another with --state-dir."
        elif status.st_mode & _WRITABLE_FOR_OTHERS:
            problem = "can be written by other users"
            fix = f"See that nothing in it is theirs, then: chmod go-w {self.root}"
        else:
            return self
        raise UsageError(f"The state directory {self.root} {problem}.", fix)

    def create(self) -> StateDir:
        """Create the directory if it is missing, readable only by its owner."""
        self.checked()
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise_if_full(error)
            raise self._not_writable(error.strerror) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise self._not_writable("permission denied")
        return self

    def controller(self) -> str:
        """Return the name of this state directory for leases on nodes: whose it is, and where.

        A random part keeps apart directories that have the same path on machines of the same name.
        """
        file = self.root / "controller"
        try:
            name = file.read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            name = ""
        if not re.fullmatch(r"[0-9a-f]{8}", name):
            name = secrets.token_hex(4)
            write_atomically(file, name + "\n")
        return f"{user_name(os.geteuid())}@{socket.gethostname()}:{self.root} ({name})"[:300]

    def _not_writable(self, why: str | None) -> UsageError:
        return UsageError(
            f"The state directory {self.root} cannot be written: {why}.",
            "Run in a directory that you own, or name another with --state-dir.",
        )

    def save_result(self, result: Result, *, started: str, release: str | None = None) -> None:
        """Save the result of an apply for `status`; `release` is the name of what it left."""
        before = self._readable_result()
        left = dict(before.left) if before else {}
        if release:
            left[release] = {**left.get(release, {}), **_serving(result)}
        self._save(result, started=started, left=left)

    def _save(
        self, result: Result, *, started: str, left: dict[str, dict[str, NodeResult]]
    ) -> None:
        saved = SavedResult(started=started, finished=now(), result=result, left=left)
        write_atomically(self.result_file, saved.model_dump_json(indent=2) + "\n")

    def amend_result(
        self, nodes: Mapping[str, NodeResult], *, started: str, release: str | None = None
    ) -> None:
        """Update the last result, which `status` reads, after a rollback or removal."""
        last = self._readable_result()
        result = last.result if last else Result(plan_digest="")
        by_node = {node.node: node for node in result.nodes}
        amended = result.model_copy(update={"nodes": tuple({**by_node, **nodes}.values())})
        left = dict(last.left) if last else {}
        if release:
            both = {**left.get(release, {}), **nodes}
            left[release] = {n: each for n, each in both.items() if each.state not in _NONE_THERE}
        self._save(amended, started=last.started if last else started, left=left)

    def last_result(self) -> SavedResult | None:
        """Return the result of the last apply; None before any apply."""
        try:
            return SavedResult.model_validate_json(self.result_file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):  # the writer reports the error
            return None
        except (ValidationError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            raise UsageError(
                f"The result of the last apply, {self.result_file}, cannot be read: {why}.",
                f"Move it away (mv {self.result_file} {self._damaged_result}), then apply again:"
                " nodes that are up to date are not changed, and the file is written again.",
            ) from None

    def set_aside_damaged_result(self) -> str:
        """Rename a damaged result, so that a run can save its own; return a sentence if it was."""
        try:
            self.last_result()
        except UsageError as error:
            self.result_file.replace(self._damaged_result)
            return f"{error.message} It is now {self._damaged_result}."
        return ""

    @property
    def _damaged_result(self) -> Path:
        return self.result_file.with_name(f"result-{now()}.damaged")

    def _readable_result(self) -> SavedResult | None:
        """Return the last result for a run that adds its own; a damaged one is set aside."""
        self.set_aside_damaged_result()
        return self.last_result()

    def left_there(self, release: str) -> dict[str, NodeResult]:
        """Return the results that left a release of this name on nodes; {} before any apply."""
        last = self.last_result()
        return last.left_there(release) if last else {}

    def mark_probed(self, name: str, when: str) -> None:
        """Save when a node was last probed, and clear its mark of a pending change."""
        folder = f"{self._facts}/{name}"
        make_folder(folder, 0o700)
        replace_file(f"{folder}/{_PROBED}", f"{when}\n".encode())
        self._clear(name, _CHANGING)

    def mark_changing(self, names: Iterable[str]) -> None:
        """Mark these nodes as changing: what they serve is unknown until they are probed again.

        Until `mark_ended`, this controller may hold a lease there.
        """
        for name in names:
            folder = f"{self._facts}/{name}"
            make_folder(folder, 0o700)
            for mark in (_CHANGING, _RESERVED):
                os.close(os.open(f"{folder}/{mark}", os.O_WRONLY | os.O_CREAT, 0o600))

    def mark_ended(self, names: Iterable[str]) -> None:
        """Note that the lease of this controller has ended on these nodes."""
        for name in names:
            self._clear(name, _RESERVED)

    def is_reserved(self, name: str) -> bool:
        """Return whether a run that was killed, or failed on this node, may have left a lease."""
        return self._has_mark(name, _RESERVED)

    def is_changing(self, name: str) -> bool:
        """Return whether a run started to change this node without learning the outcome."""
        return self._has_mark(name, _CHANGING)

    def _clear(self, name: str, mark: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(f"{self._facts}/{name}/{mark}")  # noqa: PTH108 (Path takes longer)

    def _has_mark(self, name: str, mark: str) -> bool:
        return is_there(f"{self._facts}/{name}/{mark}")  # not if no folder can have this name

    def probed(self, name: str) -> datetime | None:
        """Return when the stored facts of a node were read, or None."""
        try:
            text = Path(f"{self._facts}/{name}/{_PROBED}").read_text("utf-8")
            return datetime.fromisoformat(text.strip())
        except (OSError, ValueError):  # or the name is not valid for a folder
            return None


def _serving(result: Result) -> dict[str, NodeResult]:
    """Return the results that left a release on their node."""
    left = (node for node in result.nodes if node.state in _LEFT_THERE)
    return {node.node: node for node in left if node.release_id or node.state != "rolled_back"}


def write_if_changed(path: Path, text: str) -> bool:
    """Write atomically if the content differs; return whether it did."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    write_atomically(path, text, mode=0o644)
    return True


def one_line(value: object) -> str:
    """Return a value as one line of JSON; equal values give equal lines."""
    return _ONE_LINE.encode(value)
