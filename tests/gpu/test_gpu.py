"""A GPU that is there: probed, built for, computed on, and refused a wheel for another one.

`make test-gpu` runs these where nvidia-smi answers. A machine without a network runs them from the
bundle of `make gpu-bundle`.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

import fleetbuild
from fleetbuild.toolchains.cuda import runs_on
from tests.gpu.installed import wheel_of, with_requirements

EXTENSION = Path(__file__).parents[1] / "cuda_extension"
QUANTISED = Path(__file__).with_name("quantised.py")
LIMIT = 570  # seconds for one apply: a part of run.sh ends within ten minutes
PYTHON = os.environ.get("FLEETBUILD_GPU_PYTHON", shutil.which("python3") or sys.executable)
RECIPE = """
name: cuda-saxpy
packages: [cuda-saxpy]
rungs: [x86-64, x86-64-v2, avx, avx2, avx512]
cuda: true
requires: []
environment:
  TORCH_CUDA_ARCH_LIST: "{{ sms | join(';') ~ ('+PTX' if ptx else '') }}"
checks:
  - |
    # It computes on the GPU
    import cuda_saxpy
    assert cuda_saxpy.saxpy(2, [1, 2], [3, 4]) == [5, 8]
"""
# Each library of CUDA that torch loads computes, whatever a check says of its single kernels.
USED = """
import torch
ones = torch.ones(64, 64, device="cuda")
print("cuBLAS", (ones @ ones)[0, 0].item() == 64)
print("cuFFT", abs(torch.fft.fft(ones).real[0, 0].item() - 64) < 1e-3)
image = torch.ones(1, 1, 8, 8, device="cuda")
print("cuDNN", torch.nn.functional.conv2d(image, image[:, :, :3, :3])[0, 0, 0, 0].item() == 9)
print("cuSPARSE", (ones.to_sparse_csr() @ ones)[0, 0].item() == 64)
print("cuSOLVER", abs(torch.linalg.svdvals(ones)[0].item() - 64) < 1e-3)
"""


def ask(query: str) -> list[str]:
    """What nvidia-smi says of each GPU; nothing if it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


SMS = ask("compute_cap")
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
pytestmark = pytest.mark.skipif(not SMS, reason="no NVIDIA GPU here: nvidia-smi does not answer")
with_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc here")


def makes_environments(python: str) -> bool:
    """Whether a release can be made with this Python; Debian has venv and ensurepip apart."""
    command = [python, "-I", "-c", "import ensurepip, venv"]  # not of the working folder
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


