"""The manifests of the releases that are current on the node."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe.parsing.text import MAX_SECTION, short

MAX_RELEASES = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def read_release(capture: Capture) -> tuple[dict[str, Manifest], list[str]]:
    """The manifests by the name of their release, and a warning where one is damaged."""
    text = capture.get("release", "").strip()
    if len(text) > MAX_SECTION:
        return {}, []
    manifests: dict[str, Manifest] = {}
    warnings: list[str] = []
    while text and len(manifests) + len(warnings) < MAX_RELEASES:
        try:
            document, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            warnings.append(_damaged("is no JSON", text))
            break
        try:
            manifest = Manifest.model_validate(document)
        except ValidationError:
            manifest = None
        if manifest and _harmless(manifest):
            manifests[manifest.release] = manifest
        else:
            warnings.append(_damaged("is not one of ours", text))
        text = text[end:].strip()
    return manifests, warnings


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
