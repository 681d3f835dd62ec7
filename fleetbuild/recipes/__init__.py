"""Recipes: how packages are built. Model, search path, and rendering for a target."""

from fleetbuild.recipes.find import (
    choose_recipe,
    find_recipe,
    known_recipes,
    parse_recipe,
)
from fleetbuild.recipes.model import GENERIC, Patch, Recipe, RecipeSource
from fleetbuild.recipes.render import (
    FILES,
    VENV,
    RecipeInput,
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_libraries,
    render_not_buildable,
    render_requirements,
    render_requires,
    render_settings,
    render_source,
)

__all__ = [
    "FILES",
    "GENERIC",
    "VENV",
    "Patch",
    "Recipe",
    "RecipeInput",
    "RecipeSource",
    "choose_recipe",
    "find_recipe",
    "known_recipes",
    "parse_recipe",
    "patches_for",
    "render_checks",
    "render_environment",
    "render_files",
    "render_libraries",
    "render_not_buildable",
    "render_requirements",
    "render_requires",
    "render_settings",
    "render_source",
]
