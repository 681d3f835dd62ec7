"""NodeFeatureRules give every node the class that the planner gives it, and one class only."""

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.extensions.kubernetes.jobs.builder_image import builder_image
from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES
from fleetbuild.extensions.kubernetes.labels.classes import classes
from fleetbuild.extensions.kubernetes.labels.features import gfd_labels
from fleetbuild.extensions.kubernetes.labels.labeller import targets_of_plan
from fleetbuild.extensions.kubernetes.labels.node_facts import facts_of_node
from fleetbuild.extensions.kubernetes.labels.node_labels import class_labels
from fleetbuild.extensions.kubernetes.labels.release_labels import labels_by_node
from fleetbuild.extensions.kubernetes.labels.rules import node_feature_rule
from fleetbuild.extensions.kubernetes.manifests.names import is_label_value, is_subdomain
from fleetbuild.hardware.gpus import devices_of_sm
from fleetbuild.hardware.rungs import RUNGS, best
from fleetbuild.models import (
    Config,
    Inventory,
    Login,
    Node,
    NodeHardware,
    PlannedNode,
    Unreachable,
)
from fleetbuild.models.config import Build
from fleetbuild.plan.decide.group_fleet import group_fleet
from fleetbuild.plan.decide.packages import Package
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.recipes import Recipe
from tests.factories.data import DATA, NFD_CRDS, SEED_FLEET
from tests.factories.hardware_classes import (
    GPU_SMS,
    class_of,
    hardware,
    plan_of,
    target_of,
    targets,
)
from tests.factories.nfd_master import labels_of
from tests.factories.nfd_worker import report, report_of_capture
from tests.factories.plans import make_group, make_plan, make_target, make_wheel
from tests.factories.schemas import strict

CAPTURES = (
    DATA.parents[1] / "lab" / "hardware",
    DATA / "fleet",
    SEED_FLEET,
)
# What every node of a test has, where its capture leaves it out: the lab's tell hardware alone.
SOFTWARE = {
    "uname": "Linux 6.1.0 x86_64\n",
    "libc": "glibc 2.36\n",
    "python": "/usr/bin/python3 3.11.2 cpython-311-x86_64-linux-gnu venv headers\n",
}
IMAGE = builder_image(Build(image="python:3.11-bookworm"), None)
ALL = tuple(RUNGS)
TORCH = ("avx", "avx2", "avx512", "armv8", "armv8.2", "armv8.4sve", "armv9")


def parsed(text):
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


def rules(plan):
    return parsed(node_feature_rule(plan))


def labels(plan, rung, *sms, driver=True, devices=None, files=None):
    """What the rules give a node of this rung, with a GPU of each of these SMs."""
    if devices is None:
        devices = [f"0302 10de:{devices_of_sm(sm)[0]}" for sm in sms]
    known = RUNGS[rung]
    features = report(
        known.arch, known.features, ["0200 8086:1521", *devices], driver=driver, files=files
    )
    return labels_of([rules(plan)], features)


def given_class(*args, **changes):
    return labels(*args, **changes).get("fleetbuild.dev/class")


# A fleet as it was captured ---------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("folder", CAPTURES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("cuda", [True, False], ids=["cuda", "cpu"])
@pytest.mark.parametrize("rungs", [TORCH, ALL], ids=["some rungs", "all rungs"])
def test_the_class_by_rule_is_the_class_by_plan(folder, cuda, rungs):
    found = load_captures(folder, [each.name for each in folder.iterdir() if each.is_dir()])
    captures = {
        name: {**SOFTWARE, **each}
        for name, each in found.items()
        if not isinstance(each, Unreachable)
    }
    facts = {name: facts_of(capture) for name, capture in captures.items()}
    package = Package(
        name="extension",
        version="1.0",
        recipe=Recipe(name="extension", rungs=rungs, cuda=cuda),
        requirement="extension==1.0",
        text="extension==1.0",
    )
    nodes = tuple(Node(name=name, login=Login(host=name)) for name in facts)
    fleet = group_fleet(Inventory(source="i.yml", nodes=nodes), facts, [package], Config())
    groups = [make_group(each.nodes, each.target) for each in fleet.groups]
    assert groups
    plan = make_plan(groups)
    planned = {node: group for group in groups for node in group.nodes}
    for name, capture in captures.items():
        features = report_of_capture(capture, facts[name].arch, facts[name].features)
        expected = class_labels(plan, planned[name]) if name in planned else {}
        assert labels_of([rules(plan)], features) == expected, name


