"""Real packages from their sdists, built by their recipes for nodes of two rungs.

numpy and llama-cpp-python are built alone; torch-scatter is built against the published torch of
its release, which is the case of every extension of torch.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import Config, Inventory, Plan, Result
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models.config import Build
from fleetbuild.models.plan import PlannedWheel
from fleetbuild.models.result import WheelResult
from tests.lab import Lab, runnable

pytestmark = [
    pytest.mark.long,
    pytest.mark.network,
    pytest.mark.skipif("avx2" not in runnable(), reason="this machine's CPU has no AVX2"),
]

NODES = {"ivy": "avx", "haswell": "avx2"}
# PyPI's wheels of torch bring CUDA, and this index has those for CPUs.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Release:
    """A request: a package to build, and the published packages that go with it."""

    name: str
    package: str
    beside: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        return Config(
            release=self.name,
            packages=(*self.beside, self.package),
            build=Build(policy="auto" if self.beside else "targeted"),
            index=(CPU_INDEX,) if self.beside and answers(CPU_INDEX) else (),
        )


RELEASES = [
    Release("torch-scatter", "torch-scatter==2.1.2", beside=("torch==2.13.0",)),
    Release("numpy", "numpy==2.3.5"),
    Release("llama-cpp-python", "llama-cpp-python==0.3.16"),
    # Its sdist has its crates, and Debian 12's Rust (1.63) still compiles this version.
    Release("orjson", "orjson==3.9.7"),
]


@dataclass(frozen=True)
class Made:
    """A release, as it was planned and applied."""

    release: Release
    lab: Lab
    state: Path
    inventory: Inventory
    plan: Plan
    result: Result

    @property
    def built(self) -> dict[str, tuple[PlannedWheel, WheelResult]]:
        """The build of each rung."""
        results = {each.artifact_key: each for each in self.result.wheels}
        return {
            group.target.isa: (wheel, results[str(wheel.artifact_key)])
            for group in self.plan.groups
            for wheel in group.wheels
            if wheel.package == self.release.name
        }

    def file(self, rung: str) -> Path:
        return Path(str(self.built[rung][1].file))


def answers(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=10):  # noqa: S310 (https)
            return True
    except OSError:
        return False


# Debian's Rust and patch, found on every node in /usr/local/bin with the libraries that they are
# linked with: the lab's nodes reach no mirror.
RUST = """
for program in cargo rustc patch; do
  printf '#!/bin/sh\\nLD_LIBRARY_PATH=/opt/rust/lib exec /opt/rust/bin/%s "$@"\\n' $program \\
    > /usr/local/bin/$program
  chmod 755 /usr/local/bin/$program
done
"""


def rust(folder: Path) -> Path | None:
    """A copy of the cargo, rustc and patch of this machine's Debian; None if one is missing."""
    programs = [Path("/usr/bin", name) for name in ("cargo", "rustc", "patch")]
    if not all(program.exists() for program in programs):
        return None
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    for program in programs:
        shutil.copy(program, folder / "bin")
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"=> (/\S+)", linked):
            # Every node has the C library, which must be of one piece.
            if not re.search(r"/(libc|libm|libdl|libpthread|librt)\.so", library):
                shutil.copy(library, folder / "lib")
    shutil.copytree("/usr/lib/rustlib", folder / "lib/rustlib", ignore_dangling_symlinks=True)
    return folder


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    with_rust = rust(tmp_path_factory.mktemp("rust") / "rust")
    more = {"volumes": [f"{with_rust}:/opt/rust:ro"], "setup": RUST} if with_rust else {}
    return make_lab(
        {"nodes": {name: {"hardware": rung, "gpu": False, **more} for name, rung in NODES.items()}}
    )


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def made(
    request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    release: Release = request.param
    if release.name == "orjson" and lab.exec("ivy", "command -v cargo", check=False).returncode:
        pytest.skip("Debian's cargo, rustc and patch are not installed here")
    state = tmp_path_factory.mktemp(release.name) / "state"
    inventory, config = fleetbuild.read_inventory(lab.inventory), release.config
    fleet = fleetbuild.Fleet(inventory, config=config, state_dir=state)
    plan = fleet.plan()
    if release.beside and plan.groups[0].wheels[0].wheel_version != "2.13.0+cpu":
        pytest.skip(f"no index has torch 2.13.0 for CPUs alone, and {CPU_INDEX} does not answer")
    assert plan.lock == "complete", plan.lock_problem
    result = fleet.apply(plan)
    told = [wheel.reason for wheel in result.wheels] + [node.reason for node in result.nodes]
    assert result.exit_code == 0, told
    return Made(release, lab, state, inventory, plan, result)


def test_each_rung_gets_a_wheel_with_its_own_instructions(made: Made) -> None:
    assert set(made.built) == set(NODES.values())
    used = {}
    for rung, (wheel, result) in made.built.items():
        assert (wheel.action, result.state) == ("build", "built")
        took = f"{wheel.package} {wheel.wheel_version}: {result.seconds:.0f} s"
        print(f"\n{took}")  # noqa: T201 (docs/verified.md)
        used[rung] = set(fleetbuild.audit_wheel(made.file(rung)).features)
        assert used[rung] <= RUNGS[rung].features
    assert "avx" in used["avx"]
    assert "avx2" in used["avx2"]
    assert len({result.sha256 for _, result in made.built.values()}) == len(NODES)


def test_each_node_serves_the_verified_wheel_of_its_group(made: Made) -> None:
    serving = f"/opt/fleetbuild/{made.release.name}/current"
    for node, rung in NODES.items():
        said = made.lab.exec(node, f"cat {serving}/manifest.json", check=True).stdout
        manifest = json.loads(said)
        assert manifest["verified"]
        ask = f"import importlib.metadata as m; print(m.version({made.release.name!r}))"
        done = made.lab.exec(node, f'{serving}/bin/python -c "{ask}"', user="fleet", check=True)
        assert done.stdout.strip() == made.built[rung][0].wheel_version


def test_the_wheel_pins_the_packages_that_it_was_built_against(made: Made) -> None:
    pins = [
        f"Requires-Dist: {each.replace('==2.13.0', '==2.13.0+cpu')}" for each in made.release.beside
    ]
    for rung in NODES.values():
        with zipfile.ZipFile(made.file(rung)) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            lines = wheel.read(name).decode().splitlines()
        assert [line for line in lines if line.startswith("Requires-Dist: torch")] == pins
