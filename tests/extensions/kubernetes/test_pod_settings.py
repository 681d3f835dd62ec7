"""What a site asks of every pod, `kubernetes.pods`, is in all that is emitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from fleetbuild import Fleet
from fleetbuild.extensions.kubernetes.config import Pods
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render, render_kustomize
from tests.extensions.kubernetes.api.test_cluster_builds import cluster_builds, plan_of, wheel
from tests.extensions.kubernetes.delivery import KINDS, WAYS, delivery
from tests.factories.plans import gpu_fleet, wheels_of
from tests.factories.schemas import NEWEST, accept

SPOT = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
SITE = Pods(
    labels={"cost-centre": "42"},
    image_pull_secrets=("registry",),
    tolerations=(SPOT,),
    priority_class="batch",
    cpu_limit="2",
    ttl=3600,
    queue="team-a",
)
QUEUE = "kueue.x-k8s.io/queue-name"


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def check(document: dict[str, Any]) -> None:
    """A namespace with a ResourceQuota and policies of its own takes this."""
    accept(document, NEWEST)
    template = document["spec"]["template"]
    pod = template["spec"]
    for each in (document, template):
        assert each["metadata"]["labels"]["cost-centre"] == "42"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["priorityClassName"] == "batch"
    assert pod["tolerations"].count(SPOT) == 1
    assert {each["resources"]["limits"]["cpu"] for each in containers(pod)} == {"2"}
    job = document["kind"] == "Job"
    assert (document["metadata"]["labels"].get(QUEUE) == "team-a") == job
    assert (document["spec"].get("ttlSecondsAfterFinished") == 3600) == job


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_every_workload_has_the_settings(way: Any, kind: Any) -> None:
    plan = gpu_fleet()
    made = Delivery(**{**vars(delivery(way, kind)), "pods": SITE})
    files = render(plan, delivery=made, wheels=wheels_of(plan))
    workloads = [text for name, text in files.items() if name.startswith(kind)]
    assert len(workloads) == len(plan.groups)
    for text in workloads:
        check(yaml.safe_load(text))


def test_kustomize_has_them_in_the_base_and_lists_in_the_components() -> None:
    plan = gpu_fleet()
    made = Delivery(**{**vars(delivery("init", "job")), "pods": SITE})
    files = render_kustomize(plan, delivery=made, wheels=wheels_of(plan))
    base = yaml.safe_load(files["base/workload.yaml"])
    base["spec"]["template"]["spec"]["tolerations"] = [SPOT]  # a patch replaces the list
    check(base)
    for group in plan.groups:
        patch = yaml.safe_load(files[f"components/{group.name}/pod-template.yaml"])
        pod = patch["spec"]["template"]["spec"]
        assert SPOT in pod["tolerations"]
        assert "imagePullSecrets" not in pod
        (init,) = pod["initContainers"]
        assert init["resources"]["limits"]["cpu"] == "2"


def test_build_jobs_and_the_shelf_have_the_settings() -> None:
    files, _ = cluster_builds(plan_of(wheel()), SITE)
    manifests = [text for name, text in files.items() if name.endswith(".yaml")]
    found = [each for text in manifests for each in yaml.safe_load_all(text)]
    (job,) = [each for each in found if each["kind"] == "Job"]
    check(job)
    (shelf,) = [each for each in found if each["kind"] == "Pod"]
    accept(shelf, NEWEST)
    assert shelf["metadata"]["labels"] == {"cost-centre": "42"}
    assert shelf["spec"]["priorityClassName"] == "batch"


@pytest.mark.parametrize("limit", ["499m", "0", "0.4", "2 cores", ""])
def test_a_limit_below_the_request_of_a_build_is_refused(limit: str) -> None:
    with pytest.raises(ValidationError):
        Pods(cpu_limit=limit)
    assert [Pods(cpu_limit=each).cpu_limit for each in ("500m", "1500m", "1.5")]


def test_a_job_with_other_settings_has_another_name() -> None:
    """Kubernetes allows no change to its pod."""
    names = {
        next(name for name in cluster_builds(plan_of(wheel()), pods)[0] if "tiny" in name)
        for pods in (Pods(), SITE, Pods(labels={"a": "b"}), Pods(ttl=5))
    }
    assert len(names) == 3  # the life time can be changed


def test_without_the_setting_no_job_is_deleted_and_run_again() -> None:
    """Argo CD and Flux would make a Job again that its life time has ended."""
    plan = gpu_fleet()
    files = render(plan, delivery=Delivery(kind="job"))
    assert "ttlSecondsAfterFinished" not in "".join(files.values())


def test_the_setting_is_read_when_something_is_emitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fleet, plan = Fleet(state_dir=tmp_path / "state"), gpu_fleet()
    assert "priorityClassName" not in "".join(fleet.emit("k8s", plan=plan).files.values())
    (tmp_path / "fleetbuild.yml").write_text("kubernetes: {pods: {priority_class: batch}}\n")
    assert "priorityClassName: batch" in "".join(fleet.emit("k8s", plan=plan).files.values())
