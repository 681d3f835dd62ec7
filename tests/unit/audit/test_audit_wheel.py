"""Whole wheels: right ones, wrong ones, and ones that are out to harm."""

import os
import zipfile
from pathlib import Path

import pytest

from fleetbuild.audit import archive, audit_wheel, check_wheel
from fleetbuild.audit.downloads import audit_download
from fleetbuild.audit.wheel import audit_here
from fleetbuild.errors import UsageError
from fleetbuild.models import Target, TargetLibc
from tests.factories.elf import make_elf, make_fatbin
from tests.factories.files import demo_wheel, make_wheel
from tests.factories.plans import make_target

VADDPS_YMM, VADDPS_ZMM = bytes.fromhex("c5f458c2"), bytes.fromhex("62f1744858c2")
GOOD = {"demo/_c.so": make_elf(VADDPS_YMM, versions=("GLIBC_2.34",)), "demo/__init__.py": b""}


def check(path, **changes):
    fields = Target.model_fields
    target = {"isa": "avx"} | {key: value for key, value in changes.items() if key in fields}
    names = {"package": "demo", "wheel_version": "1.0+cpu.avx"}
    names |= {key: value for key, value in changes.items() if key not in fields}
    return check_wheel(path, target=make_target(**target), **names)


def test_a_right_wheel_is_accepted(tmp_path):
    path = demo_wheel(tmp_path, files=GOOD, extra=[("demo/", b"")])
    audit = audit_wheel(path)
    assert (audit.name, audit.version, audit.file_name) == ("demo", "1.0+cpu.avx", "demo")
    assert (audit.problems, audit.features, audit.libc_floor) == ((), ("avx",), "2.34")
    assert check(path) == ()


@pytest.mark.parametrize(
    ("requires", "fits"),
    [
        (["Torch==2.13.0+cpu.avx", "numpy"], False),  # as the stamp does not spell it
        (["numpy", "torch == 2.13.0+cpu.avx"], True),
        (["torch[opt]==2.13.0+cpu.avx"], True),
        (["torch-other==2.13.0+cpu.avx"], False),
        (["torch>=2"], False),
        (["torch==2.13.0+cpu.avx", "torch>=2"], False),
        (["torch==2.13.0+cpu.avx; extra == 'all'"], False),
        ([], False),
    ],
)
def test_a_wheel_requires_the_wheels_it_was_built_against(tmp_path, requires, fits):
    lines = "".join(f"Requires-Dist: {text}\n" for text in requires)
    metadata = f"Metadata-Version: 2.1\nName: demo\nVersion: 1.0+cpu.avx\n{lines}"
    extra = {"replace": {"{info}/METADATA": metadata.encode()}}
    wheel = demo_wheel(tmp_path, files=GOOD, **extra)
    found = [text for text in check(wheel, pins=["torch==2.13.0+cpu.avx"]) if "require" in text]
    assert bool(found) is not fits, found
    assert not [text for text in check(wheel) if "require" in text]


def test_a_newer_libstdcxx_than_the_nodes_have_is_reported(tmp_path):
    code = make_elf(VADDPS_YMM, versions=("GLIBCXX_3.4.9", "GLIBCXX_3.4.29"))
    wheel = demo_wheel(tmp_path, files={"demo/_c.so": code})
    assert check(wheel, libstdcxx="3.4.29") == ()
    assert check(wheel) == ()  # of nodes that do not say what they have
    assert check(wheel, libstdcxx="3.4.25") == (
        "demo/_c.so needs GLIBCXX_3.4.29, but the oldest libstdc++ has 3.4.25",
    )
    own = {"demo/_c.so": code, "demo.libs/libstdc++-1.so.6": code}
    assert check(demo_wheel(tmp_path, files=own), libstdcxx="3.4.25") == ()


def test_code_beyond_the_rung_is_named_with_its_place(tmp_path):
    path = demo_wheel(tmp_path, files={"demo/_c.so": make_elf(VADDPS_ZMM)})
    (finding,) = check(path)
    assert finding == (
        "demo/_c.so uses avx512f (vaddps zmm0,zmm1,zmm2 at 0x1000 in `kernel`), "
        "which avx does not have"
    )


