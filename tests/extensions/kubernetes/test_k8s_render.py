import shlex
import shutil
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild import Fleet
from fleetbuild.errors import ConfigError
from fleetbuild.extensions.kubernetes.labels.feature_files import feature_file
from fleetbuild.extensions.kubernetes.labels.node_labels import node_labels
from fleetbuild.extensions.kubernetes.manifests.images import default_image
from fleetbuild.extensions.kubernetes.manifests.names import is_label_value, is_subdomain
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render, render_labels, warnings
from fleetbuild.models import Installs, TargetLibc
from fleetbuild.models.plan import version_skew
from fleetbuild.models.serving import as_planned
from fleetbuild.this_machine import compiled_folders
from tests.factories.fleets import facts, locked, package, planned
from tests.factories.plans import (
    RELEASE_ID,
    gpu_fleet,
    make_group,
    make_plan,
    make_target,
    make_wheel,
)
from tests.factories.schemas import NEWEST, accept

RELEASE_LABEL = "fleetbuild.dev/release"


def valid_labels(labels):
    prefixes, names = zip(*(key.split("/") for key in labels), strict=True)
    return (
        all(map(is_subdomain, prefixes))
        and all(map(is_label_value, names))
        and all(map(is_label_value, labels.values()))
    )


@pytest.mark.parametrize("kind", ["k8s", "kustomize", "policy", "rbac"])
def test_to_apply_a_folder_creates_no_node(tmp_path, kind):
    files = Fleet(state_dir=tmp_path).emit(kind, plan=gpu_fleet()).files
    manifests = [text for name, text in files.items() if name.endswith((".yaml", ".json"))]
    assert manifests
    documents = [each for text in manifests for each in yaml.safe_load_all(text)]
    assert "Node" not in {document["kind"] for document in documents if document}


def test_a_deployment_waits_for_the_verified_release():
    files = render(gpu_fleet())
    cpu = yaml.safe_load(files["deployment-cpu-avx2-cp311.yaml"])["spec"]["template"]["spec"]
    assert cpu["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "fleetbuild.dev/group": "cpu-avx2-cp311",
        "fleetbuild.dev/release": RELEASE_ID,
    }
    container = cpu["containers"][0]
    path = f"/opt/fleetbuild/releases/{RELEASE_ID}"
    assert cpu["volumes"][0]["hostPath"] == {"path": path, "type": "Directory"}
    mount = {"name": "fleetbuild-release", "mountPath": path, "readOnly": True}
    assert container["volumeMounts"][0] == mount
    assert container["env"][0]["value"] == f"{path}/lib/python3.11/site-packages"
    env = {each["name"]: each["value"] for each in container["env"]}
    caches = compiled_folders(f"/tmp/fleetbuild/cpu-avx2-cp311/{RELEASE_ID}")
    assert caches.items() <= env.items()
    assert container["image"] == "docker.io/library/python:3.11-bookworm"
    assert container["args"] == ["hnswlib"]
    assert "tolerations" not in cpu
    assert "glibc 2.36 or newer" in files["deployment-cpu-avx2-cp311.yaml"]


def test_pods_of_a_gpu_group_request_a_gpu():
    text = render(gpu_fleet())["deployment-sm80.sm90-armv8.2-cp312-musl.yaml"]
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert pod["containers"][0]["image"] == "docker.io/library/python:3.12-alpine"
    assert pod["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    assert "musl 1.2.4 or newer" in text


def test_only_verified_nodes_get_release_labels():
    plan = gpu_fleet()
    files = render_labels(plan, as_planned(plan, {"cpu-2"}))
    documents = list(yaml.safe_load_all(files["nodes.yaml"]))
    for each in documents:
        accept(each, NEWEST)
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in documents}
    assert labels["gpu-1"] == {
        "fleetbuild.dev/class": "sm80.sm90-armv8.2",
        "fleetbuild.dev/isa": "armv8.2",
    }
    assert labels["cpu-2.cluster.local"] == {
        "fleetbuild.dev/class": "cpu-avx2",
        "fleetbuild.dev/group": "cpu-avx2-cp311",
        "fleetbuild.dev/isa": "avx2",
        "fleetbuild.dev/release": RELEASE_ID,
    }
    (line,) = [line for line in files["labels.sh"].splitlines() if " gpu-1 " in line]
    # What a release said of it before goes away.
    assert "fleetbuild.dev/group- " in line
    assert "fleetbuild.dev/package.torch- " in line
    assert "fleetbuild.dev/group=" not in line


