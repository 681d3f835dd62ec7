"""ELF and fat binaries, whole and broken."""

import struct

import pytest

from fleetbuild.audit.elf import BrokenElf, Elf
from fleetbuild.audit.fatbin import BrokenFatbin, gpu_code
from fleetbuild.audit.functions import Functions
from fleetbuild.audit.wheel import audit_elf
from tests.factories.elf import make_elf, make_fatbin

VADDPS = bytes.fromhex("c5f458c2c3")
VERSIONS = ("GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9", "GLIBCXX_3.4.29", "GLIBC_PRIVATE")
WHOLE = make_elf(VADDPS, fatbin=make_fatbin((2, 86, 0x11)), versions=VERSIONS)


def test_an_elf_files_requirements_are_read():
    audit = audit_elf("a.so", WHOLE)
    assert (audit.arch, audit.libc, audit.glibc, audit.glibcxx) == (
        "x86_64", "glibc", "2.34", "3.4.29",
    )  # fmt: skip
    assert audit.needed == ("libc.so.6",)
    assert audit.sms == ("8.6",)
    (use,) = audit.features
    assert (use.feature, use.symbol, use.address) == ("avx", "kernel", 0x1000)


def test_an_elf_file_may_need_musl_or_no_libc():
    assert Elf(make_elf(b"\xc3", needed=(*["m"] * 2000, "libc.musl-x86_64.so.1"))).libc == "musl"
    nothing = Elf(make_elf(b"\xc3", needed=()))
    assert (nothing.libc, nothing.highest("GLIBC")) == (None, None)


def test_an_address_outside_of_all_functions_has_no_name():
    functions = Functions(Elf(WHOLE))
    assert [functions.name_at(a) for a in (0xFFF, 0x1004, 0x1005)] == [None, "kernel", None]


def test_other_architectures_are_named_and_not_read():
    assert Elf(make_elf(b"", machine=243)).arch == "riscv"
    assert audit_elf("a.so", make_elf(VADDPS, machine=183)).features == ()
    assert audit_elf("a.so", make_elf(VADDPS, machine=243)).features == ()
    thirty_two = bytearray(WHOLE)
    thirty_two[4] = 1
    thirty_two[18] = 3
    assert Elf(bytes(thirty_two)).arch == "i386"
    big = bytearray(WHOLE)
    big[5], big[18], big[19] = 2, 0, 99
    assert Elf(bytes(big)).arch == "machine 99"


def test_without_sections_the_executable_segments_are_code():
    body = bytearray(64 + 2 * 56)
    code_at = len(body)
    body[:64] = WHOLE[:64]
    struct.pack_into("<QQ", body, 32, 64, 0)  # segments follow the header, no sections
    struct.pack_into("<HHHH", body, 54, 56, 2, 0, 0)
    struct.pack_into("<IIQQQQQQ", body, 64, 1, 4, 0, 0, 0, 64, 64, 1)
    struct.pack_into("<IIQQQQQQ", body, 120, 1, 5, code_at, 0x2000, 0, len(VADDPS), 5, 1)
    audit = audit_elf("a.so", bytes(body) + VADDPS)
    assert [str(use) for use in audit.features] == ["avx (vaddps ymm0,ymm1,ymm2 at 0x2000)"]


def test_one_section_named_often_is_refused():
    elf = bytearray(WHOLE)
    headers = struct.unpack_from("<Q", elf, 40)[0]
    struct.pack_into("<Q", elf, headers + 64 + 32, len(elf) - 64)
    text = bytes(elf[headers + 64 : headers + 128])
    struct.pack_into("<H", elf, 60, 7 + 40)
    with pytest.raises(BrokenElf, match="larger than the file"):
        Elf(bytes(elf) + text * 40)


@pytest.mark.parametrize("field", [62, len(WHOLE) - 3 * 64 + 40, len(WHOLE) - 2 * 64 + 40])
def test_a_section_of_names_that_is_not_there_leaves_names_out(field):
    """The table of the sections' names, .verneed and .symtab may be missing."""
    elf = bytearray(WHOLE)
    struct.pack_into("<H", elf, field, 99)
    assert audit_elf("a.so", bytes(elf)).default == {"avx"}


@pytest.mark.parametrize("size", [4, 19, 40, 63, 100, len(WHOLE) - 1])
def test_a_cut_file_is_broken(size):
    with pytest.raises(BrokenElf):
        Elf(WHOLE[:size])


def test_a_version_count_beyond_the_section_is_bounded():
    elf = bytearray(make_elf(b"\xc3", versions=(*["GLIBC_2.2.5"] * 2000, "GLIBC_2.34")))
    at = elf.index(struct.pack("<HH", 1, 2001), 64)
    struct.pack_into("<H", elf, at + 2, 0xFFFF)  # versions of the library
    assert Elf(bytes(elf)).highest("GLIBC") == "2.34"


def test_the_sms_of_a_fat_binary_are_read():
    section = make_fatbin((2, 86, 0x11), (1, 90, 0x11)) + bytes(8)
    section += make_fatbin((2, 90, 0x100011), (2, 100, 0x1200011), (7, 50, 0))
    assert [(code.sm, code.ptx) for code in gpu_code(section)] == [
        ("8.6", False), ("9.0", True), ("9.0a", False), ("10.0f", False),
    ]  # fmt: skip
    audit = audit_elf("a.so", make_elf(b"\xc3", fatbin=section))
    assert (audit.sms, audit.ptx) == (("8.6", "9.0a", "10.0f"), ("9.0",))


@pytest.mark.parametrize("cut", [20, 60, 110])
def test_a_broken_fat_binary_is_reported(cut):
    section = bytearray(make_fatbin((2, 86, 0)) * 2)
    with pytest.raises(BrokenFatbin):
        list(gpu_code(bytes(section[:cut])))
    section[16 + 4] = 255  # an entry whose header is larger than its container
    with pytest.raises(BrokenFatbin):
        list(gpu_code(bytes(section)))
