"""A whole torch, built by an apply for CPUs without AVX2 and used on one: `make test-torch`.

It takes hours. The results stay in the folder that FLEETBUILD_TORCH names: the source tree, the
node's build folder and compiler cache, fleetbuild's state. So a run goes on where the last one was
interrupted, and the build itself goes on in its node where only this test was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetbuild import Config, Event, Fleet, Plan, Result, audit_wheel, load_config
from fleetbuild.hardware.flags import flags
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.store.wheels import Store
from tests.factories.sdists import fetch_sdist
from tests.lab import Lab
from tests.lab.emulation import why_not
from tests.torch_tree.assemble import HERE, LEAN, assemble

pytestmark = [pytest.mark.long, pytest.mark.fleet, pytest.mark.network]

PATIENCE = 600  # seconds for an answer of a node that has the least share of a busy machine
TRAINS = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
x = torch.randn(128, 16)
losses = []
for _ in range(40):
    loss = torch.nn.functional.mse_loss(model(x), x[:, :4].sum(1, keepdim=True))
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad
    losses.append(loss.item())
image = torch.randn(1, 3, 8, 8, requires_grad=True)
torch.nn.functional.conv2d(image, torch.randn(2, 3, 3, 3)).sum().backward()
level = torch.backends.cpu.get_cpu_capability().replace("NO AVX", "DEFAULT")
print(torch.__version__, level, losses[-1] < losses[0] / 2, bool(image.grad.isfinite().all()))
"""
SCATTERS = """
import torch, torch_scatter
given = torch.randn(64, 64), torch.arange(64) % 8
print(tuple(torch_scatter.scatter_max(*given, dim=0)[0].shape))
"""
# With the release's torch in sight of an environment that has setuptools.
BUILDS = """
set -e
cd
rm -rf env {rung}
python3 -m venv env
ls -d /opt/fleetbuild/current/lib/python3*/site-packages > release.pth
mv release.pth env/lib/python3*/site-packages/
env/bin/pip -q install --no-index inputs/*.whl
export PATH=$PWD/env/bin:$PATH FORCE_ONLY_CPU=1 CFLAGS='-O3 {flags}' CXXFLAGS='-O3 {flags}'
pip -q wheel --no-index --no-deps --no-build-isolation -w {rung} inputs/torch_scatter*.tar.gz
python3 -m zipfile -e {rung}/*.whl {rung}
"""
TIMES = """
import json, time, torch
torch.manual_seed(1)
a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
image, kernel = torch.randn(8, 32, 56, 56), torch.randn(64, 32, 3, 3)
some, rows = torch.randn(4_000_000), torch.randn(2000, 2000)
work = {
    "matmul 1024": lambda: a @ b,
    "conv2d 8x32x56x56": lambda: torch.nn.functional.conv2d(image, kernel, padding=1),
    "exp of 4 million": lambda: some.exp(),
    "sum of 4 million": lambda: some.sum(),
    "4 million products": lambda: some * some,
    "softmax 2000 x 2000": lambda: rows.softmax(1),
    "layer norm 2000 x 2000": lambda: torch.nn.functional.layer_norm(rows, (2000,)),
}
best = {}
for name, call in work.items():
    for _ in range(10):
        began = time.perf_counter()
        call()
        best[name] = min(best.get(name, 9.0), time.perf_counter() - began)
print(json.dumps({name: round(1000 * seconds, 2) for name, seconds in best.items()}))
"""


@dataclass(frozen=True)
class Place:
    """What lasts from run to run."""

    home: Path

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def tree(self) -> Path:
        """The source tree, put together once for each tree.yml."""
        mark = self.home / "tree.mark"
        wanted = hashlib.sha256((HERE / "tree.yml").read_bytes()).hexdigest()
        tree = self.home / "tree"
        if not mark.is_file() or mark.read_text() != wanted:
            mark.unlink(missing_ok=True)
            shutil.rmtree(tree, ignore_errors=True)
            assemble(tree, self.home / "archives")
            mark.write_text(wanted)
        return tree

    def config(self) -> Config:
        (self.home / "recipes").mkdir(exist_ok=True)
        (self.home / "recipes/torch.yml").write_text(LEAN.read_text())
        path = self.home / "fleetbuild.yml"
        path.write_text(f"packages: ['torch==2.6.0 @ {self.tree}']\n")
        return load_config(path)

    def say(self, line: str) -> None:
        """A line of the transcript."""
        with (self.home / "transcript.txt").open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")