SUFFIX_A, SUFFIX_F = 0x100000, 0x200000


@pytest.mark.parametrize(
    ("package", "built", "sms", "extra"),
    [
        ("demo", [(2, 86, 0)], ("8.6",), None),
        ("demo", [(2, 80, 0), (2, 86, 0)], ("8.6",), "8.0"),
        ("demo", [(2, 86, 0), (2, 89, 0)], ("8.6",), "8.9"),
        ("torch", [(2, 86, 0), (2, 89, 0)], ("8.6",), None),  # torch's own choice for a few files
        ("torch", [(2, 80, 0), (2, 89, 0)], ("8.0",), "8.9"),
        ("torch", [(2, 86, 0), (2, 100, SUFFIX_F)], ("8.6",), None),  # NCCL's
        ("demo", [(2, 90, 0), (2, 90, SUFFIX_A)], ("9.0",), None),
        ("demo", [(2, 100, 0), (2, 100, SUFFIX_F)], ("10.0",), None),
        ("demo", [(2, 120, 0), (2, 121, SUFFIX_A)], ("12.0",), "12.1a"),
        ("torch", [(2, 120, 0), (2, 121, SUFFIX_A)], ("12.0",), None),
        ("torch", [(2, 103, SUFFIX_A)], ("10.3",), None),
        ("torch", [(2, 121, SUFFIX_A)], ("12.1",), None),
        ("demo", [(2, 120, 0), (1, 120, 0)], ("12.0",), None),  # PTX of its own SM
        ("demo", [(2, 86, 0), (1, 52, 0)], ("8.6",), "5.2"),  # what an old nvcc adds by itself
        ("demo", [(2, 75, 0), (2, 80, 0), (2, 86, 0)], ("7.5", "8.0", "8.6"), None),
        ("demo", [(2, 75, 0)], (), "7.5"),  # a CPU wheel of a builder that has CUDA
        ("torch", [(2, 100, SUFFIX_F)], (), "10.0f"),
    ],
)
def test_built_wheels_have_gpu_code_for_their_target_only(tmp_path, package, built, sms, extra):
    version = f"1.0+{'cu130.sm86' if sms else 'cpu'}.avx"
    binary = make_elf(b"\xc3", fatbin=make_fatbin(*built))
    path = demo_wheel(tmp_path, files={"k.so": binary}, name=package, version=version)
    promise = f"only for SM {', '.join(sms)}" if sms else "for CPUs"
    finding = f"k.so contains GPU code for SM {extra}, but it must be {promise}"
    told = check(path, package=package, wheel_version=version, sms=sms)
    assert told == ((finding,) if extra else ())


@pytest.mark.parametrize(
    ("built", "found"),
    [
        ([(2, 80, 0), (2, 90, 0), (1, 90, 0)], None),
        ([(2, 80, 0), (2, 90, 0)], "for no SM"),
        ([(2, 80, 0), (2, 90, 0), (1, 80, 0)], "only for SM 8.0"),
    ],
)
def test_a_wheel_of_cuda_ptx_must_contain_ptx_of_the_newest_sm(tmp_path, built, found):
    version = "1.0+cu130.sm80.sm90.ptx.avx"
    binary = make_elf(b"\xc3", fatbin=make_fatbin(*built))
    path = demo_wheel(tmp_path, files={"k.so": binary}, version=version)
    told = check(path, wheel_version=version, sms=("8.0", "9.0"), ptx="9.0")
    missing = f"{path.name} must contain PTX for SM 9.0 (cuda_ptx), but has PTX {found}"
    assert told == ((missing,) if found else ())


def test_a_published_wheel_may_serve_more_gpus(tmp_path):
    binary = make_elf(b"\xc3", fatbin=make_fatbin((2, 75, 0), (2, 86, 0)))
    path = demo_wheel(tmp_path, files={"k.so": binary}, version="1.0+cu130")
    assert check(path, wheel_version="1.0+cu130", sms=("8.6",)) == ()


