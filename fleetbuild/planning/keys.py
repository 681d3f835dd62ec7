"""Names by content: artifact keys, release ids, versions with a local label.

Nothing about who builds is in a key: not the builder, nor how its compiler spells the flags.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import LockedFile, Target
from fleetbuild.recipes import Recipe, render_environment


def canonical(value: object) -> str:
    """The one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """The sha256 of a value, as 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def artifact_key(
    *,
    recipe: Recipe,
    package: str,
    version: str,
    target: Target,
    source_sha256: str,
    build_lock: Iterable[LockedFile],
    built_against: Iterable[str] = (),
) -> str:
    """The key of the wheel that this source, recipe and target make: 32 hex digits.

    The libc floor is not in it (a wheel with a lower floor serves as well), and neither are the
    file hashes of build requirements: the same versions come as other files for another floor.
    """
    return digest(
        {
            "package": package,
            "version": version,
            "source": source_sha256,
            "recipe": recipe.model_dump(mode="json", exclude=_TELLS_NOTHING),
            "environment": render_environment(recipe, _without_floor(target), f"<{target.isa}>"),
            "os": target.os,
            "arch": target.arch,
            "isa": target.isa,
            "features": target.features,
            "sms": target.sms,
            "toolkit": None,
            "python": target.python,
            "libc": target.libc.family,
            "built_against": sorted(built_against),
            "build_lock": sorted([file.name, file.version] for file in build_lock),
        }
    )[:32]


# Fields of a recipe that cannot change what comes out of a build.
_TELLS_NOTHING = {
    "description", "packages", "rungs", "libc", "sources", "backend_requirements",
    "job_memory_gb", "disk_gb", "import_names", "checks",
}  # fmt: skip


def release_id(
    *, name: str, python: str, artifact_keys: Iterable[str], dependencies: Iterable[LockedFile]
) -> str:
    """The id of the release that holds these wheels and dependencies: 16 hex digits."""
    return digest(
        {
            "name": name,
            "python": python,
            "wheels": sorted(artifact_keys),
            "dependencies": sorted(file.sha256 for file in dependencies),
        }
    )[:16]


def wheel_version(version: str, target: Target) -> str:
    """The version that the wheel itself carries: 0.8.0+cpu.avx512."""
    sms = ".".join("sm" + sm.replace(".", "") for sm in target.sms) or "cpu"
    label = f"{sms}.{RUNGS[target.isa].label}"
    # A version that has a local label already keeps it in front.
    return f"{version}.{label}" if "+" in version else f"{version}+{label}"


def _without_floor(target: Target) -> Target:
    return target.model_copy(update={"libc": target.libc.model_copy(update={"floor": ""})})