@dataclass(frozen=True)
class Applied:
    """A lab, and the plan that was applied to it."""

    lab: Lab
    plan: Plan
    result: Result
    store: Store

    @property
    def wheel(self) -> Path:
        """The wheel, which may have been built and installed by an earlier run."""
        found = self.store.find(self.plan.groups[0].wheels[0])
        assert found, [wheel.reason for wheel in self.result.wheels]
        return found.path


@pytest.fixture(scope="module")
def place() -> Place:
    home = Path(os.environ.get("FLEETBUILD_TORCH") or Path.home() / ".cache/fleetbuild-torch")
    for name in ("build", "state"):
        (home / name).mkdir(parents=True, exist_ok=True)
    return Place(home)


def apply(place: Place, lab: Lab) -> Applied:
    def tell(event: Event) -> None:
        if event.state != "progress":
            place.say(f"{event.stage} {event.state} {event.message}")

    fleet = Fleet(
        lab.inventory,
        config=place.config(),
        state_dir=place.state,
        timeout=PATIENCE,
    )
    plan = fleet.plan(on_event=tell)
    assert [group.name for group in plan.groups] == ["cpu-avx-cp311"]
    for folder in (place.home / "build/builds").glob("*"):
        if folder.name != plan.groups[0].wheels[0].artifact_key:  # an older recipe's
            shutil.rmtree(folder)
    result = fleet.apply(plan, on_event=tell)
    for each in (*result.wheels, *result.nodes):
        place.say(str(each))
    return Applied(lab, plan, result, Store(place.state / "store"))


@pytest.fixture(scope="module")
def built(place: Place) -> Applied:
    """torch, built on a node that stays up: a build that was on_start goes on in it."""
    builder = {
        "hardware": "avx",
        "gpu": False,
        "idle": True,
        "volumes": [f"{place.home / 'build'}:/home/fleet/.cache/fleetbuild"],
        "setup": "chown fleet: /home/fleet/.cache /home/fleet/.cache/fleetbuild",
    }
    return apply(place, Lab("torch", {"nodes": {"builder": builder}}).up())


@pytest.fixture(scope="module")
def served(place: Place, built: Applied) -> Iterator[Applied]:
    """The same wheel, on a node with the CPU that it is for."""
    assert built.wheel.is_file()
    if reason := why_not():
        pytest.skip(reason)
    with Lab("torch-ivy", {"nodes": {"ivy": {"cpu": "IvyBridge", "gpu": False}}}) as lab:
        yield apply(place, lab)


