"""An API server in this process: Nodes, server-side apply of labels, and every way to say no."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

TOKEN = "a-token"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@dataclass
class FakeNode:
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # (manager, operation)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    version: int = 1
    status: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)  # of server-side apply alone
    noted: dict[str, set[str]] = field(default_factory=dict)  # manager -> its annotations

    def document(self) -> dict[str, Any]:
        managed = [
            {
                "manager": manager,
                "operation": operation,
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in sorted(keys)}}},
            }
            for (manager, operation), keys in self.owners.items()
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "uid": self.uid,
                "resourceVersion": str(self.version),
                "labels": self.labels,
                "annotations": self.annotations,
                "managedFields": managed,
            },
            "spec": self.spec,
            "status": self.status,
        }


@dataclass
class Asked:
    """A request, as it came."""

    verb: str
    path: str
    query: dict[str, str]
    kind: str | None
    body: Any
    token: str | None
    headers: Message


class Say(Exception):
    """Answer with this status instead."""

    def __init__(self, code: int, message: str, reason: str = "", **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
            **more,
        }


class FakeApi:
    """The cluster. `before` is called with each request and may raise Say, sleep, or delete."""

    def __init__(self) -> None:
        self.nodes: dict[str, FakeNode] = {}
        self.slices: list[dict[str, Any]] | None = None  # ResourceSlices; None: no such API
        self.pods: list[dict[str, Any]] = []
        self.features: list[dict[str, Any]] | None = None  # NodeFeatures; None: no such API
        self.events: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.tokens = {TOKEN}
        self.before: Callable[[Asked], None] = lambda _: None
        self.lock = threading.RLock()
        self.url = ""

    def refuse(self, with_: Say, verb: str = "", path: str = "") -> None:
        """Answer so to the requests of this verb whose path ends so."""

        def before(asked: Asked) -> None:
            if asked.verb.startswith(verb) and asked.path.endswith(path):
                raise with_

        self.before = before

    def add(self, *names: str, labels: dict[str, str] | None = None, by: str = "kubelet") -> None:
        for name in names:
            own = {"kubernetes.io/hostname": name, **(labels or {})}
            self.nodes[name] = FakeNode(name, own, {(by, "Update"): set(own)})

    def set(self, name: str, labels: dict[str, str], by: str) -> None:
        """As `kubectl label --overwrite` does it."""
        self._merge(self.nodes[name], {"metadata": {"labels": labels}}, by)

    def patches(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.verb == "PATCH"]

    @contextmanager
    def serving(self) -> Iterator[FakeApi]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        path = folder / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": user or {"token": TOKEN}}],
                    "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        return path

    def answer(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        with self.lock:
            self.asked.append(asked)
        if asked.token not in self.tokens:
            raise Say(401, "Unauthorized", "Unauthorized")
        self.before(asked)
        with self.lock:
            if asked.verb == "POST" and asked.path == EVENTS:
                self.events.append(asked.body)
                return 201, asked.body
            match asked.verb, asked.path.strip("/").split("/"):
                case "GET", ["api", "v1", "nodes"]:
                    name = asked.query.get("fieldSelector", "").removeprefix("metadata.name=")
                    some = [self.nodes[name]] if name in self.nodes else []
                    found = some if name else self.nodes.values()
                    return 200, self._page([node.document() for node in found], asked.query)
                case "GET", ["api", "v1", "pods"]:
                    where, _, name = asked.query.get("fieldSelector", "").partition("=")
                    assert where in ("", "spec.nodeName")
                    some = [
                        pod for pod in self.pods if not where or pod["spec"]["nodeName"] == name
                    ]
                    return 200, self._page(some, asked.query)
                case "GET", ["apis", "nfd.k8s-sigs.io", "v1alpha1", "nodefeatures"]:
                    if self.features is not None:
                        return 200, self._page(self.features, asked.query)
                case "GET", ["apis", "resource.k8s.io", "v1", "resourceslices"]:
                    if self.slices is not None:
                        return 200, self._page(self.slices, asked.query)
                case "PATCH", ["api", "v1", "nodes", name]:
                    return self._patch(name, asked)
        raise Say(404, "the server could not find the requested resource", "NotFound")

    def _page(self, items: list[Any], query: dict[str, str]) -> dict[str, Any]:
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0)
        end = start + limit if limit else len(items)
        onward = {"continue": str(end)} if end < len(items) else {}
        return {"kind": "List", "metadata": onward, "items": items[start:end]}

    def _patch(self, name: str, asked: Asked) -> tuple[int, dict[str, Any]]:
        manager = asked.query.get("fieldManager", "")
        uid = asked.body["metadata"].get("uid")
        node = self.nodes.get(name)
        if asked.kind == "application/apply-patch+yaml":
            if not manager:
                raise Say(400, "fieldManager is required for apply patch", "BadRequest")
            if node is None and uid:
                raise Say(409, f"uid mismatch: the provided object specified uid {uid}, and no"
                          " existing object was found", "Conflict")  # fmt: skip
            if node is None:  # an apply makes the missing Node
                node = self.nodes[name] = FakeNode(name)
            self._same(node, uid)
            self._unchanged(node, asked.body["metadata"])
            if asked.query.get("dryRun") == "All":
                node = deepcopy(node)
            self._apply(node, asked, manager)
            return 200, node.document()
        if asked.kind == "application/merge-patch+json":
            if node is None:
                raise Say(404, f'nodes "{name}" not found', "NotFound")
            self._same(node, uid)
            self._merge(node, asked.body, manager)
            return 200, node.document()
        raise Say(415, f"unsupported media type {asked.kind}", "UnsupportedMediaType")

    def _same(self, node: FakeNode, uid: str | None) -> None:
        if uid and uid != node.uid:
            raise Say(
                409,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {node.uid}",
                "Conflict",
            )

    def _unchanged(self, node: FakeNode, metadata: Any) -> None:
        if metadata.get("resourceVersion", str(node.version)) != str(node.version):
            raise Say(409, f'Operation cannot be fulfilled on nodes "{node.name}": the object has'
                      " been modified; please apply your changes to the latest version and try"
                      " again", "Conflict")  # fmt: skip

    def _apply(self, node: FakeNode, asked: Asked, manager: str) -> None:
        wanted: dict[str, str] = asked.body["metadata"].get("labels") or {}
        me = (manager, "Apply")
        others = {who: keys for who, keys in node.owners.items() if who != me}
        conflicts = [
            (who[0], key)
            for key, value in wanted.items()
            if node.labels.get(key, value) != value
            for who, keys in others.items()
            if key in keys
        ]
        if conflicts and asked.query.get("force") != "true":
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{who}" using v1',
                    "field": f".metadata.labels.{key}",
                }
                for who, key in conflicts
            ]
            raise Say(409, "Apply failed with conflicts", "Conflict", details={"causes": causes})
        before = (dict(node.labels), {who: set(keys) for who, keys in node.owners.items()})
        for who, keys in others.items():
            node.owners[who] = keys - {key for _, key in conflicts}
        held = set().union(*others.values()) if others else set()
        for key in node.owners.get(me, set()) - wanted.keys() - held:
            del node.labels[key]
        node.labels.update(wanted)
        node.owners[me] = set(wanted)
        node.owners = {who: keys for who, keys in node.owners.items() if keys}
        notes = asked.body["metadata"].get("annotations") or {}
        for key in node.noted.get(manager, set()) - notes.keys():
            del node.annotations[key]
        changed = any(node.annotations.get(key) != notes[key] for key in notes)
        node.annotations.update(notes)
        node.noted[manager] = set(notes)
        node.version += changed or before != (node.labels, node.owners)

    def _merge(self, node: FakeNode, body: Any, manager: str) -> None:
        metadata = body["metadata"]
        self._unchanged(node, metadata)
        if "managedFields" in metadata:  # a list is replaced as a whole
            node.owners = {
                (entry["manager"], entry["operation"]): keys
                for entry in metadata["managedFields"]
                if (keys := {key[2:] for key in entry["fieldsV1"]["f:metadata"]["f:labels"]})
            }
            node.version += 1
        for key, value in metadata.get("labels", {}).items():
            if node.labels.get(key) == value:
                continue
            for keys in node.owners.values():
                keys.discard(key)
            if value is None:
                node.labels.pop(key, None)
            else:
                node.labels[key] = value
                node.owners.setdefault((manager, "Update"), set()).add(key)
            node.version += 1


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(
                self.command,
                parts.path,
                {key: values[0] for key, values in parse_qs(parts.query).items()},
                self.headers.get("Content-Type"),
                body,
                (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None,
                self.headers,
            )
            retry = None
            try:
                code, document = api.answer(asked)
            except Say as said:
                code, document = said.code, said.status
                retry = (said.status.get("details") or {}).get("retryAfterSeconds")
            text = json.dumps(document).encode()
            try:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                if retry is not None:
                    self.send_header("Retry-After", str(retry))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                self.close_connection = True  # whoever asked has given up

        do_GET = do_PATCH = do_POST = _handle  # noqa: N815 the names are http.server's

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def ours(api: FakeApi, name: str) -> dict[str, str]:
    """Our labels of a node, without their domain."""
    labels = api.nodes[name].labels
    return {
        key.split("/")[1]: labels[key] for key in sorted(labels) if key.startswith("fleetbuild.dev")
    }
