"""Code above the rung that is entered only where the CPU has what it needs."""

import pytest
from audit_wheels import make_elf, make_wheel

from fleetbuild.audit import check_wheel
from fleetbuild.models import Target, TargetLibc

VADDPS_ZMM = bytes.fromhex("62f1744858c2")
TARGET = Target(
    arch="x86_64",
    isa="avx",
    features=("avx",),
    python="cp311",
    libc=TargetLibc(family="glibc", floor="2.36"),
)


@pytest.mark.parametrize(
    ("package", "file", "refused"),
    [
        ("torch", "torch/lib/libtorch_cpu.so", False),
        ("torch", "torch/lib/libtorch_python.so", True),
        ("other", "torch/lib/libtorch_cpu.so", True),
    ],
)
def test_only_what_is_known_to_choose_may_hold_more(
    tmp_path, package: str, file: str, refused: bool
) -> None:
    path = make_wheel(tmp_path, {file: make_elf(VADDPS_ZMM)}, name=package)
    found = check_wheel(path, target=TARGET, package=package, wheel_version="1.0+cpu.avx")
    assert [("avx512f" in each) for each in found] == [True] * refused


def test_its_libc_is_looked_at_all_the_same(tmp_path) -> None:
    code = make_elf(VADDPS_ZMM, versions=("GLIBC_2.38",))
    path = make_wheel(tmp_path, {"torch/lib/libtorch_cpu.so": code}, name="torch")
    (found,) = check_wheel(path, target=TARGET, package="torch", wheel_version="1.0+cpu.avx")
    assert "needs glibc 2.38" in found
