"""The other sections, and text that means no good."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.models import Facts
from fleetbuild.probe.parsing.facts import facts_of, unreachable
from fleetbuild.probe.parsing.framing import SECTIONS, split

CPU = {"uname": "Linux 6.1 x86_64", "cpuinfo": "flags : lm avx"}
KEY, SHA = "a" * 32, "b" * 64
MANIFEST: dict[str, Any] = {
    "format_version": 1,
    "release": "default",
    "id": "0123456789abcdef",
    "group": "cpu-avx2-cp311",
    "python": "/usr/bin/python3.11",
    "wheels": [
        {"package": "hnswlib", "version": "0.8.0+cpu.avx2", "artifact_key": KEY, "sha256": SHA}
    ],
    "dependencies": ["numpy==2.1.0"],
    "verified": True,
}


def read(**sections: str) -> Facts:
    return facts_of(CPU | {name.replace("_", "-"): text for name, text in sections.items()})


def test_split_takes_the_framed_sections_byte_for_byte() -> None:
    output = (
        "Welcome to node 1!\nN begin uname\nLinux 6.1 x86_64\n\nN end uname 0\n"
        "N begin nproc\n16\nN end nproc 0\n"  # no line break after the text
        "N begin nvidia-smi\n\nN end nvidia-smi 1\n"  # not there
        "N begin toolchain\n\nN end toolchain 0\n"  # there, and empty
        "N begin python\nfleetbuild: no answer within 10 s\n\nN end python 124\n"
        "N begin surprise\nx\n\nN end surprise 0\n"
        "N begin disk\nFilesystem\n"  # cut off
    )
    assert split(output, "N") == {
        "uname": "Linux 6.1 x86_64\n",
        "nproc": "16",
        "toolchain": "",
        "python": "fleetbuild: no answer within 10 s\n",
    }


def test_a_section_without_an_answer_is_unknown_even_in_part() -> None:
    late = "fleetbuild: no answer within 15 s\n"
    facts = read(
        python=f"/usr/bin/python3 3.11.2 cpython-311-x86_64-linux-gnu venv\n{late}",
        nvidia_smi=late, toolchain="gcc 12.2.0\n",
    )  # fmt: skip
    assert (facts.pythons, facts.gpus) == ((), ())
    assert facts.toolchain == {"gcc": ("12.2.0",)}
    assert facts.unanswered == ("python", "nvidia-smi")
    assert [text.partition(":")[0] for text in facts.warnings] == [
        "The section python of the probe gave no answer within 15 s",
        "The section nvidia-smi of the probe gave no answer within 15 s",
    ]


def test_the_nonce_is_taken_as_it_is() -> None:
    assert split("a.c begin nproc\n1\n\na.c end nproc 0\n", "a.c") == {"nproc": "1\n"}
    assert split("abc begin nproc\n1\n\nabc end nproc 0\n", "a.c") == {}


def test_an_unreachable_node_has_a_reason_and_nothing_else() -> None:
    assert unreachable("no route", "check it").fix == "check it"
    assert unreachable("no route") == Facts(state="unreachable", reason="no route")


def test_the_distribution_is_read_from_os_release() -> None:
    text = (
        'NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n'
    )
    os = read(os_release=text).os
    assert (os.id, os.version, os.name, os.kernel) == ("debian", "12", "Debian GNU/Linux 12", "6.1")
    assert read(os_release="ID=\nnonsense").os.id is None


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        ("glibc 2.35\n", "glibc", "2.35"),
        ("musl libc (x86_64)\nVersion 1.2.3\nDynamic Program Loader\n", "musl", "1.2.3"),
        ("musl libc (aarch64) Version 1.2.5", "musl", "1.2.5"),
    ],
)
def test_the_libc_is_read(text: str, family: str, version: str) -> None:
    libc = read(libc=text).libc
    assert libc is not None
    assert (libc.family, libc.version) == (family, version)


def test_an_unknown_libc_is_unknown() -> None:
    assert read(libc="uClibc 0.9").libc is None


def test_the_highest_libstdcxx_counts() -> None:
    assert read(libstdcxx="GLIBCXX_3.4.9\nGLIBCXX_3.4.30\nGLIBCXX_3.4\n").libstdcxx == "3.4.30"
    assert read(libstdcxx="GLIBCXX_DEBUG_MESSAGE_LENGTH").libstdcxx is None


def test_cpus_and_memory_are_read() -> None:
    facts = read(nproc="16\n", meminfo="MemTotal:       67108864 kB\nMemFree: 1 kB\n")
    assert (facts.cpus, facts.memory_gb) == (16, 64.0)
    total = "MemTotal:       67108864 kB\n"
    assert read(meminfo=total, **{"memory-limit": "8589934592\n"}).memory_gb == 8.0
    assert read(meminfo=total, **{"memory-limit": "858993459200\n"}).memory_gb == 64.0
    assert read(meminfo=total, **{"memory-limit": "max\n"}).memory_gb == 64.0
    facts = read(nproc="0", meminfo="MemTotal: lots")
    assert (facts.cpus, facts.memory_gb) == (None, None)


GIB = 1024**2


def test_free_disk_is_the_workspaces_and_the_file_system_type_the_install_paths() -> None:
    facts = read(
        disk="Filesystem     Type 1024-blocks Used Available Capacity Mounted on\n"
        f"/dev/sda1      ext4 9999999 1 {100 * GIB} 1% /home\n"
        f"nas:/export/my apps nfs4 9999999 1 {5 * GIB} 1% /opt/my apps\n"
    )
    assert (facts.disk_gb, facts.install_filesystem) == (100.0, "nfs4")
    assert facts.install_free_gb == 5.0


def test_df_output_without_types_is_read() -> None:
    facts = read(
        disk="Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        f"/dev/sda1 838860800 1 {400 * GIB} 50% /\n"
    )
    assert (facts.disk_gb, facts.install_filesystem) == (400.0, None)


def test_malformed_disk_output_is_unknown() -> None:
    assert read(disk="df: no such file\n").disk_gb is None
    assert read(disk="").disk_gb is None
    assert read(disk="Filesystem\noverlay 1 2 -5 - /\n").disk_gb == 0.0


def test_interpreters_are_read() -> None:
    facts = read(
        python="/usr/bin/python3.11 3.11.2 cpython-311-x86_64-linux-gnu venv headers\n"
        "/opt/my python/bin/python3 3.13.0rc1 cpython-313t-x86_64-linux-gnu headers\n"
        "/usr/bin/python3.9 3.9.1 cpython-39-x86_64-linux-gnu\n"
        "/usr/bin/python3.8 3.8.1 cpython-38-x86_64-linux-gnu -\n"
        "/usr/bin/python3.12 3.12.3 cpython-312-x86_64-linux-gnu venv-alone\n"
        "/usr/bin/python3.11 3.11.2 cpython-311-x86_64-linux-gnu\n"
        "Traceback (most recent call last):\n"
    )
    assert [(p.path, p.version, p.tag, p.venv, p.ensurepip, p.headers) for p in facts.pythons] == [
        ("/usr/bin/python3.11", "3.11.2", "cp311", True, True, True),
        ("/opt/my python/bin/python3", "3.13.0rc1", "cp313t", False, False, True),
        ("/usr/bin/python3.9", "3.9.1", "cp39", None, None, None),
        ("/usr/bin/python3.8", "3.8.1", "cp38", False, False, False),
        ("/usr/bin/python3.12", "3.12.3", "cp312", True, False, False),
    ]


@pytest.mark.parametrize(
    "soabi", ["cpython-x", "cpython-", "cpython-3", "cpython-311d-x86_64-linux-gnu", "pypy310-pp73"]
)
def test_a_python_without_wheel_support_is_left_out(soabi: str) -> None:
    facts = read(
        python=f"/usr/bin/python3 3.11.2 {soabi} venv\n"
        "/usr/bin/python3.7 3.7.9 cpython-37m-x86_64-linux-gnu\n"
    )
    assert [python.tag for python in facts.pythons] == ["cp37m"]
    assert facts.warnings == (
        f"/usr/bin/python3 is a Python without wheel support ({soabi}), so it is left out.",
    )


def test_a_32_bit_python_is_left_out() -> None:
    facts = read(python="/usr/bin/python3.11 3.11.2 cpython-311-i386-linux-gnu venv\n")
    assert facts.pythons == ()
    assert facts.warnings == (
        "/usr/bin/python3.11 is a 32-bit Python (cpython-311-i386-linux-gnu), so it is left out.",
    )


def test_tools_can_have_several_versions() -> None:
    facts = read(toolchain="gcc 12.2.0\ng++ 12.2.0\nnvcc 13.0\nnvcc 12.4\nnvcc 13.0\nsh: no\n")
    assert facts.toolchain == {"gcc": ("12.2.0",), "g++": ("12.2.0",), "nvcc": ("13.0", "12.4")}


def test_releases_are_read_by_name() -> None:
    other = MANIFEST | {"release": "nightly"}
    facts = read(release=json.dumps(MANIFEST, indent=2) + "\n" + json.dumps(other))
    assert list(facts.release) == ["default", "nightly"]
    assert facts.release["default"].verified
    assert facts.warnings == ()


def with_wheel(**values: object) -> str:
    return json.dumps(MANIFEST | {"wheels": [MANIFEST["wheels"][0] | values]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("9" * 5000, "it is not JSON"),
        ("{}", "release: Field required"),
        ("[]", "all of it: Input should be"),
        (json.dumps(MANIFEST | {"wheels": 5}), "wheels: "),
        (json.dumps(MANIFEST | {"wheels": [{}] * 5001}), "it holds more than 5000 items"),
        (json.dumps(MANIFEST | {"wheels": [MANIFEST["wheels"][0]] * 1001}), "wheels: "),
        (json.dumps(MANIFEST | {"dependencies": ["a==1"] * 60_000}), "it is too large"),
        (json.dumps(MANIFEST | {str(n): n for n in range(6000)}), "it holds more than 5000 items"),
        (json.dumps(MANIFEST | {"\x1b[31m" + "x" * 900: 1}), "[31mxxx"),
        (json.dumps(MANIFEST | {"group": "\x1b[31mred"}), "group: "),
        (json.dumps(MANIFEST | {"group": "g" * 300}), "group: "),
        (json.dumps(MANIFEST | {"python": "/\x1b[31mred"}), "python: "),
        (json.dumps(MANIFEST | {"python": "/" * 2000}), "python: "),
        (json.dumps(MANIFEST | {"dependencies": ["\u202e"]}), "dependencies.0: "),
        (json.dumps(MANIFEST | {"dependencies": ["a==1\n"]}), "dependencies.0: "),
        (json.dumps(MANIFEST | {"id": "../../etc"}), "id: "),
        (json.dumps(MANIFEST | {"id": "a\n"}), "id: "),
        (json.dumps(MANIFEST | {"id": "a" * 65}), "id: "),
        (json.dumps(MANIFEST | {"release": "a/b"}), "release: "),
        (json.dumps(MANIFEST | {"format_version": 10**4000}), "format_version: "),
        (with_wheel(artifact_key="a" * 300), "wheels.0.artifact_key: "),
        (with_wheel(artifact_key="/etc"), "wheels.0.artifact_key: "),
        (with_wheel(artifact_key=KEY + "\n"), "wheels.0.artifact_key: "),
        (with_wheel(artifact_key="\u0661" * 32), "wheels.0.artifact_key: "),
        (with_wheel(sha256="b" * 63), "wheels.0.sha256: "),
        (with_wheel(package="-x"), "wheels.0.package: "),
        (with_wheel(package="x" * 200), "wheels.0.package: "),
        (with_wheel(version="1 2"), "wheels.0.version: "),
        (with_wheel(version=None), "wheels.0.version: "),
    ],
)
def test_a_malformed_manifest_is_a_warning(text: str, why: str) -> None:
    facts = read(release=text)
    assert facts.release == {}
    (warning,) = facts.warnings
    assert f"is malformed and is left out: {why}" in warning
    assert warning.endswith("Install the release again: fleetbuild apply")
    assert len(warning) < 340


def test_a_malformed_manifest_hides_no_other() -> None:
    assert list(read(release="{}" + json.dumps(MANIFEST)).release) == ["default"]


@pytest.mark.parametrize(
    ("text", "load", "busy"),
    [("0.10 12.25 9.99 2/812 4711\n", 12.25, True), ("9.99 2.00 0.1 1/2 3\n", 2.0, False),
     ("", None, False), ("nan nan nan\n", None, False)],
)  # fmt: skip
def test_a_node_is_busy_if_programs_want_more_than_half_of_its_cpus(text, load, busy) -> None:
    facts = read(loadavg=text, nproc="16\n")
    assert (facts.load, facts.is_busy) == (load, busy)


def test_warnings_are_bounded() -> None:
    facts = read(python="\n".join(f"/p{n} 3.11.2 cpython-311-i386-linux-gnu" for n in range(999)))
    assert len(facts.warnings) == 32


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return strings([*value, *value.values()])
    return [s for item in value for s in strings(item)] if isinstance(value, list | tuple) else []


GOOD = CPU | {
    "os-release": "ID=debian\n",
    "libc": "glibc 2.35\n",
    "libstdcxx": "GLIBCXX_3.4.30\n",
    "meminfo": "MemTotal: 67108864 kB\n",
    "nproc": "16\n",
    "isolation": "none user.max_user_namespaces\n",
    "disk": "Filesystem Type k k k c m\n/dev/sda1 ext4 1 1 1 1% /\n",
    "python": "/usr/bin/python3.11 3.11.2 cpython-311-x86_64-linux-gnu venv headers\n",
    "nvidia-smi": "name, compute_cap, memory.total [MiB]\nRTX 3060, 8.6, 12288 MiB\n",
    "lspci": "0000:03:00.0 3D controller [0302]: NVIDIA Device [10de:2503] (rev a1)\n",
    "toolchain": "gcc 12.2.0\n",
    "release": json.dumps(MANIFEST),
    "previous": "default r1\n",
    "release-files": f"release default\nrecord {'0' * 64}\ndiffers 1 2 ./lib/a.so\n",
    "loadavg": "0.50 12.25 3.10 2/812 4711\n",
    "memory-limit": "34359738368\n",
    "missing-interpreters": "/opt/py/bin/python\n",
    "allowed-signers": "required\n",
    "kfd": "0 1280 90402\n0 49408 110501\n",
    "sve": "32\n",
    "device-tree": "model: NVIDIA Jetson Orin\ncompatible: nvidia,tegra234\n",
    "mig": "0, A100, Enabled\nGPU 0: A100\n  MIG 1g.10gb     Device  0: (UUID: MIG-0)\n",
}
anything = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, str]:
    """A good capture with something done to some of its sections."""
    capture = dict(GOOD)
    for section in draw(st.sets(st.sampled_from(SECTIONS))):
        text = capture.get(section, "")
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 20))
        capture[section] = text[:at] + draw(anything) + text[at + cut :]
    return capture


@given(st.dictionaries(st.sampled_from(SECTIONS) | st.text(), anything) | mutated())
def test_no_text_raises_and_control_characters_are_removed(capture: dict[str, str]) -> None:
    facts = facts_of(capture)
    shown = strings(facts.model_dump(mode="json"))
    assert all(text.isprintable() for text in shown)
    assert facts.isa is None or facts.arch in ("x86_64", "aarch64")


@given(anything, st.sampled_from(["N", "a.*", "("]))
def test_no_output_raises(output: str, nonce: str) -> None:
    assert set(split(output, nonce)) <= set(SECTIONS)


@given(st.dictionaries(st.sampled_from(SECTIONS), st.text(min_size=1)))
def test_framed_sections_are_split_again(capture: dict[str, str]) -> None:
    output = "".join(f"N0nce begin {s}\n{t}\nN0nce end {s} 0\n" for s, t in capture.items())
    assert split(output, "N0nce") == capture


@given(st.dictionaries(st.sampled_from(SECTIONS), anything) | mutated())
def test_shown_text_is_bounded(capture: dict[str, str]) -> None:
    dumped = facts_of(capture).model_dump(mode="json")
    assert all(len(text) <= 1024 for text in strings(dumped))
    assert all(len(items) <= 5000 for items in dumped.values() if isinstance(items, list))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(MANIFEST)), inner),
    max_leaves=20,
)


@given(st.sampled_from(list(MANIFEST)), json_values)
def test_no_value_in_a_manifest_raises(key: str, value: object) -> None:
    facts = read(release=json.dumps(MANIFEST | {key: value}))
    assert len(facts.release) + len(facts.warnings) == 1


def test_the_previous_release_is_read_as_an_id() -> None:
    text = "default 5a83\nother r1\n../etc passwd\nrm -rf\nx\n"
    assert read(previous=text).previous == {"default": "5a83", "other": "r1"}
    assert read().previous == {}
