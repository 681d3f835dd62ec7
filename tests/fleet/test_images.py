"""The groups' images are built by the script and run as the pods would run them.

No registry is asked: the base is made from the lab's own image, with pip in a virtual environment.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.extensions.kubernetes.manifests.containerfile import containers
from fleetbuild.extensions.kubernetes.manifests.options import Delivery, Way
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models import Plan
from fleetbuild.store.release_files import export_indexes, release_files
from fleetbuild.store.wheels import Store
from tests.factories.files import stocked
from tests.factories.plans import make_group, make_plan, make_wheel
from tests.factories.role_modules import plugin
from tests.lab import image as lab_image
from tests.lab.podman import as_root, podman, podman_command, ulimits

BASE = "localhost/fleetbuild-test-pip"
REPOSITORY = "localhost/fleetbuild-test-images"
PLAN = make_plan()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("base")
    image = lab_image.ensure(print)
    (folder / "Containerfile").write_text(
        f"FROM {image}\nRUN python3 -m venv /opt/py\n"
        "ENV PATH=/opt/py/bin:/usr/bin:/bin\nENTRYPOINT []\n"
    )
    podman("build", *ulimits(), "--tag", BASE, str(folder))
    return BASE


def build(folder: Path, base: str, plan: Plan, store: Store) -> None:
    """What `emit containers` writes, built by its script."""
    delivery = Delivery(image_prefix=REPOSITORY, image=base)
    export_indexes(plan, store, folder)
    for name, text in containers(plan, delivery, release_files(plan, store)).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    engine = folder / "engine"
    command, limits = shlex.join(as_root(list(podman_command()))), shlex.join(ulimits())
    engine.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec {command} "$verb" {limits} "$@"\n')
    engine.chmod(0o755)
    done = subprocess.run(
        ["sh", str(folder / "build.sh")],
        env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "ENGINE": str(engine)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The images' names. Others were built before: a cached layer must not be taken for theirs."""
    for name, says in (("before", "of before"), ("now", "0.8.0")):
        folder = tmp_path_factory.mktemp(name)
        build(folder, base, PLAN, stocked(folder, PLAN, says))
    volume = container("volume")["volumes"][0]["image"]["reference"]
    names = [container("image")["image"], volume]
    yield names
    podman("rmi", "--force", *names, check=False)


def container(way: Way, plan: Plan = PLAN, store: Store | None = None) -> dict[str, Any]:
    delivery = Delivery(way=way, kind="job", image_prefix=REPOSITORY)
    files = render(plan, delivery=delivery, wheels=release_files(plan, store) if store else None)
    pod = yaml.safe_load(files["job-cpu-avx2-cp311.yaml"])
    spec: dict[str, Any] = pod["spec"]["template"]["spec"]
    return {**spec["containers"][0], "volumes": spec["volumes"], "user": spec["securityContext"]}


def ran(made: dict[str, Any], image: str, *mounts: str) -> str:
    """The container's command, as the pod's user, on a root file system that is read-only."""
    variables = [f"--env={each['name']}={each['value']}" for each in made["env"]]
    user = f"--user={made['user']['runAsUser']}:{made['user']['runAsGroup']}"
    done = podman(
        "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", user, *variables,
        *mounts, *ulimits(), image, *made["command"], *made["args"],
    )  # fmt: skip
    return done.stdout


def test_the_groups_image_imports_its_packages(built: list[str]) -> None:
    made = container("image")
    assert ran(made, built[0]) == "hnswlib 0.8.0 /fleetbuild/site-packages/hnswlib.py\n"


def test_the_volume_image_can_be_mounted_into_any_image(built: list[str], base: str) -> None:
    made = container("volume")
    (mount, _) = made["volumeMounts"]
    option = f"--mount=type=image,source={built[1]},destination={mount['mountPath']}"
    assert ran(made, base, option) == "hnswlib 0.8.0 /fleetbuild/site-packages/hnswlib.py\n"


PUBLISHED = {"pyyaml": ("6.0.2", "yaml"), "pillow": ("11.1.0", "PIL")}


@pytest.fixture
def from_pypi(tmp_path: Path) -> tuple[Plan, Store]:
    """A plan with packages whose modules have other names, and their published wheels."""
    wheels, store = [], Store(tmp_path / "store")
    for number, (name, (version, _)) in enumerate(PUBLISHED.items()):
        platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
             "--python-version=3.11", *platforms, f"--dest={tmp_path / name}",
             f"{name}=={version}"],
            check=True,
        )  # fmt: skip
        (path,) = (tmp_path / name).iterdir()
        stamp = plugin("module_utils.builder.stamp_wheel").stamp  # as a build does
        path = Path(stamp(str(path), version, str(tmp_path)))
        planned = make_wheel(name, version, import_names=(), artifact_key=f"{number:032}")
        store.add(path, planned, built_on="a", seconds=1)
        wheels.append(planned)
    return make_plan([make_group(("a",), wheels=tuple(wheels), dependencies=())]), store


def test_the_emitted_command_imports_pyyaml_and_pillow_by_their_modules(
    from_pypi: tuple[Plan, Store], base: str, tmp_path: Path
) -> None:
    plan, store = from_pypi
    build(tmp_path / "images", base, plan, store)
    made = container("image", plan, store)
    try:
        said = ran(made, made["image"])
    finally:
        podman("rmi", "--force", made["image"], f"{made['image']}-volume", check=False)
    assert [line.split()[:2] for line in said.splitlines()] == [
        [module, version] for version, module in PUBLISHED.values()
    ]
