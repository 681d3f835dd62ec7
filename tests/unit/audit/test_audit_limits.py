"""A wheel that is made to keep the controller busy: it is refused with the file's name."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetbuild.audit import audit_wheel, limited_process, pieces
from fleetbuild.audit.downloads import Contents, contents_of
from fleetbuild.audit.guards import Guards
from fleetbuild.audit.ownership import owners
from fleetbuild.audit.wheel import audit_elf, audit_here
from fleetbuild.workers import Workers
from tests.factories.elf import make_elf
from tests.factories.files import demo_wheel
from tests.factories.growth import is_linear

# A use of AVX-512 that looks like the last one: each is decoded again.
CODE = bytes.fromhex("62f1744858c2") * 100_000


@pytest.fixture
def new_reader():
    """The processes of other tests are ended, and this test's at its end."""
    limited_process._end_all()
    yield
    limited_process._end_all()


@pytest.mark.usefixtures("new_reader")
def test_a_wheel_that_takes_too_long_is_refused_with_its_name(tmp_path, monkeypatch):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(CODE)})
    monkeypatch.setattr(limited_process, "WALL_SECONDS", 0.01)
    audit = audit_wheel(wheel)
    assert audit.problems == ("it takes more than 20 s of processor time or 1024 MiB to read",)
    assert audit.file == wheel.name
    assert contents_of(wheel) == Contents()


@pytest.mark.parametrize("kind", [limited_process.TooMuchError, MemoryError])
def test_a_file_that_takes_too_much_is_named_and_the_others_are_read(tmp_path, monkeypatch, kind):
    def read(path, data):
        if "bad" in path:
            raise kind
        return audit_elf(path, data)

    monkeypatch.setattr("fleetbuild.audit.wheel.audit_elf", read)
    files = {"demo/bad.so": make_elf(b"\xc3"), "demo/good.so": make_elf(b"\xc3")}
    audit = audit_here(demo_wheel(tmp_path, files=files), (), ())
    assert [elf.path for elf in audit.elfs] == ["demo/good.so"]
    assert audit.problems == (
        "demo/bad.so takes more than 20 s of processor time or 1024 MiB to read",
    )


def limited(code, wheel=20, **seconds):
    settings = "".join(f"limited_process.{name} = {value}\n" for name, value in seconds.items())
    text = f"from fleetbuild.audit import limited_process\n{settings}"
    text += f"limited_process.limit({wheel})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.usefixtures("new_reader")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_process_does_not_change_its_answer(tmp_path, monkeypatch, number):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3")})
    sent = f"import os; os.kill(os.getpid(), {number:d})"  # as to the terminal's whole group
    monkeypatch.setattr(limited_process, "_COMMAND", f"{sent}; {limited_process._COMMAND}")
    assert audit_wheel(wheel).problems == ()


@pytest.mark.usefixtures("new_reader")
def test_an_interrupted_pool_ends_the_process(tmp_path, monkeypatch):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3")})
    monkeypatch.setattr(limited_process, "_COMMAND", "import time; time.sleep(60)")
    with contextlib.suppress(KeyboardInterrupt), Workers(1, grace=20) as pool:
        reading = pool.submit(audit_wheel, wheel)
        raise KeyboardInterrupt
    assert isinstance(reading.exception(0), KeyboardInterrupt)


@pytest.mark.usefixtures("new_reader")
def test_one_process_reads_one_wheel_after_the_other(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        limited_process, "_Reader", lambda new=limited_process._Reader: started.append(1) or new()
    )
    one = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3")})
    for _ in range(3):
        audit_wheel(one)
        assert owners([one], {}) == ((), ())
    assert started == [1]


@pytest.mark.usefixtures("new_reader")
def test_memory_that_other_wheels_took_is_not_held_against_one(tmp_path, monkeypatch):
    """The process is full at its second request, and a new one reads that wheel."""
    fill = "import json; asked = json.loads; kept = []; "
    fill += "json.loads = lambda line: kept and bytearray(2**31) or kept.append(1) or "
    fill += f"asked(line); {limited_process._COMMAND}"
    monkeypatch.setattr(limited_process, "_COMMAND", fill)
    one = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3")})
    assert audit_wheel(one) == audit_wheel(one)


def test_code_that_does_not_return_to_python_is_ended():
    stuck = "import itertools; sum(itertools.repeat(1))"
    began = os.times().children_user
    assert limited(stuck, wheel=1).returncode == -signal.SIGPROF
    assert os.times().children_user - began < 20


def test_the_process_has_limits_on_memory_and_time():
    assert "MemoryError" in limited("bytearray(2**31)").stderr
    loop = (
        "try:\n  with limited_process.turn(1):\n    while True: pass\n"
        "except limited_process.TooMuchError: print('said')"
    )
    done = limited(loop)
    assert (done.returncode, done.stdout) == (0, "said\n")
    spent = "import time\nwhile time.process_time() < 2: pass\n"  # by the files before
    assert limited(spent + loop.replace("turn(1)", "turn(99)"), wheel=1).stdout == "said\n"


