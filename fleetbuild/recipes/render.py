"""Renders what a recipe says for a target."""

from __future__ import annotations

from jinja2 import TemplateError

from fleetbuild.errors import RecipeError
from fleetbuild.models import Target
from fleetbuild.recipes.model import Recipe
from fleetbuild.recipes.templates import ENVIRONMENT

_ALWAYS = {"CFLAGS": "-O3 {{ flags }}", "CXXFLAGS": "-O3 {{ flags }}"}


def render_environment(recipe: Recipe, target: Target, flags: str) -> dict[str, str]:
    """The whole environment of a build for this target, with these compiler flags in it."""
    values = {**_ALWAYS, **recipe.environment}
    return {name: _render(recipe, name, values[name], target, flags) for name in sorted(values)}


def _render(recipe: Recipe, name: str, template: str, target: Target, flags: str) -> str:
    try:
        return ENVIRONMENT.from_string(template).render(
            target=target.model_dump(),
            arch=target.arch,
            isa=target.isa,
            features=target.features,
            sms=target.sms,
            python=target.python,
            libc=target.libc.family,
            flags=flags,
        )
    except TemplateError as problem:
        said = str(problem).rstrip(".")
        raise RecipeError(
            f"The recipe {recipe.name} cannot be rendered: environment.{name}: {said}.",
            "It may use target, arch, isa, features, sms, python, libc and flags.",
        ) from None
