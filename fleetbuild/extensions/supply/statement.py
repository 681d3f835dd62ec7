"""The provenance of a stored wheel: an in-toto Statement v1 with a SLSA Provenance v1 predicate.

In: the planned wheel, and how and where it was built. Out: a document for every reader of SLSA.
https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1 define the fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleetbuild.models import LockedFile, PlannedWheel
from fleetbuild.models.stored import BuildContext, WheelRecord

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
# The kinds of build: by a recipe, or none: a published wheel was taken as it is.
BUILT = "https://fleetbuild.dev/builds/wheel/v1"
TAKEN = "https://fleetbuild.dev/builds/published/v1"


SUFFIX = ".intoto.json"  # after the wheel's file name; the signature has .sig after it
PURPOSE = "provenance@fleetbuild.dev"


def write_statement(
    home: Path, wheel: PlannedWheel, record: WheelRecord, context: BuildContext
) -> None:
    """Write the statement about a stored wheel beside it, and its signature if there is a key."""
    document = statement(wheel, record, context)
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
    (home / f"{record.file}{SUFFIX}").write_text(text + "\n", encoding="utf-8")
    if context.sign:
        signature = context.sign.text(text + "\n", PURPOSE)
        (home / f"{record.file}{SUFFIX}.sig").write_text(signature, encoding="utf-8")


def statement(wheel: PlannedWheel, record: WheelRecord, context: BuildContext) -> dict[str, Any]:
    """Return the statement about one wheel file."""
    node = quote(record.built_on or "unknown", safe="")
    return {
        "_type": STATEMENT,
        "subject": [{"name": record.file, "digest": {"sha256": record.sha256}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": TAKEN if wheel.published else BUILT,
                "externalParameters": _parameters(wheel),
                "internalParameters": {
                    "artifactKey": wheel.artifact_key,
                    "planDigest": context.plan_digest,
                },
                "resolvedDependencies": [*_dependencies(wheel), *_image(wheel, record.built_on)],
            },
            "runDetails": {
                "builder": {
                    "id": f"https://fleetbuild.dev/builders/{node}",
                    "version": {"fleetbuild": version("fleetbuild")},
                    "builderDependencies": [
                        {"name": tool, "annotations": {"version": each}}
                        for tool, versions in sorted(context.toolchain.items())
                        for each in versions
                    ],
                },
                "metadata": {}
                if context.cached
                else {
                    "invocationId": f"{context.plan_digest}/{wheel.artifact_key}",
                    "startedOn": _earlier(record.built_at, record.seconds),
                    "finishedOn": record.built_at,
                },
            },
        },
    }


def _parameters(wheel: PlannedWheel) -> dict[str, Any]:
    """Return what the user and the recipe decided. Texts that can be long are hashed."""
    return {
        "package": wheel.package,
        "version": wheel.version,
        "wheelVersion": wheel.wheel_version,
        "target": wheel.target.model_dump(mode="json"),
        "recipe": wheel.recipe,
        "environment": wheel.environment,
        "configSettings": wheel.config_settings,
        "cuda": wheel.cuda,
        "compiler": wheel.requires.compiler,
        "libraries": wheel.libraries,
        "files": {name: _hash(text) for name, text in wheel.files.items()},
        "patches": {name: _hash(text) for name, text in wheel.patches.items()},
        "builtAgainst": list(wheel.built_against),
    }


def _image(wheel: PlannedWheel, built_on: str) -> list[dict[str, Any]]:
    """Return the image that the wheel was built in, if it was built in one."""
    image = wheel.builder(built_on).image
    return [{"name": "container image", "digest": {"sha256": image}}] if image else []


def _dependencies(wheel: PlannedWheel) -> list[dict[str, Any]]:
    files: Mapping[str, tuple[LockedFile, ...]] = {
        "source": (wheel.source,) if wheel.source else (),
        "published": (wheel.published,) if wheel.published else (),
        "build requirement": wheel.build_dependencies,
    }
    return [_resource(file, role) for role, each in files.items() for file in each]


def _resource(file: LockedFile, role: str) -> dict[str, Any]:
    commit = file.commit
    digest = {"gitCommit": commit.id} if commit else {"sha256": file.sha256}
    named = {"role": role, "package": file.name, "version": file.version}
    return {"uri": file.url, "digest": digest, "name": file.file, "annotations": named}


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _earlier(moment: str, seconds: float) -> str:
    begun = datetime.fromisoformat(moment) - timedelta(seconds=round(seconds))
    return begun.isoformat(timespec="seconds")
