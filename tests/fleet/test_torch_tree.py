"""The torch recipe on a real source tree of torch: configured on a node, as an apply does it.

Building it would take hours, so the build ends where CMake has made its build graph (where
setup.py's own --cmake-only stops). The graph says which files are compiled, and with which flags.
It is a global option, since setup.py builds for pip's first question, which is for the metadata.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import fleetbuild
from tests.lab import Lab
from tests.torch_tree.assemble import LEAN, assemble

pytestmark = [pytest.mark.long, pytest.mark.network]

CACHE = Path(__file__).parents[2] / ".cache" / "torch"
# What Debian's packages have no source for is left out; and the build is to end once CMake did.
WITHOUT = f"{LEAN.read_text()}config_settings: {{--global-option: --cmake-only}}\n"
STOCK = WITHOUT.replace("files:\n", 'files:\n  levels.cmake: "# nothing is switched off"\n')
ABOVE_AVX = re.compile(r"\s(-m(?:avx2|fma4?|f16c|avx512\w*|bmi2?|arch=(?!x86-64-v2\b)\S+))")
# Code of others that is compiled for more than the target, and is run only where the CPU has it.
CHOSEN_AT_RUN_TIME = {
    "third_party/XNNPACK/": "XNNPACK asks cpuinfo and fills its tables of kernels by what it says",
    "third_party/sleef/": "Sleef's purecfma is entered by its dispatcher alone, and has no switch",
}


@dataclass
class Graph:
    """The build graph of one configuration."""

    commands: list[dict[str, str]]
    cache: str

    def above(self) -> Counter[str]:
        """Objects that are compiled for more than avx, by whose code they are."""
        return Counter(_owner(each) for each in self.commands if ABOVE_AVX.search(each["command"]))

    def says(self, option: str) -> str:
        found = re.search(rf"^{option}:\w+=(.*)$", self.cache, re.MULTILINE)
        return found[1] if found else ""


def _owner(command: dict[str, str]) -> str:
    path = command["file"].partition("/src/")[2]
    path = path.removeprefix("build/").replace("sleef/src", "third_party/sleef/src", 1)
    return next((owner for owner in CHOSEN_AT_RUN_TIME if owner in path), "torch's own")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble(tmp_path_factory.mktemp("torch") / "tree", CACHE)


@pytest.fixture(scope="module")
def configured(
    make_lab: Callable[..., Lab], tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Graph]:
    lab = make_lab({"nodes": {"ivy": {"hardware": "avx", "gpu": False}}})

    def configure(recipe: str) -> Graph:
        place = tmp_path_factory.mktemp("run")
        (place / "recipes").mkdir()
        (place / "recipes" / "torch.yml").write_text(recipe)
        (place / "fleetbuild.yml").write_text(f"packages: ['torch==2.6.0 @ {tree}']\n")
        fleet = fleetbuild.Fleet(
            lab.inventory, config=place / "fleetbuild.yml", state_dir=place / "state"
        )
        plan = fleet.plan()
        (group,) = plan.groups
        assert group.name == "cpu-avx-cp311"
        result = fleet.apply(plan)
        (wheel,) = result.wheels
        assert wheel.state == "failed"  # a configured tree makes no wheel
        assert wheel.log
        log = Path(wheel.log).read_text()
        assert "Finished running cmake" in log, log[-3000:]
        build = f".cache/fleetbuild/builds/{group.wheels[0].artifact_key}/work/src/build"
        return Graph(
            commands=json.loads(_read(lab, f"{build}/compile_commands.json")),
            cache=_read(lab, f"{build}/CMakeCache.txt"),
        )

    return configure


def _read(lab: Lab, path: str) -> str:
    return lab.exec("ivy", f"cat ~/{path}", user="fleet", check=True).stdout


def test_no_object_file_of_torch_is_compiled_beyond_the_target(
    configured: Callable[[str], Graph],
) -> None:
    graph, stock = configured(WITHOUT), configured(STOCK)
    above = graph.above()
    assert above["torch's own"] == 0
    assert set(above) <= set(CHOSEN_AT_RUN_TIME), above
    assert not [each for each in graph.commands if "-march=native" in each["command"]]
    # The control: with the levels on, the same reading finds them.
    assert stock.above()["torch's own"] > 100
    saved = len(stock.commands) - len(graph.commands)
    print(  # noqa: T201 (the figures of docs/verified.md)
        f"\ncompile commands: {len(graph.commands)}, of {len(stock.commands)} with all levels "
        f"({saved} saved); above avx: {dict(above)}, and {dict(stock.above())} with all levels"
    )
    assert saved > 100
    # Parts that are fast without AVX2 stay.
    for option, value in {"USE_MKLDNN": "1", "USE_XNNPACK": "1", "BLAS": "MKL"}.items():
        assert graph.says(option) == value, option
    assert graph.says("USE_FBGEMM") == "OFF"
