"""Rules and selectors at a real API server, scheduler and nfd-master, where they are at hand."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.cluster_builds import cluster_builds
from fleetbuild.extensions.kubernetes.jobs.builder_image import builder_image
from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES
from fleetbuild.extensions.kubernetes.labels.rules import node_feature_rule
from fleetbuild.extensions.kubernetes.manifests.snippets import snippets
from fleetbuild.extensions.kubernetes.read_fleet import read_fleet
from fleetbuild.hardware.gpus import devices_of_sm
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Config, LockedFile, Plan, PlannedWheel
from fleetbuild.models.config import Build
from fleetbuild.plan.decide.group_fleet import group_fleet
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.resolution import Locks
from fleetbuild.plan.decide.wheels.draft import draft_plan
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.recipes import Recipe
from tests.factories import real_api
from tests.factories.data import NFD_CRDS
from tests.factories.hardware_classes import plan_of
from tests.factories.nfd_master import labels_of
from tests.factories.nfd_worker import report
from tests.factories.real_api import RealApi

pytestmark = pytest.mark.skipif(
    not real_api.ASSETS or not real_api.SCHEDULER.exists(),
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
def api(running: RealApi) -> RealApi:
    return running


@pytest.fixture
def scheduler(api: RealApi, tmp_path: Path) -> Iterator[None]:
    with real_api.scheduling(api.kubeconfig(tmp_path)):
        yield


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


GPU_TAINT = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
TAINT = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
BUILDERS = {  # allocatable, and taints: no Node has all of its 16 cores to give
    "cp": ("15900m", "60Gi", TAINT),
    "big": ("15900m", "60Gi", None),
    "small": ("1930m", "5Gi", GPU_TAINT),
}


@pytest.mark.usefixtures("scheduler")
def test_build_jobs_are_scheduled_beside_other_pods(api: RealApi, tmp_path: Path) -> None:
    """Planned from what the server says of its Nodes: none lands where a taint keeps it away, the
    strongest builds, and the smaller one does once that is gone."""
    for name, (cpu, memory, taints) in BUILDERS.items():
        api.add(name, labels={"kubernetes.io/os": "linux"})
        get_ready(
            api, name, {"cpu": "16", "memory": "64Gi"}, {"cpu": cpu, "memory": memory}, taints
        )
    plan = planned_from(api, tmp_path, set(BUILDERS))
    jobs = [wheel_of(plan, package, key) for package, key in (("one", "a" * 32), ("two", "b" * 32))]
    assert [(job.built_on, job.build_jobs) for job in jobs] == [
        ("big", {"big": 15, "small": 1, "cp": 15})
    ] * 2
    group = plan.groups[0].model_copy(update={"wheels": tuple(jobs)})
    files, warnings = cluster_builds(
        plan.model_copy(update={"groups": (group,), "lock": "complete"})
    )
    assert not warnings
    claim(api, yaml.safe_load(files["wheels.yaml"]))
    for name in ("big", "small"):
        run(api, f"agent-on-{name}", pinned(name))
    assert place(api, files, "first") == {"big"}
    api.ask("PATCH", "/api/v1/nodes/big", {"spec": {"unschedulable": True}})
    assert place(api, files, "second") == {"small"}


def planned_from(api: RealApi, folder: Path, names: set[str]) -> Plan:
    """A plan for these Nodes, without a lock: no index is asked."""
    config = Config(build=Build(image="python:3.11-bookworm"))
    with Client(find_access(api.kubeconfig(folder))) as client:
        fleet, facts = read_fleet(client, builder_image(config.build, None))
    ours = tuple(node for node in fleet.nodes if node.name in names)
    fleet = fleet.model_copy(update={"nodes": ours})
    recipe = Recipe(name="one", packages=("one",), rungs=("x86-64",), job_memory_gb=2)
    package = Package(name="one", version="1.0", recipe=recipe, requirement="one==1.0", text="one")
    drafted = draft_plan(group_fleet(fleet, facts, [package], config), facts, [package])
    when = "2026-01-01T00:00:00+00:00"
    return make_plan(
        fleet, facts, [package], config, drafted=drafted, locks=Locks(), store={}, created=when
    )


def wheel_of(plan: Plan, package: str, key: str) -> PlannedWheel:
    source = LockedFile(
        name=package, version="1", file="s.tar.gz", sha256="0" * 64, url="https://i.example.com/s"
    )
    changes = {"package": package, "artifact_key": key, "action": "build", "source": source}
    return plan.groups[0].wheels[0].model_copy(update=changes)


def pinned(name: str) -> dict[str, Any]:
    """What every node runs beside, as a network's agent."""
    requests = {"cpu": "250m", "memory": "300Mi"}
    container = {"resources": {"requests": requests}}
    tolerations = [{"operator": "Exists"}]
    return {
        "nodeSelector": {real_api.HOST: name}, "tolerations": tolerations, "containers": [container]
    }  # fmt: skip


