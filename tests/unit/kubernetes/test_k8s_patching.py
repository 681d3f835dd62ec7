"""The user's own workloads: which parts are added, which stay, and which contradict."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes.manifests.options import Delivery
from fleetbuild.kubernetes.manifests.render import render_workload
from fleetbuild.models import ReleaseFile
from tests.factories.plans import RELEASE_ID, gpu_fleet, make_group, make_plan, make_target
from tests.factories.schemas import NEWEST, OLDEST, accept

PREFIX = "registry.example.com/team/fleet"
PATH = f"/opt/fleetbuild/releases/{RELEASE_ID}"
PACKAGES = f"{PATH}/lib/python3.11/site-packages"
SELECTOR = (
    "kubernetes.io/os: linux, kubernetes.io/arch: amd64, fleetbuild.dev/group: cpu-avx2-cp311, "
    f'fleetbuild.dev/release: "{RELEASE_ID}"'
)

WEB = """\
# The web front end. Ask the web team before you change it.
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
    name: web   # the Service of this name stands above
    labels: &labels
        app: web
        team: "12e4"      # a string, whatever it looks like
spec:
    replicas: 3
    selector:
        matchLabels: *labels
    template:
        metadata:
            labels: *labels
            annotations:
                description: >-
                    A long line that somebody folded by hand and that nobody likes to see folded
                    at another place, or on one line.
        spec:
            containers:
            - name: proxy
              image: "proxy:1"
              env: &env
              - {name: LANG, value: C.UTF-8}
            - name: main
              image: 'web:1'
              command:
              - /bin/sh
              - -c
              - |
                # not a comment of YAML
                exec python3 -m web

              env: *env
              resources:
                requests: {cpu: 500m,   memory: 1Gi}
              # A trailing word on the container.
            nodeSelector: {disk: ssd}

        # Nothing below this line.
