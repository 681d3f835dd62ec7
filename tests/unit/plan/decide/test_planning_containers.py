"""Builds in a container: the image's software counts on the node that builds, not the node's."""

from __future__ import annotations

from typing import Any

import pytest

from fleetbuild.apply.pending import NoBuilder, choose_builder
from fleetbuild.cli.show.plan import plan_ending
from fleetbuild.models import Config, Container, Libc, Python
from tests.factories.fleets import drafted, facts, package, planned, recipe_of

IMAGE, ID = "example.org/old:1", "5" * 64
CONFIG = Config.model_validate({"build": {"container": IMAGE, "builders": "strong"}})
INSIDE = Python(
    path="/opt/python/cp311/bin/python3.11",
    version="3.11.9",
    soabi="cpython-311-x86_64-linux-gnu",
    venv=True,
    headers=True,
)
APART = Container(image=IMAGE, problem="is not among build.builders")


def image(libc: str = "glibc 2.28", **more: Any) -> Container:
    family, version = libc.split()
    tools = {"gcc": ("14.2.1",), "g++": ("14.2.1",)}
    known = {
        "libc": Libc.model_validate({"family": family, "version": version}),
        "pythons": (INSIDE,),
        "toolchain": tools,
    }
    return Container(image=IMAGE, id=ID, **{**known, **more})


def fleet(container: Container) -> dict[str, Any]:
    """A node with an old C library, and a builder with a new one, in two groups."""
    return {
        "old": facts("avx2", libc="2.31", toolchain={}, container=APART),
        "strong": facts("avx512", libc="2.41", cpus=64, container=container),
    }


def test_a_builder_with_a_newer_libc_builds_in_an_older_image() -> None:
    plan = planned(fleet(image()), config=CONFIG, builders=["strong"])
    (wheel,) = plan.groups_by_node["old"].wheels
    assert (wheel.built_on, wheel.fallbacks, wheel.action) == ("strong", (), "build")
    assert wheel.target.libc.floor == "2.31"
    assert wheel.build_images == {"strong": ID}
    assert wheel.build_pythons == {"strong": INSIDE.path}
    assert wheel.requires.compiler == f"gcc 14.2.1 (in {IMAGE}, image 555555555555)"
    assert wheel.requires.to_supply == ()
    assert plan.build_container == IMAGE
    said = f"Builds on strong run in a container of {IMAGE}, image 555555555555."
    assert said in plan_ending(plan)


def test_without_a_container_the_same_builder_is_refused() -> None:
    known = {
        name: each.model_copy(update={"container": None}) for name, each in fleet(image()).items()
    }
    plan = planned(known, builders=["strong"])
    (wheel,) = plan.groups_by_node["old"].wheels
    assert (wheel.built_on, wheel.build_images, plan.build_container) == ("old", {}, None)


@pytest.mark.parametrize(
    ("container", "says"),
    [
        (image("glibc 2.34"), f"{IMAGE} on strong has glibc 2.34, newer than the group's."),
        (image(pythons=()), f"{IMAGE} on strong has no interpreter for cp311."),
        (
            image(pythons=(INSIDE.model_copy(update={"venv": False}),)),
            f"{IMAGE} on strong has cp311 only without venv or zlib.",
        ),
        (image("musl 1.2.5"), f"{IMAGE} on strong has musl."),
        (
            Container(image=IMAGE, problem="has no podman", fix="Install it."),
            "strong has no podman.",
        ),
    ],
)
def test_a_group_that_no_image_suits_is_blocked(container: Container, says: str) -> None:
    plan = planned(fleet(container), config=CONFIG, builders=["strong"])
    node = plan.nodes["old"]
    assert node.state == "blocked"
    assert node.reason is not None
    assert node.reason.startswith("No node can build for cpu-avx2-cp311 in the image")
    assert says in node.reason
    assert node.fix == (container.fix or (
        "Name an image with Python 3.11 and glibc 2.31 or older in build.container, or remove it"
        " and build on the nodes themselves."
    ))  # fmt: skip


def test_a_gcc_beside_the_default_one_of_the_image_builds() -> None:
    recipe = recipe_of("bf", "avx2", "avx512bf16", more="sources: [sdist]\n")
    old = {"gcc": ("9.4.0",), "g++": ("9.4.0",)}
    for tools, compiler, problems in (
        (old | {"gcc-12": ("12.3.0",)}, "gcc 12.3.0", 0),
        (old, "gcc 9.4.0", 1),
    ):
        nodes = {"strong": facts("avx512bf16", container=image(toolchain=tools))}
        plan = planned(
            nodes, packages=[package("bf", recipe=recipe)], config=CONFIG, builders=["strong"]
        )
        (wheel,) = plan.groups[0].wheels
        assert wheel.requires.compiler.startswith(f"{compiler} (in {IMAGE}, ")
        assert len(wheel.requires.to_supply) == problems


def test_what_the_image_lacks_is_to_be_supplied() -> None:
    bare = image(
        toolchain={"cmake": ("3.10",)},
        pythons=(INSIDE.model_copy(update={"headers": False, "ensurepip": False}),),
    )
    recipe = recipe_of("made", "avx2", more="tools: {cmake: '3.20', cargo: ''}\n")
    made = drafted(
        fleet(bare), [package("made", recipe=recipe)], config=CONFIG, builders=["strong"]
    )
    assert made.wheels
    plan = planned(
        fleet(bare), packages=[package("made", recipe=recipe)], config=CONFIG, builders=["strong"],
        sources=(),
    )  # fmt: skip
    (wheel,) = plan.groups_by_node["old"].wheels
    assert wheel.requires.to_supply == (
        f"The image {IMAGE} has no gcc and g++: name an image with compilers in build.container.",
        (
            f"The image {IMAGE} has no ensurepip of Python 3.11: install it in it (Debian, Ubuntu:"
            " python3-venv)."
        ),
        f"The image {IMAGE} has no headers of Python 3.11 (Python.h): install them in it.",
        f"The image {IMAGE} has no cargo, which the recipe made needs: install it in the image.",
        (
            f"The image {IMAGE} has cmake 3.10, but the recipe made needs 3.20 or newer: install"
            " that in the image."
        ),
    )


def test_a_member_builds_for_its_group_only_in_the_image() -> None:
    known = {
        "a": facts("avx2", libc="2.31", container=image("glibc 2.31")),
        "b": facts("avx2", libc="2.31", container=Container(image=IMAGE, problem="has no podman")),
    }
    plan = planned(known, config=Config.model_validate({"build": {"container": IMAGE}}))
    (wheel,) = plan.groups_by_node["b"].wheels
    assert (wheel.built_on, wheel.fallbacks) == ("a", ())
    assert not [warning for warning in plan.warnings if "podman" in warning]


def test_a_node_that_makes_no_namespaces_isolates_in_a_container() -> None:
    known = fleet(image())
    known["strong"] = known["strong"].model_copy(update={"can_isolate": False})
    required = Config.model_validate({"build": {"container": IMAGE, "isolation": "required"}})
    plan = planned(known, config=required, builders=["strong"])
    assert plan.nodes["old"].state == "ok"


def test_apply_does_not_compare_the_builders_own_libc() -> None:
    plan = planned(fleet(image()), config=CONFIG, builders=["strong"])
    (wheel,) = plan.groups_by_node["old"].wheels
    now = {"strong": facts("avx512", libc="2.41")}
    assert choose_builder(wheel, now) == "strong"
    alone = wheel.model_copy(update={"build_images": {}})
    assert isinstance(choose_builder(alone, now), NoBuilder)
