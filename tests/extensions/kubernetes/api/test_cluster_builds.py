"""Builds as Jobs: the manifests, what the Jobs run, and what comes back of them."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from fleetbuild.cli import app
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.extensions.kubernetes.cluster_builds import (
    BuildInputs,
    add_built_wheels,
    cluster_builds,
)
from fleetbuild.models import (
    LockedFile,
    Plan,
    PlannedWheel,
    Requires,
)  # fmt: skip
from fleetbuild.plan.document.serialize import dump_plan, with_digest
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store
from tests.factories.files import own_backend
from tests.factories.plans import make_group, make_plan, make_target, make_wheel
from tests.factories.role_modules import plugin
from tests.factories.schemas import NEWEST, OLDEST, accept

pytestmark = pytest.mark.no_cover
ROOT = Path(__file__).parents[4]
TARGET = make_target("x86-64", "2.40", python=f"cp3{sys.version_info.minor}")
KEY, NEXT = "a" * 32, "b" * 32


def file(name: str, url: str = "https://index.example.com", content: bytes = b"") -> LockedFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return LockedFile(name=name, version="1", file=name, sha256=sha256, url=f"{url}/{name}")


def wheel(**changes: Any) -> PlannedWheel:
    return make_wheel(
        **{
            "package": "tiny",
            "wheel_version": "1.0+cpu.x8664",
            "target": TARGET,
            "artifact_key": KEY,
            "built_on": "n1",
            "fallbacks": ("n2",),
            "build_pythons": {"n1": "/usr/local/bin/python3", "n2": "/usr/local/bin/python3"},
            "jobs": 4,
            "environment": {"CFLAGS": "-O2", "CXXFLAGS": "-O2"},
            "requires": Requires(compiler="gcc", memory_gb=3.7, disk_gb=2),
            "source": file("tiny-1.0.tar.gz"),
            "build_dependencies": (file("setuptools.whl"),),
            **changes,
        }
    )


def plan_of(*wheels: PlannedWheel, **changes: Any) -> Plan:
    group = make_group(("n1", "n2"), TARGET, wheels)
    values = {
        "groups": (group,),
        "names": {name: f"kube-{name}" for name in group.nodes},
        "inventory": "cluster:c",
        "facts_source": "cluster",
        "build_image": "python:3.11-bookworm",
    }
    return with_digest(make_plan(**{**values, **changes}))


def documents(files: dict[str, str]) -> list[dict[str, Any]]:
    manifests = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in manifests for each in yaml.safe_load_all(text)]


def job_of(files: dict[str, str], number: int = 0) -> dict[str, Any]:
    jobs = [each for each in documents(files) if each["kind"] == "Job"]
    return jobs[number]


# Manifests.


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_manifest_is_valid_yaml(version: str) -> None:
    files, warnings = cluster_builds(plan_of(wheel()))
    assert not warnings
    for each in documents(files):
        if each["kind"] != "Kustomization":
            accept(each, version)
    listed = yaml.safe_load(files["kustomization.yaml"])["resources"]
    assert {*listed, "kustomization.yaml", "shelf.yaml", "wait.sh"} == files.keys()
    assert cluster_builds(plan_of(wheel())) == (files, warnings)


@pytest.mark.parametrize(
    ("ends", "code", "said"), [("Complete", 0, ""), ("FailureTarget Failed", 1, "failed. Its log")]
)
def test_the_wait_ends_when_a_job_has_failed(
    tmp_path: Path, ends: str, code: int, said: str
) -> None:
    files, _ = cluster_builds(plan_of(wheel(), wheel(package="other", artifact_key=NEXT)))
    one, other = sorted(job["metadata"]["name"] for job in documents(files) if job["kind"] == "Job")
    (tmp_path / "wait.sh").write_text(files["wait.sh"])
    kubectl = tmp_path / "kubectl"
    # The first Job ends at once, the second one at the third question.
    kubectl.write_text(
        f'#!/bin/sh\nprintf "%s;" "$@" >>{tmp_path}/asked\n'
        f'echo "{one} {ends}"\n[ "$(grep -o jobs {tmp_path}/asked | wc -l)" -lt 3 ]'
        f' && echo "{other} " || echo "{other} SuccessCriteriaMet Complete"\n'
    )
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    for program in ("kubectl", "sleep"):
        (tmp_path / program).chmod(0o755)
    ran = subprocess.run(
        ["sh", "wait.sh", "-n", "team"], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    assert said in ran.stdout
    assert (one in ran.stdout) == bool(code)
    asked = (tmp_path / "asked").read_text().split("get;jobs;")[1:]
    assert len(asked) == 3
    assert asked[0].startswith(f"{one};{other};-n;team;-o;jsonpath=")


def test_a_job_runs_only_on_the_plans_builders() -> None:
    files, _ = cluster_builds(plan_of(wheel()))
    pod = job_of(files)["spec"]["template"]["spec"]
    affinity = pod["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in required] == [["kube-n1"], ["kube-n2"]]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"] == required[0]
    (container,) = pod["containers"]
    assert container["image"] == "python:3.11-bookworm"
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_other_builders_give_the_job_another_name() -> None:
    def name(**changes: Any) -> str:
        return str(job_of(cluster_builds(plan_of(wheel(**changes)))[0])["metadata"]["name"])

    assert name() == name()
    assert name() != name(built_on="n2", fallbacks=())
    assert len(name(package="p" * 80)) <= 63


def test_a_jobs_requests_fit_each_of_its_nodes() -> None:
    """One compiler fits anywhere; how many run at once is known when the node is."""
    files, _ = cluster_builds(plan_of(wheel(build_jobs={"n1": 15, "n2": 2}, jobs=15)))
    (container,) = job_of(files)["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "3789Mi"},
        "limits": {"memory": "56832Mi"},  # of 15
    }
    (job,) = [each for each in documents(files) if "job.json" in each.get("data", {})]
    assert json.loads(job["data"]["job.json"])["jobs"] == {"kube-n1": 15, "kube-n2": 2}


def test_no_job_runs_where_taints_keep_pods_away() -> None:
    made = plan_of(wheel())
    tainted = made.nodes["n1"].model_copy(update={"taints": ("dedicated",)})
    files, warnings = cluster_builds(
        made.model_copy(update={"nodes": {**made.nodes, "n1": tainted}})
    )
    assert not warnings
    affinity = job_of(files)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["kube-n2"]
    nodes = dict.fromkeys(made.nodes, tainted)
    with pytest.raises(BlockedError, match="tolerate dedicated run on n1, and no other Node"):
        cluster_builds(made.model_copy(update={"nodes": nodes}))


def test_each_shown_command_names_the_namespace() -> None:
    """The claim lies where the Jobs were applied to, which need not be the default."""
    files, _ = cluster_builds(plan_of(wheel()))
    lines = "\n".join(files.values()).splitlines()
    told = [line for line in lines if line.startswith("#") and "kubectl " in line]
    assert len(told) == 5
    assert all("NAMESPACE" in line for line in told), told


def test_a_wheel_of_two_groups_is_one_job() -> None:
    gpu = wheel(target=TARGET.model_copy(update={"sms": ("8.6",)}))
    first = plan_of(gpu).groups[0]
    two = plan_of(gpu, groups=(first, first.model_copy(update={"name": "other"})))
    files, _ = cluster_builds(two)
    assert len([each for each in documents(files) if each["kind"] == "Job"]) == 1
    assert "for cpu-x86-64" in next(text for name, text in files.items() if "tiny" in name)


@pytest.mark.parametrize(
    "source",
    [
        file("t.tar.gz", "file:///home/me"),
        LockedFile(name="t", version="1", file="t.tar.gz", sha256="", url="git+https://g@abc"),
    ],
)
def test_a_wheel_whose_files_pods_cannot_fetch_is_left_out_with_a_warning(
    source: LockedFile,
) -> None:
    other = wheel(artifact_key=NEXT, package="other", source=source)
    files, warnings = cluster_builds(plan_of(wheel(), other))
    assert len(warnings) == 1
    what, _, fix = warnings[0].partition(" No Job builds it. ")
    assert what == f"other 1.0+cpu.x8664: pods cannot fetch t.tar.gz from {source.url}."
    assert "add it under index: in fleetbuild.yml" in fix
    assert not any("other" in name for name in files)
    with pytest.raises(BlockedError, match="pods cannot fetch") as problem:
        cluster_builds(plan_of(other))
    assert problem.value.fix == fix


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"build_image": None}, "no build image"),
        ({"lock": "missing", "lock_problem": "no index"}, "no index"),
        ({"groups": ()}, "The plan builds nothing"),
    ],
)
def test_plans_that_cannot_be_built_in_a_cluster_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BlockedError, match=said):
        cluster_builds(plan_of(wheel(), **changes))


# What a Job runs, without its container: the same programs, files and arguments.


# A build backend of its own: setuptools does not come with every Python.
PYPROJECT = own_backend("backend", '["helper"]')
BACKEND = """
import os, subprocess, sys, sysconfig, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    print("compilers:", os.environ["MAX_JOBS"])
    module = "tiny" + sysconfig.get_config_var("EXT_SUFFIX")
    include = "-I" + sysconfig.get_path("include")
    flags = ["-fPIC", *os.environ["CFLAGS"].split(), include]
    subprocess.run(["gcc", "-c", *flags, "tiny.c", "-o", "tiny.o"], check=True)
    subprocess.run(["gcc", "-shared", "tiny.o", "-o", module], check=True)
    abi = f"cp3{sys.version_info.minor}"
    tag = f"{abi}-{abi}-linux_x86_64"
    with zipfile.ZipFile(os.path.join(directory, f"tiny-1.0-{tag}.whl"), "w") as made:
        made.write(module)
        made.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\n"
                      "Version: 1.0\\n")
        made.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\n"
                      f"Root-Is-Purelib: false\\nTag: {tag}\\n")
        made.writestr("tiny-1.0.dist-info/RECORD", "")
    return f"tiny-1.0-{tag}.whl"