def test_libraries_of_nvidia_may_have_gpu_code_for_any_sm(tmp_path):
    all_of_them = make_elf(b"\xc3", fatbin=make_fatbin((2, 75, 0), (2, 80, 0), (2, 90, 0)))
    own = make_elf(b"\xc3", fatbin=make_fatbin((2, 80, 0)))
    brought = {"demo.libs/libcublas-1a2b3c.so.13": all_of_them}
    version = "1.0+cu130.sm80.avx"
    path = demo_wheel(tmp_path, files={"k.so": own, **brought}, version=version)
    assert check(path, wheel_version=version, sms=("8.0",)) == ()
    # And they do not stand in for what the package itself lacks.
    version = "1.0+cu130.sm90.avx"
    path = demo_wheel(tmp_path, files={"k.so": own, **brought}, version=version)
    findings = check(path, wheel_version=version, sms=("9.0",))
    assert any("has no code for SM 9.0" in finding for finding in findings)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"package": "other"}, "should be other 1.0+cpu.avx, but its name says demo 1.0+cpu.avx"),
        ({"wheel_version": "1.0+cpu.avx2"}, "its name says demo 1.0+cpu.avx"),
        ({"python": "cp312"}, "is for cp311, not cp312"),
        ({"python": "cp311t"}, "is for cp311, not cp311t"),
        ({"arch": "aarch64"}, "not for Linux on aarch64"),
        ({"arch": "aarch64"}, "demo/_c.so is for x86_64, not aarch64"),
        ({"libc": TargetLibc(family="glibc", floor="2.31")}, "needs glibc 2.34, but the oldest"),
        ({"libc": TargetLibc(family="musl", floor="1.2.5")}, "linked with glibc, but the nodes"),
    ],
)
def test_a_wheel_for_another_target_is_refused(tmp_path, changes, sentence):
    assert any(
        sentence in finding for finding in check(demo_wheel(tmp_path, files=GOOD), **changes)
    )


@pytest.mark.parametrize(
    ("tag", "changes", "fits"),
    [
        ("py3-none-any", {}, True),
        ("cp311-none-linux_x86_64", {}, True),
        ("cp39-abi3-linux_x86_64", {}, True),
        ("cp312-abi3-linux_x86_64", {}, False),
        ("cp39-abi3-linux_x86_64", {"python": "cp313t"}, False),
        ("cp313-cp313t-linux_x86_64", {"python": "cp313t"}, True),
        ("cp311-cp311-manylinux2014_x86_64", {}, True),
        ("cp311-cp311-manylinux_2_28_x86_64", {}, True),
        ("cp311-cp311-manylinux_2_39_x86_64", {}, False),
        ("cp311-cp311-musllinux_1_2_x86_64", {}, False),
        ("cp311-cp311-manylinux_2_28_aarch64", {}, False),
        ("cp311-cp311-macosx_11_0_arm64", {}, False),
        (
            "cp311-cp311-musllinux_1_2_x86_64",
            {"libc": TargetLibc(family="musl", floor="1.2.5")},
            True,
        ),
    ],
)
def test_a_wheels_tags_decide_whether_it_fits(tmp_path, tag, changes, fits):
    path = demo_wheel(tmp_path, files={"demo/__init__.py": b""}, tag=tag)
    assert (check(path, **changes) == ()) is fits


