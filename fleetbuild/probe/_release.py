"""The manifests of the releases that are current on the node."""

from __future__ import annotations

import json

from pydantic import ValidationError

from fleetbuild.models import Capture, Manifest
from fleetbuild.probe._text import MAX_SECTION, short

MAX_RELEASES = 64


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
        if manifest and manifest.model_dump_json().isprintable():
            manifests[manifest.release] = manifest
        else:
            warnings.append(_damaged("is not one of ours", text))
        text = text[end:].strip()
    return manifests, warnings


def _damaged(why: str, text: str) -> str:
    return f"The manifest of a release on the node {why} and is left out: {short(text, 60)!r}."
