"""Core files of crashes: which instruction, package, file and function they are about."""

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.extensions.check.crash import crash_here, read_crash
from fleetbuild.extensions.check.machine_kinds import named_kinds
from fleetbuild.extensions.check.show import crash_lines
from tests.extensions.check.test_environment import install
from tests.factories.core import make_core
from tests.factories.elf import GCC, compile_c, make_elf

VPADDD_YMM, UD2, RET = (bytes.fromhex(code) for code in ("c5f5fec2", "0f0b", "c3"))
BASE = 0x7F0000000000
COMMAND = "fleetbuild check demo==1.0"
PLUS = 'int plus(int a) { __asm__("vpaddd %ymm0, %ymm1, %ymm2"); return a; }'
QEMU = shutil.which("qemu-x86_64-static")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, of which one is installed, and the current folder above it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "env/lib/python3.11/site-packages"
    install(folder, "demo", "1.0", {"demo.libs/lib.so": make_elf(VPADDD_YMM + RET, symbol="plus")})
    return folder


def crash(*args, **options):
    """What a core made by hand says."""
    Path("core").write_bytes(make_core(*args, **options))
    return read_crash(Path("core"))


def lines(found, kind="IvyBridge"):
    return crash_lines(found, named_kinds([kind]))


def test_a_crash_is_traced_to_package_file_and_function(place):
    file = place / "demo.libs/lib.so"
    found = crash(BASE + 0x1000, files=[(0x1000, "/bin/none"), (BASE, file)])
    assert lines(found) == [
        "signal: SIGILL",
        "instruction: vpaddd ymm0,ymm1,ymm2",
        "needs: avx2",
        "package: demo 1.0",
        f"file: {file}",
        "function: `plus`",
        "It runs from this rung on: avx2",
        "IvyBridge: lacks avx2",
        f"To find a version that runs where it died: {COMMAND} --for IvyBridge --instead",
    ]
    said = lines(found, "Haswell")
    assert said[-2] == "Haswell: has that"
    assert said[-1].endswith(f": {COMMAND} --for CPU --instead")


def test_another_signal_does_not_blame_the_cpu(place):
    said = lines(crash(BASE + 0x1004, signal=11, files=[(BASE, place / "demo.libs/lib.so")]))
    assert said[0] == "signal: SIGSEGV"
    assert "package: demo 1.0" in said
    assert said[-1].startswith("The CPU ran this instruction")


@pytest.mark.usefixtures("place")
def test_a_program_that_stops_itself_does_not_blame_the_cpu():
    said = lines(crash(BASE, memory=[(BASE, UD2 + bytes(16))]))
    assert "instruction: ud2" in said
    assert "file: none, as of code that was made at run time" in said
    assert said[-1].startswith("The program stopped itself")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Path.unlink, "cannot be read here: No such file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "or not a regular file"),
        (lambda path: path.write_bytes(make_elf(RET)), "it was changed after the crash"),
        (lambda path: path.write_bytes(b""), "it is empty"),
    ],
)
def test_a_file_that_is_gone_or_another_one_names_the_package_alone(place, change, words):
    file = place / "demo.libs/lib.so"
    memory = [(BASE, file.read_bytes()[:4096].ljust(4096, b"\0"))]
    change(file)
    found = crash(BASE + 0x1000, files=[(BASE, file)], memory=memory)
    assert words in found.problem
    assert (found.package, found.version, found.function) == ("demo", "1.0", None)
    assert lines(found)[-1] == f"Neither the core nor {file} here has the bytes."


def test_damage_anywhere_is_an_answer_or_an_error_with_advice(place):
    file, core = place / "demo.libs/lib.so", Path("core").absolute()
    whole = make_elf(VPADDD_YMM + RET, symbol="plus")
    memory = [(BASE + 0x1000, VPADDD_YMM + bytes(16))]
    report = make_core(BASE + 0x1000, files=[(BASE, file)], memory=memory)
    for path, other, content in ((core, file, report), (file, core, whole)):
        other.write_bytes(whole if other == file else report)
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
            with suppress(ConfigError):
                crash_here(core)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be read: it is empty"),
        (b"text", "is not a core file"),
        (b"\x7fELF", "damaged core file"),
        (make_core(BASE, kind=3), "is not a core file"),
        (make_core(BASE, machine=183), "is of aarch64"),
        (make_core(BASE, memory=[(BASE, bytes(8192))])[:2000], "damaged core file"),
        (make_core(BASE, files=[(BASE, "/x")])[:-4], "damaged core file"),
    ],
)
def test_other_files_and_damaged_or_foreign_cores_are_refused(tmp_path, data, words):
    (tmp_path / "core").write_bytes(data)
    with pytest.raises(ConfigError, match=words):
        read_crash(tmp_path / "core")


@pytest.mark.skipif(not (GCC and QEMU), reason="no gcc or no QEMU here")
def test_a_core_that_qemu_writes_is_read_by_the_loaders_list(tmp_path, place):
    install(place, "real", "2.0", {"real/libf.so": compile_c(tmp_path, PLUS)})
    library = place / "real/libf.so"
    Path("main.c").write_text("int plus(int); int main(void) { return plus(1); }")
    subprocess.run([GCC, "main.c", "-o", "main", library], check=True)
    subprocess.run(
        [QEMU, "-cpu", "IvyBridge", "./main"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2),
        check=False,
    )
    (core,) = tmp_path.glob("qemu_main_*.core")
    found = read_crash(core)
    assert (found.signal, found.features, found.function) == (4, ("avx2",), "plus")
    assert (found.package, found.version, found.file) == ("real", "2.0", str(library))
