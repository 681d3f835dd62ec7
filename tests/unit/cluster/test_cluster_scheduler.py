"""Rules and selectors at a real API server, scheduler and nfd-master, where they are at hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_api
import yaml
from real_api import RealApi

from fleetbuild.hardware.gpus import devices_of_sm
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.kubernetes import snippets
from fleetbuild.kubernetes.affinity import ARCHITECTURES
from fleetbuild.kubernetes.rules import node_feature_rule

# Plans, and what NFD makes of a rule, are the tests' of manifests.
sys.path.append(str(Path(__file__).parents[1] / "kubernetes"))

from nfd_master import labels_of
from nfd_worker import report
from test_rules import CRDS, plan_of

SCHEDULER = Path(real_api.ASSETS or "", "kube-scheduler")
pytestmark = pytest.mark.skipif(
    not real_api.ASSETS or not SCHEDULER.exists(),
    reason="KUBEBUILDER_ASSETS names no folder with a kube-apiserver and a kube-scheduler",
)

PLAN = plan_of("cpu-avx", "cpu-avx512", "sm80.sm86-avx2", "sm86-avx512", "cpu-armv8.2", "cpu-amx")
NODES = {  # rung and SMs: nobody planned for the last three
    "ivb": ("avx",),
    "skx": ("avx512",),
    "mixed": ("avx2", "8.0", "8.6"),
    "ada": ("avx512", "8.6"),
    "n1": ("armv8.2",),
    "new-icx": ("avx512vnni",),
    "new-a100": ("avx2", "8.0"),
    "old": ("x86-64-v2",),
}
WHERE = {
    "cpu-avx": {"ivb"},
    "cpu-avx512": {"skx", "new-icx"},
    "sm80.sm86-avx2": {"mixed", "new-a100"},
    "sm86-avx512": {"ada"},
    "cpu-armv8.2": {"n1"},
    "cpu-amx": {None},  # no such node: it waits
}
NFD_MASTER = Path(real_api.ASSETS or "", "nfd-master")
PODS = "/api/v1/namespaces/default/pods"
NFD = "/apis/nfd.k8s-sigs.io/v1alpha1"
RULES = f"{NFD}/nodefeaturerules"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    folder = tmp_path_factory.mktemp("api")
    real_api.authority(folder)
    with real_api.serving(folder) as running:
        yield running


@pytest.fixture
def scheduler(api: RealApi, tmp_path: Path) -> Iterator[None]:
    kubeconfig = api.kubeconfig(tmp_path)
    command = [str(SCHEDULER), f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
    program = subprocess.Popen(
        [*command, "--secure-port=0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield
    program.kill()
    program.wait()


@pytest.mark.usefixtures("scheduler")
def test_pods_of_every_class_are_scheduled_to_it_alone(api: RealApi) -> None:
    for name, (rung, *sms) in NODES.items():
        join(api, name, rung, sms)
    groups = sorted(PLAN.groups, key=lambda group: group.name)
    documents = filter(None, yaml.safe_load_all(snippets(PLAN)["affinity.yaml"]))
    wanted = {}
    for group, spec in zip(groups, documents, strict=False):
        for copy in range(3):
            name = f"{group.name.replace('.', '-')}-{copy}"
            run(api, name, spec)
            wanted[name] = WHERE[group.name]
    got = placed(api, {name for name, where in wanted.items() if where != {None}})
    assert {name: got[name] in where for name, where in wanted.items()} == dict.fromkeys(
        wanted, True
    )


@pytest.fixture(scope="module")
def rule(api: RealApi) -> dict[str, Any]:
    """The plan's rule, as the server keeps it."""
    if not CRDS.exists():
        pytest.skip("needs NFD's CRDs")
    for crd in filter(None, yaml.safe_load_all(CRDS.read_text())):
        api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    wait(lambda: served(api))
    given = yaml.safe_load(node_feature_rule(PLAN))
    api.ask("POST", f"{RULES}?fieldValidation=Strict", given)
    return given


