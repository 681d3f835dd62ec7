"""Find the source that a recipe names for a package: a git commit or an archive.

In: a recipe, package and version. Out: a locked file.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from fleetbuild.errors import RecipeError
from fleetbuild.models import LockedFile
from fleetbuild.recipes import Recipe, RecipeSource, render_source
from fleetbuild.store.git import find_commit
from fleetbuild.store.index_config import IndexSettings

_HASH = re.compile(r"sha256=([0-9a-f]{64})")


def source_of_recipe(
    recipe: Recipe, package: str, version: str, settings: IndexSettings
) -> LockedFile | None:
    """Return the locked source that a recipe names; None if the source is on the index.

    Only the commit is looked up; nothing is fetched.
    """
    source = render_source(recipe, package, version)
    if source is None:
        return None
    address = source.git or source.archive or ""
    _refuse_login(recipe, address)
    if source.git is None:
        return _archive(recipe, source, package, version)
    commit = find_commit(source.git, source.ref, settings.mirrors)
    return LockedFile(
        name=package,
        version=version,
        file=f"{package.replace('-', '_')}-{version}.tar.gz",
        sha256="",
        url=f"git+{source.git}@{commit}" + ("" if source.submodules else "#flat"),
    )


def _archive(recipe: Recipe, source: RecipeSource, package: str, version: str) -> LockedFile:
    url, _, fragment = (source.archive or "").partition("#")
    pinned = _HASH.fullmatch(fragment)
    sha256 = source.sha256.get(version) or (pinned and pinned[1])
    if not sha256:
        raise RecipeError(
            f"The recipe {recipe.name} has no sha256 for the archive of {package} {version}, so a "
            "changed archive would go unnoticed.",
            f"Add it, in a recipe of yours that says extends: {recipe.name}: source: {{sha256: "
            f'{{"{version}": …}}}}.',
        )
    return LockedFile(
        name=package, version=version, file=urlsplit(url).path.rsplit("/", 1)[-1], sha256=sha256,
        url=url,
    )  # fmt: skip


def _refuse_login(recipe: Recipe, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") and parts.username is not None:
        raise RecipeError(
            f"The recipe {recipe.name} has a user or password in the address of its source, but "
            "plans show addresses.",
            "Remove it, and log in with git's credential helpers, ~/.netrc or a mirror under "
            "mirrors: in fleetbuild.yml.",
        )
