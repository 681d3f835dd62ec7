"""A release made on a node runs in a container with another root file system.

The container is what a kubelet would make of the Deployment: its command, environment, mounts, user
and security settings are read out of the generated YAML. The image has a Python of the same ABI at
another place, no compiler and no virtual environment.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models.serving import as_planned
from tests.factories.plans import RELEASE_ID, make_group, make_plan, make_wheel
from tests.lab import image as lab_image
from tests.lab.podman import as_root, podman, ulimits

IMAGE = "localhost/fleetbuild-test-python:3.11-elsewhere-1"
RELEASE = f"/opt/fleetbuild/releases/{RELEASE_ID}"

MODULE = r"""
#include <Python.h>
#include <string>
static PyObject *libc(PyObject *, PyObject *) {
    std::string answer = std::string("built with g++ ") + __VERSION__;
    return PyUnicode_FromString(answer.c_str());
}
static PyMethodDef methods[] = {{"libc", libc, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fleetdemo", "", -1, methods};
PyMODINIT_FUNC PyInit_fleetdemo() { return PyModule_Create(&module); }
"""

# What fleetbuild does on a node: a virtual environment at its final path, with compiled code in it.
MAKE_RELEASE = f"""
set -e
umask 022
python3 -m venv --without-pip {RELEASE}
cat > /tmp/fleetdemo.cpp <<'END'
{MODULE}END
g++ -shared -fPIC -O2 $(python3-config --includes) /tmp/fleetdemo.cpp \
    -o {RELEASE}/lib/python3.11/site-packages/fleetdemo$(python3-config --extension-suffix)
{RELEASE}/bin/python -c 'import fleetdemo'
"""


@pytest.fixture(scope="module")
def image() -> str:
    """Debian with Python at another place; made once, from packages."""
    if podman("image", "exists", IMAGE, check=False).returncode == 0:
        return IMAGE
    move = (
        "mv $1/usr/bin/python3.11 $1/usr/local/bin/ && ln -sf python3.11 $1/usr/local/bin/python3"
    )
    with tempfile.TemporaryDirectory() as scratch:
        tar = Path(scratch) / "root.tar"
        hook = Path(scratch) / "hook"
        hook.write_text(f"#!/bin/sh\n{move} && rm -f $1/usr/bin/python3\n")
        hook.chmod(0o755)
        command = [
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase"),
            *("--dpkgopt=force-unsafe-io", *lab_image._host_apt_options()),
            *("--include=python3", f'--customize-hook={hook} "$1"'),
            *(lab_image.SUITE, str(tar), *lab_image._host_sources()),
        ]
        subprocess.run(as_root(command), check=True, stdin=subprocess.DEVNULL)
        podman("import", str(tar), IMAGE)
        subprocess.run(as_root(["rm", "-f", str(tar)]), check=True)
    return IMAGE


@pytest.fixture(scope="module")
def node_disk(make_lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk of a node that has a release, as this machine sees it."""
    disk = tmp_path_factory.mktemp("node-opt")
    lab = make_lab(
        {"nodes": {"maker": {"hardware": "x86-64-v2", "volumes": [f"{disk}:/opt/fleetbuild"]}}}
    )
    lab.exec("maker", MAKE_RELEASE, check=True)
    return disk


@pytest.fixture(scope="module")
def pod(image: str) -> dict[str, Any]:
    """The pod that the Deployment describes."""
    wheel = make_wheel("fleetdemo", "1.0+cpu.avx2", import_names=("fleetdemo",))
    plan = make_plan((make_group(("maker",), wheels=(wheel,)),))
    files = render(plan, delivery=Delivery(image=image), serving=as_planned(plan, {"maker"}))
    text = files["deployment-cpu-avx2-cp311.yaml"]
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    return spec


def run_options(pod: dict[str, Any], disk: Path) -> list[str]:
    """What a kubelet would do with the pod, as podman's options."""
    (container,) = pod["containers"]
    user = pod["securityContext"]
    sources = {}
    for volume in pod["volumes"]:
        if "hostPath" in volume:
            inside = Path(volume["hostPath"]["path"]).relative_to("/opt/fleetbuild")
            sources[volume["name"]] = disk / inside
            assert (disk / inside).is_dir()  # type: Directory
    options = ["--user", f"{user['runAsUser']}:{user['runAsGroup']}"]
    if container["securityContext"]["readOnlyRootFilesystem"]:
        options += ["--read-only", "--read-only-tmpfs=false"]
    options += [
        f"--cap-drop={drop}" for drop in container["securityContext"]["capabilities"]["drop"]
    ]
    options += ["--security-opt", "no-new-privileges"]
    for mount in container["volumeMounts"]:
        if mount["name"] in sources:
            mode = "ro" if mount.get("readOnly") else "rw"
            options += ["-v", f"{sources[mount['name']]}:{mount['mountPath']}:{mode}"]
        else:
            options += ["--tmpfs", f"{mount['mountPath']}:mode=1777"]
    for variable in container["env"]:
        options += ["-e", f"{variable['name']}={variable['value']}"]
    return [*options, "--network", "none", *ulimits()]


@pytest.fixture(scope="module")
def running(pod: dict[str, Any], node_disk: Path) -> Iterator[str]:
    (container,) = pod["containers"]
    entry, *command = container["command"]
    started = podman(
        "run", "-d", *run_options(pod, node_disk), "--entrypoint", entry, container["image"],
        *command, *container["args"],
    )  # fmt: skip
    name = started.stdout.strip()
    try:
        yield name
    finally:
        podman("rm", "-f", "-t", "0", name)


def probe(name: str, pod: dict[str, Any]) -> bool:
    command = pod["containers"][0]["readinessProbe"]["exec"]["command"]
    return podman("exec", name, *command, check=False).returncode == 0


def test_the_image_has_no_python_for_the_virtual_environment(running: str) -> None:
    there = podman("exec", running, f"{RELEASE}/bin/python", "-c", "", check=False)
    assert there.returncode != 0
    assert podman("exec", running, "g++", "--version", check=False).returncode != 0


def test_the_images_python_imports_the_packages_of_the_release(
    running: str, pod: dict[str, Any]
) -> None:
    deadline = time.monotonic() + 60
    while not probe(running, pod):
        logs = podman("logs", running, check=False)
        assert time.monotonic() < deadline, logs.stdout + logs.stderr
        time.sleep(0.2)
    name, _, path = podman("logs", running).stdout.splitlines()[0].split()
    assert name == "fleetdemo"
    assert path.startswith(f"{RELEASE}/lib/python3.11/site-packages/fleetdemo.cpython-311")
    told = podman("exec", running, "python3", "-c", "import fleetdemo; print(fleetdemo.libc())")
    assert told.stdout.startswith("built with g++ ")


def test_the_pod_cannot_change_the_release(running: str) -> None:
    for path in (RELEASE, "/etc"):
        written = podman("exec", running, "touch", f"{path}/x", check=False)
        assert "Read-only file system" in written.stderr


def test_the_smoke_pod_stops_on_sigterm(running: str) -> None:
    podman("stop", "-t", "30", running)  # killed after that time, it would end with 137
    assert podman("inspect", "-f", "{{.State.ExitCode}}", running).stdout.strip() == "0"
