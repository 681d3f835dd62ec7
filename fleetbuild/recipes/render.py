"""Render a recipe for a version of a package and a target.

In: a `Recipe` and a `RecipeInput`. Out: environment, settings, files, checks and requirements, as
text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from fleetbuild.errors import RecipeError
from fleetbuild.hardware.flags import rust_flags
from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import Target
from fleetbuild.models._base import Frozen
from fleetbuild.recipes.model import Patch, Recipe, RecipeSource
from fleetbuild.recipes.templates import rendered
from fleetbuild.toolchains.cuda import runs_on
from fleetbuild.toolchains.nvidia import wheels_for
from fleetbuild.toolchains.pytorch import find_torch

# Placeholders for folders; the builder replaces them with its paths.
FILES = "@files@"  # folder of the recipe's files
VENV = "@venv@"  # the build environment

_ALWAYS = {"CFLAGS": "-O3 {{ flags }}", "CXXFLAGS": "-O3 {{ flags }}"}


class RecipeInput(Frozen):
    """One wheel to build: the values that its recipe's templates may use."""

    package: str = ""
    version: str
    wheel_version: str = ""  # with its local label
    target: Target
    cuda: str | None = None  # the toolkit; None for a CPU wheel
    flags: str = ""  # the compiler's, for exactly the target's features
    system_cudnn: str = ""  # the major version of cuDNN that all nodes have themselves
    against: dict[str, str] = {}  # what it is built against: package -> version

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of a template."""
        target = self.target
        return {
            "package": self.package,
            "version": self.version,
            "wheel_version": self.wheel_version,
            "target": target.model_dump(),
            "os": target.os,
            "arch": target.arch,
            "isa": target.isa,
            "features": target.features,
            "sms": target.sms,
            "ptx": target.ptx,
            "blas": target.blas,
            "served": [sm for sm in SMS if any(runs_on(built, sm) for built in target.sms)],
            "cuda": self.cuda,
            "cuda_wheels": wheels_for(self.cuda, target.arch, target.sms, find_torch(self.version)),
            "system_cudnn": self.system_cudnn,
            "python": target.python,
            "python_version": ".".join(re.findall(r"cp(\d)(\d+)", target.python)[0]),
            "libc": target.libc.family,
            "flags": self.flags,
            "rust_flags": rust_flags(target.features),
            "against": self.against,
            "files": FILES,
            "venv": VENV,
        }


def render_environment(recipe: Recipe, given: RecipeInput) -> dict[str, str]:
    """Return the environment of a build, without empty values."""
    return _render_all(recipe, "environment", {**_ALWAYS, **recipe.environment}, given)


def render_settings(recipe: Recipe, given: RecipeInput) -> dict[str, str]:
    """Return the settings for the build backend (PEP 517)."""
    return _render_all(recipe, "config_settings", recipe.config_settings, given)


def render_files(recipe: Recipe, given: RecipeInput) -> dict[str, str]:
    """Return the files to write next to the source."""
    return _render_all(recipe, "files", recipe.files, given)


def render_checks(recipe: Recipe, given: RecipeInput) -> tuple[str, ...]:
    """Return the snippets that must run on every node, without empty ones."""
    return tuple(filter(None, _render_each(recipe, "checks", recipe.checks, given)))


def render_requirements(recipe: Recipe, given: RecipeInput) -> tuple[str, ...]:
    """Return the build requirements that the source does not declare itself."""
    return _render_list(recipe, "build_requirements", recipe.build_requirements, given)


def render_requires(recipe: Recipe, given: RecipeInput) -> tuple[str, ...] | None:
    """Return the run-time requirements; None if the recipe does not state them."""
    if recipe.requires is None:
        return None
    return _render_list(recipe, "requires", recipe.requires, given)


def render_not_buildable(recipe: Recipe, given: RecipeInput) -> str:
    """Return why this wheel cannot be built, as a clause; "" if it can."""
    return _render(recipe, "not_buildable", recipe.not_buildable, given)


def render_libraries(recipe: Recipe, given: RecipeInput) -> dict[str, str]:
    """Return name -> description of the system libraries that builder and nodes must have."""
    return _render_all(recipe, "system_libraries", recipe.system_libraries, given)


def render_source(recipe: Recipe, package: str, version: str) -> RecipeSource | None:
    """Return where the source of this version is; None if the recipe does not say."""
    if recipe.source is None:
        return None
    known = {"package": package, "version": version}
    places = {
        field: _text(recipe, f"source.{field}", value, known)
        for field in ("git", "ref", "archive")
        if (value := getattr(recipe.source, field)) is not None
    }
    return recipe.source.model_copy(update=places)


def patches_for(recipe: Recipe, given: RecipeInput) -> tuple[Patch, ...]:
    """Return the patches for this version and target, in the recipe's order."""
    return tuple(
        patch
        for patch in recipe.patches
        if SpecifierSet(patch.versions).contains(given.version, prereleases=True)
        and _render(recipe, f"patches.{patch.file}", _if(patch.when), given)
    )


def _if(expression: str) -> str:
    return "{{ 1 if (" + expression + ") }}"


def _render_all(
    recipe: Recipe, field: str, values: dict[str, str], given: RecipeInput
) -> dict[str, str]:
    names = sorted(values)
    texts = _render_each(recipe, field, [values[name] for name in names], given, names)
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def _render_list(
    recipe: Recipe, field: str, values: tuple[str, ...], given: RecipeInput
) -> tuple[str, ...]:
    texts = _render_each(recipe, field, values, given)
    lines = (line for text in texts for line in text.splitlines())
    return tuple(_requirement(recipe, field, line) for line in lines if line.strip())


def _requirement(recipe: Recipe, field: str, text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        raise RecipeError(
            f"The recipe {recipe.name} has {text!r} in {field}, which is not a requirement.",
            "Write a package name, with versions if they matter: numpy>=2.",
        ) from None


def _render(recipe: Recipe, field: str, template: str, given: RecipeInput) -> str:
    return _render_each(recipe, field, [template], given)[0]


def _render_each(
    recipe: Recipe,
    field: str,
    templates: Sequence[str],
    given: RecipeInput,
    names: Sequence[str] = (),
) -> list[str]:
    """Render templates with the values of the wheel and the recipe's own variables."""
    if not templates:
        return []
    fields = [f"{field}.{name}" for name in names] or [field] * len(templates)
    values = given.variables
    for name, value in recipe.variables.items():  # once: they are the same for each template
        values[name] = _text(recipe, fields[0], value, values)
    return [
        _text(recipe, place, template, values)
        for place, template in zip(fields, templates, strict=True)
    ]


def _text(recipe: Recipe, field: str, template: str, values: Mapping[str, Any]) -> str:
    try:
        return rendered(template, values)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as problem:
        said = str(problem).rstrip(".")
        raise RecipeError(
            f"The recipe {recipe.name} cannot be rendered: {field}: {said}.",
            f"Its templates may use: {', '.join(values)}.",
        ) from None
