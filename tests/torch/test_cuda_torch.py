"""A whole torch with CUDA, installed by an apply on an emulated Ivy Bridge that shows an RTX 3060.

FLEETBUILD_TORCH_EXPORT names the folder that `fleetbuild store export` wrote after the build of
docs/verified.md: the wheel for `sm86-avx-cp311` and the files that its plan locks. The node's
nvidia-smi is a program that prints text: nothing of this runs on a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetbuild import Fleet, load_config
from tests.lab import Lab
from tests.lab.emulation import why_not
from tests.torch.test_whole_torch import PATIENCE, TRAINS, python_of

pytestmark = [pytest.mark.long, pytest.mark.fleet]

TARGET = "sm86-avx-cp311"
CUDA = """
import torch
print(torch.version.cuda, torch._C._cuda_getArchFlags(), torch.backends.cudnn.version() > 90000)
print(torch.cuda.is_available(), torch.cuda.device_count())
"""


@pytest.fixture(scope="module")
def index() -> Path:
    named = os.environ.get("FLEETBUILD_TORCH_EXPORT")
    if not named:
        pytest.skip("FLEETBUILD_TORCH_EXPORT names no folder of `fleetbuild store export`")
    if reason := why_not():
        pytest.skip(reason)
    return Path(named, TARGET, "simple").resolve(strict=True)


def test_an_ivy_bridge_with_an_rtx_3060_serves_it(index: Path, tmp_path: Path) -> None:
    (wheel,) = index.parent.rglob("torch-*.whl")
    version = wheel.name.split("-")[1]
    config = tmp_path / "fleetbuild.yml"
    config.write_text(
        f"index: [{index.as_uri()}]\npackages: [torch=={version}]\nbuild: {{policy: published}}\n"
    )
    with Lab("torch-sm86", {"nodes": {"ivy": {"cpu": "IvyBridge"}}}) as lab:
        fleet = Fleet(
            lab.inventory,
            config=load_config(config),
            state_dir=tmp_path / "state",
            timeout=PATIENCE,
        )
        plan = fleet.plan()
        assert [group.name for group in plan.groups] == [TARGET]
        result = fleet.apply(plan)
        assert [(node.state, node.reason) for node in result.nodes] == [("installed", None)]
        again = fleet.apply(fleet.plan())
        assert [node.state for node in again.nodes] == ["up_to_date"]
        assert not again.changed

        said = python_of(lab, "ivy", CUDA)
        assert said.stdout.split() == ["12.4", "sm_86", "True", "False", "0"], said.stderr
        trained = python_of(lab, "ivy", TRAINS)
        assert trained.stdout.split() == [version, "DEFAULT", "True", "True"], trained.stderr
