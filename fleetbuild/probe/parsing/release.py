"""Read the current releases of a node: their manifests, and whether files are as installed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe.parsing.text import is_too_long, lines, short
from fleetbuild.text import named_path

MAX_RELEASES = 64
MAX_MANIFEST = 256 * 1024  # characters; script.sh prints at most this much
MAX_ITEMS = 5000
_PREVIOUS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}) ([A-Za-z0-9][\w.-]{0,63})", re.ASCII)
_NAMED = 3  # files in a sentence
_NEEDS_ROOT = re.compile(r"needs-root ([1-9][0-9]{0,9}) ([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
_DECODER = json.JSONDecoder()
_MAX_UID = 2**32 - 2
_RELEASE = re.compile(r"release ([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
_PLAIN = {  # findings that need no more than a sentence
    "signature none": "it is not signed, and this node accepts only signed releases",
    "signature refused": "its signature is not made by a signer that this node allows now",
    "python": "its bin/python is missing, or the interpreter that this leads to",
}
_SIGNED_BY = re.compile(r"signature by (\S.*)")
_DIFFERS = re.compile(r"(differs|deleted) \d{1,20} -?\d{1,20} \./(.+)")


class Releases(NamedTuple):
    """The current releases of a node, by release name. One that is damaged is not `verified`."""

    manifests: dict[str, Manifest]
    damaged: dict[str, str]  # the damage, as the end of a sentence
    signed_by: dict[str, str]  # the allowed signer, on nodes that accept only signed releases
    warnings: list[str]


def read_release(capture: Capture) -> Releases:
    """Return the current releases, with a warning for each that is malformed or damaged."""
    manifests, warnings = _manifests(capture.get("release", "").strip())
    said = _said(capture)
    damages = {name: _damage(lines, manifests.get(name)) for name, lines in said.items()}
    damaged = {name: damage for name, damage in damages.items() if damage}
    warnings += [
        f"Release {name} on this node is damaged: {what}. Install it again: fleetbuild apply"
        for name, what in damaged.items()
        if name in manifests
    ]
    sound = {
        name: manifest.model_copy(update={"verified": False}) if name in damaged else manifest
        for name, manifest in manifests.items()
    }
    signers = {
        name: short(signer[1], 100)
        for name, lines in said.items()
        if (signer := next(filter(None, map(_SIGNED_BY.fullmatch, lines)), None))
    }
    return Releases(sound, damaged, signers, warnings)


def _manifests(text: str) -> tuple[dict[str, Manifest], list[str]]:
    if is_too_long("release", text):
        return {}, []
    manifests: dict[str, Manifest] = {}
    warnings: list[str] = []
    at = 0
    while at < len(text) and len(manifests) + len(warnings) < MAX_RELEASES:
        try:
            document, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            warnings.append(_malformed(f"it is not JSON: {short(text[at : at + 240], 60)!r}"))
            break
        found = "it is too large" if end - at > MAX_MANIFEST else _manifest(document)
        if isinstance(found, Manifest):
            manifests[found.release] = found
        else:
            warnings.append(_malformed(found))
        at = _after_space(text, end)
    return manifests, warnings


def read_previous(capture: Capture) -> dict[str, str]:
    """Return the release that a rollback would switch to, by release name."""
    matches = map(_PREVIOUS.fullmatch, lines(capture, "previous", MAX_RELEASES, 200))
    return {line[1]: line[2] for line in matches if line}


def read_needs_root(capture: Capture) -> dict[str, int]:
    """Return the login user's uid, for each release name for which only root can write."""
    matches = map(_NEEDS_ROOT.fullmatch, lines(capture, "disk", MAX_RELEASES, 1000))
    return {line[2]: int(line[1]) for line in matches if line and int(line[1]) <= _MAX_UID}


def _said(capture: Capture) -> dict[str, list[str]]:
    """Return the findings by release name, from the section release-files.

    The section has a line `release NAME` for each current release, and below it the findings:
    `record SHA256` of its record, and a line `differs SIZE TIME PATH` for each version of a file
    that only the record or only the disk has; `deleted` in its place if the file is gone. On a
    node with allowed signers, `signature by SIGNER`, `signature none` or `signature refused` comes
    first, and after it `signature valid SIGNED UNTIL NOW` if the signature has a date.
    """
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lines(capture, "release-files", MAX_ITEMS, 1000):
        if name := _RELEASE.fullmatch(line):
            words = found.setdefault(name[1], []) if len(found) < MAX_RELEASES else []
        else:
            words.append(line)
    return found


def _damage(said: Sequence[str], manifest: Manifest | None) -> str:
    if "elsewhere" in said:
        return "its link `current` does not lead to one of its releases"
    if "gone" in said:
        return "its folder is missing"
    if "unknown" in said or "differs !" in said:  # the user may not read all of it
        return ""
    if manifest is None:
        return "its manifest is missing or malformed"
    if plain := next((_PLAIN[line] for line in said if line in _PLAIN), ""):
        return plain
    return _other_files(said, manifest.files_sha256)


def _other_files(said: Sequence[str], record: str | None) -> str:
    if f"record {record}" not in said:
        return "the record of its files is missing or changed"
    matches = list(filter(None, map(_DIFFERS.fullmatch, said)))
    deleted = [match[2] for match in matches if match[1] == "deleted"]
    differing = [match[2] for match in matches if match[1] == "differs"]
    parts = [f"{_few(deleted)} deleted"] if deleted else []
    parts += [f"{_few(differing)}: other size or time than at the install"] if differing else []
    return "; ".join(parts)


def _few(paths: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(paths))
    named = ", ".join(named_path(short(path, 120)) for path in distinct[:_NAMED])
    return f"{named}{' and others' if len(distinct) > _NAMED else ''}"


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _manifest(document: object) -> Manifest | str:
    """Return the manifest, or its problem as a clause.

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
    if not manifest.python.isprintable():
        return "python: it contains unprintable characters"
    return manifest


def _malformed(why: str) -> str:
    return (
        f"A release manifest on this node is malformed and is left out: {why}."
        " Install the release again: fleetbuild apply"
    )
