"""What runs in the cluster itself: what `emit policy` and `emit labeller` write."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from typer.testing import CliRunner

from fleetbuild import Fleet, UsageError
from fleetbuild.cli import app
from fleetbuild.config import config_model
from fleetbuild.extensions.kubernetes.config import Kubernetes, Pods
from fleetbuild.extensions.kubernetes.emit.labeller import FILE, labeller_files
from fleetbuild.extensions.kubernetes.emit.policy import wants_policy
from fleetbuild.extensions.kubernetes.labels.affinity import selector
from fleetbuild.extensions.kubernetes.labels.features import rung_flags
from fleetbuild.extensions.kubernetes.manifests.images import image_name
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.models import Config, Plan
from fleetbuild.plan.document.serialize import with_digest
from tests.extensions.kubernetes.api.test_cluster_fleet import RUNGS, feature, status
from tests.factories.cluster_api import FakeApi, FakeNode, ours
from tests.factories.hardware_classes import plan_of
from tests.factories.processes import free_port
from tests.factories.schemas import NEWEST, accept

PLAN = plan_of("sm86-avx2", "cpu-avx2", "cpu-armv8.2")
PREFIX = "registry.example.com/team/fleet"


# The policy ---------------------------------------------------------------------------------------


def documents(text: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def evaluated(expression: str, pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that an expression of ours gives for this pod, which has the group's name."""
    _, _, made = expression.partition("? [] :")
    patches: list[dict[str, Any]] = []
    branch = r"\(has\(object\.spec\.(\w+)\) \? \[(.*?\n)\] : \[(.*?\n)\]\)"
    chosen = re.sub(
        branch, lambda found: found[2] if found[1] in pod["spec"] else found[3], made, flags=re.S
    )
    for op, path, key, value in re.findall(
        r'JSONPatch\{op: "(\w+)", path: "([^"]+)"(?: \+ jsonpatch\.escapeKey\("([^"]+)"\))?,'
        r" value: (.+)\}(?=[,\]\n])", chosen,
    ):  # fmt: skip
        plain = re.sub(r"Object\.[\w.]+\{", "{", value)
        plain = re.sub(r"(?<=[{ ])(key|operator|effect):", r'"\1":', plain)
        patches.append({"op": op, "path": path, "key": key, "value": json.loads(plain)})
    return patches


def patched(policy: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    wanted = pod["metadata"]["labels"]["fleetbuild.dev/wants"]
    for mutation in policy["spec"]["mutations"]:
        expression = mutation["jsonPatch"]["expression"]
        if not expression.startswith(f'variables.wants != "{wanted}" ?'):
            continue
        for patch in evaluated(expression, pod):
            *parents, last = patch["path"].strip("/").split("/")
            at: Any = pod
            for parent in parents:
                at = at[int(parent) if parent.isdigit() else parent]
            if patch["key"]:
                at[last][patch["key"]] = patch["value"]
            elif last == "-":
                at.append(patch["value"])
            else:
                at[last] = patch["value"]
    return pod


def pod_for(group: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"fleetbuild.dev/wants": group}},
        "spec": {"containers": [{"name": "main", "image": "any"}], **spec},
    }


@pytest.mark.parametrize(
    "spec", [{}, {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "x"}]}]
)
def test_a_pod_gets_selector_toleration_and_image_of_the_group_in_its_label(spec: Any) -> None:
    policy = documents(wants_policy(PLAN, Delivery(image_prefix=PREFIX)))["MutatingAdmissionPolicy"]
    for group in PLAN.groups:
        pod = patched(policy, pod_for(group.name, **json.loads(json.dumps(spec))))["spec"]
        assert pod["nodeSelector"] == {**spec.get("nodeSelector", {}), **selector(PLAN, group)}
        assert pod["containers"][0]["image"] == image_name(PREFIX, group)
        keys = [each["key"] for each in pod.get("tolerations", ())]
        own = [each["key"] for each in spec.get("tolerations", ())]
        assert keys == [*own, *(["nvidia.com/gpu"] if group.target.sms else [])]


