"""Pods are scheduled where their group's wheels run, by our labels."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.labels.affinity import (
    affinity,
    gpu_limits,
    pod_fields,
    selector,
)
from fleetbuild.extensions.kubernetes.labels.classes import class_of_target
from fleetbuild.extensions.kubernetes.labels.features import rung_flags
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from fleetbuild.extensions.kubernetes.labels.rules import node_feature_rule
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.snippets import snippets
from fleetbuild.hardware.gpus import devices_of_sm
from fleetbuild.hardware.rungs import RUNGS
from tests.factories.hardware_classes import GPU_SMS, plan_of, rungs_of, target_of, targets
from tests.factories.nfd_master import labels_of
from tests.factories.nfd_worker import report
from tests.factories.plans import make_group, make_plan
from tests.factories.scheduler import allowed, score
from tests.factories.schemas import NEWEST, OLDEST, accept


def platform(rung):
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[RUNGS[rung].arch]
    return {"kubernetes.io/os": "linux", "kubernetes.io/arch": arch}


def labelled_by_rules(plan, rung, *sms):
    devices = [f"0302 10de:{devices_of_sm(sm)[0]}" for sm in sms]
    features = report(RUNGS[rung].arch, RUNGS[rung].features, devices, driver=True)
    return {**platform(rung), **labels_of([yaml.safe_load(node_feature_rule(plan))], features)}


# By fleetbuild's labels ------------------------------------------------------------------------


@given(
    st.lists(targets, min_size=1, max_size=4),
    rungs_of,
    st.lists(st.sampled_from(GPU_SMS), max_size=2, unique=True),
)
def test_a_pod_runs_only_on_nodes_of_its_groups_class(built, rung, sms):
    plan = make_plan([make_group((f"n{n}",), each) for n, each in enumerate(built)])
    node = labelled_by_rules(plan, rung, *sms)
    for group in plan.groups:
        here = node.get("fleetbuild.dev/class") == class_of_target(group.target).name
        assert allowed({"nodeSelector": selector(plan, group)}, node) == here
        assert allowed({"affinity": affinity(plan, [group])}, node) == here
    either = {"affinity": affinity(plan, plan.groups)}
    assert allowed(either, node) == ("fleetbuild.dev/class" in node)


def test_the_faster_group_is_preferred():
    plan = plan_of("cpu-avx", "cpu-avx512", "sm75-avx512", "sm90-avx2", "sm86-avx2", "cpu-armv9")
    pod = {"affinity": affinity(plan, plan.groups)}
    scores = {
        group.name: score(pod, node_labels(plan, group, verified=False)) for group in plan.groups
    }
    ranked = sorted(scores, key=lambda name: -scores[name])
    assert ranked[:4] == ["sm90-avx2", "sm86-avx2", "sm75-avx512", "cpu-avx512"]
    assert scores[ranked[0]] == 100
    assert all(scores.values())
    assert len(set(scores.values())) == len(scores)


def test_among_one_class_nothing_is_preferred():
    plan = plan_of("cpu-avx2")
    (node,) = affinity(plan, plan.groups).values()
    assert list(node) == ["requiredDuringSchedulingIgnoredDuringExecution"]


def test_every_feature_of_every_rung_has_a_name():
    for rung in RUNGS.values():
        assert len(set(rung_flags(rung))) == max(1, len(rung.features))


# What a pod with GPUs needs beside ---------------------------------------------------------------


def test_gpu_limits_tolerations_and_runtime_class():
    gpu, cpu = target_of("sm86-avx2"), target_of("cpu-avx2")
    assert gpu_limits(gpu) == {"nvidia.com/gpu": 1}
    assert gpu_limits(cpu) == {}
    assert pod_fields(cpu, "nvidia") == {}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert pod_fields(gpu) == {"tolerations": tolerations}
    assert pod_fields(gpu, "nvidia") == {"tolerations": tolerations, "runtimeClassName": "nvidia"}
    with pytest.raises(UsageError):
        Delivery(runtime_class="Not A Name")


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_api_accepts_the_snippets(version):
    plan = plan_of("sm75.sm80-avx512", "sm86-avx2", "cpu-avx2", "cpu-armv9", "cpu-x86-64-v2")
    text = snippets(plan, runtime_class="nvidia")["affinity.yaml"]
    assert text == snippets(plan, runtime_class="nvidia")["affinity.yaml"]
    documents = [each for each in yaml.safe_load_all(text) if each]
    assert len(documents) == len(plan.groups) + 2  # GPU groups together, and CPU groups
    for each in documents:
        container = {"name": "c", "image": "i", **each.pop("containers", [{}])[0]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {**each, "containers": [container]},
        }
        accept(pod, version)
    assert max(map(len, text.splitlines())) <= 110


def test_a_snippet_agrees_with_affinity():
    plan = plan_of("sm75.sm80-avx512", "sm86-avx2", "cpu-avx2")
    documents = [each for each in yaml.safe_load_all(snippets(plan)["affinity.yaml"]) if each]
    by_name = sorted(plan.groups, key=lambda group: group.name)
    assert [each["nodeSelector"] for each in documents[:3]] == [
        selector(plan, group) for group in by_name
    ]
    expected = affinity(plan, [group for group in by_name if group.target.sms])
    assert documents[3]["affinity"] == json.loads(json.dumps(expected))
    assert len(documents) == 4  # there is but one CPU group


def test_a_pod_for_any_gpu_group_asks_for_a_gpu_as_one_for_a_single_group_does():
    plan = plan_of("sm75-avx512", "sm86-avx2", "cpu-avx2", "cpu-armv9")
    text = snippets(plan, runtime_class="nvidia")["affinity.yaml"]
    *_, one, any_gpu, any_cpu = [each for each in yaml.safe_load_all(text) if each]
    assert {**any_gpu, "affinity": None} == {
        "affinity": None,
        **{key: one[key] for key in ("tolerations", "runtimeClassName", "containers")},
    }
    assert list(any_cpu) == ["affinity"]
