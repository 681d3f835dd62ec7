"""The guide's commands from a cluster alone to a running pod, with kubectl, a kubelet and NFD.

The volume of the Jobs is a local one: its folder belongs to root, and the kubelet gives it to the
pods' group, as it does with the volumes of most storage classes.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.extensions.kubernetes.api.test_cluster_builds import commands_of_the_guide
from tests.factories import real_api, real_kubelet
from tests.factories.real_api import RealApi
from tests.factories.real_kubelet import ADDRESS, KUBECTL, NODE
from tests.fleet.test_built_against import CODE, project
from tests.fleet.test_images import base
from tests.lab.podman import podman

MISSING = real_kubelet.missing("nfd-master", "nfd-worker") or ("" if KUBECTL else "no kubectl")
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

__all__ = ["base"]
IMAGE = "localhost/fleetbuild-test-cluster:1"
PORT = 18742
SERVED = f"http://{ADDRESS}:{PORT}"
PATIENCE = 1500  # seconds, for the longest build
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME}
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 20Gi}
  local: {path: PATH}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]
"""
BASE_SETUP = """\
from setuptools import Extension, setup

setup(ext_modules=[Extension("fb_base", ["fb_base.c"])])
"""
# It says what a Job sees of the claim, and tries to change the wheel that it is built against.
UPPER_SETUP = """\
import os

import fb_base
from setuptools import Extension, setup

for key in os.listdir("/bases"):
    print("THE BASE", key, sorted(os.listdir(f"/bases/{key}")))
    for name in os.listdir(f"/bases/{key}"):
        try:
            open(f"/bases/{key}/{name}", "ab")
            print("THE BASE CAN BE WRITTEN")
        except OSError as error:
            print("THE BASE:", error.strerror)
print("THE OWN FOLDER", os.listdir("/wheels"))
value = str(fb_base.answer())
setup(ext_modules=[Extension("fb_upper", ["fb_upper.c"], define_macros=[("BASE", value)])])
"""
RECIPES = {
    "base.yml": "{name: base, packages: [fb-base], rungs: [x86-64, armv8], requires: []}",
    "upper.yml": "{name: upper, packages: [fb-upper], rungs: [x86-64, armv8], requires: [],\n"
    " built_against: [fb-base]}",
}


@dataclass(frozen=True)
class Release:
    """What the user asks for, and what the index has for it."""

    name: str
    packages: tuple[str, ...]
    sdists: tuple[str, ...]
    wheels: tuple[str, ...]
    policy: str = "targeted"


RELEASES = [
    Release("against a build", ("fb-upper==2.0", "fb-base==1.0"), (), ("setuptools", "wheel")),
    Release(
        "dependencies",
        ("hnswlib==0.8.0",),
        ("hnswlib==0.8.0",),
        ("numpy<3", "pybind11", "setuptools", "wheel"),
    ),
    Release(
        "against a published wheel",
        ("torch==2.13.0", "torch-scatter==2.1.2"),
        ("torch-scatter==2.1.2",),
        ("torch==2.13.0+cpu", "numpy<3", "setuptools<81", "wheel", "ninja", "packaging", "psutil"),
        policy="auto",
    ),
]


def sdist(folder: Path, pinned: str, needs: str, setup: str, value: str) -> None:
    name, _, version = pinned.partition("==")
    module = name.replace("-", "_")
    texts = {
        "pyproject.toml": project(name, version, needs),
        "setup.py": setup,
        f"{module}.c": CODE.format(module=module, value=value, includes=""),
    }
    with tarfile.open(folder / f"{module}-{version}.tar.gz", "w:gz") as archive:
        for file, text in texts.items():
            about = tarfile.TarInfo(f"{module}-{version}/{file}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))


def fill(served: Path, release: Release) -> None:
    """Write a package index: what pip gets from its own, and the sdists of two packages."""
    inbox = served / "inbox"
    inbox.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(inbox)]
    pip += ["--extra-index-url", TORCH_INDEX] if release.policy == "auto" else []
    got = subprocess.run(
        [*pip, "--only-binary=:all:", *release.wheels], capture_output=True, text=True, check=False
    )
    if got.returncode:
        pytest.skip(f"pip cannot get {', '.join(release.wheels)}: {got.stderr[-300:]}")
    for each in release.sdists:
        name, _, version = each.partition("==")
        download(name, version, inbox)
    if "fb-upper==2.0" in release.packages:
        sdist(inbox, "fb-base==1.0", "[]", BASE_SETUP, "40")
        sdist(inbox, "fb-upper==2.0", '["fb-base"]', UPPER_SETUP, "BASE")
    for file in inbox.iterdir():
        name = re.sub(r"[-_.]+", "-", file.name.rpartition("-")[0] if file.name.endswith(".tar.gz")
                      else file.name.partition("-")[0]).lower()  # fmt: skip
        (served / "simple" / name).mkdir(parents=True, exist_ok=True)
        file.replace(served / "simple" / name / file.name)


def download(name: str, version: str, inbox: Path) -> None:
    """Write a sdist of PyPI; pip would run it to get its metadata."""
    kind = {"Accept": "application/vnd.pypi.simple.v1+json"}
    asked = Request(f"https://pypi.org/simple/{name}/", headers=kind)
    with urlopen(asked, timeout=60) as answer:  # noqa: S310 (https)
        files = {each["filename"]: each["url"] for each in json.load(answer)["files"]}
    file = f"{name.replace('-', '_')}-{version}.tar.gz"
    with urlopen(files[file], timeout=60) as answer:  # noqa: S310 (https)
        (inbox / file).write_bytes(answer.read())