def test_without_a_repository_the_image_stays() -> None:
    policy = documents(wants_policy(PLAN, Delivery()))["MutatingAdmissionPolicy"]
    assert patched(policy, pod_for(PLAN.groups[0].name))["spec"]["containers"][0]["image"] == "any"


def test_kubernetes_takes_the_policies_and_they_belong_together() -> None:
    found = documents(wants_policy(PLAN, Delivery(image_prefix=PREFIX)))
    assert len(found) == 4
    for each in found.values():
        accept(each, NEWEST)
    assert {each["spec"]["policyName"] for kind, each in found.items() if "Binding" in kind} == {
        "wants.fleetbuild.dev"
    }
    assert found["MutatingAdmissionPolicy"]["metadata"]["name"] == "wants.fleetbuild.dev"
    (rule,) = found["ValidatingAdmissionPolicy"]["spec"]["validations"]
    listed = json.loads(rule["expression"].partition(" in ")[2])
    assert listed == sorted(group.name for group in PLAN.groups)


def test_each_release_and_domain_has_its_own_policy_and_label() -> None:
    plan = PLAN.model_copy(update={"release": "staging", "label_domain": "gpu.example.org"})
    text = wants_policy(plan, Delivery())
    policy = documents(text)["MutatingAdmissionPolicy"]
    assert policy["metadata"]["name"] == "wants-staging.gpu.example.org"
    assert policy["spec"]["variables"][0]["expression"] == (
        "object.metadata.?labels[?\"gpu.example.org/wants.staging\"].orValue('')"
    )
    assert "fleetbuild.dev/" not in text


# The labeller -------------------------------------------------------------------------------------


def labeller(plan: Plan = PLAN, config: Config | None = None, **delivery: Any) -> dict[str, Any]:
    made = Delivery(image="registry.example.com/fleetbuild:1", **delivery)
    return documents(labeller_files(plan, config or Config(), made)[FILE])


def test_kubernetes_takes_the_labeller_and_it_uses_the_login_of_emit_rbac() -> None:
    files = labeller_files(PLAN, Config(), Delivery(image="x/y:1", namespace="team"))
    assert sorted(yaml.safe_load(files["kustomization.yaml"])["resources"]) == [
        "admission-policy.yaml", "labeller.yaml", "rbac.yaml",
    ]  # fmt: skip
    account = documents(files["rbac.yaml"])["ServiceAccount"]["metadata"]
    found = documents(files[FILE])
    for each in found.values():
        accept(each, NEWEST)
        assert each["metadata"]["namespace"] == account["namespace"] == "team"
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]


def test_its_configuration_decides_the_same_classes_and_has_no_address() -> None:
    config = Config(
        packages=("hnswlib",),
        index=("https://me:secret@pypi.example.org/simple",),
        python="3.12",
    )
    text = labeller(config=config)["ConfigMap"]["data"]["fleetbuild.yml"]
    given = config_model().model_validate(yaml.safe_load(text))
    assert "secret" not in text
    assert given.python == "3.12"
    assert given.section(Kubernetes).label_domain == PLAN.label_domain
    assert given.packages == ("hnswlib==0.8.0",)


def test_it_has_what_the_site_asks_of_pods() -> None:
    pods = Pods(priority_class="batch", labels={"team": "a"}, cpu_limit="1")
    spec = labeller(pods=pods)["Deployment"]["spec"]
    template = spec["template"]
    assert template["spec"]["priorityClassName"] == "batch"
    assert [each["resources"]["limits"]["cpu"] for each in template["spec"]["containers"]] == [
        "1"
    ] * 2
    assert template["metadata"]["labels"].items() >= spec["selector"]["matchLabels"].items()
    assert template["metadata"]["labels"]["team"] == "a"


