"""Names derived from content: artifact keys, release ids, versions with a local label.

In: recipe, source, target, locks. Out: text. A key does not depend on the builder or on how its
compiler spells the flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import LockedFile, Target
from fleetbuild.models.digest import digest
from fleetbuild.recipes import (
    Recipe,
    RecipeInput,
    patches_for,
    render_environment,
    render_files,
    render_settings,
)


def artifact_key(
    *,
    recipe: Recipe,
    package: str,
    version: str,
    target: Target,
    cuda: str | None = None,
    source_sha256: str,
    build_lock: Iterable[LockedFile],
    built_against: Iterable[str] = (),
) -> str:
    """Return the key of the wheel for this source, recipe and target: 32 hex digits.

    Not in the key: the libc floor (a wheel with a lower floor serves as well) and the file hashes
    of build requirements (the same versions are other files for another floor).
    """
    given = RecipeInput(
        package=package,
        version=version,
        wheel_version=wheel_version(version, target, cuda),
        target=target.with_floor(""),
        cuda=cuda,
        flags=f"<{target.isa}>",
    )
    return digest(
        {
            "package": package,
            "version": version,
            "source": source_sha256,
            # The recipe as it is rendered for this wheel.
            "recipe": recipe.name,
            "environment": render_environment(recipe, given),
            "config_settings": render_settings(recipe, given),
            "files": render_files(recipe, given),
            "patches": [patch.text for patch in patches_for(recipe, given)],
            "os": target.os,
            "arch": target.arch,
            "isa": target.isa,
            "features": target.features,
            "sms": target.sms,
            **({"ptx": target.ptx} if target.ptx else {}),
            **({"blas": target.blas} if target.blas else {}),
            "toolkit": cuda,
            "python": target.python,
            "libc": target.libc.family,
            "built_against": sorted(built_against),
            "build_lock": sorted([file.name, file.version] for file in build_lock),
        }
    )[:32]


def key_without_revoked(key: str, revoked: Mapping[str, Sequence[str]]) -> str:
    """Return the key of the wheel's next build if wheels with this key are revoked, else the key.

    With the same key, the builder would answer with the wheel that it has, and a node that serves
    the revoked wheel would count as up to date.
    """
    while key in revoked:
        key = digest(["without", key, *revoked[key]])[:32]
    return key


def published_key(sha256: str) -> str:
    """Return the key of a published wheel: 32 hex digits."""
    return digest(["published", sha256])[:32]


def release_id(
    *, name: str, python: str, artifact_keys: Iterable[str], dependencies: Iterable[LockedFile]
) -> str:
    """Return the id of the release with these wheels and dependencies: 16 hex digits."""
    return digest(
        {
            "name": name,
            "python": python,
            "wheels": sorted(artifact_keys),
            "dependencies": sorted(file.sha256 for file in dependencies),
        }
    )[:16]


def wheel_version(version: str, target: Target, cuda: str | None = None) -> str:
    """Return the version of the wheel itself: 0.8.0+cpu.avx512, 2.13.0+cu126.sm86.avx."""
    toolkit = "cu" + "".join(cuda.split(".")[:2]) if cuda else "cpu"
    sms = ["sm" + sm.replace(".", "") for sm in target.sms]
    ptx = ["ptx"] if target.ptx else []
    label = ".".join([toolkit, *sms, *ptx, RUNGS[target.isa].label])
    # An existing local label stays in front.
    return f"{version}.{label}" if "+" in version else f"{version}+{label}"
