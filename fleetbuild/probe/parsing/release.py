"""Read the current releases of a node: their manifests, and whether files are as installed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe.parsing.text import is_too_long, lines, short

MAX_RELEASES = 64
MAX_MANIFEST = 256 * 1024  # characters; script.sh prints at most this much
MAX_ITEMS = 5000
_PREVIOUS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}) ([A-Za-z0-9][\w.-]{0,63})", re.ASCII)
_NAMED = 3  # files in a sentence
_RELEASE = re.compile(r"release ([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
_DIFFERS = re.compile(r"differs \d{1,20} -?\d{1,20} \./(.+)")


class Releases(NamedTuple):
    """The current releases of a node, by release name. One that is damaged is not `verified`."""

    manifests: dict[str, Manifest]
    damaged: dict[str, str]  # the damage, as the end of a sentence
    warnings: list[str]


def read_release(capture: Capture) -> Releases:
    """Return the current releases, with a warning for each that is malformed or damaged."""
    manifests, warnings = _manifests(capture.get("release", "").strip())
    damaged = _damaged(capture, manifests)
    warnings += [
        f"Release {name} on this node is damaged: {what}. Run fleetbuild apply to install it again."
        for name, what in damaged.items()
        if name in manifests
    ]
    sound = {
        name: manifest.model_copy(update={"verified": False}) if name in damaged else manifest
        for name, manifest in manifests.items()
    }
    return Releases(sound, damaged, warnings)


def _manifests(text: str) -> tuple[dict[str, Manifest], list[str]]:
    if is_too_long("release", text):
        return {}, []
    manifests: dict[str, Manifest] = {}
    warnings: list[str] = []
    at, decoder = 0, json.JSONDecoder()
    while at < len(text) and len(manifests) + len(warnings) < MAX_RELEASES:
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            warnings.append(_malformed(f"it is not JSON: {short(text[at : at + 240], 60)!r}"))
            break
        problem = "it is too large" if end - at > MAX_MANIFEST else _problem(document)
        if problem:
            warnings.append(_malformed(problem))
        else:
            manifest = Manifest.model_validate(document)
            manifests[manifest.release] = manifest
        at = _after_space(text, end)
    return manifests, warnings


def read_previous(capture: Capture) -> dict[str, str]:
    """Return the release that a rollback would switch to, by release name."""
    found = map(_PREVIOUS.fullmatch, lines(capture, "previous", MAX_RELEASES, 200))
    return {line[1]: line[2] for line in found if line}


def _damaged(capture: Capture, manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Return the damage by release name, from the section release-files.

    The section has a line `release NAME` for each current release, and below it the findings:
    `record SHA256` of its record, and a line `differs SIZE TIME PATH` for each version of a file
    that only the record or only the disk has.
    """
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lines(capture, "release-files", MAX_ITEMS, 1000):
        if name := _RELEASE.fullmatch(line):
            words = found.setdefault(name[1], []) if len(found) < MAX_RELEASES else []
        else:
            words.append(line)
    damages = {name: _damage(said, manifests.get(name)) for name, said in found.items()}
    return {name: damage for name, damage in damages.items() if damage}


def _damage(said: Sequence[str], manifest: Manifest | None) -> str:
    if "gone" in said:
        return "its folder is missing"
    if "unknown" in said or "differs !" in said:  # the user may not read all of it
        return ""
    if manifest is None:
        return "its manifest is missing or malformed"
    if "python" in said:
        return "its bin/python is missing, or the interpreter that this leads to"
    return _other_files(said, manifest.files_sha256)


def _other_files(said: Sequence[str], record: str | None) -> str:
    if record is None:
        return ""  # installed before there were records
    if f"record {record}" not in said:
        return "the record of its files is missing or changed"
    matches = filter(None, map(_DIFFERS.fullmatch, said))
    paths = list(dict.fromkeys(match[1] for match in matches))
    named = ", ".join(short(path, 120) for path in paths[:_NAMED])
    more = " and others" if len(paths) > _NAMED else ""
    return f"{named}{more}: other size or time than at the install" if paths else ""


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _problem(document: object) -> str | None:
    """Return the problem of a manifest, or None.

    The size is checked first: pydantic's errors for 100,000 wrong items take half a gigabyte.
    """
    values = [document, *document.values()] if isinstance(document, dict) else [document]
    if any(isinstance(value, list | dict) and len(value) > MAX_ITEMS for value in values):
        return f"it holds more than {MAX_ITEMS} items"
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        return f"{short(where, 60)}: {short(first['msg'], 120)}"
    return None if manifest.python.isprintable() else "python: it contains unprintable characters"


def _malformed(why: str) -> str:
    return (
        f"A release manifest on this node is malformed and is left out: {why}. Run fleetbuild apply"
        " to install the release again."
    )
