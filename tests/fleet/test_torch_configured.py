"""torch's source tree, configured by an apply for three rungs and a GPU on builders with MPI, NUMA
and ROCm.

The nodes have no route anywhere, so a download in CMake fails. The build ends where CMake has made
its build graph. Two trees: torch 2.6.0 from Debian's source packages, for
which Debian has neither FBGEMM nor NNPACK; and the complete one that FLEETBUILD_TORCH_TREE names,
such as a checkout of PyTorch with its submodules. The complete tree is configured for SM 8.6 too,
with the whole CUDA toolkit in the folder FLEETBUILD_TORCH_CUDA, or, from torch 2.9 on, with CUDA
13.0 from NVIDIA's wheels. With a toolkit of 11.8, 12.4 or 12.6, Debian's tree is for SM 6.1 too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import fleetbuild
from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS
from tests.lab import Lab, runnable
from tests.lab.fleet import HARDWARE
from tests.torch_tree.assemble import HERE, LEAN, assemble, fetch
from tests.torch_tree.graph import CHOSEN_AT_RUN_TIME, PARTS, Graph, read_graph

pytestmark = [pytest.mark.long, pytest.mark.network]

CACHE = Path(__file__).parents[2] / ".cache" / "torch"
COMPLETE = os.environ.get("FLEETBUILD_TORCH_TREE", "")
TOOLKIT = os.environ.get("FLEETBUILD_TORCH_CUDA", "")
WANTED = [rung for rung in ("avx", "avx2", "avx512") if rung in runnable()]
# What Debian's mirrors have is unpacked as it is, without what would be configured after it.
BUILDERS_LIBRARIES = """
dpkg --unpack --force-depends /opt/libraries/*.deb
for name in mpicc mpicxx; do ln -sf $name.openmpi /usr/bin/$name; done
mkdir -p /opt/rocm/bin /opt/rocm/.info
echo 6.2.4 > /opt/rocm/.info/version
install -m 755 /bin/true /opt/rocm/bin/hipcc
"""
FINDS = """
cmake_minimum_required(VERSION 3.20)
project(finds CXX)
find_package(MPI REQUIRED)
find_path(NUMA numa.h REQUIRED)
find_library(NUMA_LIBRARY numa REQUIRED)
"""


@pytest.fixture(scope="module", params=["from Debian's packages", "complete"])
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "complete":
        if not COMPLETE:
            pytest.skip("FLEETBUILD_TORCH_TREE names no PyTorch checkout with its submodules")
        return Path(COMPLETE).resolve()
    return assemble(tmp_path_factory.mktemp("torch") / "tree", CACHE)


def is_complete(tree: Path) -> bool:
    return bool(COMPLETE) and tree == Path(COMPLETE).resolve()


def version_of(tree: Path) -> str:
    return (tree / "version.txt").read_text().strip().partition("a")[0]


def minor_of(tree: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in version_of(tree).split(".")[:2])


def recipe(tree: Path) -> str:
    """torch's recipe, with what ends the build after CMake and what this tree lacks."""
    early = minor_of(tree) < (2, 14)
    ends = {"--global-option": "--cmake-only"} if early else {"build.targets": "help"}
    text: dict[str, Any] = {"name": "torch", "extends": "torch"}
    if not is_complete(tree):
        text = yaml.safe_load(LEAN.read_text())
        text["environment"] |= {"USE_FBGEMM": "0", "USE_NNPACK": "0"}
    return yaml.safe_dump(text | {"config_settings": ends, "disk_gb": 5})  # nothing is compiled


def volumes(*parts: str) -> list[str]:
    """Debian's packages in these parts of libraries.yml, for a node to unpack."""
    table = yaml.safe_load((HERE / "libraries.yml").read_text())
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = [row for part in parts for row in table[part].values()]
    files = [fetch(table["mirror"], row, CACHE) for row in rows]
    return [f"{file}:/opt/libraries/{file.name}:ro" for file in files]


def configure(
    lab: Lab, tree: Path, place: Path, nodes: Mapping[str, str], cuda: str | None = None
) -> dict[str, Graph]:
    """What one apply configured, by group; `nodes` are the groups' nodes."""
    (place / "recipes").mkdir()
    (place / "recipes" / "torch.yml").write_text(recipe(tree))
    config = {"packages": [f"torch=={version_of(tree)} @ {tree}"]}
    (place / "fleetbuild.yml").write_text(yaml.safe_dump(config | ({"cuda": cuda} if cuda else {})))
    fleet = fleetbuild.Fleet(
        lab.inventory, config=place / "fleetbuild.yml", state_dir=place / "state", timeout=120
    )
    plan = fleet.plan()
    groups = {group.wheels[0].artifact_key: group.name for group in plan.groups}
    assert set(groups.values()) == set(nodes), plan.nodes
    read = {}
    for wheel in fleet.apply(plan).wheels:
        assert wheel.state == "failed", wheel  # a configured tree makes no wheel
        group = groups[wheel.artifact_key]
        read[group] = read_graph(lab, nodes[group], wheel.artifact_key, wheel.log)
        # The control: CMake finds these libraries on this builder.
        project = f"~/finds && cd ~/finds && cat > CMakeLists.txt <<'END'\n{FINDS}\nEND\n"
        # Its scripts name the path that the environment has inside of the build.
        programs = f"~/.cache/fleetbuild/builds/{wheel.artifact_key}/work/venv/bin"
        cmake = f"{programs}/python {programs}/cmake ."
        found = lab.exec(nodes[group], f"mkdir -p {project}{cmake}", user="fleet")
        assert found.returncode == 0, found.stderr
    return read


@pytest.fixture(scope="module")
def lab(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    node = {"gpu": False, "volumes": volumes("packages"), "setup": BUILDERS_LIBRARIES}
    return make_lab({"nodes": {f"on-{rung}": {**node, "hardware": rung} for rung in WANTED}})


@pytest.fixture(scope="module")
def graphs(lab: Lab, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    nodes = {f"cpu-{rung}-cp311": f"on-{rung}" for rung in WANTED}
    read = configure(lab, tree, tmp_path_factory.mktemp("run"), nodes)
    return {rung: read[f"cpu-{rung}-cp311"] for rung in WANTED}


@pytest.mark.parametrize("rung", WANTED)
def test_the_libraries_of_the_rung_are_built(
    graphs: dict[str, Graph], tree: Path, rung: str
) -> None:
    expected = {"MKLDNN", "XNNPACK"}
    if is_complete(tree) and rung != "avx":
        expected |= {"FBGEMM", "NNPACK"}
    assert graphs[rung].parts() == expected
    assert graphs[rung].says("BLAS") == "MKL"


@pytest.mark.parametrize("rung", WANTED)
def test_torchs_own_code_is_compiled_for_the_rung_and_nothing_else(
    graphs: dict[str, Graph], rung: str
) -> None:
    graph = graphs[rung]
    beyond = graph.beyond(rung)
    print(f"\n{rung}: {len(graph.commands)} commands, beyond: {dict(beyond)}")  # noqa: T201
    assert beyond["torch's own"] == 0
    assert set(beyond) <= set(CHOSEN_AT_RUN_TIME), beyond
    commands = list(graph.own())
    assert len(commands) > 500
    spelled = flags(RUNGS[rung], "gcc", "12.2").split()
    assert not [each for each in commands if not set(spelled) <= set(each.split())]
    assert not [each for each in graph.commands if "-march=native" in each["command"]]
    default = [each for each in commands if ".DEFAULT.cpp" in each]
    without = [each for each in commands if "-mno-avx" in each.split()]
    assert default
    assert without == (default if rung == "avx" else [])


@pytest.mark.parametrize("rung", WANTED)
def test_nothing_that_the_builder_happens_to_have_is_used(
    graphs: dict[str, Graph], rung: str
) -> None:
    graph = graphs[rung]
    for found in ("libmpi", "openmpi", "libnuma", "/opt/rocm"):
        assert found not in graph.ninja, found
    for option in ("USE_MPI", "USE_NUMA", "USE_ROCM", "USE_XPU", "USE_CUDA"):
        assert graph.says(option) in ("0", "OFF", "FALSE"), option


@pytest.mark.parametrize("rung", WANTED)
def test_nothing_is_downloaded(graphs: dict[str, Graph], lab: Lab, rung: str) -> None:
    node = f"on-{rung}"
    assert lab.exec(node, "ip route get 192.0.2.1").returncode != 0  # a route would hide a download
    search = "find ~/.cache/fleetbuild/builds/*/work/src/build -name '*-download' -o -name _deps"
    assert lab.exec(node, search, user="fleet", check=True).stdout == ""
    assert "Downloading" not in graphs[rung].log


