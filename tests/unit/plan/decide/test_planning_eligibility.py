"""Eligibility of nodes: the state, the reason and the fix of each."""

from __future__ import annotations

import pytest
from pydantic import create_model

from fleetbuild.models import Config, Facts, Gpu, Inventory, Libc
from fleetbuild.plan.decide import eligibility
from fleetbuild.plan.decide.eligibility import Eligibility
from fleetbuild.plan.decide.interpreters import NotEligible
from tests.factories.data import seed_fleet
from tests.factories.fleets import facts, node, package, planned, python, recipe_of


def planned_node_of(known: Facts, config: Config | None = None, packages=None, **overrides):
    plan = planned(
        {"n": known},
        nodes=[node("n", **overrides)],
        config=config,
        **({"packages": packages} if packages else {}),
    )
    return plan.nodes["n"]


def test_a_node_with_everything_is_planned_for():
    node = planned_node_of(facts())
    assert (node.state, node.group, node.python) == ("ok", "cpu-avx2-cp311", "/usr/bin/python3")


def test_skipped_and_unreachable_nodes_have_their_state():
    assert planned_node_of(facts(), skip=True).state == "skipped"
    node = planned_node_of(Facts(state="unreachable", reason="no route"))
    assert (node.state, node.reason, node.group) == ("unreachable", "no route", None)
    assert "ssh n.example.org" in node.fix
    node = planned_node_of(
        Facts(state="unreachable", reason="HOST KEY CHANGED", fix="find out why")
    )
    assert node.fix == "find out why; then plan again"
    node = planned_node_of(Facts(state="unreachable", reason="no capture", fix="Write one."))
    assert node.fix == "Write one; then plan again"


def test_a_node_whose_probe_was_cut_short_is_not_planned_for_what_it_may_have():
    node = planned_node_of(facts(pythons=(), unanswered=("python",)))
    assert node.reason == "Its Python interpreters are unknown: the node did not list them in time."
    assert "longer --timeout" in node.fix
    silent = facts(unanswered=("nvidia-smi",))
    node = planned_node_of(silent, packages=[package("torch", "2.6.0")])
    assert node.reason == "Its GPUs are unknown: nvidia-smi did not answer in time."
    assert planned_node_of(silent).state == "ok"  # nothing is built for a GPU
    assert planned_node_of(silent, packages=[package("torch", "2.6.0")], sms=()).state == "ok"


def test_a_section_without_an_answer_is_named_by_the_plan_with_its_nodes():
    plan = planned({"a": facts(), "b": facts(unanswered=("toolchain",))})
    (warning,) = plan.warnings
    assert warning == (
        "The section toolchain of the probe gave no answer in time on b: what it tells is unknown "
        "there. Plan again with a longer --timeout, or find out what blocks it."
    )


def test_gpus_that_no_code_is_built_for_are_named_by_the_plan():
    amd = Gpu(name="AMD Instinct MI300X", vendor="amd", gfx="gfx942")
    arc = Gpu(name="Intel DG2 [Arc A770]", vendor="intel")
    fleet = {
        "a": facts(gpus=(amd,) * 8), "b": facts(gpus=(arc,)), "c": facts(gpus=(amd, arc)),
        "d": facts(sms=("8.6",), gpus=(Gpu(name="A40", sm="8.6"), arc), driver="580.65.06"),
    }  # fmt: skip
    told = planned(fleet, packages=[package("torch", "2.13.0")]).warnings
    rocm = (
        " With build: {policy: auto} and an index of ROCm wheels, a plan for nodes that all have "
        "GPUs of AMD (--limit) takes a published one."
    )
    assert [warning for warning in told if "not used" in warning] == [
        f"The GPUs of {names} ({kind}) are not used: fleetbuild builds GPU code for NVIDIA only, "
        f"so these are planned as CPU nodes.{more}"
        for names, kind, more in (
            ("a and c", "AMD Instinct MI300X, gfx942", rocm),
            ("b and c", arc.name, ""),
        )
    ]
    assert planned(fleet).warnings == ()  # a package without GPU code


def test_an_interpreter_that_the_node_does_not_have_blocks_it():
    wrong = {"ansible_python_interpreter": "/opt/py/bin/python"}
    known = facts().model_copy(update={"missing_interpreters": ("/opt/py/bin/python", "/other")})
    node = planned_node_of(known, variables=wrong)
    assert node.state == "blocked"
    assert node.reason == (
        "ansible_python_interpreter is /opt/py/bin/python, which does not exist there."
    )
    assert "remove it" in node.fix
    assert planned_node_of(facts(), variables=wrong).state == "ok"  # such as in captures: unknown
    assert planned_node_of(known).state == "ok"


def test_a_node_that_was_not_probed_is_unreachable():
    plan = planned({"a": facts()}, nodes=["a", "b"])
    assert plan.nodes["b"].state == "unreachable"
    assert plan.summary.nodes_unreachable == 1


