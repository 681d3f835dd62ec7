"""The four ways: what they ask of a node, and whether each pod lands where its wheels run."""

import json
import subprocess
from pathlib import PurePath

import pytest
import yaml

from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.labels.labeller import LabelTargets
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from fleetbuild.extensions.kubernetes.labels.release_labels import served_labels
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render, render_kustomize
from fleetbuild.extensions.kubernetes.manifests.render import warnings as left_out
from fleetbuild.models import Manifest, TargetLibc
from fleetbuild.models.serving import as_planned
from tests.extensions.kubernetes.delivery import KINDS, PREFIX, WAYS, cluster, delivery
from tests.factories.plans import (
    RELEASE_ID,
    gpu_fleet,
    make_group,
    make_plan,
    make_target,
    six_nodes,
    wheels_of,
)
from tests.factories.schemas import NEWEST, OLDEST, accept

IMAGE_VOLUMES = "1.31.0"  # the first whose schema knows them


def landing(pod, nodes):
    return {name for name, labels in nodes.items() if pod["nodeSelector"].items() <= labels.items()}


def pod_of(text):
    return yaml.safe_load(text)["spec"]["template"]["spec"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_each_pod_lands_on_the_nodes_of_its_group_and_no_others(way, kind):
    plan, everyone = six_nodes(), {"cpu-1", "cpu-2", "gpu-1", "gpu-2", "arm-1", "arm-2"}
    settings = {"delivery": delivery(way, kind), "wheels": wheels_of(plan)}
    files = render(plan, serving=as_planned(plan, everyone), **settings)
    nodes = cluster(plan, as_planned(plan, everyone))
    assert set(nodes) == everyone
    components = render_kustomize(plan, **settings)
    patch = "daemonset" if kind == "daemonset" else "pod-template"
    for group in plan.groups:
        pods = [
            pod_of(files[f"{kind}-{group.name}.yaml"]),
            pod_of(components[f"components/{group.name}/{patch}.yaml"]),
        ]
        assert [landing(pod, nodes) for pod in pods] == [set(group.nodes)] * 2


@pytest.mark.parametrize("way", WAYS)
def test_only_pods_that_mount_the_release_wait_for_it(way):
    plan = six_nodes()
    settings = {"delivery": WAYS[way], "wheels": wheels_of(plan)}
    # A node that joined a minute ago: its hardware is known, and nothing is installed.
    joined = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "fleetbuild.dev/class": "cpu-avx2",
        "fleetbuild.dev/isa": "avx2",
    }
    pod = pod_of(render(plan, **settings)["deployment-cpu-avx2-cp311.yaml"])
    assert bool(landing(pod, {"new": joined})) == (way != "hostpath")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_the_schema_of_the_oldest_and_newest_kubernetes_accepts_all(way, kind):
    plan = gpu_fleet()
    settings = {"delivery": delivery(way, kind), "wheels": wheels_of(plan)}
    files = render(plan, serving=as_planned(plan, {"gpu-1", "cpu-1"}), **settings)
    files |= {"base": render_kustomize(plan, **settings)["base/workload.yaml"]}
    names = [name for name in files if name not in ("labels.sh", "kustomization.yaml")]
    assert len(names) == 3
    for name in names:
        for document in yaml.safe_load_all(files[name]):
            for version in (IMAGE_VOLUMES if way == "volume" else OLDEST, NEWEST):
                accept(document, version)


def test_the_groups_own_image_contains_all_packages():
    plan = gpu_fleet()
    text = render(plan, delivery=WAYS["image"])["deployment-cpu-avx2-cp311.yaml"]
    pod = pod_of(text)
    assert pod["containers"][0]["image"] == f"{PREFIX}:cpu-avx2-cp311-{RELEASE_ID}"
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    names = [variable["name"] for variable in pod["containers"][0]["env"]]
    assert "PYTHONPATH" not in names
    assert "initContainers" not in pod