"""
CODE = """
#include <Python.h>
static struct PyModuleDef it = {PyModuleDef_HEAD_INIT, "tiny", 0, -1, 0};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&it); }
"""


def sdist(backend: str = BACKEND) -> bytes:
    out = io.BytesIO()
    texts = {"pyproject.toml": PYPROJECT, "backend.py": backend, "tiny.c": CODE}
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in texts.items():
            about = tarfile.TarInfo(f"tiny-1.0/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    return out.getvalue()


def a_wheel(name: str, version: str = "1", code: str = "") -> bytes:
    """A wheel of a module of this code, or of nothing but its metadata."""
    out, info = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(out, "w") as made:
        if code:
            made.writestr(f"{name}.py", code)
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\n"
                      f"Version: {version}\n")  # fmt: skip
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
                      "Root-Is-Purelib: true\n")  # fmt: skip
        made.writestr(f"{info}/RECORD", "")
    return out.getvalue()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "index"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def as_in_a_pod(
    files: dict[str, str], folder: Path, number: int = 0, through: Sequence[str] = ()
) -> Any:
    """Run a Job's command with its volumes as folders; its PVC is `folder`/wheels."""
    job = job_of(files, number)
    pod = job["spec"]["template"]["spec"]
    maps = {
        each["metadata"]["name"]: each for each in documents(files) if each["kind"] == "ConfigMap"
    }
    paths = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        volume = next(each for each in pod["volumes"] if each["name"] == mount["name"])
        shared = "persistentVolumeClaim" in volume
        home = folder / str(number) / mount["name"]
        if shared:
            home = folder / "wheels" / mount["subPath"]
        home.mkdir(parents=True, exist_ok=True)
        paths[mount["mountPath"]] = home
        if "configMap" in volume:
            data = maps[volume["configMap"]["name"]]["data"]
            items = volume["configMap"].get("items") or [{"key": k, "path": k} for k in data]
            for item in items:
                (home / item["path"]).parent.mkdir(parents=True, exist_ok=True)
                (home / item["path"]).write_text(data[item["key"]])
    paths["/bases"] = folder / "wheels"
    python, *words = pod["containers"][0]["command"]
    command = [*through, python]
    for word in words:
        mounted = next((path for path in paths if word == path or word.startswith(f"{path}/")), "")
        command.append(str(paths[mounted]) + word.removeprefix(mounted) if mounted else word)
    env = {"PATH": os.environ["PATH"], "NODE": "kube-n1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, timeout=300
    )


