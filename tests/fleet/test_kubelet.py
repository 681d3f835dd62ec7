"""Every way and kind runs under a real kubelet and containerd, where the environment names them.

The image is made from the lab's own, as in test_images.py. The release of the hostPath pods lies on
this machine, which is the cluster's one node.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from fleetbuild.extensions.kubernetes.api.pods import releases_of_pods
from fleetbuild.extensions.kubernetes.labels.apply import Labelling, WantedLabels, label_nodes
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from fleetbuild.extensions.kubernetes.labels.release_labels import is_release_label
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models import Plan
from fleetbuild.models.serving import as_planned
from fleetbuild.store.release_files import export_indexes, release_files
from fleetbuild.store.wheels import Store
from tests.extensions.kubernetes.delivery import KINDS
from tests.factories import real_api, real_kubelet
from tests.factories.files import stocked
from tests.factories.plans import RELEASE_ID, make_group, make_plan
from tests.factories.real_api import RealApi, eventually
from tests.factories.real_kubelet import NODE
from tests.factories.role_modules import plugin
from tests.fleet.test_images import PLAN, REPOSITORY, base, build
from tests.lab.podman import podman

pytestmark = pytest.mark.skipif(bool(real_kubelet.missing()), reason=real_kubelet.missing())

__all__ = ["base"]
IMAGE = "localhost/fleetbuild-test-kubelet:1"
PORT = 18741
NEXT = "f" * 16
DONE = {  # what says of a workload that its pod imported the packages
    "Deployment": ("apps/v1", "deployments", "readyReplicas"),
    "DaemonSet": ("apps/v1", "daemonsets", "numberReady"),
    "Job": ("batch/v1", "jobs", "succeeded"),
}


def the_plan(root: Path, release: str = RELEASE_ID) -> Plan:
    group = make_group((NODE,), release_id=release)
    return make_plan((group,), install_path=str(root))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The node's install path, with a verified release."""
    folder = tmp_path_factory.mktemp("node")
    for each in (folder, *folder.parents):  # pods run as nobody
        if each.stat().st_uid == 0 and str(each).startswith(("/tmp/", str(folder))):
            each.chmod(each.stat().st_mode | 0o055)
    install(folder, RELEASE_ID)
    return folder


def install(root: Path, release: str) -> None:
    packages = root / "releases" / release / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (packages / "hnswlib.py").write_text("__version__ = '0.8.0'\n")
    (root / "releases" / release / "manifest.json").write_text('{"verified": true}\n')


@pytest.fixture(scope="module")
def api(base: str, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """A cluster of one node, which has the labels of the release and all images."""
    folder = tmp_path_factory.mktemp("cluster")
    made = folder / "images"
    made.mkdir()
    build(made, base, PLAN, stocked(made, PLAN, "0.8.0"))
    podman("tag", base, IMAGE)
    real_kubelet.make_pause(folder)
    tag = f"cpu-avx2-cp311-{RELEASE_ID}"
    images = [IMAGE, real_kubelet.PAUSE, f"{REPOSITORY}:{tag}", f"{REPOSITORY}:{tag}-volume"]
    archives = [folder / f"{number}.tar" for number in range(len(images))]
    for archive, image in zip(archives, images, strict=True):
        podman("save", "--quiet", "--format=docker-archive", f"--output={archive}", image)
    with real_api.serving(folder) as running, real_kubelet.kubelet(running) as containerd:
        for archive in archives:
            containerd.load(archive)
            archive.unlink(missing_ok=True)
        label(running, folder, the_plan(root))
        yield running
        # Pods end before their kubelet does.
        running.ask("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
    podman("rmi", "--force", *images, check=False)


def label(api: RealApi, folder: Path, plan: Plan, *, released: bool = True) -> None:
    """As fleetbuild does before and after a release changes: the group's label stays."""
    labels = node_labels(plan, plan.groups[0])
    domain = plan.label_domain
    release = {key: value for key, value in labels.items() if is_release_label(key, domain)}
    hardware = {key: value for key, value in labels.items() if key not in release}
    if not released:
        release = {key: value for key, value in release.items() if key.endswith("/group")}
    with Client(find_access(api.kubeconfig(folder))) as client:
        wanted = {NODE: WantedLabels(release, hardware)}
        done = label_nodes(client, list_nodes(client), wanted, Labelling(domain))
    assert done[NODE].state in ("labelled", "unchanged"), done[NODE].reason


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Store:
    return stocked(tmp_path_factory.mktemp("stock"), the_plan(root))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, root: Path, store: Store) -> Iterator[str]:
    """The exported store, served where pods reach it."""
    folder = tmp_path_factory.mktemp("index")
    export_indexes(the_plan(root), store, folder)
    serve = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("0.0.0.0", PORT), serve) as server:  # noqa: S104 pods come from veth
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{real_kubelet.GATEWAY}:{PORT}"
        server.shutdown()
        thread.join()


