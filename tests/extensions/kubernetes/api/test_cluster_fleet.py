"""A cluster as a fleet: what it says of its Nodes, and the plan that follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Ran

from fleetbuild.cli import app
from fleetbuild.errors import ConfigError, InventoryError
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.jobs.builder_image import BuilderImage, builder_image
from fleetbuild.extensions.kubernetes.labels.features import rung_flags
from fleetbuild.extensions.kubernetes.labels.node_facts import NOT_PUBLISHED, facts_of_node
from fleetbuild.extensions.kubernetes.read_fleet import read_fleet
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts
from fleetbuild.models.config import Build
from tests.factories.cluster_api import FakeApi, FakeNode, Say

IMAGE = builder_image(Build(image="python:3.11-bookworm"), None)
CPUID = "feature.node.kubernetes.io/cpu-cpuid."


def status(**changes: Any) -> dict[str, Any]:
    return {
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.8.0",
            "osImage": "Ubuntu 22.04.5 LTS",
        },
        "conditions": [{"type": "MemoryPressure"}, {"type": "Ready", "status": "True"}],
        "capacity": {"cpu": "16", "memory": "32859152Ki"},
        "allocatable": {"ephemeral-storage": "94992122880", **changes.pop("allocatable", {})},
        **changes,
    }  # fmt: skip


def node(labels: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    return FakeNode("n", labels or {}, status=status(**changes)).document()


def feature(name: str, *flags: str, devices: tuple[str, ...] = ()) -> dict[str, Any]:
    instances = [
        {"attributes": {"class": "0302", "vendor": "10de", "device": device}} for device in devices
    ]
    return {
        "metadata": {"name": name, "labels": {"nfd.node.kubernetes.io/node-name": name}},
        "spec": {
            "features": {
                "flags": {"cpu.cpuid": {"elements": {flag: {} for flag in flags}}},
                "instances": {"pci.device": {"elements": instances}},
            }
        },
    }


def facts(document: dict[str, Any], *features: dict[str, Any]) -> Facts:
    return facts_of_node(document, features, IMAGE)


@pytest.mark.parametrize("rung", [r for r in RUNGS.values() if r.arch == "x86_64"], ids=str)
def test_node_features_show_every_rung(rung: Any) -> None:
    found = facts(node(), feature("n", *rung_flags(rung), "UNHEARD_OF"))
    assert found.isa == rung.name
    assert not found.warnings or rung.name == "x86-64"


def test_a_nodes_system_and_size_are_read() -> None:
    labels = {
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "22.04",
    }
    found = facts(node(labels), feature("n", "AVX"))
    assert (found.cpus, found.memory_gb, found.disk_gb) == (16, 31.3, 88.5)
    assert (found.os.id, found.os.version, found.os.kernel) == ("ubuntu", "22.04", "6.8.0")
    assert found.os.name == "Ubuntu 22.04.5 LTS"
    assert found.libc == IMAGE.libc
    assert (found.pythons[0].tag, found.pythons[0].version) == ("cp311", "3.11")
    assert found.toolchain == {"gcc": ("12.2.0",), "g++": ("12.2.0",)}


def test_an_arm_node_is_read_from_its_features() -> None:
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    flags = rung_flags(RUNGS["armv8.4sve"])
    found = facts(node(nodeInfo=info), feature("n", *flags))
    assert (found.arch, found.isa) == ("aarch64", "armv8.4sve")
    assert found.pythons[0].soabi == "cpython-311-aarch64-linux-gnu"


def test_labels_alone_show_fewer_features() -> None:
    """Most of what makes avx2 is hidden from labels, and is not guessed."""
    haswell = {f"{CPUID}{flag}": "true" for flag in ("AVX", "AVX2", "FMA3", "MOVBE")}
    found = facts(node(haswell))
    assert (found.isa, {"avx", "avx2", "fma"} <= set(found.features)) == ("x86-64", True)
    assert "by labels alone" in found.warnings[0]
    newer = facts(node({**haswell, f"{CPUID}X86_64_V3": "true"}))
    assert newer.isa == "avx2"
    assert "Only the architecture" in facts(node()).warnings[0]


GPU = {"allocatable": {"nvidia.com/gpu": "2"}}
GFD = {
    "nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "6",
    "nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "NVIDIA-RTX-A6000",
    "nvidia.com/gpu.memory": "49140", "nvidia.com/cuda.driver-version.full": "550.54.15",
}  # fmt: skip


def test_gpus_are_read_by_pci_device_and_by_gfd() -> None:
    by_pci = facts(node(**GPU), feature("n", "AVX", devices=("2230", "20b0")))
    assert by_pci.sms == ("8.0", "8.6")
    by_gfd = facts(node(GFD, **GPU))
    assert by_gfd.sms == ("8.6",)
    assert by_gfd.driver == "550.54.15"
    assert [(gpu.name, gpu.memory_mb) for gpu in by_gfd.gpus] == [("NVIDIA-RTX-A6000", 49140)] * 2
    older = {"nvidia.com/cuda.driver.major": "470", "nvidia.com/cuda.driver.minor": "82"}
    assert facts(node(GFD | older | {"nvidia.com/cuda.driver-version.full": ""})).driver == "470.82"


@pytest.mark.parametrize(
    ("document", "features", "said"),
    [
        (node(GFD), (), "offers no nvidia.com/gpu"),
        (node(**GPU), (feature("n", "AVX", devices=("ffff",)),), "unknown (PCI device 10de:ffff)"),
        (
            node({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, **GPU),
            (),
            "unknown (by its PCI class alone)",
        ),
    ],
)
def test_gpus_that_pods_cannot_request_are_not_used(
    document: Any, features: Any, said: str
) -> None:
    found = facts(document, *features)
    assert found.sms == ()
    assert any(said in warning for warning in found.warnings)


def test_gpus_with_unknown_pci_ids_are_read_by_gfd() -> None:
    unknown = feature("n", "AVX", devices=("ffff", "fffe"))
    found = facts(node(GFD, **GPU), unknown)
    assert (found.sms, found.warnings) == (("8.6",), ())
    assert [gpu.sm for gpu in found.gpus] == ["8.6", "8.6"]
    # It describes one GPU: beside a known GPU it may mean that GPU.
    mixed = facts(node(GFD, **GPU), feature("n", "AVX", devices=("2230", "ffff")))
    assert mixed.sms == ()
    assert "unknown (PCI device 10de:ffff)" in mixed.warnings[0]


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_gpus_offered_under_another_resource_name_are_not_used(name: str) -> None:
    """A pod asks for nvidia.com/gpu, and the scheduler knows no other name for it."""
    by_pci = feature("n", "AVX", devices=("20b0",))
    offered = {name: "7", "nvidia.com/gpu": "0", "nvidia.com/mig-2g.20gb": "0"}
    found = facts(node(allocatable=offered), by_pci)
    assert found.sms == ()
    (warning,) = found.warnings
    assert f"offers no nvidia.com/gpu there, but {name}; the device plugin" in warning
    assert facts(node(allocatable={**offered, "nvidia.com/gpu": "1"}), by_pci).sms == ("8.0",)


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"nodeInfo": {"architecture": "amd64", "operatingSystem": "windows"}}, "unsupported",
         "windows on amd64"),
        ({"nodeInfo": {"architecture": "s390x", "operatingSystem": "linux"}}, "unsupported",
         "linux on s390x"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "no network"}]},
         "unreachable", "not ready: no network"),
        ({"conditions": "?"}, "unreachable", "never been ready"),
        ({"nodeInfo": {}, "conditions": []}, "unreachable", "never been ready"),
    ],
)  # fmt: skip
def test_nodes_that_are_not_ready_or_not_linux_are_not_planned_for(
    changes: dict[str, Any], state: str, said: str
) -> None:
    found = facts(node(**changes))
    assert found.state == state
    assert said in str(found.reason)


def test_taints_become_warnings() -> None:
    document = node()
    document["spec"] = {
        "taints": [
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"},
            "?",
        ]
    }
    found = facts(document, feature("n", "AVX"))
    assert found.taints == ("node-role.kubernetes.io/control-plane",)
    (warning,) = found.warnings
    assert "(node-role.kubernetes.io/control-plane) that build Jobs do not tolerate" in warning
    cordoned = node()
    cordoned["spec"] = {"unschedulable": True}
    assert facts(cordoned).taints == ("node.kubernetes.io/unschedulable",)


def test_a_nodes_cpus_and_memory_are_its_allocatable_ones() -> None:
    """Memory and cores that are kept for the system are not planned with."""
    kept = {"cpu": "15900m", "memory": "28Gi"}
    found = facts(node(allocatable=kept), feature("n", "AVX"))
    assert (found.cpus, found.memory_gb) == (15, 28.0)
    small = facts(node(allocatable={"cpu": "940m", "memory": "1500Mi"}), feature("n", "AVX"))
    assert (small.cpus, small.memory_gb) == (1, 1.5)


def test_text_from_a_cluster_is_bounded_and_printable() -> None:
    """A cluster's objects are written by whoever may, and go to a terminal in the end."""
    odd = "\x1b[31mred\n" + "x" * 5000
    info = {**status()["nodeInfo"], "osImage": odd, "kernelVersion": odd}
    document = FakeNode("n", {f"{CPUID}AVX\x1b": "true"}, status=status(nodeInfo=info)).document()
    document["spec"] = {"taints": [{"key": odd, "effect": "NoExecute"}]}
    document["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    found = facts(document, feature("n", "AVX", devices=(odd,)))
    gpu_labels = {**GFD, "nvidia.com/gpu.product": odd}
    found_by_labels = facts(node(gpu_labels, **GPU))
    assert found.os.name
    assert found.os.name.startswith("[31mred" + "x")
    unready = [{"type": "Ready", "status": "False", "message": odd}]
    other = {"architecture": odd, "operatingSystem": odd}
    texts = [
        found.os.name, found.os.kernel, *found.warnings, found.gpus[0].name,
        found_by_labels.gpus[0].name, facts(node(conditions=unready)).reason,
        facts(node(nodeInfo=other)).reason,
    ]  # fmt: skip
    assert len(texts) == 8
    assert [text for text in texts if not str(text).isprintable() or len(str(text)) > 500] == []


@pytest.mark.parametrize(
    "odd", [{}, {"spec": None}, {"spec": {"features": {"flags": 3}}}, {"spec": {"features": {
        "instances": {"pci.device": {"elements": "?"}}}}}],
)  # fmt: skip
def test_malformed_objects_are_ignored(odd: dict[str, Any]) -> None:
    assert facts(node(), odd).features == ("sse", "sse2")
    assert facts({"status": status(capacity={"cpu": "1500m", "memory": "?"})}).cpus == 1


# The image.


@pytest.mark.parametrize(
    ("build", "python", "libc", "tag"),
    [
        ({"image": "python:3.12-trixie"}, None, "glibc 2.41", "cp312"),
        ({"image": "registry.example.com/hub/python:3.11.9-bookworm@sha256:abc"}, "3.11",
         "glibc 2.36", "cp311"),
        ({"image": "mine:1", "libc": "musl 1.2.4"}, "3.13t", "musl 1.2.4", "cp313t"),
        ({"image": "python:3.12-trixie", "libc": "glibc 2.28"}, "3.12", "glibc 2.28", "cp312"),
    ],
)  # fmt: skip
def test_an_images_name_shows_its_python_and_libc(
    build: dict[str, str], python: str | None, libc: str, tag: str
) -> None:
    image: BuilderImage = builder_image(Build.model_validate(build), python)
    assert f"{image.libc.family} {image.libc.version}" == libc
    assert image.python("x86_64").tag == tag


@pytest.mark.parametrize(
    ("build", "python", "said"),
    [
        ({}, "3.11", "is not set"),
        ({"image": "mine:1"}, "3.11", "The C library and Python of mine:1 are unknown"),
        ({"image": "mine:1", "libc": "glibc 2.28"}, None, "are unknown"),
        ({"image": "python:3.11-slim-bookworm"}, None, "are unknown"),
        ({"image": "python:3.11-bookworm"}, "3.12", "has 3.11"),
    ],
)
def test_an_image_with_an_unknown_libc_needs_configuration(
    build: dict[str, str], python: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as problem:
        builder_image(Build.model_validate(build), python)
    assert problem.value.fix


# The cluster.


@pytest.fixture
def fleet(api: FakeApi) -> FakeApi:
    for name, labels in (("a", {}), ("b", {f"{CPUID}X86_64_V3": "true"}), ("c", {})):
        api.nodes[name] = FakeNode(name, labels, status=status())
    api.features = [
        feature("a", *rung_flags(RUNGS["avx512"])), feature("c", *rung_flags(RUNGS["avx"])),
        {"metadata": {"name": "of nobody"}},
    ]  # fmt: skip
    return api


def test_reads_nodes_and_their_features(client: Client, fleet: FakeApi) -> None:
    inventory, found = read_fleet(client, IMAGE)
    assert fleet.features
    assert {name: each.isa for name, each in found.items()} == {
        "a": "avx512", "b": "avx2", "c": "avx"
    }  # fmt: skip
    assert inventory.source == "cluster:test"
    assert [each.name for each in inventory.nodes] == ["a", "b", "c"]


def test_without_node_features_labels_are_used(client: Client, fleet: FakeApi) -> None:
    fleet.features = None
    inventory, found = read_fleet(client, IMAGE)
    assert {name: each.isa for name, each in found.items()} == {
        "a": "x86-64", "b": "avx2", "c": "x86-64"
    }  # fmt: skip
    assert not inventory.warnings


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (
            "nodefeatures",
            'apiGroups: ["nfd.k8s-sigs.io"], resources: [nodefeatures], verbs: [list]',
        ),
        ("resourceslices", 'apiGroups: ["resource.k8s.io"], resources: [resourceslices]'),
    ],
)
def test_missing_rights_to_list_name_the_rule(
    client: Client, fleet: FakeApi, path: str, rule: str
) -> None:
    fleet.refuse(Say(403, "cannot list", "Forbidden"), path=path)
    inventory, _ = read_fleet(client, IMAGE)
    (warning,) = inventory.warnings
    assert rule in warning


