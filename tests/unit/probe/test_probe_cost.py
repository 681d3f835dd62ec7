"""Reading twice as much text from a node costs twice the work at most, whatever the text is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fleetbuild.models import Login
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import SECTIONS, split
from fleetbuild.probe.parsing.text import MAX_OTHER, MAX_RELEASE, MAX_SECTION
from fleetbuild.probe.transport.base import LARGEST, LARGEST_COMPLAINT, Answer
from fleetbuild.probe.transport.failure_reasons import ssh_problem, unusable_answer
from tests.factories.growth import filled, is_linear, seconds

pytestmark = pytest.mark.no_cover  # tracing adds to the time that is compared
NONCE = "fleetbuild-" + "0" * 32
LIMITS = {"cpuinfo": MAX_SECTION, "release": MAX_RELEASE}
UNITS = {
    "spaces": " ",
    "digits": "9",
    "dots": ".",
    "one endless line": "x",
    "tiny lines": "a\n",
    "control characters": "\x01",
    "surrogates": "\ud83d",
    "words": "a ",
    "numbers": "1 ",
    "versions": "1.1 ",
    "colons": "a : b\n",
    "commas": "name,",
}
OF_SECTION = {
    "cpuinfo": ["processor\t: 0\n", "processor\t: 0\nflags\t\t: a b c\nmodel : 1\n", "flags : "],
    "release": ["[", '{"a":', "[[],", '{"a":[],', "{}", "1 ", '"a" ', "[1e9,", '["\\u0000",'],
    "lspci": ["abcd: ", "0000:03:00.0 abcd: ", "0000:03:00.0 VGA [0302]: x [10de:2503]\n"],
    "nvidia-smi": ["name, compute_cap\n", "name, compute_cap\nx, 8.6\n", "name [", "a [,"],
    "python": ["/a 1.1 a ", "/a 3.11 cpython-311-i386-linux-gnu -\n", "/a 3.11.1 a a a "],
    "kfd": ["0 49408 110501\n", "0 1 ", "9 9 9\n"],
    "isolation": ["namespaces ", "none ", "none user.max_user_namespaces\n"],
    "disk": ["1 1 1 - ", "ext4 1 1 1 1% /\n", "   1", "Filesystem Type\n/x ext4 1 1 1 1% /\n"],
    "libc": ["glibc ", "musl ", "glibc 1.", "glibc\n"],
    "libstdcxx": ["GLIBCXX_", "GLIBCXX_3.4.1 ", "GLIBCXX_3.4.", "GLIBCXX_3.4.1\n"],
    "meminfo": ["MemTotal: ", "MemTotal: 1 kB ", "MemTotal:  "],
    "mig": ["GPU 0: ", "GPU 0: a\n MIG 1g  Device  0: \n", "0, a, Enabled\n", "MIG a +Device "],
    "toolchain": ["gcc 1\n", "gcc 1.", "a+b 1 "],
    "os-release": ["ID=", "ID=a\n", "PRETTY_NAME=' "],
    "uname": ["Linux ", "Linux 6 x86_64 "],
    "device-tree": ["compatible: nvidia,", "compatible: a\n", "device: "],
    "sve": ["16", "16\n"],
    "loadavg": ["1.0 ", "1.0 2.5 3.0 1/2 3\n"],
    "memory-limit": ["1", "9\n"],
    "allowed-signers": ["required\n"],
    "missing-interpreters": ["/opt/python\n"],
    "release-files": [
        "release a\n",
        "release a\ndiffers 1 2 ./a\n",
        "differs 1 2 ./",
        "differs 1 ",
    ],
    "previous": ["default r1\n", "default ", "a" * 64 + " "],
    "nproc": ["16 ", "16\n"],
}
CASES = [
    pytest.param(section, unit, id=f"{section}-{number}")
    for section in SECTIONS
    for number, unit in enumerate([*UNITS.values(), *OF_SECTION[section]])
]
CPU = {"uname": "Linux 6.1 x86_64", "cpuinfo": "flags : lm avx"}


@pytest.fixture(autouse=True)
def no_text_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetbuild.probe.parsing.text.MAX_KEPT", -1)


@pytest.mark.parametrize(("section", "unit"), CASES)
def test_each_section_is_read_in_linear_time(section: str, unit: str) -> None:
    def work(size: int) -> Callable[[], object]:
        capture = {**CPU, section: filled(unit, size)}
        return lambda: facts_of(capture)

    assert is_linear(work, LIMITS.get(section, MAX_OTHER))


def test_processors_that_have_nothing_in_common_are_read_in_linear_time() -> None:
    def work(size: int) -> Callable[[], object]:
        known = random.Random(size)  # noqa: S311 (the same each time)
        flags = (
            " ".join(f"{known.getrandbits(16):x}" for _ in range(3000))
            for _ in range(size // 16_000)
        )
        text = "".join(f"processor : {n}\nflags : {one}\n" for n, one in enumerate(flags))
        return lambda: facts_of({**CPU, "cpuinfo": text[:size]})

    assert is_linear(work, MAX_SECTION)


FRAMES = {
    "begin": f"{NONCE} begin cpuinfo\n",
    "begin after begin": f"{NONCE} begin cpuinfo\nx\n{NONCE} begin libc\n",
    "end": f"\n{NONCE} end cpuinfo 0\n",
    "whole": f"{NONCE} begin libc\nx\n{NONCE} end libc 0\n",
    "no name": f"{NONCE} begin ",
    "no line break": NONCE,
    "almost": f"\n{NONCE}",
    "of digits": f"\n{NONCE} end libc 9",
    "empty lines": "\n",
}


@pytest.mark.parametrize("unit", FRAMES.values(), ids=FRAMES)
def test_the_frames_are_found_in_linear_time(unit: str) -> None:
    def work(size: int) -> Callable[[], object]:
        text = f"{NONCE} begin cpuinfo\n{filled(unit, size)}"
        return lambda: split(text, NONCE)

    assert is_linear(work, LARGEST)


@pytest.mark.parametrize(
    "unit",
    [
        "host key ",
        "sudo: ",
        "Permission denied (",
        "open failed: ",
        "\n",
        "a\n",
        "\x01",
        "account ",
    ],
)
def test_the_end_of_an_error_output_is_read_in_linear_time(unit: str) -> None:
    login = Login(host="n")

    def work(size: int) -> Callable[[], object]:
        said = filled(unit, size).encode()
        return lambda: (ssh_problem(said, login), unusable_answer(Answer(1, said, said), login))

    assert is_linear(work, LARGEST_COMPLAINT)
    assert seconds(work(LARGEST_COMPLAINT)) < 0.5


def test_an_error_after_a_long_banner_is_found() -> None:
    said = b"host key " * 5000 + b"\nPermission denied (publickey)."
    problem = ssh_problem(said, Login(host="n"))
    assert problem is not None
    assert "login refused" in problem.reason
