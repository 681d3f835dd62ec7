"""A real kube-apiserver with its etcd, from the folder that KUBEBUILDER_ASSETS names.

The variable and the folder's content come from controller-runtime's envtest:
`setup-envtest use -p path` prints such a folder.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.factories.processes import free_port

ASSETS = os.environ.get("KUBEBUILDER_ASSETS")
needed = pytest.mark.skipif(
    not ASSETS, reason="KUBEBUILDER_ASSETS names no folder with a kube-apiserver"
)
SCHEDULER = Path(ASSETS or "", "kube-scheduler")
HOST = "kubernetes.io/hostname"
ADMIN, NOBODY = "admin-token", "nobody-token"
KUBELET = "kubelet-token"  # of the Node a
CRDS = Path(ASSETS or "", "crds")  # definitions of projects' custom resources, a file for each


@dataclass
class RealApi:
    """The cluster, as the tests move it; they look at it through fleetbuild's own eyes."""

    folder: Path
    url: str
    server: list[subprocess.Popen[bytes]]  # the API server, now and before each restart

    def restart(self, after: float) -> None:
        """End the API server, and start it again after so many seconds."""
        self.server[-1].kill()
        self.server[-1].wait()
        time.sleep(after)
        self.server.append(_started(self.server[-1].args, self.folder))  # type: ignore[arg-type]

    def add(self, *names: str, labels: dict[str, str] | None = None) -> None:
        for name in names:
            # As kubelet does: an object of which nobody owns anything has no owners later either.
            metadata = {"name": name, "labels": {HOST: name, **(labels or {})}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self.ask("POST", "/api/v1/nodes?fieldManager=kubelet", node)

    def set(self, name: str, labels: dict[str, str], by: str) -> None:
        change = {"metadata": {"labels": labels}}
        self.ask("PATCH", f"/api/v1/nodes/{name}?fieldManager={by}", change)

    def labels(self, name: str) -> dict[str, str] | None:
        try:
            node = self.ask("GET", f"/api/v1/nodes/{name}")
        except HTTPError as error:
            error.close()
            return None
        labels: dict[str, str] = node["metadata"]["labels"]
        return {key: value for key, value in labels.items() if key != HOST}

    def delete(self, name: str) -> None:
        self.ask("DELETE", f"/api/v1/nodes/{name}")

    def clear(self) -> None:
        self.ask("DELETE", "/api/v1/nodes")

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        path = folder / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "real",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": user or {"token": ADMIN}}],
                    "contexts": [{"name": "real", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        return path

    @property
    def certificate(self) -> Path:
        return self.folder / "made" / "apiserver.crt"

    def create(self, document: dict[str, Any], **query: str) -> Any:
        """Create an object of any kind, with all fields checked."""
        kinds = self.ask("GET", _group_path(document["apiVersion"]))["resources"]
        kind = next(
            each for each in kinds if each["kind"] == document["kind"] and "/" not in each["name"]
        )
        space = document["metadata"].get("namespace", "default")
        inside = f"/namespaces/{space}" if kind["namespaced"] else ""
        path = f"{_group_path(document['apiVersion'])}{inside}/{kind['name']}"
        asked = urlencode({"fieldValidation": "Strict", **query})
        return self.ask("POST", f"{path}?{asked}", document)

    def define(self, text: str) -> None:
        """Add the custom resources of a file that are missing, and wait until they are served."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        there = {each["metadata"]["name"] for each in self.ask("GET", definitions)["items"]}
        for crd in filter(None, yaml.safe_load_all(text)):
            if crd["metadata"]["name"] not in there:
                self.create(crd)
            spec = crd["spec"]
            for version in spec["versions"]:
                if version["served"]:
                    group, names = f"/apis/{spec['group']}/{version['name']}", spec["names"]
                    eventually(lambda path=f"{group}/{names['plural']}": self.ask("GET", path))
                    eventually(lambda path=group: self.ask("GET", path))

    def ask(self, verb: str, path: str, body: Any = None, token: str = ADMIN) -> Any:
        text = json.dumps(body).encode() if body is not None else None
        kind = "merge-patch+json" if verb == "PATCH" else "json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"}
        request = Request(self.url + path, text, headers, method=verb)  # noqa: S310 our own
        context = ssl.create_default_context(cafile=str(self.certificate))
        with urlopen(request, timeout=10, context=context) as response:  # noqa: S310
            return json.load(response)


def eventually(done: Callable[[], Any]) -> Any:
    """Return the first answer that is true; a refusal counts as none."""
    for _ in range(240):
        try:
            if said := done():
                return said
        except HTTPError as error:
            error.close()
        time.sleep(0.25)
    raise AssertionError("not within a minute")


def _group_path(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


@contextmanager
def serving(folder: Path) -> Iterator[RealApi]:
    """Run both programs, on the loopback alone, until the block ends."""
    assert ASSETS
    _authority(folder)
    etcd, peer, port = free_port(), free_port(), free_port()
    (folder / "tokens").write_text(
        f'{ADMIN},admin,1,"system:masters"\n{NOBODY},nobody,2\n'
        f'{KUBELET},system:node:a,3,"system:nodes"\n',
        encoding="utf-8",
    )
    _openssl(folder, "genrsa", "-out", "sa.key", "2048")
    storage, server = (
        _started([str(Path(ASSETS, command[0])), *command[1:]], folder)
        for command in (_etcd(etcd, peer), _apiserver(etcd, port))
    )
    api = RealApi(folder, f"https://127.0.0.1:{port}", [server])
    try:
        _wait_for(api)
        yield api
    finally:
        for program in (*api.server, storage):
            program.kill()
            program.wait()


def _started(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@contextmanager
def scheduling(kubeconfig: Path) -> Iterator[None]:
    """Run the scheduler of such an API server until the block ends."""
    command = [str(SCHEDULER), f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
    program = subprocess.Popen(
        [*command, "--secure-port=0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        program.kill()
        program.wait()


def client_certificate(folder: Path) -> tuple[str, str]:
    """Files of a certificate and key that the server takes for an administrator."""
    _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "client.key",
             "-out", "client.csr", "-subj", "/O=system:masters/CN=someone")  # fmt: skip
    _openssl(folder, "x509", "-req", "-in", "client.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
             "-CAcreateserial", "-days", "2", "-out", "client.crt")  # fmt: skip
    return str(folder / "client.crt"), str(folder / "client.key")


def _etcd(port: int, peer: int) -> list[str]:
    client = f"http://127.0.0.1:{port}"
    return [
        "etcd",
        "--data-dir=etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]


def _apiserver(etcd: int, port: int) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--cert-dir=made",
        "--token-auth-file=tokens",
        "--client-ca-file=ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=sa.key",
        "--service-account-signing-key-file=sa.key",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--kubelet-preferred-address-types=InternalIP",
        "--disable-admission-plugins=ServiceAccount",
    ]


def _authority(folder: Path) -> None:
    """The authority for certificates of clients."""
    _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key",
             "-out", "ca.crt", "-days", "2", "-subj", "/CN=test")  # fmt: skip


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def _wait_for(api: RealApi) -> None:
    for _ in range(240):
        try:
            api.ask("GET", "/api/v1/nodes")
            return
        except HTTPError as error:  # it has on_start, and is not ready
            error.close()
        except (URLError, OSError):
            pass
        time.sleep(0.25)
    raise AssertionError("the API server did not get ready within a minute")