def delivery(way: Any, kind: Any, index: str) -> Delivery:
    more: dict[str, Any] = {
        "hostpath": {"image": IMAGE},
        "image": {"image_prefix": REPOSITORY},
        "volume": {"image_prefix": REPOSITORY, "image": IMAGE},
        "init": {"index_url": index, "image": IMAGE},
    }[way]
    return Delivery(way=way, kind=kind, **more)


def workload(plan: Plan, made: Delivery, store: Store) -> dict[str, Any]:
    files = render(
        plan, delivery=made, wheels=release_files(plan, store), serving=as_planned(plan, {NODE})
    )
    document: dict[str, Any] = yaml.safe_load(files[f"{made.kind}-cpu-avx2-cp311.yaml"])
    document["metadata"]["name"] = f"{made.way}-{made.kind}"
    document["spec"]["template"]["metadata"].setdefault("labels", {})["way"] = made.way
    return document


def path_of(document: dict[str, Any]) -> str:
    version, plural, _ = DONE[document["kind"]]
    return f"/apis/{version}/namespaces/default/{plural}/{document['metadata']['name']}"


def is_done(api: RealApi, document: dict[str, Any]) -> bool:
    status = api.ask("GET", path_of(document))["status"]
    return bool(status.get(DONE[document["kind"]][2]))


def pods(api: RealApi, way: str) -> list[dict[str, Any]]:
    listed = api.ask("GET", f"/api/v1/namespaces/default/pods?labelSelector=way={way}")
    items: list[dict[str, Any]] = listed["items"]
    return items


@pytest.mark.parametrize("way", ["hostpath", "image", "volume", "init"])
def test_every_kind_runs(api: RealApi, root: Path, store: Store, index: str, way: str) -> None:
    plan = the_plan(root)
    made = [workload(plan, delivery(way, kind, index), store) for kind in KINDS]
    for document in made:
        api.create(document)
    try:
        for document in made:
            eventually(partial(is_done, api, document))
        if way == "hostpath":
            in_use(api, root, api.folder)
    finally:
        for document in made:
            api.ask("DELETE", f"{path_of(document)}?propagationPolicy=Background")
    eventually(lambda: "Running" not in {each["status"]["phase"] for each in pods(api, way)})


def in_use(api: RealApi, root: Path, folder: Path) -> None:
    """The node sees that pods mount the release, and so does the API server."""
    release = root / "releases" / RELEASE_ID
    uses = plugin("module_utils.releases_in_use").find_uses([str(release)])
    assert "It is mounted by process" in uses[str(release)]
    with Client(find_access(api.kubeconfig(folder))) as client:
        assert RELEASE_ID in releases_of_pods(client, [NODE], str(root))[NODE]


def test_a_daemonset_keeps_its_pods_until_the_next_release_is_verified(
    api: RealApi, root: Path, store: Store, tmp_path: Path
) -> None:
    plan, later = the_plan(root), the_plan(root, NEXT)
    made = workload(plan, delivery("hostpath", "daemonset", ""), store)
    api.create(made)
    eventually(lambda: is_done(api, made))
    (before,) = pods(api, "hostpath")
    label(api, tmp_path, plan, released=False)  # as apply does before it changes the node
    label(api, tmp_path, later)
    (still,) = pods(api, "hostpath")
    assert still["metadata"]["uid"] == before["metadata"]["uid"]
    assert not still["metadata"].get("deletionTimestamp")
    change = workload(later, delivery("hostpath", "daemonset", ""), store)
    api.ask("PATCH", path_of(made), change)

    def waiting() -> bool:
        states = [
            each["state"]
            for pod in pods(api, "hostpath")
            for each in pod["status"].get("initContainerStatuses", ())
        ]
        return any("running" in state for state in states)

    eventually(waiting)
    install(root, NEXT)

    def served() -> bool:
        found = [pod for pod in pods(api, "hostpath") if pod["status"]["phase"] == "Running"]
        mounts = [str(pod["spec"]["containers"][0]["volumeMounts"]) for pod in found]
        return bool(mounts) and all(NEXT in mount for mount in mounts) and is_done(api, made)

    eventually(served)
    api.ask("DELETE", f"{path_of(made)}?propagationPolicy=Background")
