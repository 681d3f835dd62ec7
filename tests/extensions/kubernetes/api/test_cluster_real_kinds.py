"""What `emit dra`, `kueue` and `nodepools` write, at a real API server.

The definitions of Kueue, JobSet, LeaderWorkerSet and Karpenter come from a folder `crds` beside the
programs: resourceflavors.yaml, jobsets.yaml, leaderworkersets.yaml and nodepools.yaml.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from fleetbuild import Fleet
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.kubeconfig import find_access
from fleetbuild.extensions.kubernetes.emit.dra import device_classes
from fleetbuild.extensions.kubernetes.emit.karpenter import node_pools
from fleetbuild.extensions.kubernetes.emit.kueue import resource_flavors
from fleetbuild.extensions.kubernetes.emit.policy import wants_policy
from fleetbuild.extensions.kubernetes.jobs.builder_image import builder_image
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.read_fleet import read_fleet
from fleetbuild.models.config import Build
from tests.factories import real_api
from tests.factories.hardware_classes import plan_of
from tests.factories.plans import gpu_fleet
from tests.factories.real_api import CRDS, RealApi, eventually

pytestmark = real_api.needed
needs_scheduler = pytest.mark.skipif(
    not real_api.SCHEDULER.exists(), reason="KUBEBUILDER_ASSETS has no kube-scheduler"
)

PLAN = plan_of("sm80.sm90-avx512", "sm86-avx2", "sm89-avx2", "cpu-avx2", "cpu-armv8.2")
NODE_CLASS = "karpenter.k8s.aws/EC2NodeClass/default"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.fixture(scope="module")
def api(running: RealApi) -> RealApi:
    return running


# DRA ----------------------------------------------------------------------------------------------

GPUS = {  # Node: type and compute capability of its device
    "a100": ("gpu", "8.0.0"),
    "rtx3090": ("gpu", "8.6.0"),
    "h100": ("gpu", "9.0.0"),
    "l4": ("gpu", "8.9.0"),  # the only one for the plain limit
    "mig": ("mig", "8.6.0"),
    "other": ("gpu", "8.6.0"),
}


def gpu_node(api: RealApi, name: str) -> None:
    """A Node with one device, which its driver publishes as NVIDIA's does."""
    kind, capability = GPUS[name]
    driver = "gpu.example.com" if name == "other" else "gpu.nvidia.com"
    api.add(name, labels={"kubernetes.io/os": "linux"})
    room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "a test's"}]
    info = {"architecture": "amd64", "operatingSystem": "linux"}
    status = {"capacity": room, "allocatable": room, "conditions": ready, "nodeInfo": info}
    api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    api.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    attributes = {
        "type": {"string": kind},
        "uuid": {"string": f"GPU-{name}"},
        "productName": {"string": "NVIDIA"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": capability},
        "driverVersion": {"version": "570.86.15"},
    }
    device = {
        "name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "24Gi"}}
    }  # fmt: skip
    api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [device],
            },
        }
    )


@pytest.fixture(scope="module")
def gpus(api: RealApi) -> RealApi:
    for document in yaml.safe_load_all(device_classes(PLAN) or ""):
        api.create(document)
    for name in GPUS:
        gpu_node(api, name)
    return api


@pytest.fixture
def scheduler(gpus: RealApi, tmp_path: Path) -> Iterator[RealApi]:
    with real_api.scheduling(gpus.kubeconfig(tmp_path)):
        yield gpus


