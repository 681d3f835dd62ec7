"""Find out what a package requires at run time, without running its code as this user.

In: a package with its source. Out: `StaticMetadata`, or a `Resolution` that says what to write into
a recipe. A build runs on a node; here its backend is asked inside a sandbox, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleetbuild.audit.downloads import contents_of
from fleetbuild.audit.metadata import same
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.packages import Package
from fleetbuild.plan.decide.resolution import LockRequest, Resolution, Source, StaticMetadata
from fleetbuild.plan.resolve.backend import ask_backend
from fleetbuild.plan.resolve.sandbox import SandboxError
from fleetbuild.plan.resolve.uv import find_wheels
from fleetbuild.store.address_secrets import reveal
from fleetbuild.store.fetch import read_text
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.sources import MAX_TEXT, read_source, requirements_of_metadata
from fleetbuild.store.wheels import Store


def find_requirements(
    package: Package, source: Source, requests: Iterable[LockRequest], store: Store
) -> StaticMetadata | Resolution:
    """Return what a package requires, or the problem and its fix.

    They come from the first of these that states them: the source's static metadata, the published
    wheels of the same version for the machines in `requests`, the build backend inside a sandbox.
    """
    assert source.file  # of a package that is to be built and was fetched  # noqa: S101
    metadata = read_source(store.path_of(source.file))
    if metadata.requires is not None:
        return StaticMetadata(
            name=package.name,
            version=package.version,
            requires=metadata.requires,
            requires_python=metadata.requires_python,
        )
    of_index = source.path is None and package.recipe.source is None
    if of_index and (known := _of_published_wheels(package, requests, store)):
        return known
    try:
        return ask_backend(source.file, source.build_requirements, store)
    except SandboxError as problem:
        return Resolution(
            problem=f"{package.name} {package.version} states what it requires at run time only "
            "when its build runs, and this controller runs no code of a package as its user. "
            f"Asking it inside a sandbox failed: {problem}.",
            fix=f"State it in a recipe, recipes/{package.name}.yml beside fleetbuild.yml: "
            f"'extends: {package.recipe.name}', 'name: {package.name}', "
            f"'packages: [{package.name}]' and 'requires: [NAME, ...]' ([] if it requires "
            "nothing). If no sandbox works, let users make namespaces, or plan as root.",
        )


def _of_published_wheels(
    package: Package, requests: Iterable[LockRequest], store: Store
) -> StaticMetadata | None:
    """Return what the wheels of this version require, if every machine has one and all agree."""
    pinned = f"{package.name}=={package.version}"
    distinct = {
        request.model_copy(update={"requirements": (pinned,), "sources": ()})
        for request in requests
    }
    answers = find_wheels(sorted(distinct, key=repr), store.settings).values()
    files = {file.url: file for answer in answers for file in answer.wheels}
    if not all(answer.wheels for answer in answers):
        return None
    if any(file.version != package.version for file in files.values()):
        return None  # a variant, such as 1.0+cu118, may require other packages
    found = [metadata_of_wheel(file, store.settings) for file in files.values()]
    first = found[0] if found else None
    return first if all(each == first for each in found) else None


def metadata_of_wheel(file: LockedFile, settings: IndexSettings) -> StaticMetadata | None:
    """Return what a wheel requires; None if it cannot be read, or is for another version."""
    address = reveal(f"{file.url}.metadata", settings.tokens)
    text = read_text(address, MAX_TEXT, settings.credentials)  # of an address of http alone
    if file.url.startswith("file://"):
        text = contents_of(Path(unquote(urlsplit(file.url).path))).metadata
    headers = HeaderParser().parsestr(text or "")
    name, version = str(headers["Name"]), str(headers["Version"])
    if not text or not same(name, version, file.name, file.version):
        return None
    requires, python = requirements_of_metadata(text)
    return StaticMetadata(
        name=file.name, version=file.version, requires=requires, requires_python=python
    )
