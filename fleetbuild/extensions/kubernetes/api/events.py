"""Events of Nodes (events.k8s.io/v1), which `kubectl describe node` shows.

In: a client, and what to say of each Node. Out: the events. For objects without a namespace
Kubernetes takes them in the namespace `default` alone.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleetbuild.errors import FleetbuildError
from fleetbuild.extensions.kubernetes.api.client import Client, path_of
from fleetbuild.extensions.kubernetes.api.errors import NoResponse, Refusal, as_error
from fleetbuild.text import count

MAX_EVENTS = 100  # of one run: the first labelling of a large cluster has thousands
_NAMESPACE = "default"
_EVENTS = ("apis", "events.k8s.io", "v1", "namespaces", _NAMESPACE, "events")
_LONGEST_NOTE = 1000  # the API takes 1,024 bytes


@dataclass(frozen=True)
class NodeEvent:
    """One sentence about a Node."""

    node: str
    uid: str
    reason: str  # one word
    note: str
    is_warning: bool = False


def record_events(client: Client, events: Sequence[NodeEvent]) -> str:
    """Create these events, at most MAX_EVENTS; return "", or a warning if some are missing."""
    for event in events[:MAX_EVENTS]:
        try:
            client.create(path_of(*_EVENTS), _document(event))
        except (Refusal, NoResponse) as problem:
            if isinstance(problem, Refusal) and problem.code == 409:
                continue  # a first attempt that got no answer made it
            error = as_error(problem, client.access, "create", "events.k8s.io/events")
            return _missing(error)
        except FleetbuildError as error:
            return _missing(error)
    more = len(events) - MAX_EVENTS
    return f"{count(more, 'change')} more without an event: {MAX_EVENTS} a run." if more > 0 else ""


def _missing(error: FleetbuildError) -> str:
    return " ".join(filter(None, ("Changes are not recorded as events.", error.message, error.fix)))


def _document(event: NodeEvent) -> dict[str, object]:
    note = event.note.encode()[:_LONGEST_NOTE].decode(errors="ignore")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{event.node[:200].rstrip('.-')}.{secrets.token_hex(8)}",
            "namespace": _NAMESPACE,
        },
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "action": "Labelling",
        "note": note,
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": event.node, "uid": event.uid},
        "reportingController": "fleetbuild.dev/labeller",
        "reportingInstance": socket.gethostname()[:128] or "fleetbuild",
    }