@pytest.mark.parametrize(
    ("built", "sm", "fits"),
    [
        ([(2, 86, 0)], "8.6", True),
        ([(2, 80, 0)], "8.6", True),
        ([(2, 86, 0)], "8.0", False),
        ([(2, 80, 0)], "9.0", False),
        ([(1, 80, 0)], "9.0", True),
        ([(1, 90, 0)], "8.6", False),
        ([(2, 90, 0x100000)], "9.0", True),
        ([(2, 100, 0x100000)], "10.3", False),
        ([(2, 100, 0x200000)], "10.3", True),
        ([(2, 86, 0)], "8.7", False),
        ([(1, 90, 0x100000)], "9.0", True),
        ([(2, 12345, 0)], "9.0", False),
    ],
)
def test_a_wheels_gpu_code_decides_whether_it_fits(tmp_path, built, sm, fits):
    binary = make_elf(b"\xc3", fatbin=make_fatbin(*built))
    path = demo_wheel(tmp_path, files={"k.so": binary}, version="1.0+cu130")
    findings = check(path, wheel_version="1.0+cu130", sms=(sm,))
    assert (findings == ()) is fits
    assert audit_wheel(path).sms + audit_wheel(path).ptx


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"replace": {"demo/_c.so": b"other"}}, "'demo/_c.so' does not match RECORD"),
        ({"replace": {"demo/new.py": b""}}, "'demo/new.py' has no valid hash in RECORD"),
        (
            {"replace": {"demo/_c.so": None}},
            "RECORD lists 'demo/_c.so', but the wheel does not contain it",
        ),
        ({"replace": {"{info}/RECORD": None}}, "no readable RECORD"),
        ({"replace": {"{info}/RECORD": b'"' + b"x" * 200_000}}, "RECORD cannot be read"),
        ({"replace": {"{info}/RECORD": b"\ndemo/_c.so\n"}}, "'demo/_c.so' has no valid hash"),
        ({"replace": {"{info}/WHEEL": None}}, "no readable WHEEL"),
        ({"replace": {"{info}/WHEEL": b"Tag: py3-none-any\nTag: x\n"}}, "WHEEL says py3-none-any"),
        ({"replace": {"{info}/METADATA": b"Name: demo\n\xff"}}, "no Name or no Version"),
        ({"replace": {"{info}/METADATA": b"Version: 1\n"}}, "no Name or no Version"),
        (
            {"replace": {"{info}/METADATA": b"Name: evil\nVersion: 1\n"}},
            "evil 1, its file name",
        ),
        (
            {"replace": {"{info}/METADATA": b"Name: demo\nVersion: ?\n"}},
            "?, its dist-info folder",
        ),
        (
            {"replace": {"{info}/METADATA": b"Name: demo\nVersion: " + b"1" * 60_000}},
            "says demo 11",
        ),
        ({"extra": [("/etc/passwd", b"")]}, "would be unpacked outside"),
        ({"extra": [("C:x", b"")]}, "would be unpacked outside"),
        ({"extra": [("a\\x", b"")]}, "would be unpacked outside"),
        ({"extra": [("", b"")]}, "would be unpacked outside"),
        ({"extra": [("zeros", bytes(70 * 2**20))]}, "'zeros' unpacks"),
        ({"file_name": "nonsense.whl"}, "its file name is not a wheel's"),
    ],
)
def test_each_defect_is_a_problem(tmp_path, changes, sentence):
    problems = audit_wheel(demo_wheel(tmp_path, files=GOOD, **changes)).problems
    assert any(sentence in problem for problem in problems), problems
    assert all(len(problem) < 1_000 for problem in problems)
    assert check(demo_wheel(tmp_path, files=GOOD, **changes)) != ()


def test_a_wheel_that_was_renamed_for_its_libc_is_not_damaged(tmp_path):
    """vllm's are: WHEEL says linux, the file name manylinux."""
    name = "demo-1.0+cpu.avx-cp311-cp311-manylinux_2_28_{}.whl"
    good = audit_wheel(demo_wheel(tmp_path, files=GOOD, file_name=name.format("x86_64")))
    assert good.problems == ()
    other = audit_wheel(demo_wheel(tmp_path, files=GOOD, file_name=name.format("aarch64")))
    assert "WHEEL says cp311-cp311-linux_x86_64" in other.problems[0]


def test_only_plain_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "demo.whl")
    for path in (tmp_path, tmp_path / "demo.whl", Path("/dev/zero"), tmp_path / "missing.whl"):
        with pytest.raises(UsageError, match=r"be read: (it is not a file|No such)"):
            audit_wheel(path)


