"""What MSVC may use for a rung, and which toolsets a CUDA toolkit accepts."""

from __future__ import annotations

import pytest

from fleetbuild.extensions.windows.hardware import arch_option, fits_toolset
from fleetbuild.hardware.rungs import RUNGS


@pytest.mark.parametrize(
    ("rung", "option"),
    [
        ("x86-64", ""),
        ("x86-64-v2", ""),
        ("avx", "/arch:AVX"),
        ("avx2", "/arch:AVX2"),
        ("avx512", "/arch:AVX512"),
        ("amx", "/arch:AVX512"),
    ],
)
def test_an_arch_option_never_goes_beyond_the_rung(rung: str, option: str) -> None:
    assert arch_option(RUNGS[rung]) == option


@pytest.mark.parametrize(
    ("toolset", "cuda", "fits"),
    [
        ("14.29.30133", "11.4", True),
        ("14.30.30705", "11.4", False),
        ("14.38.33130", "11.8", True),
        ("14.40.33807", "12.2", False),
        ("14.44.35207", "12.4", True),
        ("14.44.35207", None, True),
        ("14.16.27023", None, False),
    ],
)
def test_a_cuda_toolkit_refuses_newer_toolsets(toolset: str, cuda: str | None, fits: bool) -> None:
    assert fits_toolset(toolset, cuda) is fits