def test_a_wheel_of_megabytes_with_work_for_hours_is_refused_with_the_names_of_its_files(tmp_path):
    """The wheel of 110 MB, scaled down: 6 MB of code in files of 2 MB, with a second for a file."""
    files = {f"demo/{name}.so": make_elf(CODE * 4) for name in "abc"}
    wheel = demo_wheel(tmp_path, files=files | {"demo/good.so": make_elf(b"\xc3")})
    assert wheel.stat().st_size < 200_000
    code = (
        "import resource\nfrom pathlib import Path\n"
        "from fleetbuild.audit.wheel import audit_here\n"
        f"found = audit_here(Path({str(wheel)!r}), (), ())\n"
        "print(*found.problems, *(elf.path for elf in found.elfs), sep='\\n')\n"
        "print(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < 30)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20)\n"
    )
    done = limited(code, FILE_SECONDS=1)
    assert done.returncode == 0, done.stderr
    *said, good, soon, small = done.stdout.splitlines()
    assert (good, soon, small) == ("demo/good.so", "True", "True")
    assert [line.split()[0] for line in said] == [f"demo/{name}.so" for name in "abc"]


@pytest.mark.long
@pytest.mark.parametrize("repeated", [1, 2])
def test_a_wheel_of_110_mb_of_dense_code_is_read_or_refused_within_a_minute_and_a_gigabyte(
    tmp_path, repeated
):
    """Opcodes beyond the baseline in each four bytes. Repeated, a MiB unpacks to twice the work."""
    code = bytearray()
    while len(code) < 160_000_000 * repeated:
        block = bytearray(os.urandom(1 << 14))
        block[::4], block[1::4] = b"\x0f" * (1 << 12), b"\x38" * (1 << 12)
        code += block * repeated
    files = {"demo/bad.so": make_elf(bytes(code)), "demo/good.so": make_elf(b"\xc3")}
    wheel = demo_wheel(tmp_path, files=files)
    assert 100 < wheel.stat().st_size / 1e6 < 120
    script = (
        "import resource\nfrom pathlib import Path\nfrom fleetbuild.audit import audit_wheel\n"
        f"found = audit_wheel(Path({str(wheel)!r}))\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(*found.problems, *(elf.path for elf in found.elfs), sep='\\n')\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    *said, spent = done.stdout.splitlines()
    seconds, gibibytes = map(float, spent.split())
    assert said[-1] == "demo/good.so"
    assert said[0].startswith("demo/bad.so")  # read, or refused by its name
    assert seconds < 61
    assert gibibytes < 1


def test_a_search_through_a_large_file_gives_its_pages_back(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_CHUNK", 1 << 20)
    path = tmp_path / "large"
    content = bytearray(os.urandom(1 << 20).replace(b"text", b"TEXT")) * 48
    content[(1 << 20) - 2 : (1 << 20) + 2] = b"text"  # over the end of a part
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        before = int(Path("/proc/self/statm").read_text().split()[1])
        assert pieces.find(data, b"text", 0, len(data)) == (1 << 20) - 2
        assert pieces.find(data, b"text", 0, (1 << 20) + 1) == -1
        assert pieces.find(data, b"text", 1 << 20, len(data)) == -1
        grown = int(Path("/proc/self/statm").read_text().split()[1]) - before
    assert grown * mmap.PAGESIZE < 16 << 20


def test_a_search_goes_to_the_last_byte_of_whole_pages(tmp_path):
    """Each second mapping of a row is closed: behind each other one lies no memory."""
    path = tmp_path / "pages"
    path.write_bytes(b"x" * (2 * mmap.PAGESIZE - 4) + b"text")
    script = (
        "import mmap\nfrom fleetbuild.audit.pieces import find\n"
        f"file = open({str(path)!r}, 'rb')\n"
        "many = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for _ in range(8)]\n"
        "for place in range(0, 8, 2):\n    many[place].close()\n"
        "for data in many[1::2]:\n"
        "    size = len(data)\n"
        "    print(find(data, b'text', 0, size), find(data, b'text', size - 4, size),\n"
        "          find(data, b'text', size - 3, size), find(data, b'text', 0, size - 1),\n"
        "          find(data, b'xtexx', 0, size), find(data, b'tex', 0, size + 9))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    at = 2 * mmap.PAGESIZE - 4
    assert done.stdout.splitlines() == [f"{at} {at} -1 -1 -1 {at}"] * 4


def test_overlapping_segments_and_many_symbols_are_bounded():
    import struct  # noqa: PLC0415
    import time  # noqa: PLC0415

    elf = bytearray(make_elf(CODE))
    at = len(elf)
    rows = b"".join(  # 30 executable segments over the same bytes: more than the file has
        struct.pack("<IIQQQQQQ", 1, 5, 64, 0x1000 * n, 0, len(CODE), len(CODE), 1)
        for n in range(30)
    )
    struct.pack_into("<Q", elf, 32, at)
    struct.pack_into("<HH", elf, 54, 56, 30)
    with pytest.raises(ValueError, match="larger than the file"):
        audit_elf("a.so", bytes(elf) + rows)
    symbols = struct.pack("<IBBHQQ", 1, 2, 0, 1, 0x1000, 6) * 300_000
    many = bytearray(make_elf(CODE))
    headers = struct.unpack_from("<Q", many, 40)[0]
    struct.pack_into("<QQ", many, headers + 64 * 5 + 24, len(many), len(symbols))
    began = time.process_time()
    assert audit_elf("a.so", bytes(many) + symbols).default >= {"avx512f"}
    assert time.process_time() - began < 15


class Suspects:
    """The functions of a file that have a level in their names, and that some table holds."""

    entries = questions = asking = exported_by_module = frozenset()

    def touching(self, _):
        return frozenset()

    reached_by = size_of = mentions_level = needs_level = is_local = touching

    def references_to(self, wanted):
        return ((0, function) for function in wanted)


def test_the_time_for_functions_that_turn_out_to_be_unguarded_grows_with_their_number():
    def work(count):
        return lambda: Guards(Suspects(), frozenset(range(1, count)), frozenset()).guarded

    assert not work(9)()
    assert is_linear(work, 12_000)