"""


def files_of(text, plan=None, way="hostpath", **settings):
    plan = plan or make_plan()
    wheels = {
        group.name: [ReleaseFile("hnswlib", Path("hnswlib-0.8.0-cp311.whl"), "ab" * 32)]
        for group in plan.groups
    }
    return render_workload(
        plan, "web.yaml", text, delivery=Delivery(way=way, **settings), wheels=wheels
    )


def variants(text, plan=None, way="hostpath", **settings):
    files, messages = files_of(text, plan, way, **settings)
    return {name: made for name, made in files.items() if name.startswith("web-")}, messages


def variant(text, **settings):
    (made,) = variants(text, **settings)[0].values()
    return made


def applied(patch, document):
    """The document after a JSON patch, by the rules of RFC 6902, written without ours."""
    document = json.loads(json.dumps(document))
    for operation in yaml.safe_load(patch):
        *path, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        parent = document
        for step in path:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        if isinstance(parent, list) and operation["op"] == "add":
            parent.insert(int(last), operation["value"])
        else:
            parent[int(last) if isinstance(parent, list) else last] = operation["value"]
    return document


def test_the_users_file_is_a_resource_and_each_group_has_a_patch():
    files, _ = files_of(WEB, gpu_fleet())
    assert files["base/workload.yaml"] == WEB
    groups = ["cpu-avx2-cp311", "sm80.sm90-armv8.2-cp312-musl"]
    assert [name for name in files if not name.startswith(("base/", "overlays/"))] == [
        "kustomization.yaml", "shared/kustomization.yaml",
        *(f"web-{group}.yaml" for group in groups),
    ]  # fmt: skip
    whole = yaml.safe_load(files["kustomization.yaml"])
    assert whole["resources"] == ["shared", *(f"overlays/{group}" for group in groups)]
    service, deployment = yaml.safe_load_all(WEB)
    for group in groups:
        overlay = yaml.safe_load(files[f"overlays/{group}/kustomization.yaml"])
        removal, patch = overlay["patches"]
        assert yaml.safe_load(removal["patch"]) == {
            "$patch": "delete", "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        }  # fmt: skip
        assert patch["target"] == {
            "group": "apps", "version": "v1", "kind": "Deployment", "name": "web",
        }  # fmt: skip
        made = applied(files[f"overlays/{group}/{patch['path']}"], deployment)
        rendered = list(yaml.safe_load_all(files[f"web-{group}.yaml"]))
        assert rendered == [service, made]


def test_no_file_of_a_workload_is_a_node():
    for text in files_of(WEB, gpu_fleet())[0].values():
        assert "kind: Node\n" not in text
        assert "kubectl label" not in text


def test_only_the_parts_that_a_pod_needs_are_added():
    files, _ = files_of(WEB)
    patch = files["overlays/cpu-avx2-cp311/deployment-web.yaml"]
    pod = "/spec/template/spec"
    selector = dict(each.split(": ") for each in SELECTOR.replace('"', "").split(", "))
    mount = {"name": "fleetbuild-release", "mountPath": PATH, "readOnly": True}
    directory = {"path": PATH, "type": "Directory"}
    label = "fleetbuild.dev~1group"
    assert [(each["op"], each["path"], each["value"]) for each in yaml.safe_load(patch)] == [
        ("replace", "/metadata/name", "web-cpu-avx2-cp311"),
        ("add", f"/spec/selector/matchLabels/{label}", "cpu-avx2-cp311"),
        ("add", f"/spec/template/metadata/labels/{label}", "cpu-avx2-cp311"),
        *(
            ("add", f"{pod}/nodeSelector/{key.replace('/', '~1')}", value)
            for key, value in selector.items()
        ),
        # The other container keeps the environment that it had.
        ("add", f"{pod}/containers/0/env/1", {"name": "PYTHONPATH", "value": PACKAGES}),
        ("add", f"{pod}/containers/0/volumeMounts", [mount]),
        ("add", f"{pod}/volumes", [{"name": "fleetbuild-release", "hostPath": directory}]),
    ]
    assert "# So that variants for other groups do not select these pods.\n" in patch


def test_scalars_stay_as_they_are_written():
    text = EVERY_KIND["Pod"].replace(
        "image: i",
        "image: i, args: [012, 0x1f, 1e3, 1_0, yes, 2001-01-01, ~, '12', =, !!str 1e3], tty: on",
    )
    made = variant(text)
    for line in ("012", "0x1f", "1e3", "1_0", "yes", "2001-01-01", "null", '"12"', "=", '"1e3"'):
        assert f"        - {line}\n" in made
    assert "      tty: on\n" in made


def test_the_rendered_variant_says_what_it_is():
    made = variant(WEB)
    assert made.startswith("# Written by fleetbuild from web.yaml, for the nodes of the group")
    assert variant(WEB) == made


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
@pytest.mark.parametrize("way", ["hostpath", "image", "volume", "init"])
def test_kubectl_kustomize_makes_the_rendered_variants(tmp_path, way):
    text = "---\n".join([WEB, SCALER, *EVERY_KIND.values(), JOBSET, OTHER_NAMESPACE])
    more = {"init": {"index_url": "http://w"}, "hostpath": {}}
    settings = more.get(way, {"image_prefix": PREFIX})
    text = text.replace("name: web}\nspec: {serviceName", "name: web2}\nspec: {serviceName")
    text = text.replace(
        "kind: Deployment\nmetadata: {name: web}", "kind: Deployment\nmetadata: {name: w}"
    )
    files, _ = files_of(text, gpu_fleet(), way, **settings)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.encode())
    everything = built(tmp_path)
    rendered = {}
    for group in gpu_fleet().groups:
        rendered |= by_id(yaml.safe_load_all(files[f"web-{group.name}.yaml"]))
    assert by_id(everything) == rendered
    assert len(everything) == len(rendered) == 1 + 2 * 11
    if way == "hostpath":
        one = by_id(built(tmp_path / "overlays/cpu-avx2-cp311"))
        assert one.items() <= rendered.items()
        assert len(one) == 11


def built(folder):
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def by_id(documents):
    return {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for each in documents
    }


def test_the_default_container_is_changed_as_in_kubectl():
    plain = list(yaml.safe_load_all(variant(WEB)))[1]
    proxy, main = plain["spec"]["template"]["spec"]["containers"]
    assert [variable["name"] for variable in proxy["env"]] == ["LANG", "PYTHONPATH"]
    assert [variable["name"] for variable in main["env"]] == ["LANG"]
    told = WEB.replace(
        "annotations:\n",
        "annotations:\n                kubectl.kubernetes.io/default-container: main\n",
    )
    proxy, main = list(yaml.safe_load_all(variant(told)))[1]["spec"]["template"]["spec"][
        "containers"
    ]
    assert [variable["name"] for variable in proxy["env"]] == ["LANG"]
    assert [variable["name"] for variable in main["env"]] == ["LANG", "PYTHONPATH"]


def test_variants_select_only_their_own_pods():
    plan = gpu_fleet()
    made, _ = variants(WEB.replace("{disk: ssd}", "{}"), plan)
    documents = [list(yaml.safe_load_all(text))[1] for text in made.values()]
    assert [document["metadata"]["name"] for document in documents] == [
        "web-cpu-avx2-cp311", "web-sm80-sm90-armv8-2-cp312-musl",
    ]  # fmt: skip
    for one, other in (documents, documents[::-1]):
        wanted = one["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= one["spec"]["template"]["metadata"]["labels"].items()
        assert not wanted.items() <= other["spec"]["template"]["metadata"]["labels"].items()
    services = [next(iter(yaml.safe_load_all(text))) for text in made.values()]
    assert services[0] == services[1]
    assert services[0]["spec"]["selector"] == {"app": "web"}


POD = "spec: {containers: [{name: c, image: i}]}"
TEMPLATE = f"template: {{metadata: {{labels: {{app: x}}}}, {POD}}}"
SELECTING = f"spec: {{selector: {{matchLabels: {{app: x}}}}, {TEMPLATE}}}"
JOB = "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
EVERY_KIND = {
    "Pod": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\n{POD}\n",
    "Deployment": f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\n{SELECTING}\n",
    "DaemonSet": f"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: web}}\n{SELECTING}\n",
    "ReplicaSet": f"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: web}}\n{SELECTING}\n",
    "StatefulSet": "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\n"
    + SELECTING.replace("spec: {sel", "spec: {serviceName: web, sel")
    + "\n",
    "Job": f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: web}}\n{JOB}\n",
    "CronJob": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\n"
    f'spec: {{schedule: "@daily", jobTemplate: {{{JOB}}}}}\n',
}


JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: web}
spec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: {containers: [{name: a}]}}}}}]}
"""
OTHER_NAMESPACE = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: other}
spec: {containers: [{name: c, image: i}]}
"""
SCALER = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web-scaler}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""


@pytest.mark.parametrize("way", ["hostpath", "image", "init"])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_workload_gives_manifests_that_are_valid(kind, way):
    more = {"image": {"image_prefix": PREFIX}, "init": {"index_url": "http://w"}}.get(way, {})
    for text in variants(EVERY_KIND[kind], gpu_fleet(), way, **more)[0].values():
        (document,) = yaml.safe_load_all(text)
        for version in (OLDEST, NEWEST):
            accept(document, version)
        metadata = document["metadata"]
        assert "cp31" in metadata["name"]
        assert "fleetbuild.dev/group" in text


@pytest.mark.parametrize("kind", ["CronJob", "StatefulSet"])
def test_names_stay_within_what_their_kind_allows(kind):
    long = EVERY_KIND[kind].replace("name: web", "name: " + "nightly-" * 5 + "report", 1)
    names = [
        yaml.safe_load(text)["metadata"]["name"] for text in variants(long, gpu_fleet())[0].values()
    ]
    assert all(len(name) <= 52 for name in names)
    assert len(set(names)) == 2


def test_a_gpu_is_requested_unless_the_workload_requests_one():
    plan = make_plan((make_group(("g",), make_target(sms=("8.6",))),))
    pod = yaml.safe_load(variant(EVERY_KIND["Pod"], plan=plan))["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    text = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: mine
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/mig-1g.5gb: 2}}}]
"""
    pod = yaml.safe_load(variant(text, plan=plan, runtime_class="nvidia"))["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.5gb": 2}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["runtimeClassName"] == "mine"
    pod = yaml.safe_load(variant(EVERY_KIND["Pod"], plan=plan, runtime_class="nvidia"))["spec"]
    assert pod["runtimeClassName"] == "nvidia"


