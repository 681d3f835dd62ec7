"""Every field of a Kubernetes Node and of its labels, lied about."""

from __future__ import annotations

from typing import Any

from fleetbuild.extensions.kubernetes.labels.node_facts import facts_of_node
from fleetbuild.models import Facts
from tests.extensions.kubernetes.api.test_cluster_fleet import IMAGE, feature, status
from tests.hostile.test_probe_values import LIES, assert_bounded
from tests.hostile.test_reply_values import fields, put

MORE = [*LIES, 10**400, -1, 1e308, True, None, [], {}, [None], {"a": {"b": []}}, ["x"] * 1000]
LABELS = {
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/cpu-cpuid.AVX2": "true",
    "nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "6",
    "nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "23028",
    "nvidia.com/gpu.count": "1", "nvidia.com/cuda.driver-version.full": "550.54.15",
}  # fmt: skip
NODE: dict[str, Any] = {
    "metadata": {"name": "n", "uid": "u", "labels": LABELS, "annotations": {"a": "b"}},
    "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    "status": status(),
}


def read(document: dict[str, Any], *features: dict[str, Any]) -> Facts:
    return facts_of_node(document, features, IMAGE)


def test_facts_are_bounded_whatever_a_field_of_a_node_says() -> None:
    assert read(NODE).state == "ok"
    for at in fields(NODE):
        for lie in MORE:
            assert_bounded(read(put(NODE, at, lie)), (at, str(lie)[:50]))


def test_a_tenants_feature_object_adds_no_flags_to_a_node() -> None:
    """Whoever owns a namespace may make an object for any Node there."""
    assert read(NODE, feature("n", "AVX", "AVX2", "AVX512F")).features != ()
    alone = read(NODE, feature("n", "AVX", "CX16"))
    both = read(NODE, feature("n", "AVX", "CX16"), feature("n", "AVX", "CX16", "AVX2", "FMA3"))
    assert both.features == alone.features
    assert "avx" in both.features
    assert "avx2" not in both.features


def test_facts_are_bounded_whatever_a_field_of_its_features_says() -> None:
    known = feature("n", "AVX", "AVX2", devices=("2235",))
    for at in fields(known):
        for lie in MORE:
            assert_bounded(read(NODE, put(known, at, lie)), (at, str(lie)[:50]))
