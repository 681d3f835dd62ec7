"""The input of schedulers and autoscalers: the same classes in the form of each."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from fleetbuild.emit.emission import Emission
from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.emit.dra import device_classes
from fleetbuild.extensions.kubernetes.emit.karpenter import node_pools
from fleetbuild.extensions.kubernetes.emit.kueue import resource_flavors
from fleetbuild.extensions.kubernetes.labels.classes import classes
from fleetbuild.extensions.kubernetes.labels.node_facts import NOT_PUBLISHED
from fleetbuild.models import Plan
from fleetbuild.store.wheels import Store
from tests.factories.hardware_classes import plan_of
from tests.factories.plans import gpu_fleet, six_nodes
from tests.factories.schemas import NEWEST, accept, accept_custom

NODE_CLASS = "karpenter.k8s.aws/EC2NodeClass/default"
GPUS = plan_of("sm80.sm90-avx512", "sm86-avx2", "cpu-avx2", "cpu-armv8.2")


def documents(text: str | None) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text or ""))


def seen(plan: Plan, **types: str) -> Plan:
    """The plan, whose nodes have these instance types."""
    nodes = {
        name: node.model_copy(update={"instance_type": types.get(name.replace("-", "_"))})
        for name, node in plan.nodes.items()
    }
    return plan.model_copy(update={"nodes": nodes})


# DRA ----------------------------------------------------------------------------------------------


def test_a_device_class_for_each_sm_and_each_set_of_them() -> None:
    made = documents(device_classes(GPUS))
    assert [each["metadata"]["name"] for each in made] == [
        "sm80.fleetbuild.dev", "sm86.fleetbuild.dev", "sm90.fleetbuild.dev",
        "sm80-sm90.fleetbuild.dev",
    ]  # fmt: skip
    assert made[1]["spec"]["extendedResourceName"] == "fleetbuild.dev/sm86"
    for each in made:
        accept(each, NEWEST)
    assert device_classes(plan_of("cpu-avx2")) is None


def test_a_device_class_selects_only_whole_gpus_of_its_sms() -> None:
    made = documents(device_classes(GPUS))
    one, several = (made[at]["spec"]["selectors"][0]["cel"]["expression"] for at in (1, 3))
    assert one == (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
        " && device.attributes['gpu.nvidia.com'].cudaComputeCapability"
        ".compareTo(semver('8.6.0')) == 0"
    )
    assert re.findall(r"semver\('([0-9.]+)'\)", several) == ["8.0.0", "9.0.0"]
    # Without brackets the second one would hold for devices of any driver.
    assert re.search(r"&& \([^&]+ \|\| [^&]+\)$", several)


# Kueue --------------------------------------------------------------------------------------------


def test_a_flavor_for_each_class_with_the_labels_of_its_nodes() -> None:
    plan = plan_of("sm86-avx2", "cpu-avx2", "cpu-armv8.2")
    made = documents(resource_flavors(plan))
    for each in made:
        accept_custom(each)
    assert [each["spec"]["nodeLabels"]["fleetbuild.dev/class"] for each in made] == [
        each.name for each in classes(plan)
    ]
    gpu, *others = made
    assert gpu["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert not any("tolerations" in each["spec"] for each in others)
    assert len({each["metadata"]["name"] for each in made}) == len(made)
    staging = documents(resource_flavors(plan.model_copy(update={"release": "Staging_2"})))
    assert not {each["metadata"]["name"] for each in staging} & {
        each["metadata"]["name"] for each in made
    }


# Node pools ---------------------------------------------------------------------------------------


def test_a_pool_declares_its_class_and_names_types_that_were_seen_in_it_alone() -> None:
    plan = seen(
        six_nodes(), cpu_1="m5.large", cpu_2="m6.large", gpu_1="g5.xlarge", arm_1="m6.large"
    )
    files, messages = node_pools(plan, NODE_CLASS)
    pools = {each["metadata"]["name"]: each for each in documents(files["karpenter.yaml"])}
    types = {}
    for name, pool in pools.items():
        accept_custom(pool)
        template = pool["spec"]["template"]
        assert template["metadata"]["labels"]["fleetbuild.dev/class"].replace(".", "-") == name
        assert template["spec"]["nodeClassRef"]["kind"] == "EC2NodeClass"
        types[name] = [
            each["values"] for each in template["spec"]["requirements"] if "instance" in each["key"]
        ]
    # m6.large was seen with two classes: a pool of it would start nodes that its pods cannot use.
    assert types == {
        "cpu-avx2": [["m5.large"]], "sm86-avx512": [["g5.xlarge"]], "cpu-armv8-2": []
    }  # fmt: skip
    assert "Seen in several classes, so left out: m6.large." in files["karpenter.yaml"]
    (message,) = messages
    assert message.startswith("cpu-armv8.2: no instance type was seen in this class alone")


def test_instance_types_are_never_inferred() -> None:
    files, _ = node_pools(six_nodes(), NODE_CLASS)
    assert "instance-type" not in files["karpenter.yaml"]


def test_node_groups_of_cluster_autoscaler() -> None:
    files, messages = node_pools(plan_of("cpu-avx2"), None)
    assert list(files) == ["cluster-autoscaler.yaml"]
    assert "--node-class GROUP/KIND/NAME" in messages[0]
    tags = yaml.safe_load(files["cluster-autoscaler.yaml"])["cpu-avx2"]
    prefix = "k8s.io/cluster-autoscaler/node-template/label/"
    assert tags["aws"][f"{prefix}fleetbuild.dev/class"] == "cpu-avx2"
    azure = "k8s.io_cluster-autoscaler_node-template_label_fleetbuild.dev_class"
    assert tags["azure"][azure] == "cpu-avx2"
    assert tags["cluster_api"] == {
        "capacity.cluster-autoscaler.kubernetes.io/labels": "fleetbuild.dev/class=cpu-avx2,"
        "fleetbuild.dev/isa=avx2"
    }


@pytest.mark.parametrize("text", ["EC2NodeClass", "a/b/c/d", "//x"])
def test_an_invalid_node_class_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a node class"):
        node_pools(plan_of("cpu-avx2"), text)


# Rules --------------------------------------------------------------------------------------------


def test_hidden_pci_devices_are_a_warning(tmp_path: Any) -> None:
    plan = gpu_fleet()
    nodes = {
        name: node.model_copy(update={"warnings": (NOT_PUBLISHED,)})
        for name, node in plan.nodes.items()
    }
    told = [
        Emission(plan=each, serving={}, store=Store(tmp_path)).write("nfd").warnings
        for each in (plan, plan.model_copy(update={"nodes": nodes}))
    ]
    assert not any("core.noPublishFeatures" in text for text in told[0])
    assert any("core.noPublishFeatures" in text for text in told[1])