GPU_PLAN = make_plan((make_group(("g",), make_target(sms=("8.6",))),))
ASKING = "resources: {limits: {nvidia.com/gpu: 2}}"
SIDE = f"{{name: s, restartPolicy: Always, {ASKING}}}"


@pytest.mark.parametrize(
    ("beside", "limits"),
    [
        (f"containers: [{{name: c}}, {{name: side, {ASKING}}}]", None),
        (f"containers: [{{name: c}}], initContainers: [{SIDE}]", None),
        # It is done before the container begins: what they ask for does not add up.
        (
            f"containers: [{{name: c}}], initContainers: [{{name: s, {ASKING}}}]",
            {"nvidia.com/gpu": 1},
        ),
    ],
)
def test_a_gpu_of_a_sidecar_counts_for_the_pod(beside, limits):
    text = EVERY_KIND["Pod"].replace("containers: [{name: c, image: i}]", beside)
    container = yaml.safe_load(variant(text, plan=GPU_PLAN))["spec"]["containers"][0]
    assert container.get("resources", {}).get("limits") == limits


OURS = {"key": "nvidia.com/gpu", "operator": "Exists"}


@pytest.mark.parametrize(
    ("theirs", "added"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "other"}, True),
        ({"key": "nvidia.com/gpu", "value": "other"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Exists"}, False),
        (OURS, False),
        ({"key": "other", "operator": "Exists"}, True),
    ],
)
def test_only_a_wide_enough_toleration_replaces_ours(theirs, added):
    text = EVERY_KIND["Pod"].replace("spec: {", f"spec: {{tolerations: [{json.dumps(theirs)}], ")
    tolerations = yaml.safe_load(variant(text, plan=GPU_PLAN))["spec"]["tolerations"]
    assert tolerations == ([theirs, OURS] if added else [theirs])