def claim(api: RealApi, document: dict[str, Any]) -> None:
    """The Jobs' claim, bound as a controller would."""
    name, spec = document["metadata"]["name"], document["spec"]
    disk = {"hostPath": {"path": "/none"}, "capacity": spec["resources"]["requests"]}
    volume = {"metadata": {"name": name}, "spec": {**disk, "accessModes": spec["accessModes"]}}
    api.ask("POST", "/api/v1/persistentvolumes", {**volume, "kind": "PersistentVolume"})
    bound = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    metadata = {"name": name, "annotations": bound}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    bound_to = {**spec, "volumeName": name, "storageClassName": ""}
    api.ask("POST", claims, {**document, "metadata": metadata, "spec": bound_to})
    api.ask("PATCH", f"{claims}/{name}/status", {"status": {"phase": "Bound"}})


def place(api: RealApi, files: dict[str, str], suffix: str) -> set[str | None]:
    """Where the pods of all Jobs land; nobody here makes pods of Jobs but we."""
    manifests = [text for name, text in files.items() if name.endswith(".yaml")]
    documents = [each for text in manifests for each in yaml.safe_load_all(text)]
    names = set()
    for job in (each for each in documents if each["kind"] == "Job"):
        name = f"{job['metadata']['name'][:50]}-{suffix}"
        run(api, name, job["spec"]["template"]["spec"])
        names.add(name)
    where = placed(api, names)
    return {where[name] for name in names}


@pytest.fixture(scope="module")
def rule(api: RealApi) -> dict[str, Any]:
    """The plan's rule, as the server keeps it."""
    for crd in filter(None, yaml.safe_load_all(NFD_CRDS.read_text())):
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


def test_the_server_keeps_every_field_of_the_rules(api: RealApi, rule: dict[str, Any]) -> None:
    kept = api.ask("GET", f"{RULES}/{rule['metadata']['name']}")
    assert kept["spec"] == rule["spec"]


@pytest.mark.usefixtures("nfd_master")
def test_nfd_labels_every_joining_node_with_its_class(api: RealApi, rule: dict[str, Any]) -> None:
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
    arch = ARCHITECTURES[RUNGS[rung].arch]
    get_ready(api, name, room, room, GPU_TAINT if sms else None, arch=arch)


def get_ready(
    api: RealApi, name: str, has: Any, gives: Any, taints: Any, *, arch: str = "amd64"
) -> None:
    """As its kubelet would."""
    ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "a test's"}]
    room = {"pods": "110", "ephemeral-storage": "100Gi"}
    status = {
        "nodeInfo": {"operatingSystem": "linux", "architecture": arch},
        "capacity": {**room, **has}, "allocatable": {**room, **gives}, "conditions": ready,
    }  # fmt: skip
    api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    # The server taints whatever joins until a controller, which is not here, sees it ready.
    api.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


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
