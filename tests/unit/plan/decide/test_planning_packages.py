"""What --package takes, and where the packages of a run come from."""

from __future__ import annotations

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config
from fleetbuild.plan.decide.packages import choose_packages, parse_package, parse_packages
from tests.factories.fleets import inventory, node


@pytest.mark.parametrize(
    ("text", "name", "version", "path"),
    [
        ("hnswlib==0.8.0", "hnswlib", "0.8.0", None),
        (" hnswlib == 0.8.0 ", "hnswlib", "0.8.0", None),
        ("torch==2.13", "torch", "2.13", None),
        ("hnswlib", "hnswlib", None, None),
        ("./tree", None, None, "./tree"),
        ("/src/x-1.0.tar.gz", None, None, "/src/x-1.0.tar.gz"),
        ("x-1.0.zip", None, None, "x-1.0.zip"),
        ("~/src/x", None, None, "~/src/x"),
        ("file:///src/x", None, None, "/src/x"),
        ("mine @ ./tree", "mine", None, "./tree"),
        ("mine @ file:///src/x", "mine", None, "/src/x"),
        ("/src/a@b", None, None, "/src/a@b"),
    ],
)
def test_every_form_of_a_package_is_parsed(text, name, version, path):
    spec = parse_package(text)
    assert (spec.name, spec.version, spec.path) == (name, version, path)


@pytest.mark.parametrize(
    "text",
    ["", "==1", "a b", "x==", "x==one", "x>=one", "x[extra", "-x==1", "!", f"x=={'1' * 5000}",
     f"x==1 ; python_version < '{'1' * 5000}'"],
)  # fmt: skip
def test_invalid_forms_are_refused_with_the_valid_ones(text):
    with pytest.raises(ConfigError) as caught:
        parse_packages([text])
    assert "NAME==VERSION" in caught.value.fix


def test_a_package_is_named_once():
    with pytest.raises(ConfigError, match="listed twice"):
        parse_packages(["Some.Pkg==1.0", "some-pkg==2.0"])
    with pytest.raises(ConfigError, match="listed twice"):
        parse_packages(["./x", "./x"])


def test_the_command_line_comes_before_the_file_before_the_inventory():
    fleet = inventory([node("a", packages=("c==1",)), node("b", packages=("c==1",))])
    config = Config(packages=("b==1",))
    assert choose_packages(["a==1"], config, fleet) == ("a==1",)
    assert choose_packages([], config, fleet) == ("b==1",)
    assert choose_packages([], Config(), fleet) == ("c==1",)


def test_hosts_with_different_packages_are_refused_with_a_fix():
    fleet = inventory([node("a", packages=("x==1",)), node("b"), node("c", skip=True)])
    with pytest.raises(ConfigError, match=r"between a \(x==1\) and b \(none\)") as caught:
        choose_packages([], Config(), fleet)
    assert "--limit" in caught.value.fix
    assert caught.value.exit_code == 2


def test_a_release_without_packages_is_an_error():
    with pytest.raises(ConfigError, match="No package is requested"):
        choose_packages([], Config(), inventory(["a"]))