def environment(text, **settings):
    return yaml.safe_load(variant(text, **settings))["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    ("theirs", "whole"),
    [
        ("/app", f"{PACKAGES}:/app"),
        ("'/app'", f"{PACKAGES}:/app"),
        ('"$(HOME)/lib"', f"{PACKAGES}:$(HOME)/lib"),
        ('""', PACKAGES),
        ("", PACKAGES),
    ],
)
def test_our_packages_come_first_in_pythonpath(theirs, whole):
    text = EVERY_KIND["Pod"].replace(
        "{name: c, image: i}",
        f"{{name: c, image: i, env: [{{name: PYTHONPATH, value: {theirs}}}]}}",
    )
    assert environment(text) == [{"name": "PYTHONPATH", "value": whole}]
    block = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c\n"
        f"    env:\n    - name: PYTHONPATH\n      value: {theirs}\n"
    )
    assert environment(block) == [{"name": "PYTHONPATH", "value": whole}]


def test_the_groups_own_image_replaces_the_containers_image():
    text = variant(EVERY_KIND["Pod"], way="image", image_prefix=PREFIX)
    container = yaml.safe_load(text)["spec"]["containers"][0]
    assert container == {"name": "c", "image": f"{PREFIX}:cpu-avx2-cp311-{RELEASE_ID}"}
    with_path = EVERY_KIND["Pod"].replace(
        "image: i", "image: i, env: [{name: PYTHONPATH, value: /app}]"
    )
    # What a pod says outdoes what its image says.
    (variable,) = environment(with_path, way="image", image_prefix=PREFIX)
    assert variable["value"] == "/fleetbuild/site-packages:/app"


