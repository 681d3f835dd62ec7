"""Components change a user's workloads; a base and its overlays make the emitted workloads of them.

`kustomize` or `kubectl kustomize` builds them, if one is installed.
"""

import re
import shutil
import subprocess

import pytest
import yaml

from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render, render_kustomize
from tests.extensions.kubernetes.delivery import KINDS, WAYS, delivery
from tests.factories.plans import gpu_fleet, make_plan, wheels_of
from tests.factories.schemas import NEWEST, accept

EVERY_KIND = (
    "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "CronJob", "Pod",
)  # fmt: skip


def build(folder):
    """What `kubectl kustomize` or `kustomize build` makes of a folder; None where neither is."""
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(command[0]):
            done = subprocess.run(
                [*command, str(folder)], capture_output=True, text=True, check=False
            )
            if "unknown field" in done.stderr:  # older than Kubernetes 1.25
                continue
            assert done.returncode == 0, done.stderr
            return list(yaml.safe_load_all(done.stdout))
    return None


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def named(items):
    return sorted(items, key=lambda item: item.get("mountPath") or item["name"])


def variables(container):
    return {each["name"]: each["value"] for each in container["env"]}


def normal(document):
    """Without names, labels and selectors, and lists of named things in order."""
    pod = document["spec"]["template"]["spec"]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        for part in ("env", "volumeMounts"):
            container[part] = named(container.get(part, []))
    pod["volumes"] = named(pod["volumes"])
    return {**{key: document["spec"].get(key) for key in ("replicas", "backoffLimit")}, "pod": pod}


KUSTOMIZE = pytest.mark.skipif(
    not (shutil.which("kustomize") or shutil.which("kubectl")), reason="no kustomize or kubectl"
)
GROUPS = ("cpu-avx2-cp311", "sm80.sm90-armv8.2-cp312-musl")
POD = """\
tolerations: [{key: spot, operator: Exists}]
nodeSelector: {disk: ssd}
restartPolicy: Never
initContainers: [{name: first, image: "first:1"}]
containers:
  - {name: proxy, image: "proxy:1"}
  - name: main
    image: "web:1"
    env: [{name: LANG, value: C.UTF-8}, {name: PYTHONPATH, value: /srv}]
    resources: {limits: {memory: 1Gi}}
    volumeMounts: [{name: data, mountPath: /data}]
volumes: [{name: data, emptyDir: {}}]
"""
LABELS = {"app": "web"}


