"""The init container's script, run with a real pip at a real index that the store exported."""

import hashlib
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models import ReleaseFile
from fleetbuild.store.release_files import export_indexes, release_files
from tests.factories.files import stocked
from tests.factories.plans import make_plan


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        del args


@pytest.fixture
def served(tmp_path):
    """An export of a store with one wheel, and where it is served; the store."""
    plan = make_plan()
    store = stocked(tmp_path, plan)
    export_indexes(plan, store, tmp_path / "export")
    handler = partial(Quiet, directory=str(tmp_path / "export"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", plan, store
        server.shutdown()


def install(url, plan, wheels, home):
    """Run the script as the kubelet would, but for the place of the volume."""
    delivery = Delivery(way="init", kind="job", index_url=url)
    text = render(plan, delivery=delivery, wheels=wheels)["job-cpu-avx2-cp311.yaml"]
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    (installer,) = pod["initContainers"]
    script = installer["command"][2].replace("=/fleetbuild/", f"={home}/")
    assert script.count(str(home)) == 2
    environment = {each["name"]: each["value"] for each in installer["env"]}
    python = os.path.dirname(sys.executable)  # noqa: PTH120 not resolved: it is a virtual one
    done = subprocess.run(
        [*installer["command"][:2], script],
        env={"PATH": f"{python}:/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, pod["containers"][0]


def test_the_init_container_installs_from_the_export(served, tmp_path):
    url, plan, store = served
    home = tmp_path / "volume"
    for _ in range(2):  # a container that is started again finds what the last one left
        done, smoke = install(url, plan, release_files(plan, store), home)
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in home.iterdir()) == ["site-packages"]
    path = smoke["env"][0]["value"].replace("/fleetbuild", str(home))
    ran = subprocess.run(
        [sys.executable, *smoke["command"][1:], *smoke["args"]],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"hnswlib 0.8.0 {path}/hnswlib.py\n"


def test_a_file_with_another_hash_is_not_installed(served, tmp_path):
    url, plan, _ = served
    wrong = hashlib.sha256(b"another").hexdigest()
    wheels = {
        "cpu-avx2-cp311": [ReleaseFile("hnswlib", Path("hnswlib-0.8.0+cpu.avx2-cp311.whl"), wrong)]
    }
    done, _ = install(url, plan, wheels, tmp_path / "volume")
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "volume" / "site-packages").exists()
