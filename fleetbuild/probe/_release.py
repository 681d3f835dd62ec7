"""The manifests of the releases that are current on the node."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe._text import is_too_long, short

MAX_RELEASES = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def read_release(capture: Capture) -> tuple[dict[str, Manifest], list[str]]:
    """The manifests by the name of their release, and a warning where one is damaged."""
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
            warnings.append(_damaged("is no JSON", text[at : at + 240]))
            break
        try:
            manifest = Manifest.model_validate(document)
        except ValidationError:
            manifest = None
        if manifest and _harmless(manifest):
            manifests[manifest.release] = manifest
        else:
            warnings.append(_damaged("is not one of ours", text[at : at + 240]))
        at = _after_space(text, end)
    return manifests, warnings


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _harmless(manifest: Manifest) -> bool:
    """The names will be parts of paths and be shown to people."""
    names = all(map(_NAME.fullmatch, (manifest.release, manifest.id)))
    return names and _printable(manifest.model_dump())


def _printable(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_printable, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_printable, value))
    return not isinstance(value, str) or value.isprintable()


def _damaged(why: str, text: str) -> str:
    return f"The manifest of a release on the node {why} and is left out: {short(text, 60)!r}."
