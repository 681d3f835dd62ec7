"""The names of targets, such as sm89-avx2-cp311."""

from __future__ import annotations

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.models import TargetLibc
from fleetbuild.plan.decide.named_targets import parse_target


@pytest.mark.parametrize(
    ("name", "canonical", "arch", "sms", "libc"),
    [
        ("sm89-avx2-cp311", "sm89-avx2-cp311", "x86_64", ("8.9",), "glibc"),
        ("sm120.sm90-avx512-cp312", "sm90.sm120-avx512-cp312", "x86_64", ("9.0", "12.0"), "glibc"),
        ("cpu-x86-64-v2-cp313t", "cpu-x86-64-v2-cp313t", "x86_64", (), "glibc"),
        ("cpu-armv8.4sve-cp311-musl", "cpu-armv8.4sve-cp311-musl", "aarch64", (), "musl"),
    ],
)
def test_a_name_of_a_group_says_what_to_build_for(name, canonical, arch, sms, libc):
    target = parse_target(name)
    assert (target.name, target.arch, target.sms) == (canonical, arch, sms)
    assert target.libc == TargetLibc(family=libc, floor="")


def test_a_cpus_name_stands_for_its_rung():
    assert parse_target("sm86-zen4-cp311").name == "sm86-avx512bf16-cp311"
    assert parse_target("cpu-x86-64-v3-cp311").name == "cpu-avx2-cp311"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sm89", "is not the name of a group"),
        ("sm8-avx2-cp311", "is not the name of a group"),
        ("cpu-avx2-cp27", "is not the name of a group"),
        ("cpu-avx2-cp311\n", "is not the name of a group"),
        ("cpu-pentium-cp311", "the rung 'pentium', which does not exist"),
        ("sm91-avx2-cp311", "the SM 9.1, which is unknown"),
    ],
)
def test_a_name_that_says_nothing_is_refused_with_the_words_that_would(name, why):
    with pytest.raises(ConfigError, match=why) as error:
        parse_target(name)
    assert error.value.fix