def python_of(lab: Lab, node: str, code: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = f"{before} /opt/fleetbuild/current/bin/python - <<'END'\n{code}\nEND\n"
    return lab.exec(node, command, user="fleet")


def test_the_build_ends_in_a_wheel_that_is_audited_and_serves(built: Applied) -> None:
    for wheel in built.result.wheels:
        assert wheel.state in ("built", "reused"), f"{wheel.reason}\n{wheel.fix}\n{wheel.log}"
    (node,) = built.result.nodes
    assert node.state in ("installed", "up_to_date"), node.reason
    # Code for better CPUs is behind checks of the CPU alone: docs/audit.md.
    elfs = audit_wheel(built.wheel).elfs
    assert len(elfs) >= 6
    for elf in elfs:
        assert elf.load | elf.default <= RUNGS["avx"].features


def test_the_recipes_checks_pass_on_an_ivy_bridge(place: Place, served: Applied) -> None:
    (wheel,), (node,) = served.result.wheels, served.result.nodes
    assert wheel.state == "reused"
    assert (node.state, node.reason) == ("installed", None)
    said = python_of(served.lab, "ivy", TRAINS)
    place.say(f"ivy: {said.stdout.strip()}")
    assert said.stdout.split() == ["2.6.0+cpu.avx", "DEFAULT", "True", "True"], said.stderr


def test_an_extension_for_avx2_fails_on_the_same_cpu(
    place: Place, built: Applied, served: Applied, tmp_path: Path
) -> None:
    inputs = tmp_path / "inputs"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download"]
    tools = ["setuptools<82", "wheel", "ninja", "packaging"]
    subprocess.run([*pip, "-d", inputs, "--no-deps", *tools], check=True)
    shutil.copy(fetch_sdist("torch-scatter", "2.1.2", tmp_path / "store"), inputs)
    copy(built.lab, "builder", inputs, "inputs")
    ended = {}
    for rung in ("avx", "avx2"):
        spelled = flags(RUNGS[rung], "gcc", None)
        built.lab.exec("builder", BUILDS.format(rung=rung, flags=spelled), user="fleet", check=True)
        fetched = tmp_path / rung
        options = ["-q", "-r", "-F", str(built.lab.ssh_config)]
        subprocess.run(["scp", *options, f"builder:{rung}", fetched], check=True)
        copy(served.lab, "ivy", fetched, rung)
        done = python_of(served.lab, "ivy", SCATTERS, f"PYTHONPATH=$HOME/{rung}")
        ended[rung] = done.returncode
        place.say(f"ivy: torch-scatter for {rung} ends with {done.returncode} {done.stdout}")
    assert ended == {"avx": 0, "avx2": 132}  # what a shell makes of SIGILL


def copy(lab: Lab, node: str, folder: Path, to: str) -> None:
    lab.exec(node, f"rm -rf ~/{to}", user="fleet", check=True)
    options = ["-q", "-r", "-F", str(lab.ssh_config)]
    subprocess.run(["scp", *options, str(folder), f"{node}:{to}"], check=True)


def fastest(venvs: Path) -> dict[str, dict[str, float]]:
    """The best time of each piece of work: each torch in turn, the published one at both levels."""
    best: dict[str, dict[str, float]] = {}
    for turn in ("built", "published", "published as without AVX2") * 5:
        level = {"ATEN_CPU_CAPABILITY": "default"} if "without" in turn else {}
        done = subprocess.run(
            [venvs / turn.partition(" ")[0] / "bin/python", "-c", TIMES],
            check=True, capture_output=True, text=True, env={**os.environ, **level},
        )  # fmt: skip
        for work, milliseconds in json.loads(done.stdout).items():
            of_work = best.setdefault(work, {})
            of_work[turn] = min(milliseconds, of_work.get(turn, milliseconds))
    return best


def test_size_and_speed_are_compared_with_the_published_wheels(
    place: Place, built: Applied
) -> None:
    """Figures for docs/verified.md: PyPI's torch 2.6.0 is the one with CUDA, run on its CPU."""
    figures: dict[str, dict[str, Any]] = {}
    for name, wheel in {"built": str(built.wheel), "published": "torch==2.6.0"}.items():
        folder = place.home / "venvs" / name
        ready = folder / "ready"
        if not ready.is_file() or ready.read_text() != wheel:
            venv.create(folder, with_pip=True, clear=True)
            install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", wheel, "numpy"]
            subprocess.run(install, check=True)
            ready.write_text(wheel)
        (package,) = folder.glob("lib/python3*/site-packages/torch")
        files = [path for path in package.rglob("*") if path.is_file()]
        figures[name] = {
            "unpacked_mb": round(sum(path.stat().st_size for path in files) / 1e6),
            "cpu_library_mb": round((package / "lib/libtorch_cpu.so").stat().st_size / 1e6),
        }
    figures["milliseconds"] = fastest(place.home / "venvs")
    figures["built"]["wheel_mb"] = round(built.wheel.stat().st_size / 1e6)
    (place.home / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    place.say(json.dumps(figures))
    assert figures["built"]["cpu_library_mb"] < figures["published"]["cpu_library_mb"] * 1.1
