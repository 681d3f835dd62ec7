"""`fleetbuild init recipe`: write a draft of a recipe from the files of a source.

In: a package of the index, or a source of the user. Out: a file in recipes/. None of the package's
code runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from fleetbuild.errors import ResolutionError, UsageError
from fleetbuild.files import raise_if_full
from fleetbuild.foreign_settings import refuse_foreign_home
from fleetbuild.models import TargetLibc
from fleetbuild.models.schemas import editor_comment
from fleetbuild.plan.decide.packages import parse_package
from fleetbuild.plan.decide.resolution import LockRequest, Resolution
from fleetbuild.plan.resolve.survey import SourceSurvey, survey_source
from fleetbuild.plan.resolve.uv import locate, newest_version
from fleetbuild.recipes import find_recipe, parse_recipe
from fleetbuild.recipes.model import GENERIC
from fleetbuild.store.index_config import IndexSettings, index_settings
from fleetbuild.store.wheels import Store


def init_recipe(
    package: str, folder: Path | str = "recipes", *, state_dir: Path = Path(".fleetbuild")
) -> Path:
    """Write a draft of a recipe for `NAME`, `NAME==VERSION` or a path; return its path."""
    refuse_foreign_home()
    source, name = _source(package, state_dir)
    survey = survey_source(source)
    name = canonicalize_name(name or survey.metadata.name or "")
    if not name:
        raise UsageError(
            f"{source} does not say which package it is. Nothing was written.",
            f"Name it: fleetbuild init recipe 'NAME @ {source}'",
        )
    existing = find_recipe(name)
    if existing.name != GENERIC:
        raise UsageError(
            f"fleetbuild has a recipe for {name}: {existing.name}. Nothing was written.",
            f"To change it, write recipes/{name}.yml with extends: {existing.name} "
            "(docs/recipes.md).",
        )
    file = Path(folder) / f"{name}.yml"
    if file.exists():
        raise UsageError(
            f"{file} exists already. Nothing was written.", "Remove it first, or edit it."
        )
    text = "\n".join(_lines(name, source.name, survey)) + "\n"
    parse_recipe(text, str(file))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(editor_comment("recipe") + text, encoding="utf-8")
    except OSError as problem:
        raise_if_full(problem)
        raise UsageError(
            f"{problem.filename} cannot be written: {problem.strerror}.",
            "Change to a folder that you can write to.",
        ) from problem
    return file


def _source(package: str, state_dir: Path) -> tuple[Path, str | None]:
    """Return the path of the source, fetched from the index if need be, and the name given."""
    spec = parse_package(package)
    if spec.path is not None:
        path = Path(spec.path).expanduser()
        if not path.exists():
            raise UsageError(f"{path} does not exist.", "Name an sdist, archive or source tree.")
        return path, spec.name
    store = Store(state_dir / "store", index_settings([], Path()))
    version = spec.version or newest_version(spec.name or "", store.settings)
    if version is None:
        raise ResolutionError(
            f"No version of {spec.name} was found: it is not on the index, or no index answers.",
            f"Check the name, or name a source: fleetbuild init recipe '{spec.name} @ PATH'",
        )
    name = str(canonicalize_name(spec.name or ""))
    major, minor = sys.version_info[:2]
    answer = find_sdist(name, version, f"{major}.{minor}", store.settings)
    if not answer.sources:
        raise ResolutionError(
            answer.problem or f"{name} {version} has no sdist on the index.",
            answer.fix or f"Name a source tree: fleetbuild init recipe '{name} @ PATH'",
        )
    return store.fetch(answer.sources[0]), name


def find_sdist(name: str, version: str, python: str, settings: IndexSettings) -> Resolution:
    """Return the sdist of a package on the index, for a Python such as 3.12. Nothing of it runs."""
    request = LockRequest(
        requirements=(f"{name}=={version}",),
        sources=(name,),
        python_version=f"{python}.0",
        python=f"cp{python.replace('.', '')}",
        arch="x86_64",
        libc=TargetLibc(family="glibc", floor="2.36"),
    )
    return locate(request, settings)


def _lines(name: str, source: str, survey: SourceSurvey) -> Iterator[str]:
    """Yield the lines of the draft."""
    yield f"# A draft from the files of {_comment(source)}; none of them was run."
    yield "# Check each line, remove lines that do not apply, and add checks. docs/recipes.md"
    yield "# explains each key."
    yield f"name: {name}"
    yield f"packages: [{name}]"
    if survey.against_torch:
        yield "extends: torch-extension # its build imports torch"
    elif survey.built_by_cargo:
        yield "extends: rust-extension # its build runs cargo"
        if survey.crates_missing:
            yield "# Its crates are not in this source, and a build downloads nothing: run"
            yield f"# cargo vendor in a copy of it and name that tree: {name}==VERSION @ ./tree"
    else:
        yield "extends: generic"
    if survey.gpu_code:
        yield f"cuda: true # {_comment('; '.join(survey.gpu_code))}"
    else:
        yield "cuda: false # no GPU code was found"
    yield "# Leave out the CPU levels that change nothing for this package: fewer wheels are built."
    yield ("rungs: [x86-64, x86-64-v2, avx, avx2, avx512, armv8, armv8.2, armv8.4sve, armv9]")
    yield from _requirements(survey)
    yield from _environment(survey)
    if survey.options:
        yield f"# CMakeLists.txt has these options: {', '.join(survey.options)}."
        yield "# Set every option that depends on CPU, GPU or builder; for scikit-build-core:"
        example = "{{ 'ON' if 'avx2' in features else 'OFF' }}"
        yield f'# config_settings: {{cmake.define.NAME: "{example}"}}'
    yield "job_memory_gb: 2 # for one compiler process"
    yield "disk_gb: 5"
    yield "# Python code that must run on each node before the release serves, after its import:"
    yield "# checks:"
    yield "#   - |"
    yield f"#     import {name.replace('-', '_')}"


def _requirements(survey: SourceSurvey) -> Iterator[str]:
    if survey.requires is None:
        yield "# The source states its run-time requirements only when it is built: name them here."
        yield "requires: []"
    else:
        yield "requires:" + ("" if survey.requires else " []")
        yield from (f"  - '{_quoted(requirement)}'" for requirement in survey.requires)
    declared = ", ".join(survey.metadata.build_requirements)
    yield f"# Its build declares: {_comment(declared or 'nothing')}. Add missing ones:"
    yield "# build_requirements: [ninja]"


def _environment(survey: SourceSurvey) -> Iterator[str]:
    for file in survey.native:
        yield f"# {file} asks for the builder's own CPU (native). Find its switch, or patch it:"
        yield "# patches: [{file: no-native.patch}]"
    if survey.variables:
        yield f"# setup.py reads these variables: {', '.join(survey.variables)}."
    if survey.cmake_cuda:
        yield "environment:"
        yield "  CUDAARCHS: \"{{ sms | map('replace', '.', '') | join(';') if cuda }}\""
    elif survey.variables:
        yield "# environment: {NAME: value}"


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _comment(text: str) -> str:
    """Return a text of the source as part of a comment: one line of printable characters."""
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= 300 else shown[:300] + " …"
