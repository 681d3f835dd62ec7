"""The user's own workloads: what is added, what stays, and what contradicts."""

import difflib
import json

import pytest
import yaml

from fleetbuild.errors import UsageError
from fleetbuild.kubernetes import Delivery, Wheel, render_workload
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
                    A long line that somebody folded by hand and that nobody wants to see folded
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


def variants(text, plan=None, way="hostpath", **settings):
    plan = plan or make_plan()
    wheels = {group.name: [Wheel("hnswlib", "0.8.0", "ab" * 32)] for group in plan.groups}
    files, told = render_workload(
        plan, "web.yaml", text, delivery=Delivery(way=way, **settings), wheels=wheels
    )
    return {name: made for name, made in files.items() if name.startswith("web-")}, told


def variant(text, **settings):
    (made,) = variants(text, **settings)[0].values()
    return made


def diff(before, after):
    """What differs, without the comment at the top."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changes = [line for line in lines if line[0] in "+-"]
    return [line for line in changes if line[0] == "-" or line[1:].strip(" ")[:1] not in ("", "#")]


def test_only_the_parts_that_a_pod_needs_are_added():
    assert diff(WEB, variant(WEB)) == [
        "-     name: web   # the Service of this name stands above",
        "+     name: web-cpu-avx2-cp311   # the Service of this name stands above",
        "-         matchLabels: *labels",
        "+         matchLabels:",
        "+           app: web",
        '+           team: "12e4"',
        "+           fleetbuild.dev/group: cpu-avx2-cp311",
        "-             labels: *labels",
        "+             labels:",
        "+               app: web",
        '+               team: "12e4"',
        "+               fleetbuild.dev/group: cpu-avx2-cp311",
        "+               - name: PYTHONPATH",
        f"+                 value: {PACKAGES}",
        "+               volumeMounts:",
        "+                 - name: fleetbuild-release",
        f"+                   mountPath: {PATH}",
        "+                   readOnly: true",
        # The other container keeps the environment that it had.
        "-               env: *env",
        "+               env:",
        "+                 - name: LANG",
        "+                   value: C.UTF-8",
        "-             nodeSelector: {disk: ssd}",
        f"+             nodeSelector: {{disk: ssd, {SELECTOR}}}",
        "+             volumes:",
        "+               - name: fleetbuild-release",
        "+                 hostPath:",
        f"+                   path: {PATH}",
        "+                   type: Directory",
    ]


def test_a_variant_starts_with_an_explanation_and_keeps_existing_comments():
    made = variant(WEB)
    assert made.startswith("# Written by fleetbuild from web.yaml, for the nodes of the group")
    assert "\n\n# The web front end. Ask the web team before you change it.\n" in made
    assert "# So that variants for other groups do not select these pods.\n" in made
    assert variant(WEB) == made


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
    "Job": f"apiVersion: batch/v1\nkind: Job\nmetadata: {{generateName: web-}}\n{JOB}\n",
    "CronJob": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\n"
    f'spec: {{schedule: "@daily", jobTemplate: {{{JOB}}}}}\n',
}


@pytest.mark.parametrize("way", ["hostpath", "image", "init"])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_workload_gives_manifests_that_are_valid(kind, way):
    more = {"image": {"image_prefix": PREFIX}, "init": {"index_url": "http://w"}}.get(way, {})
    for text in variants(EVERY_KIND[kind], gpu_fleet(), way, **more)[0].values():
        (document,) = yaml.safe_load_all(text)
        for version in (OLDEST, NEWEST):
            accept(document, version)
        metadata = document["metadata"]
        assert "cp31" in metadata.get("name", "") + metadata.get("generateName", "")
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


def test_objects_that_name_the_workload_are_a_warning():
    scaler = """---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web-scaler}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""
    _, (sentence,) = variants(WEB + scaler)
    assert "HorizontalPodAutoscaler web-scaler scales Deployment web" in sentence
    for other in ("name: other}", "name: [web]}"):
        assert variants(WEB + scaler.replace("name: web}", other))[1] == ()


def test_line_ends_and_byte_order_marks_stay():
    text = "\ufeff" + EVERY_KIND["Pod"].replace("\n", "\r\n")
    made = variant(text)
    assert made.startswith("\ufeff# Written by fleetbuild")
    assert made.replace("\r\n", "").count("\n") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "web.yaml is not valid YAML in line 1, column 5: expected the node content"),
        ("a: \0", "web.yaml is not valid YAML: unacceptable character #x0000"),
        ("a: &a [*a]\nkind: Pod", "web.yaml is not valid YAML"),
        ("", "contains no workload"),
        ("kind: List\nitems: []\n", "contains no workload"),
        ("kind: [Pod]\n", "contains no workload"),
        ("kind: Pod\nmetadata: {name: web}\nspec: {}\n", "has no containers"),
        ("kind: Pod\nmetadata: {name: web}\nspec: {containers: 3}\n", "not a list of mappings"),
        ("kind: Pod\nmetadata: {name: web}\nspec: {containers: [3]}\n", "not a list of mappings"),
        (f"kind: Pod\nmetadata: {{}}\n{POD}\n", "has no name"),
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
        (f"kind: Pod\nmetadata:\n  name: [web]\n{POD}\n", "without changing"),
    ],
)  # fmt: skip
def test_unsupported_workloads_are_refused_in_a_sentence(text, message):
    with pytest.raises(UsageError) as refused:
        variants(text)
    assert message in refused.value.message
    assert refused.value.fix
