"""How packages are built: the recipe, where recipes are found, what they say for a target."""

from fleetbuild.recipes.find import (
    builtin_recipes,
    choose_recipe,
    find_recipe,
    known_recipes,
    parse_recipe,
)
from fleetbuild.recipes.model import GENERIC, Recipe
from fleetbuild.recipes.render import render_environment

__all__ = [
    "GENERIC",
    "Recipe",
    "builtin_recipes",
    "choose_recipe",
    "find_recipe",
    "known_recipes",
    "parse_recipe",
    "render_environment",
]