@pytest.mark.parametrize(
    ("known", "reason", "fix"),
    [
        (Facts(state="unsupported", reason="riscv64 is not supported"), "riscv64", "skip"),
        (facts(features=()), "CPU flags are unknown", "/proc"),
        (facts(libc=None), "C library is unknown", "getconf"),
        (facts(pythons=()), "no CPython.", "apt install python3"),
        (
            facts(pythons=(python(venv=False),)),
            "cannot make virtual environments",
            "apt install python3-venv",
        ),
        (
            facts(pythons=(python(venv=False, path="/opt/py/bin/python3"),)),
            "lacks venv or zlib",
            "/opt/py/bin/python3",
        ),
        (
            facts(pythons=(python("3.9.2", venv=True, ensurepip=False),)),
            "/usr/bin/python3 (3.9.2) lacks ensurepip",
            "apt install python3-venv",
        ),
        (
            facts(pythons=(python(venv=False), python("3.12.3", "/usr/bin/python3.12", venv=True))),
            "/usr/bin/python3 (3.11",
            "or set fleetbuild_python: /usr/bin/python3.12 (3.12.3)",
        ),
        (facts(install_filesystem="nfs4"), "shared file system (nfs4)", "install.path"),
        (facts(install_filesystem="fuse.sshfs"), "shared file system", "install.path"),
        (facts(install_read_only=True), "mounted read-only", "set install.path"),
    ],
)
def test_a_node_that_cannot_be_planned_for_has_reason_and_fix(known, reason, fix):
    node = planned_node_of(known)
    assert node.state == "blocked"
    assert reason in node.reason
    assert fix in node.fix


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "fuse.fuse-overlayfs", None])
def test_local_file_systems_are_accepted(kind):
    assert planned_node_of(facts(install_filesystem=kind)).state == "ok"


def test_a_python_without_ensurepip_gets_releases_by_what_the_controller_sends():
    assert planned_node_of(facts(pythons=(python(venv=True, ensurepip=False),))).state == "ok"


def test_the_interpreter_is_the_wanted_one():
    both = facts(pythons=(python("3.11.2"), python("3.12.1", "/usr/bin/python3.12")))
    assert planned_node_of(both).python == "/usr/bin/python3"
    assert planned_node_of(both, Config(python="3.12")).group == "cpu-avx2-cp312"
    assert planned_node_of(both, python="3.12.1").python == "/usr/bin/python3.12"
    assert planned_node_of(both, python="/usr/bin/python3.12").group == "cpu-avx2-cp312"
    assert planned_node_of(both, Config(python="3.1")).state == "blocked"


def test_a_free_threaded_interpreter_is_requested_with_a_t():
    free = python("3.13.0", "/opt/free/bin/python3", soabi="cpython-313t-x86_64-linux-gnu")
    both = facts(pythons=(free, python("3.13.1", "/usr/bin/python3.13")))
    assert planned_node_of(both, Config(python="3.13")).group == "cpu-avx2-cp313"
    assert planned_node_of(both, Config(python="3.13t")).group == "cpu-avx2-cp313t"
    assert planned_node_of(both, python="/opt/free/bin/python3").group == "cpu-avx2-cp313t"
    assert planned_node_of(both).group == "cpu-avx2-cp313t"
    node = planned_node_of(facts(pythons=(free,)), Config(python="3.13"))
    assert "no Python 3.13. It has free-threaded 3.13.0 (/opt/free" in node.reason
    assert "uv python install 3.13t" in planned_node_of(facts(), python="3.13t").fix


def test_another_interpreter_of_the_wanted_version_serves_where_the_first_lacks_venv():
    known = facts(pythons=(python(venv=False), python("3.11.9", "/opt/python3.11", venv=True)))
    assert planned_node_of(known, Config(python="3.11")).python == "/opt/python3.11"
    assert planned_node_of(known).state == "blocked"


def test_a_configured_link_stands_for_the_interpreter_that_it_leads_to():
    python = (
        facts()
        .pythons[0]
        .model_copy(
            update={
                "path": "/usr/bin/python3.11",
                "links": ("/usr/bin/python3", "/opt/venv/bin/python3"),
            }
        )
    )
    other = python.model_copy(update={"path": "/opt/venv/bin/python3", "links": ()})
    linked = facts(pythons=(python,))
    for wanted in ("/usr/bin/python3", "/usr/bin/python3.11", "/opt/venv/bin/python3"):
        assert planned_node_of(linked, Config(python=wanted)).python == "/usr/bin/python3.11"
    itself = facts(pythons=(python, other))
    chosen = planned_node_of(itself, Config(python="/opt/venv/bin/python3"))
    assert chosen.python == "/opt/venv/bin/python3"