def toolkit_version() -> str:
    """The version of the toolkit that FLEETBUILD_TORCH_CUDA names; "" without one."""
    if not TOOLKIT:
        return ""
    nvcc = [f"{TOOLKIT}/bin/nvcc", "--version"]
    said = subprocess.run(nvcc, capture_output=True, text=True, check=True)
    (cuda,) = re.findall(r"release (\d+\.\d+)", said.stdout)
    return str(cuda)


def lab_with_gpu(make_lab: Callable[[Mapping[str, Any]], Lab], place: Path, sm: str) -> Lab:
    """A node with a simulated GPU, and with that toolkit."""
    cuda = toolkit_version()
    parts = ["packages", "gcc11"] if cuda.startswith("11.") else ["packages"]
    toolkit = [f"{Path(TOOLKIT).resolve()}:/usr/local/cuda-{cuda}:ro"] if cuda else []
    shown = shutil.copytree(HARDWARE / "avx2", place / "hardware")
    smi = (shown / "nvidia-smi").read_text().replace(", 8.6,", f", {sm},")
    (shown / "nvidia-smi").write_text(re.sub(r"\b550\.[\d.]+", "580.82.07", smi))  # for CUDA 13
    node = {"hardware": str(shown), "volumes": [*volumes(*parts), *toolkit]}
    return make_lab({"nodes": {"gpu": {**node, "setup": BUILDERS_LIBRARIES}}})


