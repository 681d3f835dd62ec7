"""Instructions of the newest CPUs: each has its feature, and an unknown one decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.audit import aarch64, x86
from fleetbuild.audit.pieces import Piece
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.hardware.cpu_models import CPU_MODELS
from tests.factories.elf import make_elf

RET = b"\xc3"
ADD = bytes.fromhex("4801d8")  # add rax, rbx


def encodings(arch):
    lines = (Path(__file__).parent / f"encodings_{arch}.txt").read_text("utf-8").splitlines()
    rows = [tuple(line.split(" | ")) for line in lines if not line.startswith("#")]
    return [pytest.param(code, set(needs.split()), id=text) for code, text, needs in rows]


def uses(code):
    piece = Piece(0, len(code), 0, "default", known=True)
    return [use for use, _ in x86.used_features(code, [piece])]


@pytest.mark.parametrize(("code", "features"), encodings("x86_64"))
def test_an_x86_instruction_has_its_features_and_its_length(code, features):
    found = uses(ADD * 20 + bytes.fromhex(code) + bytes.fromhex("c5f458c2") + RET)
    named = {use.feature for use in found}
    assert features <= named
    # The one behind it is found at its place: the length is right.
    assert "avx" in named or "avx" in features
    assert x86.UNKNOWN not in named
    assert named - features <= {"avx", "avx512f", "avx512vl", "sse4_2"}


@pytest.mark.parametrize(("word", "features"), encodings("aarch64"))
def test_an_arm_instruction_has_its_features(word, features):
    assert set(aarch64.features_of(int(word, 16))) == features


HASWELL = CPU_MODELS["Haswell"].features


def read(code):
    return audit_elf("demo.so", make_elf(code))


@pytest.mark.parametrize("code", ["62f5754858c2", "d51801c0", "62f4fc1801d1"])
def test_new_instructions_do_not_run_on_old_cpus(code):
    assert read(ADD * 3 + bytes.fromhex(code) + RET).default - HASWELL


@pytest.mark.parametrize("code", ["62f77f487ac1", "62f1fd483bc101", "0f387fc1", "c4e2f8fec1"])
def test_an_instruction_that_nobody_knows_is_not_decided(code):
    (unknown,) = read(ADD * 3 + bytes.fromhex(code) + ADD * 5 + RET).unknown
    assert bytes.fromhex(code)[:4].hex(" ") in unknown


@pytest.mark.parametrize(
    "code",
    [
        RET + bytes.fromhex("62f77f487ac1") * 4,  # constants behind the code
        bytes.fromhex("eb06") + bytes.fromhex("62f77f487ac1") + RET,
        bytes.fromhex("48b862f77f487ac1c4e2") + RET,  # mov rax, a constant
        bytes.fromhex("4889c8") * 30 + RET + bytes.fromhex("d5d5d5d5"),
    ],
)
def test_data_in_a_function_is_not_an_unknown_instruction(code):
    elf = read(ADD * 30 + code)
    assert (elf.unknown, elf.default - HASWELL) == ((), frozenset())
