"""Find the recipe of a package: the user's own first, then entry points, then the built-in ones.

In: folders of YAML files. Out: `Recipe`s by name. The only I/O here is reading these files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from fleetbuild.config import parse_yaml, validate
from fleetbuild.errors import RecipeError
from fleetbuild.recipes.model import GENERIC, Patch, Recipe

ENTRY_POINTS = "fleetbuild.recipes"


def parse_recipe(text: str, source: str) -> Recipe:
    """Return the recipe in this YAML text."""
    return validate(Recipe, parse_yaml(text, source, RecipeError), source, RecipeError)


def known_recipes(extra_dirs: Iterable[Path] = ()) -> dict[str, Recipe]:
    """Return all recipes by name. The user's folders override entry points and built-in ones."""
    layers = _of_entry_points()
    layers += [_read_folder(folder, f"{folder}/") for folder in extra_dirs if folder.is_dir()]
    known = dict(_ours())
    for layer in layers:
        known |= _complete(layer, known)
    return known


def find_recipe(package: str, extra_dirs: Iterable[Path] = ()) -> Recipe:
    """Return the recipe of this package, or the generic one."""
    return choose_recipe(package, known_recipes(extra_dirs))


def choose_recipe(package: str, recipes: dict[str, Recipe]) -> Recipe:
    """Return the recipe for this package from these recipes, or the generic one."""
    serving = [recipe for recipe in recipes.values() if recipe.serves(package)]
    if len(serving) > 1:
        names = " and ".join(recipe.name for recipe in serving)
        raise RecipeError(
            f"The recipes {names} both serve {package}.",
            "Give your recipe the name of the one it replaces, or remove the package from it.",
        )
    return serving[0] if serving else recipes[GENERIC]


class _File(NamedTuple):
    """A recipe file as written, before `extends` is resolved."""

    source: str
    data: Any
    folder: Traversable | Path

    def value(self, key: str) -> Any:
        return self.data.get(key) if isinstance(self.data, dict) else None

    @property
    def name(self) -> str:
        return str(self.value("name") or self.value("extends"))


@cache
def _ours() -> Mapping[str, Recipe]:
    """The recipes that come with fleetbuild, read once."""
    return _complete(_read_folder(files("fleetbuild.recipes") / "builtin", "builtin recipe "), {})


def _of_entry_points() -> list[list[_File]]:
    # An entry point names a package (a folder with an __init__.py) that holds YAML files.
    return [
        _read_folder(files(point.value), f"{point.value}/")
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    ]


def _read_folder(folder: Traversable | Path, label: str) -> list[_File]:
    names = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith((".yml", ".yaml"))),
        key=lambda entry: entry.name,
    )
    return [_read(entry, folder, label + entry.name) for entry in names]


def _read(entry: Traversable | Path, folder: Traversable | Path, source: str) -> _File:
    return _File(source, parse_yaml(_text(entry, source), source, RecipeError), folder)


def _text(entry: Traversable | Path, source: str) -> str:
    try:
        return entry.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise RecipeError(
            f"{source} cannot be read: {why}.", "It must be a readable UTF-8 text file."
        ) from None


def _complete(layer: Sequence[_File], below: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes of one layer, with `extends` resolved in this layer and those below."""
    by_name = {file.name: file for file in layer}

    def recipe(file: _File, waiting: tuple[str, ...] = ()) -> Recipe:
        base = file.value("extends")
        if base is None:
            return _recipe(file, file.data)
        if base != file.name and base in by_name:
            if base in waiting:
                raise RecipeError(
                    f"{file.source} extends {base}, which extends {file.name} in turn.",
                    "Remove extends from one of them.",
                )
            return _recipe(file, _over(recipe(by_name[base], (*waiting, file.name)), file.data))
        if base in below:
            return _recipe(file, _over(below[base], file.data))
        raise RecipeError(
            f"{file.source} extends {base!r}, but that recipe does not exist.",
            f"The recipes are: {', '.join(sorted({*below, *by_name} - {file.name}))}.",
        )

    return {file.name: recipe(file) for file in layer}


def _over(base: Recipe, own: dict[str, Any]) -> dict[str, Any]:
    values, source = base.model_dump(), own.get("source")
    if isinstance(source, dict) and values["source"] and {"git", "archive"} & source.keys():
        values["source"] |= {"git": None, "archive": None}  # the new one replaces the other
    return _merged(values, own)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `own`; mappings are merged key by key."""
    both = {
        key: _merged(base[key], value)
        for key, value in own.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **own, **both}


def _recipe(file: _File, data: Any) -> Recipe:
    recipe = validate(Recipe, data, file.source, RecipeError)
    if file.value("patches"):
        recipe = recipe.model_copy(update={"patches": _with_text(recipe.patches, file)})
    own = file.value("windows")
    if recipe.windows and isinstance(own, dict) and own.get("patches"):
        windows = recipe.windows.model_copy(
            update={"patches": _with_text(recipe.windows.patches, file)}
        )
        recipe = recipe.model_copy(update={"windows": windows})
    return recipe


def _with_text(patches: Sequence[Patch], file: _File) -> tuple[Patch, ...]:
    """Return the patches with their text, since the text decides the artifact key."""
    folder = file.folder / "patches"
    return tuple(
        patch.model_copy(
            update={"text": _text(folder / patch.file, f"{file.source}: patches/{patch.file}")}
        )
        for patch in patches
    )
