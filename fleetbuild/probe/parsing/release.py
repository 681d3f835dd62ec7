"""Read the manifests of the current releases on a node."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe.parsing.text import is_too_long, lines, short

MAX_RELEASES = 64
MAX_MANIFEST = 256 * 1024  # characters; script.sh prints at most this much
MAX_ITEMS = 5000
_PREVIOUS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}) ([A-Za-z0-9][\w.-]{0,63})", re.ASCII)


def read_release(capture: Capture) -> tuple[dict[str, Manifest], list[str]]:
    """Return the manifests by release name, and a warning for each malformed one."""
    text = capture.get("release", "").strip()
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


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _problem(document: object) -> str | None:
    """Return what is wrong with a manifest, or None.

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
