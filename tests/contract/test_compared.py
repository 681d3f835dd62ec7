"""The comparison with the record sees what breaks users' scripts, and lets additions pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.contract import broken_command, broken_shape, command_of, shape

HELP = """\
Usage: fleetbuild build [OPTIONS] {WHAT} [[WHERE]]

  Build it.

Arguments:
  WHAT <str>  What.  [required]

Options:
  -f, --forks N    Nodes asked at once; default: 64.  [x>=1]
  --way <a|b>      How.
  --state-dir DIR  Where state is kept.  [env var: FLEETBUILD_STATE_DIR;
                   default: .fleetbuild]
  -h, --help       Show this message and exit.

Commands:
  list    List the wheels.
"""
DOCUMENT = {"nodes": {"a": {"isa": "avx", "cpus": None}}, "rows": [{"n": 1}, {"n": 2.5}]}


def test_options_are_read_from_the_help() -> None:
    command = command_of(HELP)
    assert command["arguments"] == {"WHAT": "required", "WHERE": "optional"}
    assert command["commands"] == ["list"]
    options = command["options"]
    assert options["--forks"] == {
        "names": ["-f", "--forks"], "takes_value": True, "metavar": "N", "choices": [],
        "default": None,
    }  # fmt: skip
    assert options["--way"]["choices"] == ["a", "b"]
    assert options["--state-dir"]["default"] == ".fleetbuild"
    assert options["--help"]["takes_value"] is False


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ("  -f, --forks N ", "  --forks N ", "--forks: -f: gone"),
        ("--forks", "--at-once", "--forks: gone"),
        ("<a|b>", "<a|c>", "--way: b: gone"),
        ("--way <a|b>", "--way      ", "--way: takes_value was True, is False"),
        ("default: .fleetbuild", "default: .state", "default was '.fleetbuild', is '.state'"),
        ("[[WHERE]]", "{WHERE}", "required now"),
        ("[[WHERE]]", "[[WHERE]] {WHY}", "arguments were"),
        ("  list ", "  show ", "list: gone"),
        ("<a|b>", "<a|b|c>", ""),
        ("  --way", "  --why TEXT  Why.\n  --way", ""),
        ("[[WHERE]]", "[[WHERE]] [[WHY]]", ""),
        ("Build it.", "Builds.", ""),
    ],
)
def test_a_changed_command_line_is_reported(before: str, after: str, broken: str) -> None:
    assert before in HELP
    told = "; ".join(broken_command(command_of(HELP), command_of(HELP.replace(before, after))))
    assert broken in told
    assert bool(told) == bool(broken)


def test_a_document_is_compared_by_paths_and_types() -> None:
    assert shape(DOCUMENT) == {
        "nodes": ["object"], "nodes.*": ["object"], "nodes.*.isa": ["string"],
        "nodes.*.cpus": ["null"], "rows": ["array"], "rows[]": ["object"], "rows[].n": ["number"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({"nodes": {"b": {"isa": "avx", "cpus": 2}}}, ""),
        ({"more": 1}, ""),
        ({"nodes": {"a": {"rung": "avx", "cpus": None}}}, "nodes.*.isa: gone"),
        ({"nodes": {"a": {"isa": 3, "cpus": None}}}, "nodes.*.isa: was ['string'], is ['number']"),
        ({"nodes": {"a": {"isa": None, "cpus": None}}}, "nodes.*.isa: was ['string'], is null"),
        ({"rows": {"n": 1}}, "rows[]: gone"),
    ],
)
def test_a_changed_document_is_reported(changed: dict[str, Any], broken: str) -> None:
    told = "; ".join(broken_shape(shape(DOCUMENT), shape(DOCUMENT | changed)))
    assert broken in told
    assert bool(told) == bool(broken)
