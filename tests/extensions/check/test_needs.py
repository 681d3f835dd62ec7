"""Reading a wheel for a verdict."""

from fleetbuild.extensions.check.needs import needs_here, read_needs
from tests.factories.elf import make_elf
from tests.factories.files import demo_wheel

VADDPS_YMM = bytes.fromhex("c5f458c2c3")


def test_both_processes_find_the_same(tmp_path):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(VADDPS_YMM)})
    here = needs_here(wheel)
    assert read_needs(wheel) == here
    assert here.files[0].default == {"avx"}
