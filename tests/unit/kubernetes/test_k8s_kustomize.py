"""A base and its overlays make the workloads that are written without Kustomize."""

import re
import shutil
import subprocess

import pytest
import yaml

from fleetbuild.kubernetes.manifests.options import Delivery
from fleetbuild.kubernetes.manifests.render import render, render_kustomize
from tests.factories.delivery import KINDS, WAYS, delivery, wheels_of
from tests.factories.plans import gpu_fleet, make_plan
from tests.factories.schemas import NEWEST, accept


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


def normal(document):
    """Without names, labels and selectors, and lists of named things in order."""
    pod = document["spec"]["template"]["spec"]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        for part in ("env", "volumeMounts"):
            container[part] = named(container.get(part, []))
    pod["volumes"] = named(pod["volumes"])
    return {**{key: document["spec"].get(key) for key in ("replicas", "backoffLimit")}, "pod": pod}


@pytest.mark.skipif(
    not (shutil.which("kustomize") or shutil.which("kubectl")), reason="no kustomize or kubectl"
)
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
        (f"overlays/{gpu}/patch.yaml", "overlays/cpu-avx2-cp311/patch.yaml"),
    ):
        assert "runtimeClassName: nvidia\n" in made[with_gpu]
        assert "runtimeClassName" not in made[without]


def test_a_plan_without_workloads_gives_an_empty_kustomization():
    plan = make_plan()
    files = render_kustomize(plan, delivery=WAYS["init"])
    assert list(files) == ["kustomization.yaml"]
    assert yaml.safe_load(files["kustomization.yaml"])["resources"] == []
