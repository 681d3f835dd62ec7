"""What the contract tests compare: the shape of a document, and which parts of a record are gone.

A record lists what users and their programs rely on. Additions pass; a recorded part that is
gone, or of another type, fails. After an intended change, record again and read the diff:
    python -m pytest tests/contract --update-golden && git diff tests/contract/data
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
UPDATE = "python -m pytest tests/contract --update-golden && git diff tests/contract/data"
# Objects whose keys are data, not part of the format.
MAPS = (
    r"^nodes(\[\])?\.[^.]+", r"^fingerprint\.[^.]+", r"\.(files|patches|environment)\.[^.]+",
    r"\.(build_pythons|build_gccs|build_jobs|config_settings|libraries)\.[^.]+",
    r"\.release\.[^.]+",
)  # fmt: skip

Shape = dict[str, list[str]]


def shape(document: Any) -> Shape:
    """The paths of a document's values, each with the JSON types found there."""
    found: dict[str, set[str]] = {}
    _walk(document, "", found)
    return {path: sorted(types) for path, types in sorted(found.items())}


def _walk(value: Any, path: str, found: dict[str, set[str]]) -> None:
    for pattern in MAPS:
        path = re.sub(pattern + "$", lambda match: match[0].rpartition(".")[0] + ".*", path)
    if path:
        found.setdefault(path, set()).add(_type(value))
    if isinstance(value, dict):
        for key, below in value.items():
            _walk(below, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list):
        for below in value:
            _walk(below, f"{path}[]", found)


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def broken_shape(recorded: Shape, now: Shape) -> list[str]:
    """What a program that read the recorded document would no longer find."""
    broken = [f"{path}: gone" for path in recorded if path not in now]
    for path, types in recorded.items():
        before, after = set(types) - {"null"}, set(now.get(path, types)) - {"null"}
        if before and (not after or not after <= before):
            broken.append(f"{path}: was {sorted(before)}, is {sorted(after) or 'null'}")
    return broken


_OTHERS = ("Options", "Arguments")  # sections of a help that list no commands


def command_of(help_text: str) -> dict[str, Any]:
    """What a command line of this command depends on, as `--help` says it."""
    usage, _, rest = help_text.partition("\n\n")
    words = " ".join(usage.split()).partition("[OPTIONS]")[2].split()
    headings = [
        each for each in re.findall(r"^([A-Z][\w ]*):\n", rest, re.M) if each not in _OTHERS
    ]
    return {
        "arguments": {
            word.strip("[]{}"): "optional" if word.startswith("[") else "required"
            for word in words
            if word not in ("COMMAND", "[ARGS]...")
        },
        "options": dict(_option(entry) for entry in _entries(rest, "Options")),
        "commands": [entry.split()[0] for heading in headings for entry in _entries(rest, heading)],
    }


def _entries(text: str, heading: str) -> list[str]:
    """The entries of a section, each with its continued lines joined."""
    section = re.search(rf"^{heading}:\n((?:  .*\n?)+)", text, re.M)
    parts = re.split(r"^  (?=\S)", section[1] if section else "", flags=re.M)
    return [part.strip() for part in parts if part.strip()]


def _option(entry: str) -> tuple[str, dict[str, Any]]:
    syntax, _, said = re.sub(r"\n\s+", "  ", entry).partition("  ")
    names = re.findall(r"(?<![\w-])--?[\w-]+", syntax)
    metavar = re.sub(r"(?<![\w-])--?[\w-]+", "", syntax).strip(" ,/")
    default = re.search(
        r"\[(?:[^\[\]]*; )?default: ([^\[\];]+)[^\[\]]*\]$", said.replace("  ", " ")
    )
    return max(names, key=len), {
        "names": names,
        "takes_value": bool(metavar),
        "metavar": "" if "|" in metavar else metavar,
        "choices": metavar.strip("<>[]").split("|") if "|" in metavar else [],
        "default": default[1] if default else None,
    }


def broken_command(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which recorded command lines would be refused now, or mean something else."""
    broken = broken_list(recorded["commands"], now["commands"])
    before, after = (list(each["arguments"].values()) for each in (recorded, now))
    if len(after) < len(before) or "required" in after[len(before) :]:
        broken.append(f"arguments were {recorded['arguments']}, are {now['arguments']}")
    elif any(pair == ("optional", "required") for pair in zip(before, after, strict=False)):
        broken.append(f"an argument is required now: {now['arguments']}")
    broken += broken_list(recorded["options"], now["options"])
    for name in recorded["options"].keys() & now["options"].keys():
        then, here = recorded["options"][name], now["options"][name]
        for several in ("names", "choices"):
            broken += [f"{name}: {gone}" for gone in broken_list(then[several], here[several])]
        for one in ("takes_value", "metavar", "default"):
            if then[one] != here[one]:
                broken.append(f"{name}: {one} was {then[one]!r}, is {here[one]!r}")
    return broken


def broken_list(recorded: Iterable[str], now: Iterable[str]) -> list[str]:
    """Return the recorded parts that are gone."""
    return [f"{name}: gone" for name in sorted(set(recorded) - set(now))]


def load(name: str) -> Any:
    """A record."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def save(name: str, record: Any) -> None:
    """Write a record again."""
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False)
    (DATA / name).write_text(text + "\n", encoding="utf-8")
