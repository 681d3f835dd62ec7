"""Finds the recipe of a package: the user's own first, then those of entry points, then ours.

Recipes are data files, and reading them is all the I/O there is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from fleetbuild.config import parse_yaml, validate
from fleetbuild.errors import RecipeError
from fleetbuild.recipes.model import GENERIC, Recipe

ENTRY_POINTS = "fleetbuild.recipes"


def parse_recipe(text: str, source: str) -> Recipe:
    """The recipe in this YAML text."""
    return validate(Recipe, parse_yaml(text, source, RecipeError), source, RecipeError)


def builtin_recipes() -> tuple[Recipe, ...]:
    """The recipes that come with fleetbuild."""
    return _read_folder(files("fleetbuild.recipes") / "builtin", "builtin recipe ")


def known_recipes(extra_dirs: Iterable[Path] = ()) -> dict[str, Recipe]:
    """All recipes by name. One of the same name replaces: folders, then entry points, then ours."""
    layers = [builtin_recipes(), *_of_entry_points()]
    layers += [_read_folder(folder, f"{folder}/") for folder in extra_dirs if folder.is_dir()]
    return {recipe.name: recipe for layer in layers for recipe in layer}


def find_recipe(package: str, extra_dirs: Iterable[Path] = ()) -> Recipe:
    """The recipe of this package, or the generic one."""
    return choose_recipe(package, known_recipes(extra_dirs))


def choose_recipe(package: str, recipes: dict[str, Recipe]) -> Recipe:
    """The recipe among these that is for this package, or the generic one."""
    serving = [recipe for recipe in recipes.values() if recipe.serves(package)]
    if len(serving) > 1:
        names = " and ".join(recipe.name for recipe in serving)
        raise RecipeError(
            f"The recipes {names} both say that they are for {package}.",
            "Give yours the name of the one that it replaces, or take the package out of it.",
        )
    return serving[0] if serving else recipes[GENERIC]


def _of_entry_points() -> list[tuple[Recipe, ...]]:
    # An entry point names a package (a folder with an __init__.py) that holds YAML files.
    return [
        _read_folder(files(point.value), f"{point.value}/")
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    ]


def _read_folder(folder: Traversable | Path, label: str) -> tuple[Recipe, ...]:
    names = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith((".yml", ".yaml"))),
        key=lambda entry: entry.name,
    )
    return tuple(_read(entry, folder, label + entry.name) for entry in names)


def _text(entry: Traversable | Path, source: str) -> str:
    try:
        return entry.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise RecipeError(
            f"{source} cannot be read: {problem}", "It must be a readable UTF-8 text file."
        ) from None


def _read(entry: Traversable | Path, folder: Traversable | Path, source: str) -> Recipe:
    text = _text(entry, source)
    return _with_patches(parse_recipe(text, source), folder / "patches", source)


def _with_patches(recipe: Recipe, folder: Traversable | Path, source: str) -> Recipe:
    """The recipe with the text of its patches, which decides what is built as much as its own."""
    patches = (
        patch.model_copy(
            update={"text": _text(folder / patch.file, f"{source}: patches/{patch.file}")}
        )
        for patch in recipe.patches
    )
    return recipe.model_copy(update={"patches": tuple(patches)})
