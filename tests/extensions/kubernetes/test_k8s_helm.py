"""The values files for Helm charts give a pod what the emitted workloads have.

Charts are rendered by the program `helm`, else by Helm's library from PyPI: make test-libraries.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.extensions.kubernetes.config import Pods
from fleetbuild.extensions.kubernetes.manifests.render import render, render_helm
from tests.extensions.kubernetes.delivery import KINDS, WAYS, delivery
from tests.factories.plans import gpu_fleet, wheels_of

HELM = shutil.which("helm")
LIBRARY = importlib.util.find_spec("helm_python")
# Helm's library is Go's, so it has a process of its own.
CREATE = "from helm_python.chart import Chart; import sys; Chart.create(sys.argv[1], '.')"
RENDER = """
import json, sys
from helm_python.chart import Chart
print(json.dumps(Chart.load(sys.argv[1]).render(json.load(sys.stdin), name="web")))
"""
SITE = Pods(
    labels={"team": "vision"},
    image_pull_secrets=("login",),
    tolerations=({"key": "site", "operator": "Exists"},),
    priority_class="high",
    cpu_limit="2",
)
# What the comments of a values file tell the owner of a chart to add.
FIELD = (
    "{indent}{{{{- with .Values.{key} }}}}\n{indent}{key}: {{{{- toYaml . | nindent {deep} }}}}\n"
)
OF_POD = ("initContainers", "runtimeClassName", "priorityClassName")


def pod_of(text: str) -> dict[str, Any]:
    template = yaml.safe_load(text)["spec"]["template"]
    return {**template["spec"], "podLabels": template["metadata"]["labels"]}


def settings(way: str, kind: str) -> dict[str, Any]:
    chosen = delivery(way, kind)
    return {
        "delivery": type(chosen)(**{**vars(chosen), "pods": SITE, "runtime_class": "nvidia"}),
        "wheels": wheels_of(gpu_fleet()),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_values_have_what_the_emitted_pods_have(way: str, kind: str) -> None:
    plan = gpu_fleet()
    plain = render(plan, **settings(way, kind))
    files = render_helm(plan, **settings(way, kind))
    assert set(files) == {f"values-{group.name}.yaml" for group in plan.groups}
    for group in plan.groups:
        values = yaml.safe_load(files[f"values-{group.name}.yaml"])
        pod = pod_of(plain[f"{kind}-{group.name}.yaml"])
        container = pod["containers"][0]
        for key in ("nodeSelector", "tolerations", "imagePullSecrets", *OF_POD):
            assert values.get(key) == pod.get(key), key
        assert values["podLabels"].items() <= pod["podLabels"].items()
        assert values["resources"]["limits"].items() <= container["resources"]["limits"].items()
        assert values["resources"]["limits"]["cpu"] == "2"
        for key, there in (("volumes", pod), ("volumeMounts", container), ("env", container)):
            assert all(each in there[key] for each in values.get(key, [])), key
        names = [each["name"] for each in values["env"]]
        assert ("PYTHONPATH" in names) is (way != "image")
        named = values.get("image")
        assert (named and f"{named['repository']}:{named['tag']}") == (
            container["image"] if way == "image" else None
        )


def deployment_of(chart: Path, values: Path) -> dict[str, Any]:
    """The Deployment that Helm makes of a chart with these values."""
    command = [str(HELM), "template", "web", str(chart), "--values", str(values)]
    if HELM:
        made = [subprocess.run(command, check=True, capture_output=True, text=True).stdout]
    else:
        command = [sys.executable, "-c", RENDER, str(chart)]
        given = json.dumps(yaml.safe_load(values.read_text()))
        ran = subprocess.run(command, input=given, check=True, capture_output=True, text=True)
        made = [text for name, text in json.loads(ran.stdout).items() if name.endswith(".yaml")]
    documents = [each for text in made for each in yaml.safe_load_all(text) if each]
    (found,) = (each for each in documents if each["kind"] == "Deployment")
    return dict(found)


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart as `helm create` makes it, with the keys that our comments ask for."""
    folder = tmp_path_factory.mktemp("helm")
    command = [str(HELM), "create", "web"] if HELM else [sys.executable, "-c", CREATE, "web"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    template = folder / "web" / "templates" / "deployment.yaml"
    text = template.read_text()
    more = [FIELD.format(key=key, indent=" " * 6, deep=8) for key in OF_POD]
    fields = "".join(f"{each}{' ' * 6}{{{{- end }}}}\n" for each in more)
    env = FIELD.format(key="env", indent=" " * 10, deep=12) + f"{' ' * 10}{{{{- end }}}}\n"
    text = text.replace("      containers:\n", fields + "      containers:\n", 1)
    before = "          imagePullPolicy:"
    assert before in text
    template.write_text(text.replace(before, env + before, 1))
    return folder / "web"


@pytest.mark.skipif(not (HELM or LIBRARY), reason="no helm: make test-libraries")
@pytest.mark.parametrize("way", WAYS)
def test_a_chart_renders_with_them(chart: Path, tmp_path: Path, way: str) -> None:
    files = render_helm(gpu_fleet(), **settings(way, "deployment"))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        deployment = deployment_of(chart, tmp_path / name)
        values, pod = yaml.safe_load(text), pod_of(yaml.safe_dump(deployment))
        container = pod["containers"][0]
        for key in ("nodeSelector", "tolerations", "imagePullSecrets", "volumes", *OF_POD):
            assert pod.get(key) == values.get(key), key
        for key in ("volumeMounts", "env", "resources"):
            assert container.get(key) == values.get(key), key
        assert values["podLabels"].items() <= pod["podLabels"].items()
        if way == "image":
            image = values["image"]
            assert container["image"] == f"{image['repository']}:{image['tag']}"
