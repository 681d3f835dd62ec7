"""Hardware classes: an order among them, and one for each node."""

from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.extensions.kubernetes.labels.classes import classes, classes_of
from tests.factories.hardware_classes import class_of, hardware, meets, plan_of, target_of, targets
from tests.factories.plans import make_target


def names(*built):
    return [each.name for each in classes_of(map(target_of, built))]


def test_the_best_classes_come_first():
    built = ("cpu-avx", "sm86-avx2", "cpu-avx512", "sm75.sm86-avx2", "sm86-avx", "cpu-avx")
    assert names(*built) == ["sm86-avx2", "sm75.sm86-avx2", "sm86-avx", "cpu-avx512", "cpu-avx"]


def test_sms_are_sorted_as_numbers():
    assert names("sm120.sm90-avx2") == ["sm90.sm120-avx2"]


def test_python_and_libc_do_not_decide_the_class():
    built = [make_target(python=python) for python in ("cp310", "cp311", "cp313t")]
    assert len(classes_of(built)) == 1


def test_a_plan_has_the_classes_of_its_groups():
    assert [each.name for each in classes(plan_of("cpu-avx2", "cpu-avx"))] == [
        "cpu-avx2",
        "cpu-avx",
    ]


@given(st.lists(targets, max_size=8), hardware())
def test_no_class_that_a_node_meets_is_better_than_its_own(built, node):
    arch, features, sms, _, _ = node
    ours = classes_of(built)
    mine = class_of(arch, features, sms, ours)
    met = [each for each in ours if meets(each, arch, features, sms)]
    assert (mine is None) == (not met)
    for each in met:
        assert not (bool(each.sms) > bool(mine.sms))
        assert not (bool(each.sms) == bool(mine.sms) and mine.rung < each.rung)
        same = each.rung is mine.rung and bool(each.sms) == bool(mine.sms)
        assert not (same and len(each.sms) < len(mine.sms))