def gpu_codes(graph: Graph) -> Counter[str]:
    """What the CUDA files are compiled for: sm_86, compute_86; how many files each."""
    return Counter(
        code
        for each in graph.commands
        if each["file"].endswith(".cu")
        for code in re.findall(r"code=\[?(\w+)", each["command"])
    )


def check_libraries_of_gpu(graph: Graph) -> None:
    for option in ("USE_CUDNN", "USE_NCCL", "USE_SYSTEM_NCCL"):
        assert graph.says(option) in ("1", "ON"), option
    assert re.search(r"site-packages/nvidia/cudnn/lib/libcudnn\.so\.\d+", graph.ninja)
    assert "site-packages/nvidia/nccl/lib/libnccl.so.2" in graph.ninja
    for found in ("libmpi", "openmpi", "libnuma", "/opt/rocm"):
        assert found not in graph.ninja, found
    assert graph.says("USE_MAGMA") in ("0", "OFF")


@pytest.mark.skipif(not COMPLETE, reason="FLEETBUILD_TORCH_TREE names no PyTorch checkout")
def test_for_a_gpu_the_code_is_for_its_sm_with_cudnn_and_nccl_from_wheels(
    make_lab: Callable[[Mapping[str, Any]], Lab], tmp_path: Path
) -> None:
    tree = Path(COMPLETE).resolve()
    if not TOOLKIT and minor_of(tree) < (2, 9):
        pytest.skip("FLEETBUILD_TORCH_CUDA names no toolkit, and NVIDIA has none as wheels")
    lab = lab_with_gpu(make_lab, tmp_path, "8.6")
    cuda = toolkit_version() or "13.0"
    graph = configure(lab, tree, tmp_path, {"sm86-avx2-cp311": "gpu"}, cuda)["sm86-avx2-cp311"]
    assert graph.parts() == set(PARTS)
    codes = gpu_codes(graph)
    print(f"\n{cuda}: {len(graph.commands)} commands, code: {dict(codes)}")  # noqa: T201
    # PyTorch adds 8.9 to 8.6 for one file by itself.
    assert codes["sm_86"] > 100
    assert set(codes) <= {"sm_86", "sm_89"}
    assert codes["sm_89"] < 10
    check_libraries_of_gpu(graph)


def test_for_pascal_the_code_of_torch_2_6_is_for_its_sm_alone(
    make_lab: Callable[[Mapping[str, Any]], Lab], tmp_path: Path
) -> None:
    """A P40 or a GTX 1080 Ti, with a CUDA that torch 2.6.0 is released with."""
    cuda = toolkit_version()
    if cuda not in ("11.8", "12.4", "12.6"):
        pytest.skip("FLEETBUILD_TORCH_CUDA names no toolkit of 11.8, 12.4 or 12.6")
    tree = assemble(tmp_path / "tree", CACHE)
    lab = lab_with_gpu(make_lab, tmp_path, "6.1")
    graph = configure(lab, tree, tmp_path, {"sm61-avx2-cp311": "gpu"}, cuda)["sm61-avx2-cp311"]
    assert graph.parts() == {"MKLDNN", "XNNPACK"}
    codes = gpu_codes(graph)
    print(f"\n{cuda}: {len(graph.commands)} commands, code: {dict(codes)}")  # noqa: T201
    assert codes.keys() == {"sm_61"}
    assert codes["sm_61"] > 200
    assert graph.says("USE_FLASH_ATTENTION") in ("0", "OFF")  # it starts with SM 8.0
    check_libraries_of_gpu(graph)