@pytest.fixture
def buildable(index: str, tmp_path: Path) -> Plan:
    """A plan whose pods find all that they want, and its own Python in place of the image's."""
    (tmp_path / "index" / "tiny-1.0.tar.gz").write_bytes(sdist())
    (tmp_path / "index" / "helper-1-py3-none-any.whl").write_bytes(a_wheel("helper"))
    found = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    sources = {name: file(name, index, content) for name, content in found.items()}
    return plan_of(
        wheel(
            build_pythons={"n1": sys.executable},
            build_jobs={"n1": 3, "n2": 1},
            source=sources["tiny-1.0.tar.gz"],
            build_dependencies=(sources["helper-1-py3-none-any.whl"],),
        )
    )


@pytest.fixture(scope="module")
def kept_claim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claim") / "wheels"


@pytest.fixture
def claim(buildable: Plan, kept_claim: Path, tmp_path: Path) -> Path:
    """The claim as the Job of `buildable` leaves it. The Job runs once for all tests."""
    if not kept_claim.exists():
        ran = as_in_a_pod(cluster_builds(buildable)[0], tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        shutil.copytree(tmp_path / "wheels", kept_claim)
    shutil.copytree(kept_claim, tmp_path / "wheels", dirs_exist_ok=True)
    return tmp_path / "wheels"


def test_a_job_builds_the_planned_wheel(buildable: Plan, tmp_path: Path) -> None:
    files, _ = cluster_builds(buildable)
    ran = as_in_a_pod(files, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (built,) = (tmp_path / "wheels" / KEY).glob("*.whl")
    assert built.name.startswith("tiny-1.0+cpu.x8664-cp3")
    assert json.loads((built.parent / "build.json").read_text())["node"] == "kube-n1"
    assert "compilers: 3" in ran.stdout
    again = as_in_a_pod(files, tmp_path)
    assert (again.returncode, "is already in the claim" in again.stdout) == (0, True)

    state = StateDir(tmp_path / "state").create()
    state.plan_file.write_text(dump_plan(buildable))
    words = ["store", "add", str(tmp_path / "wheels"), "--state-dir", str(state.root)]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "built: tiny-1.0+cpu.x8664 on kube-n1" in told.output
    assert "1 wheel taken in, 0 refused." in told.output
    stored = Store(state.store).find(buildable.groups[0].wheels[0])
    assert stored
    assert stored.provenance.built_on == "kube-n1"


def test_a_wheel_that_its_job_did_not_report_is_refused(
    buildable: Plan, claim: Path, tmp_path: Path
) -> None:
    """A file that something else put into the claim is neither stored nor built against."""
    files, _ = cluster_builds(buildable)
    home, store = claim / KEY, Store(tmp_path / "store")
    (built,) = home.glob("*.whl")
    forged = a_wheel("tiny")
    built.write_bytes(forged)
    (refused,) = add_built_wheels(buildable, claim, store)
    assert (refused.state, store.list()) == ("refused", ())
    assert "not the wheel whose hash its Job reports" in str(refused.reason)
    assert as_in_a_pod(files, tmp_path).returncode == 0  # it is not taken for a finished build
    assert next(home.glob("*.whl")).read_bytes() != forged
    (stored,) = add_built_wheels(buildable, claim, store)
    assert stored.state == "built"
    os.truncate(home / "build.json", 1 << 40)  # more than any memory
    (refused,) = add_built_wheels(buildable, claim, store)
    assert refused.state == "refused"


def test_a_job_mounts_its_own_folder_and_reads_its_bases_folders() -> None:
    upper = wheel(package="upper", artifact_key=NEXT, built_against=(KEY,))
    files, _ = cluster_builds(plan_of(wheel(), upper))
    claims = []
    for number in (0, 1):
        (container,) = job_of(files, number)["spec"]["template"]["spec"]["containers"]
        claims.append([each for each in container["volumeMounts"] if each["name"] == "wheels"])
    own = {"name": "wheels", "mountPath": "/wheels"}
    cache = {"name": "wheels", "mountPath": "/cache"}
    base = {"name": "wheels", "mountPath": f"/bases/{KEY}", "subPath": KEY, "readOnly": True}
    assert sorted(claims, key=len) == [
        [{**own, "subPath": KEY}, {**cache, "subPath": "ccache/tiny"}],
        [{**own, "subPath": NEXT}, {**cache, "subPath": "ccache/upper"}, base],
    ]


def test_the_pod_that_hands_out_wheels_mounts_no_compiler_cache() -> None:
    files, _ = cluster_builds(plan_of(wheel(), wheel(package="upper", artifact_key=NEXT)))
    (container,) = yaml.safe_load(files["shelf.yaml"])["spec"]["containers"]
    mounts = [(each["mountPath"], each["subPath"]) for each in container["volumeMounts"]]
    assert sorted(mounts) == sorted([(f"/wheels/{KEY}", KEY), (f"/wheels/{NEXT}", NEXT)])


def test_a_job_finds_what_another_job_of_its_package_compiled(
    buildable: Plan, tmp_path: Path
) -> None:
    def reused(plan: Plan) -> str:
        ran = as_in_a_pod(cluster_builds(plan)[0], tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        shutil.rmtree(tmp_path / "0")  # a pod's own volumes end with it
        shutil.rmtree(tmp_path / "wheels" / KEY)
        return "".join(line for line in ran.stdout.splitlines() if "compiler cache" in line)

    assert reused(buildable) == ""
    assert reused(buildable) == "# From the compiler cache: 1 of 1 files."
    assert reused(buildable.model_copy(update={"cache": "none"})) == ""


def test_a_jobs_deadline_includes_the_builds_that_it_waits_for() -> None:
    first = wheel(minutes=400)
    second = wheel(minutes=10, artifact_key=NEXT, built_against=(KEY,))
    files, _ = cluster_builds(plan_of(first, second))
    jobs = {each["metadata"]["name"]: each for each in documents(files) if each["kind"] == "Job"}
    told = [json.loads(each["data"]["job.json"]) for each in documents(files)
            if each["kind"] == "ConfigMap" and "job.json" in each["data"]]  # fmt: skip
    times = {each["key"]: (each["params"]["timeout"], each["patience"]) for each in told}
    assert times == {KEY: (72_000, 0), NEXT: (14_400, 72_000)}
    limits = sorted(job["spec"]["activeDeadlineSeconds"] for job in jobs.values())
    assert limits == [72_000, 86_400]


def test_required_libraries_of_the_image_are_listed() -> None:
    libraries = {"openblas": "OpenBLAS", "cuda": "the libraries of CUDA 11.4"}
    needs = Requires(compiler="gcc", libraries=libraries)
    _, (warning,) = cluster_builds(plan_of(wheel(requires=needs)))
    assert warning == (
        "tiny 1.0+cpu.x8664 is built with OpenBLAS: python:3.11-bookworm must contain it, with its "
        "headers."
    )


def test_required_tools_of_the_image_are_listed_once() -> None:
    needs = Requires(compiler="gcc", in_image=("the image has to hold the CUDA toolkit 13.0.",))
    other = wheel(requires=needs, artifact_key=NEXT, package="other")
    _, told = cluster_builds(plan_of(wheel(requires=needs), other))
    assert told == needs.in_image


def test_a_job_waits_for_the_wheels_that_it_is_built_against(
    buildable: Plan, tmp_path: Path
) -> None:
    first = buildable.groups[0].wheels[0]
    second = first.model_copy(update={"artifact_key": NEXT, "built_against": (KEY,)})
    files, _ = cluster_builds(plan_of(first, second))
    jobs = {
        json.loads(each["data"]["job.json"])["key"]: each
        for each in documents(files)
        if each["kind"] == "ConfigMap" and "job.json" in each["data"]
    }
    about = json.loads(jobs[NEXT]["data"]["job.json"])
    assert (about["bases"], about["params"]["pins"]) == ([KEY], ["tiny==1.0+cpu.x8664"])
    hurried = {
        name: text.replace('"patience": 14400', '"patience": 0') for name, text in files.items()
    }
    lonely = as_in_a_pod(hurried, tmp_path, 1)
    assert lonely.returncode == 1
    assert "look at the Job that builds it" in lonely.stderr
    assert as_in_a_pod(files, tmp_path, 0).returncode == 0
    ran = as_in_a_pod(files, tmp_path, 1)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (built,) = (tmp_path / "wheels" / NEXT).glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        metadata = next(name for name in opened.namelist() if name.endswith("/METADATA"))
        assert b"Requires-Dist: tiny==1.0+cpu.x8664" in opened.read(metadata)


@pytest.fixture
def against_published(index: str, tmp_path: Path) -> Plan:
    """torch is taken from the index, and torch-scatter is built against it."""
    backend = BACKEND.replace(
        "import os", "import torch\nprint('torch', torch.__version__)\nimport os"
    )
    sources = {
        "torch_scatter-1.0.tar.gz": sdist(backend.replace('"tiny-1.0', '"torch_scatter-1.0')
                                          .replace("f\"tiny-1.0", "f\"torch_scatter-1.0")
                                          .replace("Name: tiny", "Name: torch-scatter")),
        "torch-2.13.0+cpu-py3-none-any.whl": a_wheel(
            "torch", "2.13.0+cpu", "__version__ = '2.13.0+cpu'\n"
        ),
        "helper-1-py3-none-any.whl": a_wheel("helper"),
    }  # fmt: skip
    for name, content in sources.items():
        (tmp_path / "index" / name).write_bytes(content)
    files = {name: file(name, index, content) for name, content in sources.items()}
    published = files["torch-2.13.0+cpu-py3-none-any.whl"]
    published = published.model_copy(update={"name": "torch", "version": "2.13.0+cpu"})
    torch = wheel(
        package="torch", version="2.13.0", wheel_version="2.13.0+cpu", action="published",
        published=published, artifact_key=NEXT, source=None, build_dependencies=(),
        built_on=None, fallbacks=(), build_pythons={},
    )  # fmt: skip
    scatter = wheel(
        package="torch-scatter", version="1.0", built_against=(NEXT,),
        build_pythons={"n1": sys.executable}, build_jobs={"n1": 3, "n2": 1},
        source=files["torch_scatter-1.0.tar.gz"],
        build_dependencies=(files["helper-1-py3-none-any.whl"],),
    )  # fmt: skip
    return plan_of(torch, scatter)


def test_a_job_downloads_the_published_wheel_that_it_is_built_against(
    against_published: Plan, tmp_path: Path
) -> None:
    files, warnings = cluster_builds(against_published)
    assert not warnings
    (about,) = (
        json.loads(each["data"]["job.json"])
        for each in documents(files)
        if each["kind"] == "ConfigMap" and "job.json" in each["data"]
    )
    assert (about["bases"], about["patience"]) == ([], 0)  # no Job builds torch
    ran = as_in_a_pod(files, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "torch 2.13.0+cpu" in ran.stdout
    (built,) = (tmp_path / "wheels" / KEY).glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        metadata = next(name for name in opened.namelist() if name.endswith("/METADATA"))
        assert b"Requires-Dist: torch==2.13.0+cpu" in opened.read(metadata)


def test_a_base_wheel_of_an_earlier_plan_is_a_warning() -> None:
    base = wheel(action="reuse")
    upper = wheel(package="upper", artifact_key=NEXT, built_against=(KEY,))
    files, (warning,) = cluster_builds(plan_of(base, upper))
    assert f"must still have it in its folder {KEY}" in warning
    (job,) = (each for each in documents(files) if each["kind"] == "Job")
    assert job["spec"]["activeDeadlineSeconds"] == upper.timeout_seconds


def test_a_file_with_another_hash_is_not_built(buildable: Plan, tmp_path: Path) -> None:
    files, _ = cluster_builds(buildable)
    (tmp_path / "index" / "tiny-1.0.tar.gz").write_bytes(b"something else")
    ran = as_in_a_pod(files, tmp_path)
    assert ran.returncode == 1
    assert "has another sha256 than planned" in ran.stderr
    assert not list((tmp_path / "wheels" / KEY).iterdir())


def test_a_job_that_cannot_write_its_folder_says_so_before_it_downloads(
    buildable: Plan, tmp_path: Path
) -> None:
    """As on NFS, where fsGroup is not applied and the kubelet makes the folder for root alone."""
    files, _ = cluster_builds(buildable)
    (tmp_path / "wheels" / KEY).mkdir(parents=True, mode=0o555)
    as_others = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    ran = as_in_a_pod(files, tmp_path, through=as_others)
    assert ran.returncode == 1
    assert "may not write its folder of the claim" in ran.stderr
    assert "chmod -R a+rwX" in ran.stderr
    assert "Fetching" not in ran.stdout


@pytest.mark.parametrize(
    ("cflags", "said"),
    [
        ("-include nowhere.h", ("The build failed.", "nowhere.h")),
        ("-march=native", ("Name the target's features in the recipe's environment.",)),
    ],
)
def test_a_build_that_fails_says_why_and_what_to_do_for_a_known_cause(
    buildable: Plan, tmp_path: Path, cflags: str, said: tuple[str, ...]
) -> None:
    (planned,) = buildable.groups[0].wheels
    broken = planned.model_copy(update={"environment": {"CFLAGS": cflags, "CXXFLAGS": ""}})
    files, _ = cluster_builds(plan_of(broken))
    ran = as_in_a_pod(files, tmp_path)
    assert ran.returncode == 1
    assert all(each in ran.stdout for each in said)


# What comes back.


def test_a_file_that_is_not_a_wheel_of_the_plan_is_refused(tmp_path: Path) -> None:
    made, store = plan_of(wheel()), Store(tmp_path / "store")
    with pytest.raises(UsageError, match="is not a folder"):
        add_built_wheels(made, tmp_path / "nowhere", store)
    with pytest.raises(UsageError, match="no wheel of the last plan"):
        add_built_wheels(made, tmp_path, store)
    home = tmp_path / KEY
    home.mkdir()
    (empty,) = add_built_wheels(made, tmp_path, store)
    assert "contains 0 wheels" in str(empty.reason)
    (home / "helper-1-py3-none-any.whl").write_bytes(a_wheel("helper"))
    (home / "build.json").write_text("{")
    (unreported,) = add_built_wheels(made, tmp_path, store)
    assert "whose hash its Job reports in build.json" in str(unreported.reason)
    sha256 = hashlib.sha256(a_wheel("helper")).hexdigest()
    (home / "build.json").write_text(json.dumps({"sha256": sha256}))
    (refused,) = add_built_wheels(made, tmp_path, store)
    assert refused.state == "refused"
    assert "tiny" in str(refused.reason)


def test_a_pipe_in_place_of_a_wheel_is_not_waited_for(tmp_path: Path) -> None:
    made, store = plan_of(wheel()), Store(tmp_path / "store")
    home = tmp_path / KEY
    home.mkdir()
    for pipe in (home / "helper-1-py3-none-any.whl", home / "build.json", tmp_path / "x.whl"):
        os.mkfifo(pipe)
    (empty,) = add_built_wheels(made, tmp_path, store)
    assert "contains 0 wheels" in str(empty.reason)
    (home / "tiny-1-py3-none-any.whl").write_bytes(a_wheel("tiny"))
    (unreported,) = add_built_wheels(made, tmp_path, store)
    assert "whose hash its Job reports in build.json" in str(unreported.reason)


def test_a_pod_gets_the_same_build_parameters_as_a_node() -> None:
    """What the role's module asks for, but what belongs to Ansible or is a folder of the pod."""
    module = plugin("modules.build")
    asked = set(yaml.safe_load(module.DOCUMENTATION)["options"]["spec"]["suboptions"])
    files, _ = cluster_builds(plan_of(wheel()))
    (job,) = [each for each in documents(files) if "job.json" in each.get("data", {})]
    told = json.loads(job["data"]["job.json"])["params"]
    assert told.keys() == asked - {"key", "workspace", "dest"}


# To the end, without SSH.


@pytest.fixture
def flow(buildable: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line, with a plan of a package that needs another."""
    return command_line(buildable, tmp_path, monkeypatch)


def command_line(planned: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "400")
    (group,) = planned.groups
    (helper,) = group.wheels[-1].build_dependencies
    helper = helper.model_copy(update={"name": "helper"})
    group = group.model_copy(update={"dependencies": (helper,)})
    made = with_digest(planned.model_copy(update={"groups": (group,)}))
    StateDir(folder / "state").create().plan_file.write_text(dump_plan(made))

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, [*words, "--state-dir", "state"])

    run.plan = made  # type: ignore[attr-defined]
    return run


def commands_of_the_guide() -> list[list[str]]:
    """The commands under "Builds in the cluster" in docs/kubernetes-cluster.md, after the plan."""
    page = (ROOT / "docs" / "kubernetes-cluster.md").read_text()
    block = page.partition("## Builds in the cluster\n```sh\n")[2].partition("```")[0]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    first, *rest = [words for words in lines if words]
    assert first == ["fleetbuild", "plan", "--from-cluster"]
    return rest


@pytest.mark.parametrize("what", ["buildable", "against_published"])
def test_the_documented_commands_lead_from_a_cluster_to_images(
    what: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a package that has dependencies, and with one built against a published torch."""
    flow = command_line(request.getfixturevalue(what), tmp_path, monkeypatch)
    done = []
    for program, *words in commands_of_the_guide():
        if program == "sh":  # wait.sh has a test of its own
            continue
        if program == "kubectl":  # the cluster runs the Jobs
            if words[0] == "apply":
                ran = as_in_a_pod(cluster_builds(flow.plan)[0], tmp_path)
                assert ran.returncode == 0, ran.stdout + ran.stderr
            continue
        ran = flow(*words)
        assert ran.exit_code == 0, ran.output
        done.append(" ".join(words[:2]))
    assert done == ["emit builds", "store add", "store fetch", "emit containers"]
    home = tmp_path / "state" / "manifests" / "containers" / TARGET.name
    wanted = {wheel.package for wheel in flow.plan.groups[0].wheels} | {"helper"}
    locked = (home / "requirements.txt").read_text().splitlines()
    assert {line.partition("==")[0] for line in locked} == wanted
    assert len(list((home / "files").glob("*.whl"))) == len(wanted)


needs_export = pytest.mark.skipif(
    find_spec("fleetbuild.extensions.supply") is None, reason="store export is of another extension"
)


@needs_export
def test_a_cluster_without_ssh_gets_images_and_indexes(
    flow: Any, claim: Path, tmp_path: Path
) -> None:
    early = flow("emit", "containers", "--image-prefix", "r/x")
    assert early.exit_code == 4
    assert "the store lacks tiny 1.0+cpu.x8664." in early.output
    assert "fleetbuild emit builds" in early.output
    assert "fleetbuild apply" not in early.output
    assert flow("emit", "builds").exit_code == 0
    added = flow("store", "add", str(claim))
    assert added.exit_code == 0, added.output
    assert "1 wheel taken in, 0 refused." in added.output
    images = flow("emit", "containers", "--image-prefix", "r/x", "--image", "python:3")
    assert images.exit_code == 0, images.output
    home = tmp_path / "state" / "manifests" / "containers" / TARGET.name
    assert (home / "requirements.txt").read_text().startswith("helper==1 --hash=sha256:")
    assert len(list((home / "files").glob("*.whl"))) == 2
    exported = flow("store", "export", "out")
    assert exported.exit_code == 0, exported.output
    simple = tmp_path / "out" / TARGET.name / "simple"
    assert sorted(path.name for path in simple.iterdir() if path.is_dir()) == ["helper", "tiny"]
    assert flow("store", "fetch").output == "Fetched 0 files.\n"


def test_store_fetch_gets_dependencies_and_lists_unbuilt_wheels(flow: Any) -> None:
    ran = flow("store", "fetch")
    assert ran.exit_code == 0
    assert "Fetched helper-1-py3-none-any.whl" in ran.output
    assert f"{TARGET.name}: the store lacks tiny 1.0+cpu.x8664." in ran.output
    assert flow("store", "fetch").output.startswith("Fetched 0 files.")


@needs_export
def test_an_index_lacks_no_wheel(flow: Any, tmp_path: Path) -> None:
    short = flow("store", "export", "out")
    assert short.exit_code == 4
    assert "0 indexes were written; the other groups are incomplete." in short.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [("store", "fetch"), pytest.param(("store", "export", "out"), marks=needs_export)],
    ids=" ".join,
)
def test_a_dependency_that_is_not_on_the_index_is_an_error(
    flow: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "index" / "helper-1-py3-none-any.whl").unlink()
    ran = flow(*words)
    assert ran.exit_code == 6
    assert "helper-1-py3-none-any.whl cannot be fetched" in ran.output


@pytest.mark.parametrize("place", ["loose", "other"])
def test_a_wheel_outside_the_plan_is_refused(flow: Any, tmp_path: Path, place: str) -> None:
    name = "helper-1-py3-none-any.whl"
    home = tmp_path / "came" / ("c" * 32 if place == "other" else "")
    home.mkdir(parents=True)
    (home / name).write_bytes(a_wheel("helper"))
    ran = flow("store", "add", str(tmp_path / "came"))
    assert ran.exit_code == 7
    assert f"refused: {name}: It is in no folder of a wheel of the last plan" in ran.output
    assert "0 wheels taken in, 1 refused." in ran.output


def test_a_wheel_without_its_jobs_report_is_refused(flow: Any, claim: Path, tmp_path: Path) -> None:
    (built,) = (claim / KEY).glob("*.whl")
    built.rename(claim / built.name)
    ran = flow("store", "add", str(claim))
    assert ran.exit_code == 7
    assert f"refused: {built.name}: It is in no folder of a wheel" in ran.output
    assert not Store(tmp_path / "state" / "store").of_key(KEY)


@pytest.mark.parametrize("odd", ["Infinity", "NaN", "1e400", "-1"])
def test_invalid_durations_of_cluster_jobs_are_ignored_too(odd: str) -> None:
    with pytest.raises(ValidationError):
        BuildInputs.model_validate_json(f'{{"seconds": {odd}}}')
