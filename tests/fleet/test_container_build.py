"""Builds in a container: a node with a newer C library builds for an older node, in an old image.

The image is the older node's own system. It is made here, and given to the builder's podman.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.audit import audit_wheel
from tests.factories.command_line import run_fleetbuild
from tests.factories.files import make_project
from tests.lab import Lab
from tests.lab.image import ensure
from tests.lab.podman import podman

IMAGE = "localhost/old-system:1"
# What the build sees of its surroundings is printed into its log.
SETUP = """
import os, socket
from setuptools import Extension, setup
print("interfaces:", [name for _, name in socket.if_nameindex()])
print("builds:", len(os.listdir(os.path.dirname(os.environ["HOME"].rpartition("/")[0]))))
setup(ext_modules=[Extension("threaded", ["threaded.c"], libraries=["pthread"])])
"""
# Since glibc 2.34, a program that is linked with pthread_create needs glibc 2.34.
CODE = """
#include <Python.h>
#include <pthread.h>
static void *nothing(void *argument) { return argument; }
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "threaded", 0, -1, 0};
PyMODINIT_FUNC PyInit_threaded(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, nothing, 0) || pthread_join(thread, 0)) return 0;
  return PyModule_Create(&definition);
}
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    lab = make_lab(
        {
            "nodes": {
                "builder": {
                    "hardware": "avx2",
                    "containers": True,
                    "vars": {"ansible_become": True},
                },
                "old": {"hardware": "avx", "suite": "bullseye"},
            }
        }
    )
    system = ensure(print, lab.nodes["old"].spec.system)
    copied = f"/var/lib/containers/{IMAGE.rpartition('/')[2].partition(':')[0]}.tar"
    container = lab._container("builder")
    saved = lab.folder / "image.tar"
    podman("save", "--quiet", "--output", str(saved), system)
    podman("cp", str(saved), f"{container}:{copied}")
    saved.unlink()
    lab.exec("builder", f"podman load --quiet --input {copied} && rm {copied}", check=True)
    lab.exec("builder", f"podman tag {system} {IMAGE}", check=True)
    return lab


def fleetbuild(*words: str | Path, here: Path, code: int = 0) -> str:
    done = run_fleetbuild(*words, here=here, code=code)
    return " ".join((done.stdout + done.stderr).split())


def configure(here: Path, **build: str) -> Path:
    config = here / "fleetbuild.yml"
    tree = here / "threaded"
    tree.mkdir(exist_ok=True)
    for name, text in (
        ("pyproject.toml", make_project("threaded")),
        ("setup.py", SETUP),
        ("threaded.c", CODE),
    ):
        (tree / name).write_text(text)
    settings = {"packages": [f"threaded @ {tree}"], "build": {"builders": "builder", **build}}
    config.write_text(json.dumps(settings))
    return config


def test_an_older_node_gets_a_wheel_that_a_newer_one_built_in_a_container(
    lab: Lab, tmp_path: Path
) -> None:
    config = configure(tmp_path, container=IMAGE, isolation="required")
    fleetbuild(
        "plan", lab.inventory, "--limit", "old,builder", "--config", config, here=tmp_path, code=4
    )
    plan = json.loads((tmp_path / ".fleetbuild/plan.json").read_text())
    (group,) = [group for group in plan["groups"] if "old" in group["nodes"]]
    (wheel,) = group["wheels"]
    assert wheel["built_on"] == "builder"
    assert wheel["target"]["libc"] == {"family": "glibc", "floor": "2.31"}
    assert wheel["build_pythons"]["builder"] == "/usr/bin/python3.9"
    assert IMAGE in wheel["requires"]["compiler"]
    identity = wheel["build_images"]["builder"]
    said = lab.exec("builder", f"podman image inspect --format '{{{{.Id}}}}' {IMAGE}", check=True)
    assert identity == said.stdout.strip()
    # The builder itself has another Python, which the image lacks.
    assert "no interpreter for cp311" in plan["nodes"]["builder"]["reason"]

    fleetbuild("apply", here=tmp_path, code=4)
    manifest = json.loads(
        lab.exec("old", "cat /opt/fleetbuild/current/manifest.json", check=True).stdout
    )
    assert manifest["verified"]
    log = next((tmp_path / ".fleetbuild").rglob("build.log")).read_text()
    assert "# Isolation: container, as user" in log
    assert "interfaces: ['lo']" in log
    assert "builds: 1" in log
    (path,) = (tmp_path / ".fleetbuild/store").rglob("threaded-*.whl")
    floor = audit_wheel(path).libc_floor
    assert floor is not None
    assert tuple(map(int, floor.split("."))) <= (2, 31)
    assert not lab.exec("builder", "podman ps --all --quiet", check=True).stdout
    shown = json.loads(next((tmp_path / ".fleetbuild/store").rglob("*.intoto.json")).read_text())
    assert identity in json.dumps(shown)

    # Without the image, the next plan says what to do.
    lab.exec("builder", "podman rmi --all --force", check=True)
    refused = fleetbuild(
        *("plan", lab.inventory, "--config", config, "--state-dir", tmp_path / "second"),
        here=tmp_path,
        code=4,
    )  # fmt: skip
    assert f"builder has no image {IMAGE}" in refused
    assert f"podman pull {IMAGE}" in refused
