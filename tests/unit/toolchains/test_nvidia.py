"""Which of NVIDIA's wheels a build takes."""

from __future__ import annotations

import pytest

from fleetbuild.toolchains.nvidia import (
    NvidiaWheels,
    toolkit_archives,
    toolkit_requirements,
    wheels_for,
)
from fleetbuild.toolchains.pytorch import TORCHES, Torch, find_torch


@pytest.mark.parametrize("torch", TORCHES.values(), ids=TORCHES)
def test_torch_gets_the_cudnn_that_it_was_released_with(torch: Torch) -> None:
    majors = {each.cudnn.split(".")[0] for each in torch.releases.values() if each.cudnn}
    assert torch.cudnn == max(majors)
    assert torch.cudnn == (
        "8" if torch.name in {"1.12", "1.13", "2.0", "2.1", "2.2", "2.3"} else "9"
    )


@pytest.mark.parametrize(
    ("torch", "cuda", "arch", "sms", "cudnn"),
    [
        ("2.0.1", "11.7", "x86_64", ["3.5"], "nvidia-cudnn-cu11>=8.5,<8.9.1"),
        ("2.7.1", "11.8", "x86_64", ["3.7", "8.6"], ""),  # cuDNN 9 has nothing for Kepler
        ("2.7.1", "11.8", "x86_64", ["5.0"], "nvidia-cudnn-cu11>=9,<9.11"),
        ("2.7.1", "11.8", "aarch64", ["8.0"], ""),  # there is no such wheel
        ("2.2.2", "12.4", "aarch64", ["9.0"], ""),  # none of cuDNN 8 for Arm
        ("2.6.0", "12.4", "aarch64", ["9.0"], "nvidia-cudnn-cu12>=9,<10"),
        ("2.99.0", "13.0", "x86_64", ["8.6"], "nvidia-cudnn-cu13>=9.12,<10"),  # like the newest
        ("2.0.1", "11.4", "x86_64", ["3.5"], ""),
    ],
)
def test_cudnn_goes_with_torch_toolkit_and_gpus(
    torch: str, cuda: str, arch: str, sms: list[str], cudnn: str
) -> None:
    found = wheels_for(cuda, arch, sms, find_torch(torch))
    assert found.cudnn == cudnn
    assert bool(found.cudnn_major) is bool(cudnn)


@pytest.mark.parametrize(
    ("cuda", "arch", "first"),
    [
        ("11.6", "x86_64", None),
        ("11.7", "x86_64", "nvidia-cublas-cu11==11.10.3.66"),
        ("11.7", "aarch64", None),
        ("11.8", "aarch64", "cuda-toolkit[cublas,cudart,cufft,cupti,curand,cusolver,cusparse,"),
        ("12.2", "aarch64", None),
        ("12.6", "x86_64", "cuda-toolkit[cublas,cudart,cufft,cupti,curand,cusolver,cusparse,nvjit"),
    ],
)
def test_only_some_toolkits_have_nvidia_wheels(cuda: str, arch: str, first: str | None) -> None:
    found = wheels_for(cuda, arch, ["8.0"], None).toolkit
    assert bool(found) is (first is not None)
    if first:
        assert found[0].startswith(first)


def test_no_nvidia_wheels_without_a_toolkit_or_on_a_jetson() -> None:
    assert wheels_for(None, "x86_64", [], find_torch("2.13.0")) == NvidiaWheels()
    assert wheels_for("12.6", "aarch64", ["8.7"], find_torch("2.13.0")) == NvidiaWheels()


@pytest.mark.parametrize("torch", TORCHES.values(), ids=TORCHES)
def test_every_torch_was_released_with_a_toolkit_that_nobody_has_to_install(torch: Torch) -> None:
    """So 11.7, 12.1, 12.4 and 12.9 need no archives: PyTorch released another one beside them."""

    def complete(cuda: str) -> bool:
        parts = cuda, "x86_64", ["7.0"], []
        return bool(toolkit_requirements(*parts) or toolkit_archives(*parts))

    assert any(map(complete, torch.releases)) or torch.name in {"1.12", "1.13"}