def test_a_workload_for_other_nodes_has_no_variant_for_these():
    text = EVERY_KIND["Pod"].replace(
        "spec: {", "spec: {nodeSelector: {kubernetes.io/arch: arm64}, "
    )
    made, told = variants(text, gpu_fleet())
    assert list(made) == ["web-sm80.sm90-armv8.2-cp312-musl.yaml"]
    (sentence,) = told
    assert sentence == (
        "web.yaml: Pod web selects nodes with kubernetes.io/arch=arm64, but nodes of the group "
        "cpu-avx2-cp311 have amd64, so they get no variant."
    )
    with pytest.raises(UsageError):
        variants(text)


def wanting(*terms):
    """A pod whose required affinity has these terms, of which each is a list of expressions."""
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return EVERY_KIND["Pod"].replace("spec: {", f"spec: {{affinity: {json.dumps(affinity)}, ")


def expression(operator, *values, key="kubernetes.io/arch"):
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


ARM, NOT_AMD = expression("In", "arm64"), expression("NotIn", "amd64")
ANY, ELSE = expression("Exists"), expression("In", "a", key="zone")


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([[ARM]], False),
        ([[NOT_AMD]], False),
        ([[ELSE, ARM]], False),
        ([[ARM], [NOT_AMD]], False),
        ([[ARM], [ELSE]], True),
        ([[expression("In", "arm64", "amd64")]], True),
        ([[expression("NotIn", "arm64"), ANY, ELSE]], True),
        ([], True),
    ],
)
def test_an_affinity_for_other_nodes_leaves_no_variant_for_these(terms, fits):
    made, told = variants(wanting(*terms), gpu_fleet())
    assert ("web-cpu-avx2-cp311.yaml" in made) == fits
    if not fits:
        assert "the group cpu-avx2-cp311 have amd64, so they get no variant" in "".join(told)


def test_the_excluding_affinity_is_quoted():
    _, (sentence,) = variants(wanting([ARM]), gpu_fleet())
    assert "selects nodes with kubernetes.io/arch In [arm64], but nodes of" in sentence
    with pytest.raises(UsageError, match="arch DoesNotExist, but"):
        variants(wanting([expression("DoesNotExist")]))


def test_init_containers_without_the_packages_are_a_warning():
    text = EVERY_KIND["Pod"].replace("spec: {", "spec: {initContainers: [{name: a, image: i}], ")
    _, (sentence,) = variants(text)
    assert sentence.startswith("web.yaml: Pod web: its init containers are left as they are")
    assert variants(EVERY_KIND["Pod"])[1] == ()


@pytest.mark.parametrize(
    "text",
    [
        EVERY_KIND["Pod"].replace("name: web", "name: {{ .Release.Name }}"),
        EVERY_KIND["Pod"].replace("name: web", 'name: "{{ .Release.Name }}"'),
        EVERY_KIND["Pod"].replace("image: i", "image: {{ .Values.image }}"),
        "{{- if .Values.web }}\n" + EVERY_KIND["Pod"] + "{{- end }}\n",
    ],
)
def test_an_unrendered_template_is_refused(text):
    with pytest.raises(UsageError, match="is a template") as refused:
        variants(text)
    assert "helm template" in refused.value.fix


def test_braces_in_a_value_are_accepted():
    text = EVERY_KIND["Pod"].replace("image: i", "image: i, args: ['{{ left to the program }}']")
    assert "{{ left to the program }}" in variant(text)


def test_what_scales_the_workload_has_a_variant_too():
    made = list(yaml.safe_load_all(variant(f"{WEB}---\n{SCALER}")))
    name = made[1]["metadata"]["name"]
    assert made[2]["metadata"]["name"] == "web-scaler-cpu-avx2-cp311"
    assert made[2]["spec"]["scaleTargetRef"]["name"] == name == "web-cpu-avx2-cp311"
    for other in ("name: other}", "name: [web]}"):
        (*_, scaler) = yaml.safe_load_all(
            variant(f"{WEB}---\n{SCALER.replace('name: web}}', other + '}')}")
        )
        assert scaler["metadata"]["name"] == "web-scaler"