@pytest.fixture
def nfd_master(api: RealApi, tmp_path: Path) -> Iterator[None]:
    if not NFD_MASTER.exists():
        pytest.skip("KUBEBUILDER_ASSETS has no nfd-master")
    api.add("master")
    command = [str(NFD_MASTER), f"-kubeconfig={api.kubeconfig(tmp_path)}", "-port=0"]
    environment = {**os.environ, "NODE_NAME": "master", "KUBERNETES_NAMESPACE": "default"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    program = subprocess.Popen([*command, "-config=/none"], env=environment, **quiet)
    yield
    program.kill()
    program.wait()


def test_the_server_takes_rules_whole(api: RealApi, rule: dict[str, Any]) -> None:
    kept = api.ask("GET", f"{RULES}/{rule['metadata']['name']}")
    assert kept["spec"] == rule["spec"]


@pytest.mark.usefixtures("nfd_master")
def test_nfd_gives_every_node_that_joins_its_class(api: RealApi, rule: dict[str, Any]) -> None:
    wanted = {}
    for name, (rung, *sms) in NODES.items():
        features = features_of(rung, sms)
        metadata = {
            "name": f"nfd-{name}",
            "labels": {"nfd.node.kubernetes.io/node-name": f"nfd-{name}"},
        }
        reported = {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": metadata,
            "spec": {"features": spelled(features)},
        }
        api.ask("POST", f"{NFD}/namespaces/default/nodefeatures", reported)
        api.add(metadata["name"])
        # nfd-master adds to the annotations that a kubelet has made.
        change = {"metadata": {"annotations": {"example.org/kubelet": "was here"}}}
        api.ask("PATCH", f"/api/v1/nodes/{metadata['name']}", change)
        wanted[metadata["name"]] = labels_of([rule], features)

    def given() -> dict[str, dict[str, str]]:
        return {
            name: {k: v for k, v in (api.labels(name) or {}).items() if k.startswith("fleetbuild")}
            for name in wanted
        }

    wait(lambda: given() == wanted)
    assert sum(map(bool, wanted.values())) == len(NODES) - 1


def spelled(features: Any) -> dict[str, Any]:
    """As NodeFeature objects hold them."""
    return {
        "flags": {
            name: {"elements": {flag: {} for flag in flags}}
            for name, flags in features.flags.items()
        },
        "attributes": {name: {"elements": each} for name, each in features.attributes.items()},
        "instances": {
            name: {"elements": [{"attributes": each} for each in some]}
            for name, some in features.instances.items()
        },
    }


def features_of(rung: str, sms: list[str]) -> Any:
    devices = [f"0302 10de:{devices_of_sm(sm)[0]}" for sm in sms]
    return report(RUNGS[rung].arch, RUNGS[rung].features, devices, driver=True)


def served(api: RealApi) -> bool:
    try:
        return bool(api.ask("GET", RULES)["kind"])
    except OSError:
        return False


def join(api: RealApi, name: str, rung: str, sms: list[str]) -> None:
    """A node comes, NFD labels it, and it gets ready. Nobody plays the kubelet."""
    rules = [yaml.safe_load(node_feature_rule(PLAN))]
    labels = labels_of(rules, features_of(rung, sms))
    kubelets = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCHITECTURES[RUNGS[rung].arch],
    }
    api.add(name, labels={**kubelets, **labels})
    room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    if sms:
        room["nvidia.com/gpu"] = "8"
    ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "a test's"}]
    status = {"status": {"capacity": room, "allocatable": room, "conditions": ready}}
    api.ask("PATCH", f"/api/v1/nodes/{name}/status", status)
    # The server taints whatever joins until a controller, which is not here, sees it ready.
    taint = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}] if sms else None
    api.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taint}})


def run(api: RealApi, name: str, spec: dict[str, Any]) -> None:
    container = {"name": "c", "image": "i", **spec.get("containers", [{}])[0]}
    api.ask(
        "POST",
        f"{PODS}?fieldValidation=Strict",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**spec, "containers": [container]},
        },
    )


def placed(api: RealApi, names: set[str]) -> dict[str, str | None]:
    """Where pods are, once these have a place."""

    def where() -> dict[str, str | None]:
        pods = api.ask("GET", PODS)["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}

    wait(lambda: all(where()[name] for name in names))
    return where()


def wait(done: Any) -> None:
    for _ in range(120):
        if done():
            return
        time.sleep(0.5)
    raise AssertionError("not within a minute")