@pytest.fixture(scope="module")
def cluster(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """One node, with the image of builds and pods, which Node Feature Discovery looks at."""
    folder = tmp_path_factory.mktemp("cluster")
    podman("tag", base, IMAGE)
    real_kubelet.make_pause(folder)
    with real_api.serving(folder) as api, real_kubelet.kubelet(api) as containerd:
        for number, image in enumerate((IMAGE, real_kubelet.PAUSE)):
            archive = folder / f"{number}.tar"
            podman("save", "--quiet", "--format=docker-archive", f"--output={archive}", image)
            containerd.load(archive)
            archive.unlink(missing_ok=True)
        with real_kubelet.node_features(api):
            yield api
            # Pods end before their kubelet does.
            api.ask("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
    podman("rmi", "--force", IMAGE, check=False)


@pytest.fixture(scope="module")
def served(cluster: RealApi) -> Iterator[Path]:
    """A folder that is served where pods reach it: the kubelet's cluster has the address."""
    folder = cluster.folder / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((ADDRESS, PORT), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


class Shell:
    """A user's shell: commands run in a folder, and are written down with what they said."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "KUBECONFIG": str(config), "COLUMNS": "160"}

    def run(self, line: str) -> str:
        program, *words = shlex.split(line)
        ours = [sys.executable, "-m", "fleetbuild"]
        start = {"kubectl": [str(KUBECTL)], "fleetbuild": ours}[program]
        begun = time.monotonic()
        done = subprocess.run(
            [*start, *words], cwd=self.folder, env=self.environment, timeout=PATIENCE,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        print(f"$ {line}    # {time.monotonic() - begun:.1f} s\n{said}")  # noqa: T201
        assert done.returncode == 0, said
        return said


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(
            each, id=each.name.replace(" ", "-"), marks=[pytest.mark.long] * bool(each.sdists)
        )
        for each in RELEASES
    ],
)
def test_the_guides_commands_lead_from_a_cluster_alone_to_a_running_pod(
    cluster: RealApi, served: Path, tmp_path: Path, release: Release
) -> None:
    fill(served, release)
    shell = Shell(tmp_path, cluster.kubeconfig(tmp_path))
    settings = {
        "packages": list(release.packages),
        "index": [f"{SERVED}/simple"],
        "python": "3.11",
        "build": {"image": IMAGE, "libc": "glibc 2.36", "policy": release.policy},
    }
    (tmp_path / "fleetbuild.yml").write_text(yaml.safe_dump(settings))
    for name, text in RECIPES.items():
        (tmp_path / "recipes").mkdir(exist_ok=True)
        (tmp_path / "recipes" / name).write_text(text)
    (tmp_path / "disk").mkdir(mode=0o755)
    volume = VOLUME.replace("PATH", str(tmp_path / "disk")).replace("NODE", NODE)
    (tmp_path / "volume.yaml").write_text(volume.replace("NAME", release.name.replace(" ", "-")))
    shell.run("kubectl apply -f volume.yaml")
    shell.run("fleetbuild plan --from-cluster")
    for words in commands_of_the_guide():
        line = shlex.join(words).replace("NAMESPACE", "default")
        if line.startswith("fleetbuild store add"):
            shelf = tmp_path / ".fleetbuild/manifests/builds/shelf.yaml"
            for shown in re.findall(r"^# +(kubectl .*)", shelf.read_text(), re.MULTILINE):
                command = shown.replace("NAMESPACE", "default")
                shell.run(command.replace("shelf.yaml", str(shelf)))
        if line.startswith("kubectl wait"):
            finish(shell, line)
        else:
            shell.run(line)
    (plan,) = (tmp_path / ".fleetbuild").glob("plan.json")
    group = json.loads(plan.read_text())["groups"][0]["name"]
    shell.run("fleetbuild emit nfd")
    shell.run("kubectl apply -f .fleetbuild/manifests/nfd/nodefeaturerule.yaml")
    shutil.rmtree(served / "wheels", ignore_errors=True)
    shell.run(f"fleetbuild store export {served / 'wheels'}")
    shell.run(f"fleetbuild emit k8s --way init --index-url {SERVED}/wheels --image {IMAGE}")
    shell.run("kubectl apply -k .fleetbuild/manifests/k8s")
    workload = f"deployment/fleetbuild-{group.replace('.', '-')}"
    shell.run(f"kubectl rollout status {workload} --timeout=10m")
    said = shell.run(f"kubectl logs {workload}")
    for package in release.packages:
        assert f"{package.partition('==')[0].replace('-', '_')}" in said.replace("-", "_")
    for what in (workload, "job --all", "pvc --all"):
        shell.run(f"kubectl delete {what} --wait=false")


def finish(shell: Shell, line: str) -> None:
    """Wait for the Jobs, and check what a Job saw of the wheel that it builds against."""
    jobs = "kubectl get jobs -l app.kubernetes.io/managed-by=fleetbuild -o json"
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        asked = subprocess.run(
            [str(KUBECTL), *jobs.split()[1:]],
            env=shell.environment,
            capture_output=True,
            check=True,
        )
        listed = json.loads(asked.stdout)["items"]
        logs = "kubectl logs --prefix -l app.kubernetes.io/managed-by=fleetbuild --tail=60"
        if any(each["status"].get("failed") for each in listed):
            shell.run(logs)
            pytest.fail("A Job failed.")
        if all(each["status"].get("succeeded") for each in listed):
            break
        time.sleep(2)
    shell.run(line)
    for job in listed:
        if "fb-upper" in job["metadata"]["name"]:
            said = shell.run(f"kubectl logs job/{job['metadata']['name']}")
            assert re.search(r"THE BASE \w{32} \['build.json', 'fb_base-1.0.*\.whl'\]", said)
            assert "THE BASE: Read-only file system" in said
            assert "THE BASE CAN BE WRITTEN" not in said
            assert "THE OWN FOLDER []" in said