@pytest.mark.parametrize(
    ("changes", "strategy", "sentence"),
    [
        ({}, "new", "Each new pod starts beside the old one"),
        ({"image: i": "image: i, ports: [{hostPort: 80}]"}, None, "Each old pod ends before"),
        (
            {"[{name: c": "[{name: c", "spec: {con": "spec: {hostNetwork: true, con"},
            None,
            "Each old pod ends before",
        ),
        (
            {"spec: {sel": "spec: {updateStrategy: {type: OnDelete}, sel"},
            {"type": "OnDelete"},
            "Its own updateStrategy says",
        ),
    ],
)
def test_a_daemonset_keeps_its_old_pod_until_the_new_one_is_ready(changes, strategy, sentence):
    text = EVERY_KIND["DaemonSet"]
    for before, after in changes.items():
        text = text.replace(before, after)
    made = variant(text)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    found = yaml.safe_load(made)["spec"].get("updateStrategy")
    assert found == (surge if strategy == "new" else strategy)
    assert sentence in made
    with_gpu = variant(EVERY_KIND["DaemonSet"], plan=GPU_PLAN)
    assert "updateStrategy" not in yaml.safe_load(with_gpu)["spec"]
    assert "Each old pod ends before" in with_gpu
    assert "updateStrategy" not in variant(text, way="image", image_prefix=PREFIX) or strategy


NAMED = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
LIST = "apiVersion: v1\nkind: PodList\nmetadata: {name: a}\n"
GENERATED = EVERY_KIND["Pod"].replace("{name: web}", "{generateName: web-}")
LAUGHS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 6)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "web.yaml is not valid YAML in line 1, column 5: expected the node content"),
        ("a: \0", "web.yaml is not valid YAML: unacceptable character #x0000"),
        ("kind: Pod\na: &a [*a]", "web.yaml is not valid YAML"),
        ("", "contains no workload"),
        ("kind: List\nitems: []\n", "contains no workload"),
        (f"{EVERY_KIND['Pod']}---\n{LIST}", "contains a PodList"),
        (f"{EVERY_KIND['Pod']}---\n{EVERY_KIND['Pod']}", "contains Pod web twice"),
        (f"{EVERY_KIND['Pod']}---\na: 1\n", "document 2 has no apiVersion, kind or"),
        (GENERATED, "or metadata.name, which"),
        ("x: !!binary aGk=\n", "has no meaning in Kubernetes"),
        (LAUGHS, "too many values"),
        ("kind: [Pod]\n", "contains no workload"),
        (f"{NAMED}spec: {{}}\n", "has no containers"),
        (f"{NAMED}spec: {{containers: 3}}\n", "not a list of mappings"),
        (f"{NAMED}spec: {{containers: [3]}}\n", "not a list of mappings"),
        (f"apiVersion: v1\nkind: Pod\nmetadata: {{}}\n{POD}\n", "or metadata.name"),
        (f"kind: Pod\nmetadata: x\n{POD}\n", "not a mapping"),
        (EVERY_KIND["Pod"].replace("spec: {", "spec: {nodeSelector: 3, "), "nodeSelector is no"),
        (EVERY_KIND["Pod"].replace("spec: {", "spec: {nodeName: n, "), "names its node (n)"),
        (
            EVERY_KIND["Pod"].replace("spec: {", "spec: {volumes: [{name: fleetbuild-release}], "),
            "volumes already has a name fleetbuild-release",
        ),
        (
            EVERY_KIND["Pod"].replace(
                "image: i", "image: i, env: [{name: PYTHONPATH, valueFrom: {fieldRef: {}}}]"
            ),
            "from elsewhere",
        ),
        (
            EVERY_KIND["Pod"].replace(
                "image: i", f"image: i, volumeMounts: [{{name: a, mountPath: {PATH}}}]"
            ),
            "has a mountPath",
        ),
        (f"kind: Pod\nmetadata:\n  name: [web]\n{POD}\n", "or metadata.name"),
        (
            EVERY_KIND["Deployment"].replace("metadata: {labels: {app: x}}", "metadata: 3"),
            "template.metadata is not a",
        ),
    ],
)  # fmt: skip
def test_unsupported_workloads_are_refused_in_a_sentence(text, message):
    with pytest.raises(UsageError) as refused:
        variants(text)
    assert message in refused.value.message
    assert refused.value.fix