def claiming(api: RealApi, name: str, device_class: str) -> None:
    """A pod that asks for a device of a class by a ResourceClaim."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": name}]
    pod(api, name, {"containers": [container], "resourceClaims": claims})


def pod(api: RealApi, name: str, spec: dict[str, Any]) -> None:
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def where(api: RealApi, name: str) -> str | None:
    node: str | None = api.ask("GET", f"{PODS}/{name}")["spec"].get("nodeName")
    return node


def waits(api: RealApi, name: str) -> str:
    """Why the scheduler leaves a pod waiting, once it has looked at it."""
    conditions = api.ask("GET", f"{PODS}/{name}")["status"].get("conditions", ())
    said = [each["message"] for each in conditions if each["type"] == "PodScheduled"]
    return said[0] if said else ""


def test_the_server_compiles_the_expressions(gpus: RealApi) -> None:
    served = {each["metadata"]["name"] for each in gpus.ask("GET", CLASSES)["items"]}
    given = list(yaml.safe_load_all(device_classes(PLAN) or ""))
    assert {each["metadata"]["name"] for each in given} <= served
    (selector,) = given[0]["spec"]["selectors"]
    selector["cel"]["expression"] = selector["cel"]["expression"].replace("semver(", "version(")
    given[0]["metadata"]["name"] = "broken.fleetbuild.dev"
    with pytest.raises(HTTPError) as problem:
        gpus.create(given[0])
    with problem.value as error:
        assert "undeclared reference to 'version'" in error.read().decode()


@needs_scheduler
def test_a_claim_gets_a_gpu_of_its_sm_and_no_other(scheduler: RealApi) -> None:
    """The second pod waits: a MIG device and a device of another driver are of the same SM."""
    for number, (sm, node) in enumerate({"sm86": "rtx3090", "sm80": "a100"}.items()):
        claiming(scheduler, f"one-{number}", f"{sm}.fleetbuild.dev")
        eventually(lambda number=number: where(scheduler, f"one-{number}"))
        assert where(scheduler, f"one-{number}") == node
    claim = scheduler.ask("GET", f"{CLAIMS}/one-0")["status"]["allocation"]
    assert claim["devices"]["results"][0]["pool"] == "rtx3090"
    claiming(scheduler, "second", "sm86.fleetbuild.dev")
    eventually(lambda: "cannot allocate all claims" in waits(scheduler, "second"))
    claiming(scheduler, "set", "sm80-sm90.fleetbuild.dev")
    eventually(lambda: where(scheduler, "set"))
    assert where(scheduler, "set") == "h100"  # the A100 is taken


@needs_scheduler
def test_a_plain_limit_gets_such_a_gpu_too(scheduler: RealApi) -> None:
    limits = {"limits": {"fleetbuild.dev/sm89": "1"}}
    pod(scheduler, "plain", {"containers": [{"name": "c", "image": "i", "resources": limits}]})
    eventually(lambda: where(scheduler, "plain"))
    assert where(scheduler, "plain") == "l4"
    status = scheduler.ask("GET", f"{PODS}/plain")["status"]["extendedResourceClaimStatus"]
    (mapped,) = status["requestMappings"]
    assert mapped["resourceName"] == "fleetbuild.dev/sm89"


def test_a_resource_of_a_reserved_domain_is_left_out_for_a_reason(api: RealApi) -> None:
    domain = "fleetbuild.node-restriction.kubernetes.io"
    plan = plan_of("sm75-avx2").model_copy(update={"label_domain": domain})
    (document,) = yaml.safe_load_all(device_classes(plan) or "")
    api.create(document)
    document["metadata"]["name"] = "with-a-limit"
    document["spec"]["extendedResourceName"] = f"{domain}/sm75"
    with pytest.raises(HTTPError) as problem:
        api.create(document)
    with problem.value as error:
        assert "extendedResourceName" in error.read().decode()


def test_the_gpus_of_slices_are_read(gpus: RealApi, tmp_path: Path) -> None:
    image = builder_image(Build(image="python:3.11-bookworm"), None)
    with Client(find_access(gpus.kubeconfig(tmp_path))) as client:
        facts = read_fleet(client, image)[1]
    assert {name: facts[name].sms for name in GPUS} == {
        "a100": ("8.0",), "rtx3090": ("8.6",), "h100": ("9.0",), "l4": ("8.9",),
        "mig": (), "other": (),
    }  # fmt: skip


# Custom resources ---------------------------------------------------------------------------------


@pytest.fixture
def define(api: RealApi, request: pytest.FixtureRequest) -> None:
    file = CRDS / f"{request.param}.yaml"
    if not file.exists():
        pytest.skip(f"KUBEBUILDER_ASSETS has no crds/{file.name}")
    api.define(file.read_text(encoding="utf-8"))


def created(api: RealApi, documents: list[dict[str, Any]]) -> None:
    """All of them, and none of them with a field that the definition does not have."""
    assert documents
    for document in documents:
        api.create(document)
        wrong = {**document, "metadata": {"name": "wrong"}, "spec": {**document["spec"], "x": 1}}
        with pytest.raises(HTTPError) as problem:
            api.create(wrong)
        with problem.value as error:
            assert 'unknown field "spec.x"' in json.load(error)["message"]


@pytest.mark.parametrize("define", ["resourceflavors"], indirect=True)
@pytest.mark.usefixtures("define")
def test_kueue_takes_the_flavors(api: RealApi) -> None:
    created(api, list(yaml.safe_load_all(resource_flavors(PLAN) or "")))


@pytest.mark.parametrize("define", ["nodepools"], indirect=True)
@pytest.mark.parametrize("domain", ["fleetbuild.dev", "fb.node-restriction.kubernetes.io"])
@pytest.mark.usefixtures("define")
def test_karpenter_takes_the_pools(api: RealApi, domain: str) -> None:
    release = "default" if domain == "fleetbuild.dev" else "staging"
    plan = PLAN.model_copy(update={"label_domain": domain, "release": release})
    files, _ = node_pools(plan, NODE_CLASS)
    created(api, list(yaml.safe_load_all(files["karpenter.yaml"])))


# A second `kubectl apply` -------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
@pytest.mark.parametrize("kind", ["labeller", "policy", "kustomize", "k8s"])
def test_a_second_apply_of_a_folder_changes_nothing(
    api: RealApi, tmp_path: Path, kind: str
) -> None:
    """Else Argo CD and Flux would find a difference each time."""
    plan = gpu_fleet().model_copy(update={"label_domain": "second.example.org"})
    delivery = Delivery(
        image="registry.example.com/fleetbuild:1" if kind == "labeller" else None,
        image_prefix="registry.example.com/fleet" if kind == "policy" else None,
        namespace=kind,
    )
    Fleet(state_dir=tmp_path / "fb").emit(kind, plan=plan, delivery=delivery, out=tmp_path / "out")
    if kind == "policy":
        (tmp_path / "out" / "kustomization.yaml").write_text("resources: [policy.yaml]\n")
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kind}})
    access = [f"--kubeconfig={api.kubeconfig(tmp_path)}"]
    if kind != "labeller":  # its objects name theirs, and the right to write events is in another
        access.append(f"--namespace={kind}")

    def kubectl(*words: str) -> list[str]:
        """Run it on the folder. `diff` ends with 1, and fails here, if it finds one."""
        command = ["kubectl", *access, *words, "-k", str(tmp_path / "out")]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        return ran.stdout.splitlines()

    made = kubectl("apply", "--validate=strict")
    assert made
    assert not [line for line in made if line.startswith("node/")]
    assert kubectl("diff") == []
    if kind in ("policy", "labeller"):
        assert all(line.endswith(" unchanged") for line in kubectl("apply"))


# A policy that places pods ------------------------------------------------------------------------


def test_a_pod_with_the_label_of_a_group_gets_its_selector_and_image(api: RealApi) -> None:
    """Needs Kubernetes 1.36, with MutatingAdmissionPolicy."""
    text = wants_policy(PLAN, Delivery(image_prefix="registry.example.com/fleet"))
    for each in yaml.safe_load_all(text):
        api.create(each)
    (group,) = [group for group in PLAN.groups if group.name.startswith("sm86")]

    def made(name: str, wants: str, **spec: Any) -> dict[str, Any]:
        labels = {"fleetbuild.dev/wants": wants}
        containers = [{"name": "c", "image": "any"}]
        pod: dict[str, Any] = api.create({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"containers": containers, **spec},
        })  # fmt: skip
        return pod

    def placed() -> bool:  # a policy takes effect some seconds after it is made
        name = f"pod-{time.monotonic_ns()}"
        return "fleetbuild.dev/class" in made(name, group.name)["spec"].get("nodeSelector", {})

    eventually(placed)
    untouched = api.create({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "without-label"},
        "spec": {"containers": [{"name": "c", "image": "any"}]},
    })["spec"]  # fmt: skip
    assert "nodeSelector" not in untouched
    assert untouched["containers"][0]["image"] == "any"
    for wanted in PLAN.groups:
        spec = made(f"of-{wanted.name}", wanted.name)["spec"]
        assert f"{wanted.target.isa}" in spec["nodeSelector"]["fleetbuild.dev/class"]
        tolerated = {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
        assert tolerated is bool(wanted.target.sms)
    pod = made(
        "own", group.name, nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}]
    )
    assert pod["spec"]["nodeSelector"]["disk"] == "ssd"
    assert pod["spec"]["nodeSelector"]["fleetbuild.dev/class"] == "sm86-avx2"
    assert pod["spec"]["containers"][0]["image"].startswith("registry.example.com/fleet:sm86-avx2")
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["spec"]["tolerations"]

    def refusal() -> str:  # of a policy of its own, which takes effect on its own too
        try:
            made(f"none-{time.monotonic_ns()}", "sm99-avx2-cp311")
        except HTTPError as error:
            with error:
                return error.read().decode()
        return ""

    assert "names no group of the plan" in eventually(refusal)