def test_without_an_image_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="image of fleetbuild is not named") as problem:
        labeller_files(PLAN, Config(), Delivery())
    assert "make image" in str(problem.value.fix)
    Fleet(state_dir=tmp_path).save_plan(with_digest(PLAN))
    words = ["emit", "labeller", "--state-dir", str(tmp_path), "--image", "x/fleetbuild:1"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "manifests" / "labeller" / FILE).is_file()


def containers() -> dict[str, Any]:
    pod = labeller()["Deployment"]["spec"]["template"]["spec"]
    return {each["name"]: each for each in pod["containers"]}


def test_its_script_labels_a_node_that_joins_and_notices_what_else_changed(tmp_path: Path) -> None:
    """The script of the manifest as it is, but for the folders and the time, with the command."""
    script = containers()["labeller"]["command"][2]
    for folder in ("config", "metrics", "tmp"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder).chmod(0o777)  # as volumes are
    script = re.sub(r"(?<=[ =])/(?=(config|metrics|tmp)/)", f"{tmp_path}/", script)
    script = script.replace("sleep 900 & wait $!", "break")
    text = labeller()["ConfigMap"]["data"]["fleetbuild.yml"]
    (tmp_path / "config" / "fleetbuild.yml").write_text(text)
    bin_ = Path(sys.executable).parent
    assert shutil.which("fleetbuild", path=str(bin_))
    with FakeApi().serving() as api:
        api.features = []

        def join(*names: str, rung: str = "avx2") -> None:
            for name in names:
                api.features = [*(api.features or []), feature(name, *rung_flags(RUNGS[rung]))]
                api.nodes[name] = FakeNode(name, {}, status=status())

        environment = {
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "KUBECONFIG": str(api.kubeconfig(tmp_path)),
            "UV_OFFLINE": "1",
        }

        def run() -> list[tuple[str, str]]:
            api.events.clear()
            ran = subprocess.run(
                ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            return sorted((each["reason"], each["regarding"]["name"]) for each in api.events)

        join("stays", "leaves", "loses")
        assert run() == [("Labelled", "leaves"), ("Labelled", "loses"), ("Labelled", "stays")]
        assert ours(api, "stays")["class"] == "cpu-avx2"
        assert run() == []
        join("joins")
        del api.nodes["leaves"]
        api.set("loses", {"fleetbuild.dev/class": None}, by="kubectl-label")  # type: ignore[dict-item]
        assert run() == [("Labelled", "joins"), ("LabelsRestored", "loses"), ("NodeLeft", "leaves")]
        assert ours(api, "joins") == ours(api, "loses") == {"class": "cpu-avx2", "isa": "avx2"}
        assert run() == []
    lines = (tmp_path / "metrics" / "metrics").read_text().splitlines()
    assert 'fleetbuild_nodes{class="cpu-avx2"} 3' in lines
    assert 'fleetbuild_node_changes_total{reason="Labelled"} 4' in lines
    assert 'fleetbuild_node_changes_total{reason="NodeLeft"} 1' in lines


def test_the_container_that_anybody_may_ask_has_no_token_and_awaits_nobody_for_long() -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount"  # where a mount keeps the token away
    mounts = {
        name: [each["mountPath"] for each in container["volumeMounts"]]
        for name, container in containers().items()
    }
    assert token in mounts["metrics"]
    assert token not in mounts["labeller"]
    assert "SimpleHTTPRequestHandler.timeout = 10" in containers()["metrics"]["command"][2]


def test_prometheus_gets_the_metrics_as_text(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("fleetbuild_nodes 1\n")
    code = containers()["metrics"]["command"][2].replace("/metrics", str(tmp_path))
    code = code.replace("9180", str(port := free_port()))
    address = {**os.environ, "POD_IP": "127.0.0.1"}
    with subprocess.Popen([sys.executable, "-c", code], env=address) as server:
        try:
            for _ in range(100):
                try:
                    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                        break
                except URLError:
                    time.sleep(0.1)
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
        finally:
            server.kill()