def test_the_captured_fleet_is_not_empty():
    assert sum(len(list(folder.glob("*/cpuinfo"))) for folder in CAPTURES) >= 10


# Fleets and nodes that nobody has seen ------------------------------------------------------------


@given(st.lists(targets, max_size=8), st.lists(hardware(), min_size=1, max_size=4))
def test_any_node_gets_the_best_class_that_it_meets_and_no_other(built, nodes):
    plan = make_plan([make_group((f"n{n}",), each) for n, each in enumerate(built)] or None)
    ours, text = classes(plan), node_feature_rule(plan)
    assert text == node_feature_rule(plan)
    rule = parsed(text)
    for arch, features, sms, driver, devices in nodes:
        best = class_of(arch, features, sms if driver else (), ours)
        got = labels_of([rule], report(arch, features, devices, driver=driver))
        assert got.get("fleetbuild.dev/class") == (best.name if best else None)
        assert got.get("fleetbuild.dev/isa") == (best.rung.name if best else None)


@given(st.lists(targets, max_size=6), hardware(), st.booleans())
def test_a_blocked_host_is_labelled_as_the_rules_label_it(built, node, in_a_blocked_group):
    arch, features, sms, driver, devices = node
    groups = [make_group((f"n{n}",), each, name=f"g{n}") for n, each in enumerate(built)]
    if in_a_blocked_group:
        target = make_target(arch=arch, isa=best(features, arch).name)
        wheels = (make_wheel(target=target, action="blocked"),)
        groups.append(make_group(("host",), target, wheels, name="blocked"))
    plan = make_plan(groups or (make_group(("n",)),))
    known = NodeHardware(arch=arch, features=tuple(features), sms=sms if driver else ())
    host = PlannedNode(state="blocked", hardware=known)
    plan = plan.model_copy(update={"nodes": {**plan.nodes, "host": host}})
    by_rule = labels_of([rules(plan)], report(arch, features, devices, driver=driver))
    assert labels_by_node(plan, {"host": None})["host"].on == by_rule
    assert targets_of_plan(plan).hardware["host"] == by_rule


@st.composite
def told_nodes(draw):
    """What a node reports, with GPUs that nobody knows by their PCI id, and with GFD or without;
    whether a driver serves them; and a target that it may well be of."""
    arch, features, sms, driver, devices = draw(hardware())
    unknown = ["0302 10de:ffff", "0300 10de:fffe", "0380 10de:fffd"]
    devices += draw(st.lists(st.sampled_from(unknown), max_size=2))
    # GFD asks the driver, and describes one GPU: where some are known it is taken to be of those.
    told = draw(st.sampled_from([None, *(sms or GPU_SMS)])) if driver or not sms else None
    files = gfd_labels(told) if told else {}
    reported = report(arch, features, devices, driver=driver, files=files)
    isa = "x86-64" if arch == "x86_64" else "armv8"
    target = make_target(arch=arch, isa=isa, sms=(told,) if told else sms)
    return reported, arch, driver or bool(told), target


def as_a_cluster_tells(features, arch, served):
    """The same node, as its Node and NodeFeature objects."""
    node = {
        "metadata": {"labels": features.attributes["local.label"]},
        "status": {
            "nodeInfo": {"operatingSystem": "linux", "architecture": ARCHITECTURES[arch]},
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "1"} if served else {},
        },
    }
    flags = {flag: {} for flag in features.flags["cpu.cpuid"]}
    devices = [{"attributes": each} for each in features.instances["pci.device"]]
    reported = {
        "flags": {"cpu.cpuid": {"elements": flags}},
        "instances": {"pci.device": {"elements": devices}},
    }
    return node, [{"spec": {"features": reported}}]