def gpu_slice(
    node: str, *capabilities: str, generation: int = 1, pool: str = "p", kind: str = "gpu"
) -> dict[str, Any]:
    """As NVIDIA's DRA driver publishes them."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": kind},
                "cudaComputeCapability": {"version": capability},
                "driverVersion": {"version": "580.105.8"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for number, capability in enumerate(capabilities)
    ]
    of = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": of, "devices": devices}
    return {"metadata": {"name": f"{node}-{generation}"}, "spec": spec}


def test_gpus_are_read_from_resource_slices(client: Client, fleet: FakeApi) -> None:
    """DRA offers no nvidia.com/gpu in the Node's status; its own devices count all the same."""
    other = gpu_slice("c", "9.0.0")
    other["spec"]["driver"] = "gpu.example.com"
    fleet.slices = [
        gpu_slice("a", "8.6.0"), gpu_slice("a", "9.0.0", "9.0.0", generation=2),
        gpu_slice("b", "9.0.0", kind="mig"), other, gpu_slice("c", "99.0.0", pool="q"),
        {"spec": {"driver": "gpu.nvidia.com", "nodeName": 7}}, {"spec": "odd"},
    ]  # fmt: skip
    _, found = read_fleet(client, IMAGE)
    assert (found["a"].sms, found["a"].driver) == (("9.0",), "580.105.8")
    assert [(gpu.name, gpu.memory_mb) for gpu in found["a"].gpus] == [
        ("NVIDIA H100 80GB HBM3", 81559)
    ] * 2
    assert found["b"].gpus == ()
    assert found["c"].sms == ()
    assert "compute capability is unknown" in " ".join(found["c"].warnings)


