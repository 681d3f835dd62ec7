"""Each regular expression of the package, on texts that are made to be slow for it.

Where twice the text takes four times as long, a megabyte takes hours. Each text is compared with
one of four times its length.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import fleetbuild

pytestmark = pytest.mark.no_cover
METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
SAMPLES = "a 1A_.-/:=,;#\"'([{<\n\t\\"
OF_CATEGORY = {
    code.CATEGORY_SPACE: " ", code.CATEGORY_DIGIT: "1", code.CATEGORY_WORD: "a",
    code.CATEGORY_NOT_SPACE: "a", code.CATEGORY_NOT_DIGIT: "a", code.CATEGORY_NOT_WORD: " ",
}  # fmt: skip


def used_expressions() -> dict[tuple[str, int], tuple[str, set[str]]]:
    """Each expression with its place, and the methods by which the package uses it."""
    found: dict[tuple[str, int], tuple[str, set[str]]] = {}
    methods: dict[str, set[str]] = {}
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(fleetbuild.__path__, "fleetbuild.")
        if not each.name.endswith("__main__")
    ]
    for module in modules:
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                methods.setdefault(ast.unparse(node.value).split(".")[-1], set()).add(node.attr)
            elif isinstance(node, ast.Call) and (pattern := inline(node)):
                place = f"{module.__name__}: {pattern}"
                method = ast.unparse(node.func).removeprefix("re.")
                found.setdefault((pattern, 0), (place, set()))[1].add(method)
    for module in modules:
        for variable, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                place = f"{module.__name__}.{variable}"
                used = found.setdefault((value.pattern, value.flags), (place, set()))[1]
                used |= methods.get(variable, {"search"})
    return found


def inline(call: ast.Call) -> str | None:
    """The expression of a call such as re.sub(EXPRESSION, …)."""
    first = call.args[0] if call.args else None
    method = ast.unparse(call.func).partition("re.")
    named = method[0] == "" and method[2] in METHODS
    value = first.value if named and isinstance(first, ast.Constant) else None
    return value if isinstance(value, str) else None


def shortest(items: Iterable[Any]) -> str:
    """A short text that these parts of an expression match, or nearly."""
    return "".join(min(map(str, texts(item)), key=len, default="") for item in items)


def texts(item: Any) -> list[str]:
    """Texts that one part matches, a few of them."""
    kind, value = item
    if kind is code.LITERAL:
        return [chr(value)]
    if kind in (code.IN, code.NOT_LITERAL, code.ANY):
        return [each for each in SAMPLES if matches(kind, value, each)][:3] or [one_of(value)]
    if kind is code.SUBPATTERN:
        return [shortest(value[3])]
    if kind is code.BRANCH:
        return [shortest(branch) for branch in value[1]]
    if kind in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
        return [shortest(value[2]) * value[0]]
    return [""]


def one_of(value: Any) -> str:
    for kind, what in value if isinstance(value, list) else ():
        if kind is code.LITERAL:
            return chr(what)
        if kind is code.RANGE:
            return chr(what[0])
    return "a"


def matches(kind: Any, value: Any, char: str) -> bool:
    if kind is code.ANY:
        return char != "\n"
    if kind is code.NOT_LITERAL:
        return ord(char) != value
    found = any(
        (each is code.LITERAL and ord(char) == what)
        or (each is code.RANGE and what[0] <= ord(char) <= what[1])
        or (each is code.CATEGORY and OF_CATEGORY.get(what) == char)
        for each, what in value
    )
    return found != (value[0][0] is code.NEGATE)


def repeats(items: Iterable[Any], before: str = "") -> Iterator[tuple[str, str]]:
    """For each part that repeats: a text for what stands before it, and one that it repeats."""
    for item in items:
        kind, value = item
        if kind in (code.MAX_REPEAT, code.MIN_REPEAT):
            if value[1] > 20:
                inner = value[2][0] if len(value[2]) == 1 else None
                for pump in texts(inner) if inner else [shortest(value[2])]:
                    yield before, pump
            yield from repeats(value[2], before)
        elif kind is code.SUBPATTERN:
            yield from repeats(value[3], before)
        elif kind is code.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, before)
        before += shortest([item])


def slow_texts(pattern: str, flags: int, size: int) -> Iterator[str]:
    for before, pump in set(repeats(parser.parse(pattern, flags & ~re.UNICODE))):
        for unit in {pump, before + pump} - {""}:
            for start in {before, ""}:
                yield start + unit * (size // len(unit)) + "\x00"


def seconds(pattern: re.Pattern[str], method: str, text: str) -> float:
    began = time.process_time()
    if method == "sub":
        pattern.sub("", text)
    elif method == "finditer":
        list(pattern.finditer(text))
    else:
        getattr(pattern, method)(text)
    return time.process_time() - began


EXPRESSIONS = used_expressions()
# Those of which the text is short, or the operator's own.
SHORT = {
    "fleetbuild.plan.resolve.uv": "messages of uv: 10,000 characters at most",
    "fleetbuild.store.address_secrets._TOKEN": "addresses of the operator's settings",
    "fleetbuild.audit.content._PLATFORM": "fullmatch alone, by way of a tuple",
}


@pytest.mark.parametrize("key", EXPRESSIONS, ids=[place for place, _ in EXPRESSIONS.values()])
def test_twice_the_text_takes_twice_the_time(key: tuple[str, int]) -> None:
    place, methods = EXPRESSIONS[key]
    if place.startswith(tuple(SHORT)):
        return
    pattern = re.compile(*key)
    for method in sorted(methods):
        for short, long in zip(slow_texts(*key, 1000), slow_texts(*key, 4000), strict=True):
            if seconds(pattern, method, long) > 0.004:
                whole = min(seconds(pattern, method, long) for _ in range(3))
                part = max(min(seconds(pattern, method, short) for _ in range(3)), 0.0001)
                assert whole < 9 * part, (method, short[:60])


def test_an_expression_whose_time_squares_is_found() -> None:
    for slow in (r"\s+$", r"a\([^)]*b", r"(^|\s+)#", r"\[.*?\]"):
        worst = [max(seconds(re.compile(slow), "search", text) for text in slow_texts(slow, 0, n))
                 for n in (3000, 12000)]  # fmt: skip
        assert worst[1] > 9 * worst[0]