with_venv = pytest.mark.skipif(
    not makes_environments(PYTHON),
    reason=f"{PYTHON} lacks venv or ensurepip: name another Python by PYTHON=",
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for one run, with an inventory of this machine, on an index of local files."""
    monkeypatch.chdir(tmp_path)
    if wheels := os.environ.get("FLEETBUILD_GPU_WHEELS"):
        monkeypatch.setenv("UV_NO_INDEX", "1")
        monkeypatch.setenv("UV_FIND_LINKS", wheels)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "cuda-saxpy.yml").write_text(RECIPE)
    inventory(tmp_path)
    return tmp_path


def inventory(site: Path, **more: object) -> None:
    hosts = {"gpu": {"ansible_connection": "local", "fleetbuild_python": PYTHON, **more}}
    (site / "inventory.yml").write_text(json.dumps({"all": {"hosts": hosts}}))


def apply(site: Path, packages: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    config = {"packages": packages, "install": {"path": str(site / "opt")}, **more}
    (site / "fleetbuild.yml").write_text(json.dumps(config))
    return ask_fleetbuild(site, "apply", "inventory.yml", "--yes")


def ask_fleetbuild(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of fleetbuild, and show its output: the transcript of docs/verified.md."""
    command = [sys.executable, "-m", "fleetbuild", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=site, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    print(done.stdout, done.stderr)  # noqa: T201
    return done


def words(done: subprocess.CompletedProcess[str]) -> str:
    """All that a command printed, as one line."""
    return " ".join((done.stdout + done.stderr).split())


def kind(sm: str) -> str:
    return "sm" + sm.replace(".", "")


def other_gpu(*, compiled: bool = False) -> str:
    """An SM whose machine code no GPU here runs; `compiled`: whose PTX is compiled for each."""
    older = [sm for sm in ("8.6", "8.0", "7.5") if not any(runs_on(sm, here) for here in SMS)]
    fitting = [sm for sm in older if all(runs_on(f"{sm}+PTX", here) for here in SMS)]
    if compiled and not fitting:
        pytest.skip(f"no SM that CUDA 13 compiles for is older than SM {', '.join(SMS)}")
    return (fitting if compiled else older)[0]


def built(site: Path, name: str) -> Iterator[Path]:
    return (site / ".fleetbuild" / "store").rglob(f"{name}-*.whl")


def test_the_probe_agrees_with_the_driver(site: Path) -> None:
    captures = Path(os.environ.get("OUT", site)) / "captures"
    facts = fleetbuild.Fleet("inventory.yml").probe()["gpu"]
    assert set(facts.sms) == set(SMS)
    assert {facts.driver} == set(ask("driver_version"))
    assert [gpu.name for gpu in facts.gpus if gpu.sm] == ask("name")
    split = [index for index, mode in enumerate(ask("mig.mode.current")) if mode == "Enabled"]
    assert bool(split) == any("MIG" in warning for warning in facts.warnings)
    command = [sys.executable, "-m", "fleetbuild", "facts", "inventory.yml", "--save", captures]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = fleetbuild.Fleet("inventory.yml").probe(captures=captures)["gpu"]
    assert (again.sms, again.gpus, again.driver) == (facts.sms, facts.gpus, facts.driver)


@with_nvcc
@with_venv
def test_an_extension_is_built_for_this_gpu_and_computes_on_it(site: Path) -> None:
    done = apply(site, [f"cuda-saxpy @ {EXTENSION}"])
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = built(site, "cuda_saxpy")
    assert set(fleetbuild.audit_wheel(wheel).sms) == set(SMS)
    assert ask_fleetbuild(site, "audit", wheel, "--for", kind(SMS[0])).returncode == 0
    said = subprocess.run(
        [site / "opt/current/bin/fleetbuild-sanity"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout


@with_nvcc
@with_venv
def test_a_wheel_for_another_gpu_is_refused_before_it_serves(site: Path) -> None:
    inventory(site, fleetbuild_sms=[other_gpu()])
    done = apply(site, [f"cuda-saxpy @ {EXTENSION}"])
    assert done.returncode == 7, words(done)
    assert "No kernel image: the wheel has no code for a GPU of gpu" in words(done)
    assert not (site / "opt/current").exists()
    (wheel,) = built(site, "cuda_saxpy")
    foretold = ask_fleetbuild(site, "audit", wheel, "--for", kind(SMS[0]))
    assert foretold.returncode == 7
    assert f"not for {SMS[0]}" in words(foretold) or f"no SM {SMS[0]} code" in words(foretold)


@with_nvcc
@with_venv
def test_ptx_of_an_older_gpu_is_compiled_by_the_driver(site: Path) -> None:
    older = other_gpu(compiled=True)
    inventory(site, fleetbuild_sms=[older])
    done = apply(site, [f"cuda-saxpy @ {EXTENSION}"], cuda_ptx=True)
    assert done.returncode == 0, done.stdout + done.stderr  # the recipe's check computes
    (wheel,) = built(site, "cuda_saxpy")
    foretold = ask_fleetbuild(site, "audit", wheel, "--for", kind(older), "--for", kind(SMS[0]))
    assert foretold.returncode == 4  # nothing dies, and the driver decides
    assert f"{kind(older)} runs" in words(foretold)
    assert f"has only PTX (of SM {older}) for SM {SMS[0]}" in words(foretold)
    # Without that compiler this GPU has no code to run, so the check did use it.
    said = subprocess.run(
        [site / "opt/current/bin/python", "-c", "import cuda_saxpy; cuda_saxpy.saxpy(2, [1], [3])"],
        env={**os.environ, "CUDA_DISABLE_PTX_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    assert "CUDA error" in said.stderr


@pytest.fixture
def with_torch(site: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The torch that this machine's Python has, as wheels; returns its version."""
    # An environment has other packages than the one it was made from, with the same interpreter.
    script = "import sys, torch; print('\\n'.join(filter(None, sys.path)))"
    asked = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"{PYTHON} has no torch")
    for path in reversed(asked.stdout.splitlines()):
        monkeypatch.syspath_prepend(path) if "-packages" in path else None
    # Some 5 GB: run.sh names a folder where the next test finds them.
    folder = Path(os.environ.get("FLEETBUILD_GPU_TORCH", site / "torch"))
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other parts may run at the same time
        for distribution in with_requirements("torch", "numpy"):
            wheel_of(distribution, folder)
    folders = [str(folder), os.environ.get("FLEETBUILD_GPU_WHEELS", "")]
    monkeypatch.setenv("UV_FIND_LINKS", ",".join(filter(None, folders)))
    return importlib.metadata.version("torch")


@with_nvcc
@with_venv
def test_torch_scatter_is_built_against_the_installed_torch(site: Path, with_torch: str) -> None:
    packages = [f"torch=={with_torch}", "torch-scatter==2.1.2"]
    done = apply(site, packages, build={"policy": "auto"})
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = built(site, "torch_scatter")
    assert set(fleetbuild.audit_wheel(wheel).sms) == set(SMS)


def test_bitsandbytes_quantises_and_multiplies_on_the_gpu(site: Path, with_torch: str) -> None:
    folder = Path(os.environ.get("FLEETBUILD_GPU_WHEELS", "wheels"))
    versions = [file.name.split("-")[1] for file in folder.glob("bitsandbytes-*.whl")]
    if not versions:
        pytest.skip("no wheel of bitsandbytes: make gpu-bundle GPU_WHEELS=FILE packs one")
    packages = [f"torch=={with_torch}", f"bitsandbytes=={max(versions, key=Version)}"]
    done = apply(site, packages, build={"policy": "auto"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((site / ".fleetbuild").rglob("build.log"))  # it was not built here
    command = [site / "opt/current/bin/python", QUANTISED]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    print(said.stdout, said.stderr)  # noqa: T201
    assert said.returncode == 0, said.stderr


def test_check_says_for_which_gpu_the_installed_torch_is(site: Path, with_torch: str) -> None:
    here, old = kind(SMS[0]), "sm61"
    done = ask_fleetbuild(
        site, "check", f"torch=={with_torch}", "--json", "--for", here, "--for", old
    )
    rows = json.loads(done.stdout)["packages"]
    (torch_here, torch_old) = (
        next(row for row in rows if row["name"] == "torch" and row["kind"] == each)
        for each in (here, old)
    )
    assert torch_here["verdict"] == "runs", torch_here
    assert torch_old["verdict"] == "no-kernel", torch_old
    ours = {row["name"]: row for row in rows if row["kind"] == here}
    for library in ("nvidia-cublas", "nvidia-cufft", "nvidia-cusparse"):  # they compute, below
        assert ours[library]["verdict"] == "undecided", ours[library]
    assert done.returncode == 7
    whole = ask_fleetbuild(site, "check", f"torch=={with_torch}")  # for this machine, as it is
    assert f"SM {', '.join(sorted(set(SMS)))}" in words(whole)
    said = subprocess.run([PYTHON, "-c", USED], capture_output=True, text=True, check=False)
    print(said.stdout, said.stderr)  # noqa: T201
    assert said.returncode == 0, said.stderr
    assert "False" not in said.stdout


def test_torch_compile_computes_on_the_gpu() -> None:
    script = (
        "import torch\n"
        "def f(a, b): return torch.nn.functional.gelu(a) * b + 1\n"
        "a, b = torch.randn(2, 1024, device='cuda')\n"
        "assert torch.allclose(torch.compile(f)(a, b), f(a, b), atol=1e-3)\n"
    )
    asked = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False)
    if asked.returncode:
        pytest.skip(f"{PYTHON} has no torch")
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