def test_unpublished_pci_devices_are_a_warning() -> None:
    labelled = node({**GFD, "feature.node.kubernetes.io/pci-0302_10de.present": "true"}, **GPU)
    hidden = {"metadata": {}, "spec": {"features": {"flags": {"cpu.cpuid": {"elements": {}}}}}}
    assert NOT_PUBLISHED in facts(labelled, hidden).warnings
    assert NOT_PUBLISHED not in facts(labelled).warnings  # rules need NodeFeatures
    assert NOT_PUBLISHED not in facts(labelled, feature("n", "AVX", devices=("2230",))).warnings
    assert NOT_PUBLISHED not in facts(node(), hidden).warnings


def test_the_instance_type_is_read() -> None:
    assert (
        facts(node({"node.kubernetes.io/instance-type": "m7i.large"})).instance_type == "m7i.large"
    )
    assert facts(node()).instance_type is None


def test_a_cluster_without_nodes_is_an_error(client: Client, api: FakeApi) -> None:
    assert not api.nodes
    with pytest.raises(InventoryError, match="has no Nodes"):
        read_fleet(client, IMAGE)


@pytest.fixture
def run(fleet: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")  # the plan is looked at, not its lock
    (tmp_path / "fleetbuild.yml").write_text(
        "packages: [hnswlib==0.8.0]\nbuild: {image: python:3.11-bookworm}\n"
        'kubernetes: {node_name: "{{ x }}"}\n'
    )
    kubeconfig = str(fleet.kubeconfig(tmp_path))

    def call(*args: str) -> Ran:
        words = ["plan", "--from-cluster", "--kubeconfig", kubeconfig, *args]
        return CliRunner().invoke(app, words)

    return call


def test_a_cluster_is_planned_for(run: Callable[..., Ran]) -> None:
    ran = run("--json")
    assert ran.exit_code == 0, ran.output
    plan = json.loads(ran.stdout)
    assert plan["facts_source"] == "cluster"
    assert {group["name"]: group["nodes"] for group in plan["groups"]} == {
        "cpu-avx-cp311": ["c"], "cpu-avx2-cp311": ["b"], "cpu-avx512-cp311": ["a"]
    }  # fmt: skip
    assert plan["nodes"]["a"]["kubernetes_node"] == "a"
    assert {group["target"]["libc"]["floor"] for group in plan["groups"]} == {"2.36"}
    applied = CliRunner().invoke(app, ["apply"])
    assert applied.exit_code == 4
    assert "made with --from-cluster" in applied.output


def test_builds_go_where_pods_may_run(run: Callable[..., Ran], fleet: FakeApi) -> None:
    """Neither the strongest node, whose taint keeps pods away, nor anybody of a tainted group."""
    avx2 = feature("big", *rung_flags(RUNGS["avx2"]))
    fleet.features = [*(fleet.features or ()), avx2]
    taint = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    room = {"capacity": {"cpu": "128", "memory": "512Gi"}}
    fleet.nodes["big"] = FakeNode("big", {}, status=status(**room), spec={"taints": taint})
    fleet.nodes["c"] = FakeNode("c", {}, status=status(), spec={"taints": taint})
    ran = run("--json")
    assert ran.exit_code == 0, ran.output
    plan = json.loads(ran.stdout)
    groups = {group["name"].split("-")[1]: group for group in plan["groups"]}
    assert (groups["avx2"]["nodes"], groups["avx2"]["representative"]) == (["b", "big"], "b")
    (wheel,) = groups["avx2"]["wheels"]
    assert (wheel["built_on"], wheel["fallbacks"]) == ("b", ["big"])
    assert wheel["build_jobs"] == {"b": 16, "big": 128}
    assert (groups["avx"]["nodes"], plan["nodes"]["c"]["taints"]) == (["c"], [taint[0]["key"]])
    (wheel,) = groups["avx"]["wheels"]  # a and b have AVX, too
    assert wheel["built_on"] in ("a", "b")
    assert set(wheel["fallbacks"]) == {"a", "b", "c"} - {wheel["built_on"]}


@pytest.mark.parametrize("args", [("i.yml",), ("--limit", "a"), ("--facts", "d"), ("--forks", "3")])
def test_options_about_ssh_are_refused_with_a_cluster(
    run: Callable[..., Ran], args: tuple[str, ...]
) -> None:
    ran = run(*args)
    assert ran.exit_code == 2
    assert "does not go with --from-cluster" in ran.output


def test_builders_by_pattern_are_refused(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "fleetbuild.yml").write_text(
        "packages: [hnswlib==0.8.0]\nbuild: {image: python:3.11-bookworm, builders: big}\n"
    )
    ran = run()
    assert ran.exit_code == 2
    assert "have no Ansible groups" in ran.output


def test_the_choice_of_a_cluster_needs_from_cluster() -> None:
    ran = CliRunner().invoke(app, ["plan", "i.yml", "--context", "x"])
    assert ran.exit_code == 2
    assert "--from-cluster" in ran.output
