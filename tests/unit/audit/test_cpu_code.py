"""Code above the rung that is entered only where the CPU has what it needs."""

import pytest

from fleetbuild.audit import check_wheel
from tests.factories.elf import make_elf
from tests.factories.files import demo_wheel
from tests.factories.plans import make_target

VADDPS_ZMM = bytes.fromhex("62f1744858c2")
TARGET = make_target("avx")


@pytest.mark.parametrize(
    ("package", "file", "refused"),
    [
        ("torch", "torch/lib/libtorch_cpu.so", False),
        ("torch", "torch/lib/libtorch_python.so", True),
        ("other", "torch/lib/libtorch_cpu.so", True),
    ],
)
def test_only_wheels_that_choose_code_at_run_time_may_exceed_the_target(
    tmp_path, package: str, file: str, refused: bool
) -> None:
    path = demo_wheel(tmp_path, files={file: make_elf(VADDPS_ZMM)}, name=package)
    found = check_wheel(path, target=TARGET, package=package, wheel_version="1.0+cpu.avx")
    assert [("avx512f" in each) for each in found] == [True] * refused


def test_such_a_wheels_libc_is_still_checked(tmp_path) -> None:
    code = make_elf(VADDPS_ZMM, versions=("GLIBC_2.38",))
    path = demo_wheel(tmp_path, files={"torch/lib/libtorch_cpu.so": code}, name="torch")
    (found,) = check_wheel(path, target=TARGET, package="torch", wheel_version="1.0+cpu.avx")
    assert "needs glibc 2.38" in found