@given(st.lists(targets, max_size=8), st.lists(told_nodes(), min_size=1, max_size=4))
def test_a_plan_from_the_cluster_sees_each_node_as_the_rules_do(built, nodes):
    built += [target for *_, target in nodes]
    plan = make_plan([make_group((f"n{n}",), each) for n, each in enumerate(built)])
    ours, rule = classes(plan), rules(plan)
    for features, arch, served, _ in nodes:
        known = facts_of_node(*as_a_cluster_tells(features, arch, served), IMAGE)
        best = class_of(known.arch, known.features, known.sms, ours)
        got = labels_of([rule], features).get("fleetbuild.dev/class")
        assert got == (best.name if best else None), known


# Nodes that autoscaling adds --------------------------------------------------------------------


def test_a_new_node_gets_the_best_class_for_which_there_is_a_group():
    plan = plan_of("cpu-avx", "cpu-avx2", "cpu-avx512")
    assert given_class(plan, "amx") == "cpu-avx512"
    assert given_class(plan, "avx512vnni") == "cpu-avx512"
    assert given_class(plan, "avx2") == "cpu-avx2"
    assert given_class(plan, "x86-64-v2") is None
    assert given_class(plan, "armv9") is None


def test_incomparable_rungs_are_ordered_as_in_the_planner():
    plan = plan_of("cpu-armv8.2", "cpu-armv8.4sve", "cpu-armv9")
    assert given_class(plan, "armv8.4sve") == "cpu-armv8.4sve"
    both = RUNGS["armv8.4sve"].features | RUNGS["armv9"].features
    assert labels_of([rules(plan)], report("aarch64", both))["fleetbuild.dev/isa"] == "armv9"


def test_the_baseline_is_met_by_its_own_architecture_only():
    plan = plan_of("cpu-x86-64", "cpu-armv8")
    assert given_class(plan, "x86-64") == "cpu-x86-64"
    assert given_class(plan, "armv8") == "cpu-armv8"


def test_gpus_decide_before_the_rung():
    plan = plan_of("sm86-avx2", "cpu-avx2", "cpu-avx512")
    assert given_class(plan, "avx512", "8.6") == "sm86-avx2"
    assert given_class(plan, "avx2", "8.6") == "sm86-avx2"
    assert given_class(plan, "avx512") == "cpu-avx512"
    assert given_class(plan, "avx512", "9.0") == "cpu-avx512"


def test_code_for_one_of_several_gpus_is_not_enough():
    plan = plan_of("sm75-avx2", "sm86-avx2", "cpu-avx2")
    assert given_class(plan, "avx2", "7.5", "8.6") == "cpu-avx2"
    assert given_class(plan, "avx2", "8.6", "9.0") == "cpu-avx2"
    plan = plan_of("sm75.sm86-avx2", "sm86-avx2", "cpu-avx2")
    assert given_class(plan, "avx2", "7.5", "8.6") == "sm75.sm86-avx2"
    assert given_class(plan, "avx2", "8.6") == "sm86-avx2"
    # Code for both serves a node with one of them, if nothing is closer.
    assert given_class(plan, "avx2", "7.5") == "sm75.sm86-avx2"


def test_without_a_driver_a_gpu_node_is_a_cpu_node():
    plan = plan_of("sm86-avx2", "cpu-avx2")
    assert given_class(plan, "avx2", "8.6", driver=False) == "cpu-avx2"
    assert given_class(plan_of("sm86-avx2"), "avx2", "8.6", driver=False) is None


def test_audio_functions_and_switches_are_not_gpus():
    plan = plan_of("sm86-avx2", "cpu-avx2")
    card = ["0300 10de:2204", "0403 10de:1aef", "0680 10de:1af1"]
    assert given_class(plan, "avx2", devices=card) == "sm86-avx2"


def test_an_unknown_gpu_is_used_only_with_gpu_feature_discovery():
    plan = plan_of("sm86-avx2", "sm120-avx2", "cpu-avx2")
    new = ["0302 10de:ffff"]
    gfd = {"nvidia.com/gpu.compute.major": "12", "nvidia.com/gpu.compute.minor": "0"}
    assert given_class(plan, "avx2", devices=new) == "cpu-avx2"
    assert given_class(plan, "avx2", devices=new, files=gfd) == "sm120-avx2"
    # On a board whose GPU sits on no bus there is no such kernel module either.
    assert given_class(plan, "avx2", driver=False, files=gfd) == "sm120-avx2"
    # It describes one GPU only: next to a known GPU it may mean that GPU.
    both = ["0302 10de:2204", *new]
    assert given_class(plan, "avx2", devices=both, files=gfd) == "cpu-avx2"
    other = {**gfd, "nvidia.com/gpu.compute.minor": "1"}
    assert given_class(plan, "avx2", devices=new, files=other) == "cpu-avx2"


