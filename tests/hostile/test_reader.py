"""Wheels and sources that are made to be slow or large, read in the separate process."""

from __future__ import annotations

import ast
import bz2
import contextlib
import gzip
import os
import resource
import struct
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild import programs
from fleetbuild.audit import audit_wheel, limited_process
from fleetbuild.audit.downloads import Contents, contents_of
from fleetbuild.audit.entry_points import Unclear, read_entry_points
from fleetbuild.audit.import_names import import_names
from fleetbuild.audit.ownership import _declares_namespace
from fleetbuild.cli.show.output import Output
from fleetbuild.errors import ConfigError
from fleetbuild.extensions.check.check_stack import check
from fleetbuild.extensions.check.needs import read_needs
from fleetbuild.models import LockedFile
from fleetbuild.plan.resolve.run_time_requirements import metadata_of_wheel
from fleetbuild.plan.resolve.survey import survey_source
from fleetbuild.programs import run_program
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.sources import read_source
from tests.factories.elf import make_elf
from tests.factories.growth import filled, is_linear

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    "unit", ["a ", " ", "\t", "=", "[", "[a]\n", "a=b\n", " #", "a" * 99 + "\n"]
)
def test_entry_points_are_read_in_linear_time(unit: str) -> None:
    def work(size: int) -> object:
        text = "[x]\na" + filled(unit, size) + "b=x:f"

        def read() -> None:
            try:
                read_entry_points(text)
            except Unclear:
                return

        return read

    assert is_linear(work, 1 << 20)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [" ", '"', "'", "\n", "extend_path(__path__, ", "pass "])
def test_an_init_of_a_namespace_is_read_in_linear_time(unit: str) -> None:
    def work(size: int) -> object:
        text = '"""' + filled(unit, size) + '"x'
        return lambda: _declares_namespace(text)

    assert is_linear(work, 1 << 20)  # type: ignore[arg-type]


def test_a_wheel_of_many_members_costs_this_process_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number in range(210_000):
            archive.writestr(zipfile.ZipInfo(str(number)), "")
    began = time.process_time()
    found = audit_wheel(wheel).problems, read_needs(wheel).problems, contents_of(wheel)
    assert import_names(wheel) == ()
    assert time.process_time() - began < 1
    refused = ("it has 210000 members; more than 200000 are not examined",)
    assert found == (refused, refused, Contents())


PACKAGE = Path(fleetbuild.__file__).parent
# They open sources, in the separate process too, or make a wheel.
OTHERS = {"store/sources.py", "plan/resolve/uv.py"}


def opened(source: str) -> Iterator[str]:
    """Yield the functions that open a zip file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            text = ast.unparse(node)
            if "zipfile.ZipFile(" in text or "opened_here(" in text:
                yield node.name


def test_wheels_are_opened_in_the_separate_process_alone() -> None:
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        if name not in OTHERS:
            assert all(each.endswith("_here") for each in opened(file.read_text("utf-8"))), name


_PIECE, _PIECES = bytes(16 << 20), 20  # 320 MB


def _header_without_end(path: Path) -> None:
    """Write a tar file whose first header is long."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, len(_PIECE) * _PIECES
    path.write_bytes(gzip.compress(header.tobuf()) + gzip.compress(_PIECE) * _PIECES)


def _text_without_end(path: Path) -> None:
    """Write a zip file whose text has more bytes than it says."""
    squeeze = bz2.BZ2Compressor()
    packed = b"".join(map(squeeze.compress, [_PIECE] * _PIECES)) + squeeze.flush()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo-1.0/pyproject.toml", packed)
        archive.writestr("demo-1.0.dist-info/METADATA", packed)
    stored, bzip2 = (bytes([20, 0, 0, 0, method, 0]) for method in (0, zipfile.ZIP_BZIP2))
    path.write_bytes(path.read_bytes().replace(stored, bzip2))