def test_an_image_volume_is_mounted_and_its_limits_are_stated():
    text = render(gpu_fleet(), delivery=WAYS["volume"])["deployment-cpu-avx2-cp311.yaml"]
    pod = pod_of(text)
    reference = f"{PREFIX}:cpu-avx2-cp311-{RELEASE_ID}-volume"
    assert pod["volumes"][0]["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/fleetbuild"
    assert pod["containers"][0]["env"][0]["value"] == "/fleetbuild/site-packages"
    assert "on by default from Kubernetes 1.35" in text


def test_an_init_container_installs_by_hash_from_the_groups_own_index():
    plan = gpu_fleet()
    files = render(plan, delivery=delivery("init", "job"), wheels=wheels_of(plan))
    pod = pod_of(files["job-cpu-avx2-cp311.yaml"])
    (installer,) = pod["initContainers"]
    script = installer["command"][2]
    index = "http://wheels.example.com:8000/fleet/cpu-avx2-cp311/simple/"
    for option in (
        f"--index-url={index} ", "--trusted-host=wheels.example.com:8000", "--require-hashes",
        "--no-deps", "--target=/fleetbuild/site-packages",
    ):  # fmt: skip
        assert option in script
    assert "$(" not in json.dumps(installer)  # Kubernetes would put a variable there
    requirements = installer["env"][0]["value"]
    assert requirements == f"hnswlib==0.8.0+cpu.avx2 --hash=sha256:{'ab' * 32}\n"
    home = PurePath(pod["containers"][0]["env"][0]["value"]).parent
    mounts = [installer["volumeMounts"][0], pod["containers"][0]["volumeMounts"][0]]
    assert [mount["mountPath"] for mount in mounts] == [str(home)] * 2
    assert [mount.get("readOnly", False) for mount in mounts] == [False, True]
    secure = Delivery(way="init", index_url="https://wheels.example.com")
    text = render(plan, delivery=secure, wheels=wheels_of(plan))["deployment-cpu-avx2-cp311.yaml"]
    assert "--trusted-host" not in text


def test_a_job_ends_and_a_deployment_stays():
    plan = make_plan()
    job = yaml.safe_load(
        render(plan, delivery=delivery("hostpath", "job"))["job-cpu-avx2-cp311.yaml"]
    )
    pod = job["spec"]["template"]["spec"]
    assert (job["kind"], pod["restartPolicy"]) == ("Job", "Never")
    assert "selector" not in job["spec"]
    assert "ttlSecondsAfterFinished" not in job["spec"]  # Argo CD would make it again
    container = pod["containers"][0]
    assert "readinessProbe" not in container
    assert "sigwait" not in container["command"][2]
    compile(container["command"][2], "smoke", "exec")
    files = render(plan, delivery=delivery("hostpath", "daemonset"))
    daemons = yaml.safe_load(files["daemonset-cpu-avx2-cp311.yaml"])
    assert "replicas" not in daemons["spec"]
    assert "sigwait" in daemons["spec"]["template"]["spec"]["containers"][0]["command"][2]
    resources = yaml.safe_load(files["kustomization.yaml"])["resources"]
    assert resources == ["daemonset-cpu-avx2-cp311.yaml"]


def names_of_jobs(release_id=RELEASE_ID, **changes):
    """By both writers, for a group and a release of long names."""
    wide = make_target(sms=("7.5", "8.0", "8.6", "8.9", "9.0"))
    plan = make_plan((make_group(("a",), wide, release_id=release_id),), release="x" * 30)
    settings = {"delivery": delivery("hostpath", "job"), **changes}
    (plain,) = [text for name, text in render(plan, **settings).items() if name.startswith("job")]
    overlays = render_kustomize(plan, **settings)
    (overlay,) = [yaml.safe_load(text) for name, text in overlays.items() if "nameSuffix" in text]
    base = yaml.safe_load(overlays["base/workload.yaml"])["metadata"]["name"]
    return [yaml.safe_load(plain)["metadata"]["name"], base + overlay["nameSuffix"]]


def test_the_next_release_gives_the_job_another_name():
    first = names_of_jobs()
    assert first == names_of_jobs()
    assert not set(first) & set(names_of_jobs("fedcba9876543210"))
    assert max(map(len, first)) <= 63
    elsewhere = names_of_jobs(delivery=Delivery(kind="job", image="example.com/python:3"))
    assert not set(elsewhere) & set(first)


def test_without_wheels_no_init_container_is_written_and_a_warning_says_so():
    plan = gpu_fleet()
    some = {"cpu-avx2-cp311": wheels_of(plan)["cpu-avx2-cp311"]}
    files = render(plan, delivery=WAYS["init"], wheels=some)
    assert [n for n in files if n.startswith("deployment")] == ["deployment-cpu-avx2-cp311.yaml"]
    (sentence,) = left_out(plan, delivery=WAYS["init"], wheels=some)
    assert sentence.startswith("sm80.sm90-armv8.2-cp312-musl: the store does not hold its wheels")


def test_the_groups_own_image_needs_no_known_base_image():
    new = make_target(libc=TargetLibc(family="glibc", floor="2.99"))
    plan = make_plan((make_group(("a",), new),))
    assert left_out(plan, delivery=WAYS["image"]) == ()
    assert "deployment-cpu-avx2-cp311.yaml" in render(plan, delivery=WAYS["image"])
    assert len(left_out(plan, delivery=WAYS["volume"])) == 1


@pytest.mark.parametrize("way", ["image", "volume", "init"])
def test_a_way_asks_for_its_missing_options(way):
    plan = make_plan()
    with pytest.raises(UsageError) as refused:
        render(plan, delivery=Delivery(way=way), wheels=wheels_of(plan))
    assert refused.value.fix


@pytest.mark.parametrize(
    "settings",
    [
        {"image_prefix": "registry.example.com/team/fleet:1"},
        {"image_prefix": "Fleet"},
        {"image_prefix": ""},
        {"image_prefix": "a b"},
        {"index_url": "ftp://wheels.example.com"},
        {"index_url": "https://user:secret@wheels.example.com"},
        {"index_url": "http://wheels.example.com/$(id)"},
        {"index_url": "http://wheels.example.com/?a=b"},
    ],
)
def test_invalid_names_are_refused(settings):
    with pytest.raises(UsageError) as refused:
        Delivery(**settings)
    assert refused.value.fix


def test_usual_repository_names_are_accepted():
    for name in ("localhost:5000/a", "fleet", "ghcr.io/Team-x/fleet".lower(), "10.0.0.1/a/b_c.d"):
        assert Delivery(image_prefix=name).repository == name


def test_daemonset_pods_stay_while_the_next_release_is_installed():
    """The controller deletes a DaemonSet's pod as soon as its node does not match the selector."""
    plan = six_nodes()
    group = plan.groups[0]
    node = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    settings = {"delivery": delivery("hostpath", "daemonset"), "wheels": wheels_of(plan)}
    pods = [
        pod_of(render(plan, **settings)[f"daemonset-{group.name}.yaml"]),
        pod_of(render_kustomize(plan, **settings)[f"components/{group.name}/daemonset.yaml"]),
    ]
    old = Manifest(release="default", id="old", group=group.name, python="/p", wheels=())
    serves = served_labels(old, plan.label_domain, packages=True)
    names = LabelTargets(plan.label_domain)
    changing = {key: serves[key] for key in names.kept_while_changing}
    assert changing == {"fleetbuild.dev/group": group.name}
    for labels in (serves, changing, node_labels(plan, group)):
        assert [landing(pod, {"n": {**node, **labels}}) for pod in pods] == [{"n"}] * 2
    # Nothing verified serves there any more, or another group's release does.
    for labels in ({}, node_labels(plan, plan.groups[1])):
        assert [landing(pod, {"n": {**node, **labels}}) for pod in pods] == [set()] * 2


def test_a_daemonset_waits_for_its_release_and_then_mounts_it(tmp_path):
    plan = six_nodes()
    group = plan.groups[0]
    settings = {"delivery": delivery("hostpath", "daemonset"), "wheels": wheels_of(plan)}
    pod = pod_of(render(plan, **settings)[f"daemonset-{group.name}.yaml"])
    (volume,) = (each for each in pod["volumes"] if "hostPath" in each)
    assert volume["hostPath"]["path"] == "/opt/fleetbuild/releases"
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if "subPath" in each)
    assert mount["mountPath"] == f"{volume['hostPath']['path']}/{mount['subPath']}"
    (wait,) = pod["initContainers"]
    assert wait["image"] == pod["containers"][0]["image"]
    *command, manifest = wait["command"]
    assert manifest == f"{mount['mountPath']}/manifest.json"

    there = tmp_path / "manifest.json"
    with subprocess.Popen([*command, str(there)], stdout=subprocess.PIPE, text=True) as waiting:
        assert "waiting until this release is verified here" in waiting.stdout.readline()
        there.write_text(json.dumps({"verified": False}, indent=2))
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
        there.write_text(json.dumps({"verified": True}, indent=2))
        assert waiting.wait(20) == 0
    with subprocess.Popen([*command, str(tmp_path / "none")], stdout=subprocess.PIPE) as waiting:
        waiting.stdout.readline()
        waiting.terminate()
        assert waiting.wait(20) == 1
