"""Targets and plans by the names of their hardware, and any hardware, for property tests."""

from hypothesis import strategies as st

from fleetbuild.hardware.gpus import SMS, devices_of_sm
from fleetbuild.hardware.rungs import RUNGS
from tests.factories.plans import make_group, make_plan, make_target

GPU_SMS = [sm for sm in SMS if devices_of_sm(sm)]


def plan_of(*targets, **changes):
    """A plan with a group for each of these: "sm80.sm90-avx2"."""
    groups = [
        make_group((f"n{number}",), target_of(each), name=each)
        for number, each in enumerate(targets)
    ]
    return make_plan(groups, **changes)


def target_of(name):
    """The target of the group with this name: "cpu-avx2"."""
    gpu, isa = name.split("-", 1)
    sms = () if gpu == "cpu" else tuple(f"{sm[2:-1]}.{sm[-1]}" for sm in gpu.split("."))
    return make_target(isa, sms=sms)


rungs_of = st.sampled_from(sorted(RUNGS))
sm_sets = st.lists(st.sampled_from(GPU_SMS), max_size=3, unique=True)
targets = st.builds(lambda isa, sms: make_target(isa, sms=tuple(sms)), rungs_of, sm_sets)


@st.composite
def hardware(draw):
    """Any rung with any features on top, GPUs of any SMs, a driver or none."""
    rung = RUNGS[draw(rungs_of)]
    more = {each for other in RUNGS.values() if other.arch == rung.arch for each in other.features}
    extra = draw(st.sets(st.sampled_from(sorted(more)))) if more else set()
    sms = draw(sm_sets)
    driver = draw(st.booleans())
    kinds = ("0300", "0302")
    devices = [
        f"{draw(st.sampled_from(kinds))} 10de:{draw(st.sampled_from(devices_of_sm(sm)))}"
        for sm in sms
    ]
    return rung.arch, rung.features | extra, tuple(sms), driver, devices


def meets(each, arch, features, sms):
    """Would the wheels of this class run on such a node, and on each of its GPUs?"""
    cpu = each.rung.arch == arch and each.rung.features <= frozenset(features)
    return cpu and (not each.sms or (bool(sms) and frozenset(sms) <= frozenset(each.sms)))


def class_of(arch, features, sms, among):
    """The class of a node with this hardware, among those in order; None where it meets none."""
    return next((each for each in among if meets(each, arch, features, sms)), None)
