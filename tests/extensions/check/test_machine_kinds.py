"""What --for names."""

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.extensions.check import machine_kinds
from fleetbuild.extensions.check.machine_kinds import MachineKind, named_kinds
from fleetbuild.hardware.rungs import RUNGS
from tests.factories.plans import make_target


@pytest.mark.parametrize(
    ("name", "arch", "has", "lacks"),
    [
        ("avx", "x86_64", "avx", "f16c"),
        ("IvyBridge", "x86_64", "f16c", "avx2"),
        ("ivy bridge", "x86_64", "f16c", "avx2"),
        ("Graviton2", "aarch64", "asimddp", "sve"),
        ("x86-64-v3", "x86_64", "fma", "avx512f"),
        ("Xeon E5-2650 v2", "x86_64", "f16c", "avx2"),
        ("Graviton4", "aarch64", "sve2", "sme"),
        ("sm61.sm75-avx2-cp310", "x86_64", "avx2", "avx512f"),
        ("cpu-avx-cp312-musl", "x86_64", "avx", "avx2"),
    ],
)
def test_rungs_models_and_groups_are_kinds(name, arch, has, lacks):
    (kind,) = named_kinds([name, name])
    assert (kind.name, kind.arch) == (name, arch)
    assert has in kind.features
    assert lacks not in kind.features


def test_a_group_says_python_sms_and_libc():
    (kind,) = named_kinds(["sm61.sm75-avx2-cp310-musl"])
    assert (kind.sms, kind.python, kind.python_version) == (("6.1", "7.5"), "cp310", "3.10")
    assert kind.libc.family == "musl"


def test_an_sm_is_this_machine_with_that_gpu(monkeypatch):
    target = make_target("avx2")
    here = MachineKind(
        name="this machine",
        arch="x86_64",
        features=RUNGS["avx2"].features,
        python="cp311",
        python_version="3.11.2",
        libc=target.libc,
    )
    monkeypatch.setattr(machine_kinds, "this_machine", lambda: here)
    for name in ("sm61", "sm_61", "6.1", "GTX 1080"):
        (kind,) = named_kinds([name])
        assert (kind.name, kind.sms, kind.features) == (name, ("6.1",), here.features)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("IvyBrige", "Did you mean IvyBridge"),
        ("RTX 3061", "RTX 3060"),
        ("nowhere", "sm61"),
        ("sm10", "known SMs"),
        ("cpu-avx3-cp311", "rungs"),
        ("", "its own --for"),
    ],
)
def test_an_unknown_name_is_refused_with_the_valid_names(name, words):
    with pytest.raises(UsageError) as caught:
        named_kinds([name])
    assert words in caught.value.fix


def test_this_machine_is_a_kind():
    here = machine_kinds.this_machine()
    assert here.name == "this machine"
    assert here.features
    assert here.python == machine_kinds.PYTHON_TAG
