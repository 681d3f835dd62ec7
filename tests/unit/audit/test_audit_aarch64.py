"""AArch64 words, spelled by GNU as 2.40."""

import struct

import pytest

from fleetbuild.audit import aarch64
from fleetbuild.audit.pieces import Piece


@pytest.mark.parametrize(
    ("word", "features"),
    [
        (0xD503201F, ()),  # nop
        (0xD503245F, ()),  # bti c
        (0xD503233F, ()),  # paciasp, a hint
        (0x1F014000, ()),  # fmadd s0, s0, s1, s16
        (0x1E23C000, ()),  # fcvt h0, s0: old
        (0x1EE24000, ()),  # fcvt s0, h0: old
        (0x885FFC40, ()),  # ldaxr
        (0xB8E20000, ("atomics",)),  # ldaddal w2, w0, [x0]
        (0x88E0FC41, ("atomics",)),  # casal w0, w1, [x2]
        (0xF8E28000, ("atomics",)),  # swpal x2, x0, [x0]
        (0x48207C82, ("atomics",)),  # casp x0, x1, x2, x3, [x4]
        (0xB8BFC000, ("lrcpc",)),  # ldapr w0, [x0]
        (0x4E829420, ("asimddp",)),  # sdot v0.4s, v1.16b, v2.16b
        (0x4E410C00, ("asimdhp",)),  # fmla v0.8h, v0.8h, v1.8h
        (0x1EE10800, ("asimdhp",)),  # fmul h0, h0, h1
        (0x4E82A420, ("i8mm",)),  # smmla v0.4s, v1.16b, v2.16b
        (0x6E42EC20, ("bf16",)),  # bfmmla v0.4s, v1.8h, v2.8h
        (0x1E634000, ("bf16",)),  # bfcvt h0, s0
        (0x65A10020, ("sve",)),  # fmla z0.s, p0/m, z1.s, z1.s
        (0x04613420, ("sve2",)),  # xar
        (0x45029820, ("sve", "i8mm")),  # smmla z0.s, z1.b, z2.b
        (0x64628020, ("sve", "bf16")),  # bfdot z0.s, z1.h, z2.h
        (0x1AC14000, ("crc32",)),  # crc32b w0, w0, w1
        (0x6E828420, ("asimdrdm",)),  # sqrdmlah v0.4s, v1.4s, v2.4s
        (0xD65F0BFF, ("paca",)),  # retaa
        (0x4E284820, ("aes",)),  # aese
        (0x80820000, ("sme",)),  # fmopa
    ],
)
def test_an_instruction_needs_the_listed_features(word, features):
    assert aarch64.features_of(word) == features


CBZ, LDADDAL, RET = 0x34000070, 0xB8E00020, 0xD65F03C0


def uses(data, when="default"):
    piece = Piece(0, len(data), 0x400, when, known=True)
    return [use for use, _ in aarch64.used_features(data, [piece])]


def used(*words, when="default"):
    data = struct.pack(f"<{len(words)}I", *words)
    return uses(data, when)


def test_text_between_functions_is_not_a_comparing_branch():
    assert uses(b"SHA1 for ARMv8, not in use: bit") == []
    assert [use.feature for use in used(0x74C00001)] == ["cmpbr"]


def test_asking_for_the_vector_length_does_not_use_sve_at_load():
    rdvl, cntb, cntd, ret = 0x04BF5020, 0x0420E3E0, 0x04E0E3E0, 0xD65F03C0
    for asks in (rdvl, cntb, cntd):
        assert [use.when for use in used(asks, ret, when="load")] == ["default"]


def test_the_atomics_helper_of_libgcc_is_not_a_use_of_atomics():
    assert used(CBZ, LDADDAL, RET) == []
    (use,) = used(CBZ, LDADDAL, RET, LDADDAL, RET)
    assert str(use) == "atomics (.inst 0xb8e00020 at 0x40c)"
    assert [use.feature for use in used(LDADDAL)] == ["atomics"]


def test_odd_bytes_at_the_end_are_left_out():
    assert uses(b"\x00\x01\x02") == []
    assert aarch64.implied(frozenset({"sve2"})) == {"sve2", "sve"}
