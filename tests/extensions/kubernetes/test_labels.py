"""Labels that the API takes, whatever a fleet is called and holds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from fleetbuild.extensions.kubernetes.labels.node_labels import (
    class_labels,
    node_labels,
    release_labels,
)
from fleetbuild.extensions.kubernetes.labels.release_labels import (
    is_label_of,
    is_release_label,
    labels_by_node,
)
from fleetbuild.extensions.kubernetes.manifests.names import label_part
from fleetbuild.models import Config
from fleetbuild.models.serving import as_planned
from tests.factories.plans import make_group, make_plan, make_wheel

# apimachinery/pkg/util/validation, by its own words.
QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


def taken(labels):
    for key, value in labels.items():
        prefix, slash, name = key.partition("/")
        assert slash
        assert SUBDOMAIN.match(prefix)
        assert len(prefix) <= 253
        assert QUALIFIED_NAME.match(name)
        assert len(name) <= 63
        assert value == "" or QUALIFIED_NAME.match(value)
        assert len(value) <= 63
    return True


numbers = st.integers(0, 99999)
releases = st.lists(numbers, min_size=1, max_size=6).map(lambda each: ".".join(map(str, each)))
versions = st.builds(
    "{}{}{}{}{}{}".format,
    st.sampled_from(["", "1!"]),
    releases,
    st.sampled_from(["", "a1", "b22", "rc3"]),
    st.sampled_from(["", ".post4"]),
    st.sampled_from(["", ".dev5"]),
    st.from_regex(r"(\+[a-z0-9]+([._-][a-z0-9]+){0,12})?", fullmatch=True),
)


@given(
    versions | st.text(max_size=200),
    st.text(min_size=1, max_size=200),
    st.text(min_size=1, max_size=200),
    st.text(min_size=1, max_size=300),
    st.text(min_size=1, max_size=80),
)
def test_any_plan_gives_valid_labels(version, package, group, node, release):
    planned = make_group((node,), name=group, wheels=(make_wheel(package, version),))
    plan = make_plan((planned,), names={node: node}, release=release, package_labels=True)
    assert taken(node_labels(plan, planned))
    for name, labels in labels_by_node(plan, as_planned(plan, {node})).items():
        assert SUBDOMAIN.match(name)
        assert len(name) <= 253
        assert taken(labels.on)
        assert taken(dict.fromkeys(labels.off, ""))


@given(versions, versions)
def test_no_two_versions_have_one_label(one, other):
    values = []
    for version in (one, other):
        wheel = make_wheel("torch", str(Version(version)))
        planned = make_group(wheels=(wheel,))
        labels = release_labels(make_plan((planned,), package_labels=True), planned)
        values.append(labels["fleetbuild.dev/package.torch"])
    assert (values[0] == values[1]) == (str(Version(one)) == str(Version(other)))


def test_labels_are_hardware_or_release_labels():
    plan = make_plan()
    (group,) = plan.groups
    hardware, release = class_labels(plan, group), release_labels(plan, group)
    assert node_labels(plan, group) == dict(sorted({**hardware, **release}.items()))
    assert node_labels(plan, group, verified=False) == hardware
    assert not any(is_release_label(key, plan.label_domain) for key in hardware)
    assert all(is_release_label(key, plan.label_domain) for key in release)


@pytest.mark.parametrize("packages", [True, False])
def test_labels_of_other_nodes_are_removed(packages):
    """Those of packages also where the setting was changed."""
    plan = make_plan(package_labels=packages)
    labels = labels_by_node(plan, as_planned(plan, {"a"}))
    package = "fleetbuild.dev/package.hnswlib"
    assert (package in labels["a"].on) == packages
    assert labels["a"].off == (() if packages else (package,))
    assert set(labels["b"].off) == {*labels["a"].on, package} - labels["b"].on.keys()


DOMAIN = "fleetbuild.dev"
release_names = st.from_regex(Config.model_fields["release"].metadata[0].pattern, fullmatch=True)
packages = st.from_regex(r"[a-z0-9]{1,80}(-[a-z0-9]{1,9}){0,3}", fullmatch=True)


def labelled(release, *names):
    wheels = [make_wheel(name) for name in names]
    planned = make_group(wheels=tuple(wheels))
    plan = make_plan((planned,), release=release, package_labels=True)
    return node_labels(plan, planned)


def related(name):
    """Names that could be taken for this one, or for a part of it."""
    parts = name.split(".")
    return st.sampled_from([parts[-1], parts[0], f"{name}.{name}"[:63], label_part(name, 40)])


@given(st.data(), st.just("default") | release_names, st.lists(packages, max_size=3))
def test_labels_of_different_releases_are_distinguished(data, one, names):
    other = data.draw(st.just("default") | release_names | related(one).filter(bool))
    labels = labelled(one, *names)
    mine = {key for key in labels if is_label_of(key, one, DOMAIN)}
    assert mine == {key for key in labels if is_release_label(key, DOMAIN)}
    assert taken(labels)
    if one != other:
        assert not any(is_label_of(key, other, DOMAIN) for key in labels)
        assert not labels.keys() & labelled(other, *names).keys()


def test_dots_and_long_package_names_give_valid_labels():
    assert not is_label_of(f"{DOMAIN}/group.v1.2", "2", DOMAIN)
    assert is_label_of(f"{DOMAIN}/group.v1.2", "v1.2", DOMAIN)
    (long,) = (key for key in labelled("staging", "a" * 70) if "/package." in key)
    assert long.endswith(".staging")
    assert not is_label_of(long, "default", DOMAIN)
    assert not is_label_of("elsewhere.dev/group", "default", DOMAIN)
    assert not is_label_of(f"{DOMAIN}/class", "default", DOMAIN)