def test_without_an_apply_only_up_to_date_nodes_get_release_labels():
    group = make_group(("a", "b"), installs=Installs(install=("a",), up_to_date=("b",)))
    files = render_labels(make_plan((group,)))
    nodes = yaml.safe_load_all(files["nodes.yaml"])
    released = {n["metadata"]["name"] for n in nodes if RELEASE_LABEL in n["metadata"]["labels"]}
    assert released == {"b"}
    blocked = make_group(wheels=(make_wheel(action="blocked"),))
    nothing = render_labels(make_plan((blocked,)))
    commands = [line for line in nothing["labels.sh"].splitlines() if line.startswith("kubectl")]
    assert len(commands) == 2
    assert "=" not in "".join(commands).replace("failed=1", "")
    labels = [n["metadata"]["labels"] for n in yaml.safe_load_all(nothing["nodes.yaml"])]
    assert labels == [{}, {}]
    assert "nothing to label" in render(make_plan(), serving={})["labels.sh"]


def test_a_node_with_an_unknown_release_keeps_its_labels():
    plan = make_plan()
    old = plan.nodes["a"].model_copy(update={"current": "f" * 16})
    files = render_labels(plan.model_copy(update={"nodes": {**plan.nodes, "a": old}}))
    assert [n["metadata"]["name"] for n in yaml.safe_load_all(files["nodes.yaml"])] == ["b"]
    assert " a " not in files["labels.sh"].partition("failed=0")[2]