def test_links_duplicates_and_encryption_are_problems(tmp_path):
    path = demo_wheel(tmp_path, files=GOOD)
    with zipfile.ZipFile(path, "a") as file:
        link = zipfile.ZipInfo("demo/link")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("demo/_c.so", b"")
    assert [p.split(" ", 1)[1] for p in audit_wheel(path).problems] == [
        "is in it 2 times", "is a symbolic link",
    ]  # fmt: skip
    data = path.read_bytes().replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
    )
    path.write_bytes(data)
    assert any("encrypted" in problem for problem in audit_wheel(path).problems)


def test_too_large_archives_are_not_examined(tmp_path, monkeypatch):
    path = demo_wheel(tmp_path, files=GOOD)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 2)
    monkeypatch.setattr(archive, "MAX_TOTAL", 100)
    monkeypatch.setattr(archive, "MAX_MEMBER", 400)
    assert [p.partition(";")[2] or p[:20] for p in audit_here(path, (), ()).problems] == [
        " more than 2 are not examined", " more than 0 are not examined", "'demo/_c.so' unpacks",
    ]  # fmt: skip
    assert not archive.is_bomb(80 << 20, 1 << 20)


def test_broken_binaries_are_findings(tmp_path):
    assert archive.Folder({"gone.so": tmp_path / "gone.so"}).head("gone.so") == b""
    files = {"a.so": b"\x7fELF", "b.so": make_elf(b"\xc3", fatbin=b"x" * 99), "c.py": b"\x7f"}
    wheel = demo_wheel(tmp_path, files=files)
    assert audit_download(wheel, "demo", "1.0+cpu.avx") == ()  # its code is not read
    problems = audit_wheel(wheel).problems
    assert [problem.split(":")[0] for problem in problems] == [
        "a.so cannot be read", "b.so cannot be read",
    ]  # fmt: skip


def test_damaged_archives_are_findings(tmp_path):
    path = demo_wheel(tmp_path, files=GOOD)
    version = b"PK\x01\x02\x14\x03\x14"
    for data in (b"not a zip", path.read_bytes().replace(version, version[:-1] + b"\xff")):
        path.write_bytes(data)
        assert "not a zip archive" in audit_wheel(path).problems[0]
    assert "Invalid wheel" in audit_download(path.rename(tmp_path / "demo.whl"), "demo", "1")[0]


def test_a_binary_that_does_not_unpack_is_a_finding(tmp_path):
    # Its first bytes come out, so it is known for ELF; then the stream is garbage.
    path = demo_wheel(tmp_path, files={"a.so": make_elf(bytes(range(256)) * 2000)})
    data = bytearray(path.read_bytes())
    middle = data.index(b"demo-1.0") // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)
    assert any("'a.so' cannot be unpacked" in problem for problem in audit_wheel(path).problems)


@pytest.mark.parametrize("place", [-30, 0])  # of its header, and of its stream
@pytest.mark.parametrize("name", ["a.so", "demo-1.0+cpu.avx.dist-info/METADATA"])
def test_a_member_that_cannot_be_opened_hides_nothing_of_the_others(tmp_path, name, place):
    path = demo_wheel(tmp_path, files={"a.so": make_elf(b"\xc3"), "zz.pth": b""})
    data = bytearray(path.read_bytes())
    data[data.index(name.encode()) + (place or len(name))] = 0xFF
    path.write_bytes(data)
    found = audit_wheel(path).problems
    assert any(f"{name!r} cannot be unpacked" in problem for problem in found), found
    assert any("zz.pth" in problem for problem in found), found


def test_a_member_without_a_name_is_a_problem(tmp_path):
    wheel = make_wheel(tmp_path, files={"x.py": b""})
    wheel.write_bytes(wheel.read_bytes().replace(b"x.py", b"\0.py"))
    assert any("would be unpacked outside" in each for each in audit_wheel(wheel).problems)