def test_sms_that_sit_on_no_pci_bus_are_left_to_gpu_feature_discovery():
    plan = plan_of("sm87-armv8.2", "cpu-armv8.2")
    gfd = {"nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "7"}
    assert given_class(plan, "armv8.2", files=gfd) == "sm87-armv8.2"
    assert given_class(plan, "armv8.2") == "cpu-armv8.2"
    assert given_class(plan, "armv8.2", "8.6") == "cpu-armv8.2"


def test_rules_do_not_contradict_the_feature_file():
    plan = plan_of("sm86-avx2", "cpu-avx2")
    told = {"fleetbuild.dev/class": "cpu-avx2", "fleetbuild.dev/isa": "avx2"}
    assert labels(plan, "avx2", "8.6", files=told) == {}


def test_a_group_that_is_blocked_has_no_class():
    blocked = make_wheel(action="blocked")
    gpu = make_group(("a",), target_of("sm35-avx2"), wheels=(blocked,))
    plan = make_plan((gpu, make_group(("b",), target_of("cpu-avx2"))))
    assert given_class(plan, "avx2", "3.5") == "cpu-avx2"


def test_releases_side_by_side_have_classes_of_their_own():
    one = plan_of("cpu-avx2")
    other = plan_of("cpu-avx512", "cpu-avx2", release="Staging_2")
    features = report("x86_64", RUNGS["avx512"].features)
    got = labels_of([rules(other), rules(one)], features)
    assert got == {
        "fleetbuild.dev/class": "cpu-avx2",
        "fleetbuild.dev/isa": "avx2",
        "fleetbuild.dev/class.Staging_2": "cpu-avx512",
        "fleetbuild.dev/isa.Staging_2": "avx512",
    }
    names = [rules(each)["metadata"]["name"] for each in (one, other)]
    assert names[0] == "fleetbuild-classes"
    assert names[0] != names[1]
    assert all(map(is_subdomain, names))


# What the API takes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        plan_of("cpu-avx2"),
        plan_of("sm75.sm86-avx2", "sm86-avx512", "sm87-armv8.2", "cpu-x86-64"),
        make_plan((make_group(wheels=(make_wheel(action="blocked"),)),)),
    ],
    ids=["cpu", "gpu", "nothing"],
)
def test_the_rules_match_the_schema_of_nfd(plan):
    crds = yaml.safe_load_all(NFD_CRDS.read_text())
    crd = next(each for each in crds if each["spec"]["names"]["kind"] == "NodeFeatureRule")
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]]
    document = rules(plan)
    jsonschema.validate(document, strict(schema))
    assert document["apiVersion"] == f"{crd['spec']['group']}/v1alpha1"
    with pytest.raises(jsonschema.ValidationError):  # it is a schema that refuses things
        jsonschema.validate({**document, "spec": {"rules": [{"nome": "x"}]}}, strict(schema))


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True), st.data())
def test_any_release_gives_labels_that_the_api_accepts(release, data):
    built = data.draw(st.lists(targets, min_size=1, max_size=3))
    plan = make_plan([make_group((f"n{n}",), t) for n, t in enumerate(built)], release=release)
    document = rules(plan)
    assert is_subdomain(document["metadata"]["name"])
    for rule in document["spec"]["rules"]:
        for key, value in rule.get("labels", {}).items():
            domain, _, name = key.partition("/")
            assert is_subdomain(domain)
            assert is_label_value(name)
            assert is_label_value(value)


def test_no_line_of_the_file_is_long_and_its_comments_say_why():
    text = node_feature_rule(plan_of("sm75.sm86-avx2", "sm86-avx512", "cpu-avx2"))
    assert max(map(len, text.splitlines())) <= 102
    assert "exactly one class" in text
    assert "only if its driver is loaded" in " ".join(text.replace("\n#", " ").split())
    assert "driver" not in node_feature_rule(plan_of("cpu-avx2"))
