"""The evaluator that the tests of rules rest on, and the files that nfd-worker reads."""

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.kubernetes.labels.feature_files import LIMIT, feature_file, feature_files
from fleetbuild.models import Installs
from fleetbuild.models.serving import as_planned
from tests.factories.nfd_master import BrokenRule, Features, holds, labels_of
from tests.factories.plans import make_group, make_plan


def rule(**parts):
    return {"name": "x", "labels": {"a/x": "1"}, **parts}


def run(*rules, **features):
    return labels_of([{"metadata": {"name": "n"}, "spec": {"rules": rules}}], Features(**features))


def term(feature, **expressions):
    return {"feature": feature, "matchExpressions": expressions}


@pytest.mark.parametrize(
    ("op", "values", "value", "expected"),
    [
        ("In", ["a", "b"], "b", True),
        ("In", ["a"], "b", False),
        ("NotIn", ["a"], "b", True),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], None, False),
        ("InRegexp", ["^03"], "0302", True),
        ("InRegexp", ["^03"], "1203", False),
        ("Exists", [], "x", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "x", False),
        ("IsTrue", [], "true", True),
        ("IsTrue", [], "1", False),
        ("IsFalse", [], "false", True),
        ("IsFalse", [], None, False),
        ("Gt", ["7"], "8", True),
        ("Gt", ["7"], "7", False),
        ("Ge", ["7"], "7", True),
        ("Lt", ["7"], "7", False),
        ("Le", ["10"], "9", True),
        ("GtLt", ["1", "3"], "3", False),
        ("GtLt", ["1", "3"], "2", True),
        ("GeLe", ["1", "3"], "3", True),
    ],
)
def test_match_operators_behave_as_in_nfd(op, values, value, expected):
    how = {"op": op, "value": values} if values else {"op": op}
    assert holds(how, value is not None, value) == expected


def test_versions_compare_as_versions():
    how = {"op": "Ge", "value": ["5.10"], "type": "version"}
    assert holds(how, True, "5.15.1")
    assert not holds(how, True, "5.9")


@pytest.mark.parametrize(
    "how",
    [
        {"op": "Exist"},
        {"op": "In"},
        {"op": "Exists", "value": ["x"]},
        {"op": "Gt", "value": ["1", "2"]},
        {"op": "Gt", "value": ["x"]},
    ],
)
def test_invalid_expressions_are_errors_as_in_nfd(how):
    with pytest.raises(BrokenRule):
        holds(how, True, "1")


def test_a_feature_that_is_not_there_matches_nothing():
    absent = rule(matchFeatures=[term("rule.matched", x={"op": "DoesNotExist"})])
    assert run(absent) == {}
    assert run({"name": "any"}, absent) == {"a/x": "1"}


def test_match_features_are_anded_and_match_any_is_ored():
    flags = {"cpu.cpuid": {"AVX"}}
    avx, sve = term("cpu.cpuid", AVX={"op": "Exists"}), term("cpu.cpuid", SVE={"op": "Exists"})
    assert run(rule(matchFeatures=[avx]), flags=flags)
    assert not run(rule(matchFeatures=[avx, sve]), flags=flags)
    either = [{"matchFeatures": [sve]}, {"matchFeatures": [avx]}]
    assert run(rule(matchAny=either), flags=flags)
    assert not run(rule(matchAny=either, matchFeatures=[sve]), flags=flags)


def test_all_conditions_must_hold_for_one_device():
    devices = {
        "pci.device": [{"vendor": "10de", "class": "0403"}, {"vendor": "1a03", "class": "03"}]
    }
    asked = term(
        "pci.device",
        vendor={"op": "In", "value": ["10de"]},
        **{"class": {"op": "In", "value": ["03"]}},
    )
    assert not run(rule(matchFeatures=[asked]), instances=devices)
    devices["pci.device"].append({"vendor": "10de", "class": "03"})
    assert run(rule(matchFeatures=[asked]), instances=devices)


def test_rules_see_the_results_of_earlier_rules():
    first = {"name": "first", "vars": {"seen": "true"}}
    second = rule(matchFeatures=[term("rule.matched", seen={"op": "IsTrue"})])
    assert run(first, second) == {"a/x": "1"}
    assert run(second, first) == {}


def test_match_name_selects_by_name():
    by_name = {"feature": "cpu.cpuid", "matchName": {"op": "InRegexp", "value": ["^AVX512"]}}
    assert run(rule(matchFeatures=[by_name]), flags={"cpu.cpuid": {"AVX512F"}})
    assert not run(rule(matchFeatures=[by_name]), flags={"cpu.cpuid": {"AVX"}})


# Feature files ------------------------------------------------------------------------------------


def said(text):
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def test_feature_files_have_release_labels_only_for_verified_releases():
    group = make_group(("a", "b"), installs=Installs(install=("a",), up_to_date=("b",)))
    files = {name: said(text) for name, text in feature_files(make_plan((group,)), None).items()}
    hardware = {"fleetbuild.dev/class": "cpu-avx2", "fleetbuild.dev/isa": "avx2"}
    assert files["a"] == hardware
    assert files["b"].keys() > hardware.keys()
    assert files["b"]["fleetbuild.dev/group"] == "cpu-avx2-cp311"
    plan = make_plan((group,))
    told = feature_files(plan, as_planned(plan, {"a"}))
    assert "fleetbuild.dev/release" in said(told["a"])
    assert "fleetbuild.dev/release" not in said(told["b"])


def test_a_feature_file_stays_below_the_limit_of_nfd():
    labels = {f"fleetbuild.dev/package.{n:050}": "x" * 63 for n in range(450)}
    assert len(feature_file(labels)) < LIMIT
    with pytest.raises(ConfigError) as refused:
        feature_file({**labels, **{f"fleetbuild.dev/{n:060}": "x" * 63 for n in range(90)}})
    assert refused.value.fix
