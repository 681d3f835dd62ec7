"""Fuzzing: what others wrote, damaged in any way, gives an answer or a sentence, in bounded time.

Each input is a valid document with pieces cut, repeated, exchanged and replaced.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.audit.elf import DAMAGED
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.errors import FleetbuildError
from fleetbuild.extensions.kubernetes.api.kubeconfig_schema import parse as parse_kubeconfig
from fleetbuild.models import Facts
from fleetbuild.plan.document.serialize import _digest, read_plan
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.store.sources import read_texts
from tests.factories.elf import make_elf, make_fatbin
from tests.hostile.readers import (
    LONGEST_TEXT,
    LONGEST_WHEEL,
    MEMORY_MB,
    PLAN,
    SECONDS,
    SECTIONS,
    TEXT_READERS,
    USUAL,
    WHEEL_NAME,
    read_wheel,
    wheel_seeds,
)

ODD_TEXT = ["\x00", "\x1b[31m", "\u202e", "\ud7ff", "9" * 400, "-1", "1e999", "NaN", "../" * 50,
            "[" * 2000, "{" * 2000, "a" * 5000, "\n" * 1000, ": ", "&a [*a]", "!!python/object:os",
            "null", "'", '"', "\\", "{{ x }}", "<<: *a\n"]  # fmt: skip
ODD_BYTES = [b"\xff" * 8, b"\x00" * 64, b"\x7fELF", b"PK\x03\x04", b"\xff\xff\xff\x7f", b"a" * 5000]


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if the work takes a second of CPU, or raises anything but a sentence."""
    began = time.process_time()
    with suppress(FleetbuildError):
        yield
    took = time.process_time() - began
    assert took < SECONDS, f"{took:.2f} s"


def damaged_text(seeds: Sequence[str]) -> st.SearchStrategy[str]:
    """One of these texts with up to six pieces changed."""

    def change(text: str, edits: list[tuple[float, float, str, int]]) -> str:
        for start, length, new, times in edits:
            at = int(start * len(text))
            end = at + int(length * 200)
            text = text[:at] + (new or text[at:end] * times) + text[end:]
        return text[:LONGEST_TEXT]

    edits = st.tuples(
        st.floats(0, 1), st.floats(0, 1),
        st.sampled_from(["", *ODD_TEXT]) | st.text(max_size=20), st.integers(0, 30),
    )  # fmt: skip
    return st.builds(change, st.sampled_from(seeds), st.lists(edits, min_size=1, max_size=6))


def damaged_bytes(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of these files with up to six pieces changed."""

    def change(data: bytes, edits: list[tuple[float, float, bytes, bool]]) -> bytes:
        for start, length, new, over in edits:
            at = int(start * len(data))
            end = at + (len(new) if over else int(length * 200))
            data = data[:at] + new + data[end:]
        return data[:LONGEST_WHEEL]

    edits = st.tuples(
        st.floats(0, 1), st.floats(0, 1),
        st.sampled_from([b"", *ODD_BYTES]) | st.binary(max_size=12), st.booleans(),
    )  # fmt: skip
    return st.builds(change, st.sampled_from(seeds), st.lists(edits, min_size=1, max_size=6))


@pytest.fixture(autouse=True, scope="module")
def memory(seeds: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The whole module stays within the memory that one input may take."""
    for reader in TEXT_READERS.values():  # what a reader loads once is not an input's
        reader.read(reader.seeds[0])
    path = tmp_path_factory.getbasetemp() / WHEEL_NAME
    path.write_bytes(seeds[0])
    read_wheel(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < MEMORY_MB, f"{grown} MB"


@given(st.data())
def test_damaged_captures_are_read_as_facts(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(SECTIONS)), min_size=1, max_size=4))
    changed = {name: data.draw(damaged_text(SECTIONS[name])) for name in names}
    with bounded():
        assert isinstance(facts_of({**USUAL, **changed}), Facts)


@pytest.mark.parametrize("name", TEXT_READERS)
@given(data=st.data())
def test_damaged_texts_are_read_or_refused(name: str, data: st.DataObject) -> None:
    """Whole answers of probes, single sections, plans, manifests, kubeconfigs."""
    reader = TEXT_READERS[name]
    text = data.draw(damaged_text(reader.seeds))
    with bounded():
        reader.read(text)


def anywhere(value: object, place: list[float], new: object) -> object:
    """The same document with another value at some place."""
    if not place or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[int(place[0] * len(keys)) % len(keys)]
    copy = value.copy()
    copy[key] = anywhere(value[key], place[1:], new)  # type: ignore[index,call-overload]
    return copy


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(ODD_TEXT),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.floats(0, 0.999), min_size=1, max_size=7), ANY)
def test_plans_with_a_valid_digest_and_wrong_values_are_refused(
    place: list[float], new: object
) -> None:
    """An attacker can compute the digest too."""
    data = anywhere(json.loads(PLAN), place, new)
    if isinstance(data, dict) and "digest" in data:
        data["digest"] = _digest(data)
    with bounded():
        read_plan(json.dumps(data))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return wheel_seeds(tmp_path_factory.mktemp("seeds"))


@given(data=st.data())
def test_damaged_wheels_are_audited(
    seeds: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / WHEEL_NAME
    path.write_bytes(data.draw(damaged_bytes(seeds)))
    with bounded():
        read_wheel(path)


@given(damaged_bytes([
    make_elf(b"\xc5\xf4\x58\xc2" * 50, versions=("GLIBC_2.34", "GLIBCXX_3.4.29")),
    make_elf(b"\x90", fatbin=make_fatbin((2, 75, 0), (1, 86, 0))),
]))  # fmt: skip
def test_machine_code(data: bytes) -> None:
    with bounded(), suppress(*DAMAGED):
        audit_elf("x.so", data)


PYPROJECT = """\
[build-system]
requires = ["a"]
build-backend = "b"
backend-path = ["."]
[project]
name = "x"
version = "1"
dependencies = ["d>=1"]
[project.optional-dependencies]
e = ["f; python_version > '3'"]
"""
PKG_INFO = "Metadata-Version: 2.2\nName: x\nVersion: 1\nRequires-Dist: d>=1\n"


@given(damaged_text([PYPROJECT]), damaged_text([PKG_INFO]))
def test_damaged_source_metadata_is_read_or_refused(pyproject: str, pkg_info: str) -> None:
    with bounded():
        read_texts({"pyproject.toml": pyproject, "PKG-INFO": pkg_info}, "x")


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "[" * n,
        lambda n: "a: &a [" + "*a," * n,
        lambda n: "\n".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, n // 20)),
        lambda n: "- " * n,
        lambda n: '"' + "\\x41" * n,
    ],
    ids=["depth", "aliases", "laughs", "dashes", "escapes"],
)
def test_yaml_is_read_in_linear_time(make: Callable[[int], str]) -> None:
    for n in (1_000, 2_000, 4_000):
        with bounded():
            parse_kubeconfig(make(n), "config")