def test_the_script_labels_each_node_and_reports_failures(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >>"$OUT"\n[ "$4" != a ]\n')
    kubectl.chmod(0o755)
    script = render(make_plan(), serving=as_planned(make_plan(), {"a", "b"}))["labels.sh"]
    done = subprocess.run(
        [shutil.which("sh"), "-c", script],
        env={"PATH": f"{tmp_path}:/bin:/usr/bin", "OUT": str(tmp_path / "out")},
        check=False,
    )
    assert done.returncode == 1  # node a was refused, node b was labelled all the same
    words = (tmp_path / "out").read_text().split()
    assert words[:4] == ["label", "--overwrite", "node", "a"]
    assert words.count("fleetbuild.dev/group=cpu-avx2-cp311") == 2


def test_releases_side_by_side_share_no_label():
    default = make_plan()
    other = make_plan(release="Staging_2")
    keys = [set(node_labels(p, p.groups[0])) for p in (default, other)]
    assert not keys[0] & keys[1]
    deployment = yaml.safe_load(render(other)["deployment-cpu-avx2-cp311.yaml"])
    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"][0]["hostPath"]["path"].startswith("/opt/fleetbuild/Staging_2/releases/")
    assert deployment["metadata"]["name"] != "fleetbuild-cpu-avx2-cp311"


def test_nodes_with_invalid_names_are_left_out_with_a_warning():
    names = {"a": "Bad_Name\n; reboot", "b": "same", "c": "same", "d": "fine"}
    plan = make_plan((make_group(("a", "b", "c", "d")),), names=names)
    files = render_labels(plan, as_planned(plan, set("abcd")))
    assert [n["metadata"]["name"] for n in yaml.safe_load_all(files["nodes.yaml"])] == ["fine"]
    assert "reboot" not in files["labels.sh"]
    bad, same = warnings(plan)
    assert "'bad_name\\n; reboot' cannot be the name" in bad
    assert "b, c are all called 'same'" in same


def test_without_a_known_image_or_a_lock_no_deployment_is_written():
    new = make_target(libc=TargetLibc(family="glibc", floor="2.99"))
    free_threaded = make_target(python="cp313t", isa="avx")
    odd = make_target(libc=TargetLibc(family="glibc", floor="unknown"), isa="x86-64")
    assert default_image(odd) is None
    groups = (
        make_group(("a",), new),
        make_group(("b",), free_threaded),
        make_group(("c",), make_target(isa="avx512"), release_id=None),
    )
    plan = make_plan(groups)
    assert yaml.safe_load(render(plan)["kustomization.yaml"])["resources"] == []
    assert [w.split(":")[0] for w in warnings(plan)] == [group.name for group in groups]
    files = render(plan, delivery=Delivery(image="registry.lab/python:3.13t"))
    pod = yaml.safe_load(files["deployment-cpu-avx-cp313t.yaml"])["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.lab/python:3.13t"
    assert "/lib/python3.13t/site-packages" in pod["containers"][0]["env"][0]["value"]
    assert len(warnings(plan, delivery=Delivery(image="x"))) == 1


def test_a_newer_libc_takes_a_newer_image():
    noble = make_target(libc=TargetLibc(family="glibc", floor="2.39"))
    assert default_image(noble) == "docker.io/library/python:3.11-trixie"


def test_an_invalid_label_domain_is_refused():
    with pytest.raises(ConfigError) as refused:
        render(make_plan(label_domain="Fleet Build"))
    assert refused.value.fix


def test_nfd_reads_the_feature_file():
    plan = make_plan()
    text = feature_file(node_labels(plan, plan.groups[0]))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0] == "fleetbuild.dev/class=cpu-avx2"
    with pytest.raises(ConfigError):
        feature_file({f"fleetbuild.dev/{n:060}": "x" * 63 for n in range(600)})


versions = st.from_regex(
    r"[0-9]{1,3}(\.[0-9]{1,4}){0,3}(rc[0-9])?(\+[a-z0-9.]{1,90})?", fullmatch=True
)


@given(
    # In the forms that a manifest allows; a plan has no others.
    package=st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", fullmatch=True),
    version=versions | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,99}", fullmatch=True),
    group=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,99}", fullmatch=True),
    node=st.text(min_size=1, max_size=80),
    release=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True),
)
def test_any_fleet_gives_manifests_that_are_valid_and_the_same_each_time(
    package, version, group, node, release
):
    planned = make_group((node,), name=group, wheels=(make_wheel(package, version),))
    plan = make_plan((planned,), names={node: node}, release=release)
    assert valid_labels(node_labels(plan, planned))
    files = render(plan, serving=as_planned(plan, {node}))
    assert files == render(plan, serving=as_planned(plan, {node}))
    labels = render_labels(plan, as_planned(plan, {node}))
    labelled = [n["metadata"]["name"] for n in yaml.safe_load_all(labels["nodes.yaml"])]
    assert labelled == ([node.lower()] if is_subdomain(node.lower()) else [])
    for name, text in files.items():
        if name.startswith("deployment-"):
            spec = yaml.safe_load(text)
            assert is_subdomain(spec["metadata"]["name"])
            assert valid_labels(spec["spec"]["template"]["spec"]["nodeSelector"])
            assert valid_labels(spec["metadata"]["labels"])
    for line in files["labels.sh"].splitlines():
        assert line.startswith(("#", "kubectl label ", "echo ", "failed=0", "exit ")), line
        shlex.split(line, comments=True)


def test_versions_that_differ_between_groups_are_named_in_the_kustomization() -> None:
    fleet = {"a": facts(sms=("8.6",)), "b": facts(sms=("9.0",))}
    made = planned(fleet, packages=[package("torch", "2.11.0")])
    groups = tuple(
        group.model_copy(update={"dependencies": (locked("nvidia-nccl-cu12", version),)})
        for group, version in zip(made.groups, ("2.27.5", "2.28.9"), strict=True)
    )
    (told,) = version_skew(groups)
    text = render(made.model_copy(update={"groups": groups}))["kustomization.yaml"]
    assert told in " ".join(text.replace("\n#", "").split())