def workload(kind, label):
    """A user's workload, with the label `wants` in its own metadata."""
    pod = {"metadata": {"labels": LABELS}, "spec": yaml.safe_load(POD)}
    if kind not in ("Job", "CronJob", "Pod"):
        pod["spec"]["restartPolicy"] = "Always"
    version = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    name = f"{kind}-{label}".lower().replace(".", "-")
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    if label:
        head["metadata"]["labels"] = {"fleetbuild.dev/wants": label}
    if kind == "Pod":
        return {**head, "spec": pod["spec"]}
    if kind == "CronJob":
        return {**head, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": pod}}}}
    spec = {"template": pod}
    if kind != "Job":
        spec["selector"] = {"matchLabels": LABELS}
    if kind == "StatefulSet":
        spec["serviceName"] = "web"
    return {**head, "spec": spec}


def template_of(document):
    spec = document["spec"]
    if document["kind"] == "Pod":
        return document
    return (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]


def user_folder(folder, documents, **kustomization):
    """A kustomization of the user with these objects, beside the emitted folder."""
    text = yaml.safe_dump_all(documents)
    whole = yaml.safe_dump({"resources": ["own.yaml"], **kustomization})
    write(folder, {"own.yaml": text, "kustomization.yaml": whole})


def built_by_id(folder):
    if (built := build(folder)) is None:
        pytest.skip("kustomize is older than Kubernetes 1.25's")
    return {(document["kind"], document["metadata"]["name"]): document for document in built}


@KUSTOMIZE
@pytest.mark.parametrize("way", WAYS)
def test_components_change_the_workloads_that_want_their_group(tmp_path, way):
    plan = gpu_fleet()
    files = render_kustomize(plan, delivery=WAYS[way], wheels=wheels_of(plan))
    write(tmp_path / "fleet", files)
    wanted = [workload(kind, group) for kind in EVERY_KIND for group in GROUPS]
    others = [workload(kind, label) for kind in EVERY_KIND for label in ("", "sm75-avx2-cp311")]
    components = [f"../fleet/components/{group}" for group in GROUPS]
    user_folder(tmp_path / "own", [*wanted, *others], components=components)
    built = built_by_id(tmp_path / "own")
    for document in others:
        assert built.pop((document["kind"], document["metadata"]["name"])) == document
    assert len(built) == len(wanted)
    for document in wanted:
        kind, group = document["kind"], document["metadata"]["labels"]["fleetbuild.dev/wants"]
        made = built[kind, document["metadata"]["name"]]
        accept(made, NEWEST)
        metadata, pod = template_of(made)["metadata"], template_of(made)["spec"]
        assert metadata["labels"]["fleetbuild.dev/group"] == group
        name = {"DaemonSet": "daemonset", "CronJob": "cronjob", "Pod": "pod"}.get(kind)
        patch = yaml.safe_load(files[f"components/{group}/{name or 'pod-template'}.yaml"])
        ours, theirs = template_of(patch)["spec"], template_of(document)["spec"]
        assert pod["nodeSelector"] == {**ours["nodeSelector"], "disk": "ssd"}
        assert pod["tolerations"] == ours.get("tolerations", theirs["tolerations"])
        for key in ("volumes", "initContainers"):
            assert named(pod[key]) == named([*ours.get(key, ()), *theirs[key]])
        proxy, main = sorted(pod["containers"], key=lambda each: each["name"], reverse=True)
        assert proxy == theirs["containers"][0]
        (mine,) = ours["containers"]
        assert main["image"] == mine.get("image", "web:1")
        assert main["resources"] == {"limits": {"memory": "1Gi"}}
        own = {"LANG": "C.UTF-8", "PYTHONPATH": "/srv"}
        assert variables(main) == {**own, **variables(mine)}
        mounts = [*mine.get("volumeMounts", ()), {"name": "data", "mountPath": "/data"}]
        assert named(main["volumeMounts"]) == named(mounts)


@KUSTOMIZE
def test_one_file_serves_all_groups_by_an_overlay_for_each(tmp_path):
    plan = gpu_fleet()
    files = render_kustomize(plan, delivery=WAYS["hostpath"], wheels=wheels_of(plan))
    write(tmp_path / "fleet", files)
    user_folder(tmp_path / "base", [workload("Deployment", "any")])
    for group in GROUPS:
        overlay = yaml.safe_load(files[f"overlays/{group}/kustomization.yaml"])
        overlay["resources"] = ["../base"]
        overlay["components"] = [f"../fleet/components/{group}"]
        del overlay["patches"]
        write(tmp_path / group, {"kustomization.yaml": yaml.safe_dump(overlay)})
        ((_, name), made) = built_by_id(tmp_path / group).popitem()
        assert name.startswith("deployment-any-")
        pod = template_of(made)
        assert pod["spec"]["nodeSelector"]["fleetbuild.dev/group"] == group
        assert made["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert made["spec"]["selector"]["matchLabels"]["fleetbuild.dev/group"] == group


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_workload_has_one_patch_for_its_pods(way):
    plan = gpu_fleet()
    files = render_kustomize(plan, delivery=WAYS[way], wheels=wheels_of(plan))
    for group in GROUPS:
        component = yaml.safe_load(files[f"components/{group}/kustomization.yaml"])
        kinds = [kind for patch in component["patches"] for kind in
                 patch["target"]["kind"].split("|")]  # fmt: skip
        assert sorted(kinds) == sorted(EVERY_KIND)
        for patch in component["patches"]:
            selector = f"fleetbuild.dev/wants in ({group},any)"
            assert patch["target"]["labelSelector"] == selector
            document = yaml.safe_load(files[f"components/{group}/{patch['path']}"])
            assert document["kind"] in patch["target"]["kind"].split("|")


def test_another_release_and_domain_have_a_label_of_their_own():
    plan = gpu_fleet().model_copy(update={"label_domain": "x.org", "release": "next"})
    files = render_kustomize(plan, delivery=WAYS["hostpath"])
    text = files[f"components/{GROUPS[0]}/kustomization.yaml"]
    assert f"x.org/wants.next in ({GROUPS[0]},any)" in text
    base = yaml.safe_load(files["base/workload.yaml"])
    assert base["metadata"]["labels"]["x.org/wants.next"] == "any"


@KUSTOMIZE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_kustomize_renders_the_plain_manifests(tmp_path, way, kind):
    plan = gpu_fleet()
    settings = {"delivery": delivery(way, kind), "wheels": wheels_of(plan)}
    write(tmp_path, render_kustomize(plan, **settings))
    if (built := build(tmp_path)) is None:
        pytest.skip("kustomize is older than Kubernetes 1.25's")
    files = render(plan, **settings)
    alone = [yaml.safe_load(text) for name, text in files.items() if name.startswith(kind)]
    assert len(built) == len(alone) == 2
    by_name = {document["metadata"]["name"]: document for document in built}
    for document in alone:
        accept(by_name[document["metadata"]["name"]], NEWEST)
        assert normal(by_name[document["metadata"]["name"]]) == normal(document)
    groups = [
        document["spec"]["template"]["metadata"]["labels"]["fleetbuild.dev/group"]
        for document in built
    ]
    assert sorted(groups) == sorted(group.name for group in plan.groups)
    if kind != "job":
        for document, group in zip(built, groups, strict=True):
            wanted = document["spec"]["selector"]["matchLabels"]
            assert wanted["fleetbuild.dev/group"] == group


@pytest.mark.parametrize("way", WAYS)
def test_every_referenced_file_exists(way):
    plan = gpu_fleet()
    files = render_kustomize(plan, delivery=WAYS[way], wheels=wheels_of(plan))
    assert files == render_kustomize(plan, delivery=WAYS[way], wheels=wheels_of(plan))
    base = yaml.safe_load(files["base/workload.yaml"])
    whole = yaml.safe_load(files["kustomization.yaml"])
    assert yaml.safe_load(files["base/kustomization.yaml"])["resources"] == ["workload.yaml"]
    assert len(whole["resources"]) == 2
    for folder in whole["resources"]:
        overlay = yaml.safe_load(files[f"{folder}/kustomization.yaml"])
        assert overlay["resources"] == ["../../base"]
        (component,) = overlay["components"]
        inside = component.removeprefix("../../")
        for patch in yaml.safe_load(files[f"{inside}/kustomization.yaml"])["patches"]:
            assert f"{inside}/{patch['path']}" in files
        (patch,) = overlay["patches"]
        document = yaml.safe_load(files[f"{folder}/{patch['path']}"])
        for key in ("apiVersion", "kind"):
            assert document[key] == base[key]
        assert document["metadata"]["name"] == base["metadata"]["name"]
        assert re.fullmatch(r"-[a-z0-9-]+", overlay["nameSuffix"])


def test_pods_with_gpus_get_the_runtime_class():
    settings = {"delivery": Delivery(runtime_class="nvidia")}
    plan = gpu_fleet()
    made = {**render(plan, **settings), **render_kustomize(plan, **settings)}
    gpu = "sm80.sm90-armv8.2-cp312-musl"
    for with_gpu, without in (
        (f"deployment-{gpu}.yaml", "deployment-cpu-avx2-cp311.yaml"),
        (f"components/{gpu}/pod.yaml", "components/cpu-avx2-cp311/pod.yaml"),
    ):
        assert "runtimeClassName: nvidia\n" in made[with_gpu]
        assert "runtimeClassName" not in made[without]


def test_a_plan_without_workloads_gives_an_empty_kustomization():
    plan = make_plan()
    files = render_kustomize(plan, delivery=WAYS["init"])
    assert list(files) == ["kustomization.yaml"]
    assert yaml.safe_load(files["kustomization.yaml"])["resources"] == []