def _published(path: Path) -> object:
    url = path.rename(path.with_suffix(".whl")).as_uri()
    file = LockedFile(name="demo", version="1.0", file="demo.whl", sha256="0" * 64, url=url)
    return metadata_of_wheel(file, IndexSettings())


@pytest.mark.parametrize("read", [read_source, survey_source, _published])
@pytest.mark.parametrize("write", [_header_without_end, _text_without_end])
def test_a_small_file_that_unpacks_to_much_fills_no_memory_of_this_process(
    tmp_path: Path, write: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    write(path := tmp_path / "demo")
    assert path.stat().st_size < 2 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(ConfigError):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # kB


@pytest.mark.parametrize("read", [read_source, survey_source])
def test_a_device_or_a_pipe_is_refused_as_a_source(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="neither a file nor a folder"):
            read(path)


def _wheel(folder: Path, **files: bytes) -> Path:
    wheel = folder / "demo-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"demo/{name}.so", content)
    return wheel


def test_an_answer_of_the_reader_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(tmp_path, a=make_elf(b"\xc3", needed=[f"lib{n:0>290}.so" for n in range(900)]))
    assert len(audit_wheel(wheel).elfs[0].needed) == 900
    monkeypatch.setattr(limited_process, "MOST_ANSWER", 10_000)
    assert audit_wheel(wheel).elfs == ()


def test_a_program_that_reads_packages_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print(len(bytearray(400 << 20)))"
    assert run_program([sys.executable, "-c", code], within=60).returncode == 0
    monkeypatch.setattr(programs, "MOST_MEMORY", 200 << 20)
    done = run_program([sys.executable, "-c", code], within=60)
    assert (done.returncode, "MemoryError" in done.stderr) == (1, True)


VPXORD_ZMM = bytes.fromhex("62f17d48efc0c3")


@pytest.mark.parametrize(
    ("offset", "address", "hidden"),
    [
        (0x4000, 0x2000, False),
        (0x1800, 0x1800, False),  # the same page of the file
        (0x4000, 0x1000, True),
        (0x4800, 0x1800, True),  # behind the first, but in its page
    ],
)
def test_code_that_the_loader_puts_in_the_place_of_other_code_is_not_passed_over(
    tmp_path: Path, offset: int, address: int, hidden: bool
) -> None:
    ident = b"\x7fELF\x02\x01\x01"
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    for at, to, size in ((0, 0, 0x1700), (offset, address, len(VPXORD_ZMM))):
        head += struct.pack("<IIQQQQQQ", 1, 5, at, to, to, size, size, 0x1000)
    code = head.ljust(0x200, b"\xc3").ljust(offset, b"\x90") + VPXORD_ZMM
    audit = audit_wheel(_wheel(tmp_path, a=code))
    overlap = any("its segments overlap" in problem for problem in audit.problems)
    found = {use.feature for elf in audit.elfs for use in elf.features}
    assert (overlap, "avx512f" in found) == (hidden, not hidden)


def test_an_environment_is_read_in_the_separate_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless file, a name that is not UTF-8, one of several lines, beside a good file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limited_process, "BASE_SECONDS", 1)
    place = tmp_path / "env/lib/site-packages"
    place.mkdir(parents=True)
    for name in (b"bad\xff.so", b"good.so", b"endless.so", b"a\n::error::b.so"):
        Path(os.fsdecode(os.fsencode(place) + b"/" + name)).write_bytes(make_elf(VPXORD_ZMM))
    os.truncate(place / "endless.so", 1 << 40)
    began = time.process_time()
    rows = check(env=tmp_path / "env", kinds=["zen3"]).rows
    assert time.process_time() - began < 5
    assert {row.name.partition(" (")[0]: row.verdict for row in rows} == {
        "bad\\udcff.so": "dies-in-use",
        "good.so": "dies-in-use",
        "endless.so": "undecided",
        "a\n::error::b.so": "dies-in-use",
    }


def test_text_of_a_package_begins_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Output().warn("reading a\n::error::b\r::error::c\u2028::error::d")
    assert len(capsys.readouterr().err.splitlines()) == 1
