"""Ask the build backend of a source for its run-time requirements, inside a sandbox.

In: a stored source and its build requirements. Out: `StaticMetadata`, or `SandboxError`. The build
requirements are locked by hash, as for a build; the answer is stored beside the source.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from fleetbuild.errors import FleetbuildError
from fleetbuild.models import LockedFile, TargetLibc
from fleetbuild.plan.decide.resolution import LockRequest, StaticMetadata
from fleetbuild.plan.resolve.sandbox import (
    PYTHON,
    PYTHON_TAG,
    SandboxError,
    glibc_here,
    run_confined,
    why_unavailable,
)
from fleetbuild.plan.resolve.uv import install_wheels, resolve
from fleetbuild.store.sources import read_source, requirements_of_metadata
from fleetbuild.store.wheels import Store
from fleetbuild.text import clean

_HOOKS = Path(__file__).with_name("backend_hooks.py")


def ask_backend(
    file: LockedFile, build_requirements: Collection[str], store: Store
) -> StaticMetadata:
    """Return the requirements that the backend of this source names; asked once for each source."""
    source = store.path_of(file)
    kept = source.with_name(f".asked-{PYTHON_TAG}.json")
    if known := _kept(kept, file):
        return known
    if problem := why_unavailable():
        raise SandboxError(problem)
    needed = set(build_requirements)
    answer = _ask(source, needed, store)
    if more := _missing(answer.get("build"), needed):
        answer = _ask(source, needed | more, store)
    text = answer.get("metadata")
    if not isinstance(text, str):
        raise SandboxError(f"its build backend failed: {clean(answer.get('problem'), limit=300)}")
    requires, python = requirements_of_metadata(text)
    found = StaticMetadata(
        name=file.name, version=file.version, requires=requires, requires_python=python
    )
    part = source.with_name(f".part-asked-{os.getpid()}")
    part.write_text(found.model_dump_json() + "\n")
    part.replace(kept)
    return found


def _kept(path: Path, file: LockedFile) -> StaticMetadata | None:
    try:
        known = StaticMetadata.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return known if (known.name, known.version) == (file.name, file.version) else None


def _ask(source: Path, requirements: Collection[str], store: Store) -> dict[str, object]:
    metadata = read_source(source)
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        environment = Path(folder, "env")
        environment.mkdir()
        wheels = _locked(requirements, store)
        if wheels and (problem := install_wheels(wheels, environment)):
            raise SandboxError(f"its build requirements cannot be installed: {problem}")
        inside, copy = f"/source/{source.name}", Path(folder, source.name)
        shutil.copyfile(source, copy)
        said = run_confined(
            [str(PYTHON), "-s", "-S", "-c", _HOOKS.read_text("utf-8"), inside, metadata.backend,
             json.dumps(metadata.backend_path)],
            {"/env": environment, inside: copy},
        )  # fmt: skip
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise SandboxError("its build backend ended without an answer")
    return answer


def _missing(named: object, there: Collection[str]) -> set[str]:
    """Return the requirements that the backend named at run time and its environment lacks."""
    names = {canonicalize_name(re.split(r"[^\w.-]", each.strip(), maxsplit=1)[0]) for each in there}
    missing = set()
    for text in named if isinstance(named, list) else ():
        try:
            requirement = Requirement(str(text))
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) not in names:
            missing.add(str(text))
    return missing


def _locked(requirements: Collection[str], store: Store) -> list[Path]:
    """Return the files of the build requirements for this machine, by their hashes."""
    if not requirements:
        return []
    if not (version := glibc_here()):
        raise SandboxError("it works with glibc, which this machine does not have")
    request = LockRequest(
        requirements=tuple(sorted(requirements)),
        python_version=platform.python_version().rstrip("+"),
        python=PYTHON_TAG,
        arch=platform.machine(),
        libc=TargetLibc(family="glibc", floor=version),
    )
    answer = resolve(request, store.settings)
    if answer.problem:
        raise SandboxError(f"its build requirements cannot be locked: {answer.problem}")
    try:
        return [store.fetch(file) for file in answer.wheels]
    except FleetbuildError as problem:
        raise SandboxError(problem.message) from None
