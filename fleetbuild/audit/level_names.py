"""What the names of functions and files say about levels of the CPU.

In: a symbol, or a file's path. Out: whether the function is one for a level, or the file a library
that chooses by the CPU. The table is data/cpu_code.yml.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from fleetbuild.hardware.data import load

_LIBRARY = re.compile(r"(lib\w+?)(?:-[0-9a-f-]+)?\.so\b", re.ASCII)
# The beginnings of mangled names, up to the first word: C++ and older Rust, newer Rust.
_MANGLED = re.compile(
    r"_ZZ*(?P<nested>N[KVrRO]*(?:S[a-z]|S[0-9A-Z]*_)?)?(?=L?\d)"
    r"|(?P<rust>_R)(?:I|N[a-zA-Z]|[MX](?:s[0-9a-zA-Z]{0,20}_)?)*C(?:s[0-9a-zA-Z]{0,20}_)?(?=u?\d)"
)
_WORD = re.compile(r"L?(\d{1,4})")
_RUST_WORD = re.compile(r"(?:s[0-9a-zA-Z]{0,20}_)?u?(\d{1,4})_?")


@cache
def _table() -> dict[str, Any]:
    return load("cpu_code.yml", "fleetbuild.audit")


def own_name(symbol: str) -> str:
    """Return a symbol up to its first template argument, without parameters: its scopes and name.

    `Tree<dist_avx2>::search` is not a function for AVX2; `avx2::search` and `search.avx2` are.
    """
    start = _MANGLED.match(symbol)
    if start is None:
        return symbol
    words: list[str] = []
    at, word = start.end(), _RUST_WORD if start["rust"] else _WORD
    while (length := word.match(symbol, at)) and (start["rust"] or start["nested"] or not words):
        at = length.end() + int(length[1])
        words.append(symbol[length.end() : at].partition("$LT$")[0])
    clone = symbol[at:].partition(".")[2]
    return "::".join(words) + (f".{clone}" if clone else "")


def is_for_level(symbol: str) -> bool:
    """Return whether a function's name says that it is entered only after a check of the CPU."""
    name = own_name(symbol)
    lower = name.lower()
    return any(word in lower for word in _guards().words) and bool(_guards().levels.search(name))


def is_of_library(symbol: str) -> bool:
    """Return whether a function is one for a level in a library that is known to choose."""
    prefix = _guards().prefixes.match(symbol)
    symbol = symbol[prefix.end() :] if prefix else symbol
    if any(part in symbol for part in _guards().parts) or _guards().openblas.search(symbol):
        return True
    if symbol.startswith(("bli_", "__gmpn_")) and _guards().blis.search(symbol):
        return True
    if own_name(symbol).startswith(_guards().choosing) and is_for_level(symbol):
        return True
    return symbol.startswith(_guards().beginnings)


class _Guards(NamedTuple):
    words: tuple[str, ...]
    levels: re.Pattern[str]
    blis: re.Pattern[str]
    openblas: re.Pattern[str]
    choosing: tuple[str, ...]
    beginnings: tuple[str, ...]
    parts: tuple[str, ...]
    prefixes: re.Pattern[str]


@cache
def _guards() -> _Guards:
    table = _table()
    either = "|".join(sorted(map(_any_case, table["levels"]), key=len, reverse=True))
    # AVX2, opt_AVX2, 4avx2E, KernelAvx2Impl; not in the middle of a word.
    levels = rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?:{either})(?![a-z])|\.arch[_=-]"
    processors = "|".join(table["processors"])
    kernels = "|".join(table["kernels"])
    openblas = rf"_(?:{processors.upper()}|{kernels})(?:[.]|$)"
    rows = [row for row in table["libraries"] if row]
    return _Guards(
        words=(*table["words"], ".arch"),
        levels=re.compile(levels),
        blis=re.compile(
            rf"_(?:{processors}|{kernels.lower()}|skx|knl|zen[2-9]|skylake|corei[a-z]+)(?=_|$)"
        ),
        openblas=re.compile(openblas),
        choosing=tuple(text for row in rows for text in row.get("choosing", ())),
        beginnings=tuple(text for row in rows for text in row.get("beginnings", ())),
        parts=tuple(text for row in rows for text in row.get("parts", ())),
        prefixes=re.compile(table["prefixes"]),
    )


def _any_case(pattern: str) -> str:
    return f"{pattern}|{pattern.upper()}|{pattern.capitalize()}"


def is_dispatcher(path: str) -> bool:
    """Return whether a file is a library that chooses functions by the CPU through tables."""
    match = _LIBRARY.match(path.rpartition("/")[2])
    return match is not None and match[1] in _table()["dispatchers"]


@cache
def asking_names() -> frozenset[str]:
    return frozenset(_table()["asks_cpu"])


@cache
def libraries_by_text() -> tuple[tuple[bytes, frozenset[str], bool], ...]:
    """Return a text of each library that is known without names, what it uses after checks, and
    whether its assembly is outside of all functions."""
    return tuple(
        (row["text"].encode(), frozenset(row.get("features", ())), row.get("assembly", True))
        for row in _table()["texts"]
    )
