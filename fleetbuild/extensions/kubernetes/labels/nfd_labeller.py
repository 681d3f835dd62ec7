"""Label through Node Feature Discovery: write a feature file on the node for nfd-worker.

In: label targets. Out: a label result for each node. nfd-worker reads the file periodically (every
minute by default), so labels change with that delay.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from fleetbuild.errors import BlockedError
from fleetbuild.extension import Follower
from fleetbuild.extensions.kubernetes.labels.feature_files import feature_path, needs_permission
from fleetbuild.extensions.kubernetes.labels.labeller import Labels, LabelTargets
from fleetbuild.files import write_atomically
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import Serving
from fleetbuild.state import StateDir, one_line
from fleetbuild.text import fold

if TYPE_CHECKING:
    from fleetbuild.ansible import HostRun, RunPlaybook, TaskEvent


class NfdLabeller(Follower):
    """Writes a feature file on each node; Node Feature Discovery turns it into labels."""

    def __init__(self, names: LabelTargets, run_playbook: RunPlaybook, state: StateDir) -> None:
        self._names, self._run_playbook, self._state = names, run_playbook, state
        self._lock = Lock()  # groups are labelled in parallel

    def prepare(self, *, installs: bool = False) -> str:  # noqa: ARG002 see Follower
        """See Follower."""
        release = self._names.release
        if context := self._state.api_labelled().get(release):
            raise BlockedError(
                f"kubernetes.labels is nfd now, but the Nodes of {context} have labels that"
                " fleetbuild set through the API server: they would remain when the files change.",
                f"Remove them, then run this again: fleetbuild emit labels --remove"
                f" --context {context}",
            )
        warnings = [needs_permission(self._names.domain)]
        if self._saved().get(release) is None and self._state.last_result():
            warnings.append(
                "Labels set by labels.sh or nodes.yaml would remain when the feature files change;"
                " remove them with: fleetbuild emit labels --remove --force-conflicts"
            )
        return " ".join(filter(None, warnings))

    def clear(self) -> str:
        """Remove feature files of earlier runs, since labels are now set in another way."""
        present = [name for name, each in self._files_on_nodes().items() if each != {}]
        left = [name for name in present if name in self._names.nodes]
        if not left:
            return ""
        results = self._write({name: {} for name in left})
        failed = {name: each for name, each in results.items() if each.state == "failed"}
        if failed:
            raise BlockedError(
                f"Node Feature Discovery still labels {fold(failed)}: {self._file} was not removed"
                f" there: {next(iter(failed.values())).reason}",
                f"Remove {self._file} on them and run the same command again.",
            )
        gone = [name for name in left if results[name].ok]
        if not gone:
            return ""
        return (
            f"{fold(gone)}: removed {self._file}. Node Feature Discovery removes its labels"
            " within a minute; set labels after that."
        )

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        """Remove the release's labels. With `serves` the label `group` stays, by which DaemonSets
        keep their pods.
        """
        kept = self._names.kept_while_changing if serves else ()
        lying = {name: labels or {} for name, labels in self._files_on_nodes().items()}
        wanted = {}
        for name in names:
            old = {key: lying[name][key] for key in kept if key in lying.get(name, {})}
            wanted[name] = {**self._names.hardware.get(name, {}), **old}
        return self._write(wanted)

    def after(self, served: Serving) -> dict[str, LabelResult]:
        """Label these nodes according to the release that they serve, where the file differs."""
        lying, hardware = self._files_on_nodes(), self._names.hardware
        wanted = {
            name: {**hardware.get(name, {}), **(self._names.served(manifest) if manifest else {})}
            for name, manifest in served.items()
        }
        return self._write(
            {
                name: labels
                for name, labels in wanted.items()
                if not served[name] or lying.get(name) != labels
            }
        )

    @property
    def _file(self) -> str:
        return feature_path(self._names.release)

    def _write(self, wanted: Mapping[str, Labels]) -> dict[str, LabelResult]:
        if not wanted:
            return {}
        self._note(dict.fromkeys(wanted))
        changed: set[str] = set()

        def listen(event: TaskEvent) -> None:
            facts = event.result.get("ansible_facts")
            reply = facts.get("node_labels_result") if isinstance(facts, dict) else None
            if isinstance(reply, dict) and reply.get("changed"):
                changed.add(event.host)

        hosts = self._run_playbook(
            "label.yml",
            limit=sorted(wanted),
            extravars={
                "fleetbuild_labels": {
                    name: {"labels": dict(labels), "file": self._file}
                    for name, labels in wanted.items()
                }
            },
            on_event=listen,
        )
        results = {
            name: self._result(name, labels, hosts.get(name), changed)
            for name, labels in wanted.items()
        }
        self._note({name: results[name].labels for name in results if results[name].ok})
        return results

    def _result(
        self, name: str, labels: Labels, host: HostRun | None, changed: Collection[str]
    ) -> LabelResult:
        about: dict[str, Any] = {"node": name, "kubernetes_node": self._names.in_cluster(name)}
        if host and host.state == "ok":
            state = "labelled" if name in changed else "unchanged"
            return LabelResult(state=state, labels=dict(labels), **about)
        lost = host is not None and host.state == "unreachable"
        return LabelResult(
            state="unreachable" if lost else "failed",
            reason=f"{self._file} was not written there: "
            + ((host.message if host else "") or "Ansible stopped there without giving a reason."),
            fix="Fix the error above, then run the same command again.",
            **about,
        )

    def _files_on_nodes(self) -> dict[str, Any]:
        """Return the saved content of the feature files on nodes."""
        mine = self._saved().get(self._names.release)
        return mine if isinstance(mine, dict) else {}

    def _saved(self) -> dict[str, Any]:
        """Return the saved state; a damaged file counts as empty, so all is written again."""
        try:
            document = json.loads(self._state.labels_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def _note(self, labels: Mapping[str, Labels | None]) -> None:
        """Save the labels of feature files. None: content unknown. Empty: the file was removed."""
        with self._lock:
            lying = {**self._files_on_nodes(), **labels}
            document = {**self._saved(), self._names.release: lying}
            write_atomically(self._state.labels_file, one_line(document) + "\n")