def test_a_missing_interpreter_names_the_installed_ones():
    node = planned_node_of(facts(), Config(python="3.13"))
    assert "no Python 3.13. It has 3.11.2 (/usr/bin/python3)" in node.reason
    assert "apt install python3.13" in node.fix
    environment = planned_node_of(facts(), Config(python="/opt/venv/bin/python3"))
    assert "no Python /opt/venv/bin/python3. It has 3.11.2 (/usr/bin/python3)" in environment.reason
    assert "Links and virtual environments count if they are in the PATH" in environment.fix
    musl = facts(
        libc=Libc(family="musl", version="1.2.4"), os=facts().os.model_copy(update={"id": "alpine"})
    )
    assert "apk add" in planned_node_of(musl, Config(python="3.13")).fix
    rocky = facts(os=facts().os.model_copy(update={"id": "rocky"}))
    assert "dnf install python3" in planned_node_of(rocky, python="/opt/none").fix


def test_overrides_lower_a_node_and_never_raise_it():
    assert planned_node_of(facts("avx512"), isa="avx2").group == "cpu-avx2-cp311"
    node = planned_node_of(facts("avx"), isa="avx2")
    assert "fleetbuild_isa is avx2, but avx2 needs abm" in node.reason
    assert "avx or a lower rung" in node.fix
    assert "not a rung" in planned_node_of(facts(), isa="haswell").reason
    assert "of aarch64, but the node is x86_64" in planned_node_of(facts(), isa="armv8").reason


def test_sms_must_be_compute_capabilities():
    assert planned_node_of(facts(), sms=("8.6",)).state == "ok"
    assert "'sm_86'" in planned_node_of(facts(), sms=("sm_86",)).reason


def test_a_recipe_knows_its_libc_families_and_rungs():
    glibc = package(recipe=recipe_of("hnswlib", "x86-64", more="libc: [glibc]"))
    musl = facts(libc=Libc(family="musl", version="1.2.4"))
    assert "supports only glibc" in planned_node_of(musl, packages=[glibc]).reason
    assert planned_node_of(musl).group == "cpu-avx2-cp311-musl"
    avx512 = package(recipe=recipe_of("hnswlib", "avx512"))
    refused = planned_node_of(facts(), packages=[avx512]).reason
    assert "no rung that this CPU can run (x86_64, avx2)" in refused
    arm = planned_node_of(facts("armv8"), packages=[avx512])
    assert "aarch64, armv8" in arm.reason


def test_warnings_of_facts_stay_with_the_node():
    assert planned_node_of(facts(warnings=("a GPU without a driver",))).warnings
    assert planned_node_of(facts(warnings=("w",), libc=None)).warnings == ("w",)


def test_a_node_that_accepts_only_signed_releases_needs_a_key():
    known = facts().model_copy(update={"requires_signature": True})
    node = planned_node_of(known)
    assert node.state == "blocked"
    assert "/etc/fleetbuild/allowed_signers" in node.reason
    assert "signing.key" in node.fix
    signing = create_model("Section", signs=(bool, True))
    config = create_model("Signing", __base__=Config, signing=(signing, signing()))
    assert planned_node_of(known, config()).state == "ok"


@pytest.fixture
def assessed(monkeypatch):
    """The facts that were assessed."""
    seen = []

    def counted(known, *given, **overrides):
        seen.append(known)
        return assess(known, *given, **overrides)

    assess = eligibility._assess
    monkeypatch.setattr(eligibility, "_assess", counted)
    return seen


def test_nodes_of_one_kind_are_assessed_once_whatever_their_memory_and_release(assessed):
    nodes = {
        f"n{number}": facts(memory_gb=number, disk_gb=number, previous={"default": f"r{number}"})
        for number in range(20)
    }
    nodes |= {"lame": facts(warnings=("Careful.",)), "old": facts(toolchain={"nvcc": ("9.0",)})}
    states = eligibility.assess_nodes(
        Inventory(source="i", nodes=tuple(map(node, nodes))), nodes, [package("a", "1.0")], Config()
    )
    assert len(assessed) == 3
    assert states["n0"] is states["n19"]
    assert states["lame"].warnings == ("Careful.",)


@pytest.mark.parametrize("named", [("small", "1.0"), ("torch", "2.6.0")])
def test_a_node_is_assessed_by_all_facts_that_decide(named):
    known = seed_fleet()
    known["windows"] = Facts(state="unsupported", reason="It runs Windows.", fix="Skip it.")
    known["bsd"] = Facts(state="unsupported", reason="It runs BSD.")
    known["silent"] = facts(unanswered=("nvidia-smi",))
    known["read-only"] = facts(install_read_only=True)
    known["shared"] = facts(install_filesystem="nfs4")
    known["signed"] = facts(requires_signature=True)
    inventory = Inventory(source="i", nodes=tuple(map(node, known)))
    packages = [package(*named)]
    states = eligibility.assess_nodes(inventory, known, packages, Config())
    for name, own in known.items():
        try:
            alone = eligibility._assess(own, packages, Config())
        except NotEligible as error:
            alone = Eligibility(state="blocked", warnings=own.warnings, **error.problem._asdict())
        assert states[name] == alone
