"""Builds in a container: what the image of build.container lacks for a wheel, or for any.

In: a target, and facts of nodes with their images. Out: sentences. Used when builders are chosen
and wheels are planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fleetbuild.hardware.pytorch import python_of
from fleetbuild.models import Container, Facts, Target
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.compatibility.compilers import CompilerNeed, compiler_of
from fleetbuild.plan.decide.compatibility.toolkits import Toolkit
from fleetbuild.recipes import Recipe
from fleetbuild.text import version_key

_SHOWN = 5  # nodes whose refusal a reason gives in full


def no_image_suits(target: Target, refusals: Sequence[str], images: Iterable[Container]) -> Problem:
    """Return why no node can build for the target in its image."""
    said = "; ".join(refusals[:_SHOWN])
    if len(refusals) > _SHOWN:
        said += f"; and {len(refusals) - _SHOWN} more"
    fix = next((image.fix for image in images if image.fix), None)
    libc = target.libc
    return Problem(
        f"No node can build for {target.name} in the image of build.container: {said}.",
        fix
        or f"Name an image with Python {python_of(target.python)} and {libc.family} {libc.floor} or"
        " older in build.container, or remove it and build on the nodes themselves.",
    )


def missing_in_image(
    image: Container, recipe: Recipe, need: CompilerNeed, facts: Facts, python: str
) -> Iterator[str]:
    """Yield a sentence for each program that a build needs and that the image lacks.

    `facts` are the builder's with the image's software; `python` is the tag of the interpreter.
    """
    has = f"The image {image.image} has"
    compiler = compiler_of(facts)
    if compiler is None:
        yield f"{has} no gcc and g++: name an image with compilers in build.container."
    elif problem := need.problem(compiler):
        yield f"{has} {compiler}, which {problem}: name an image with {need} in build.container."
    if any(each.tag == python and each.headers is False for each in facts.pythons):
        yield f"{has} no headers of Python {python_of(python)} (Python.h): install them in it."
    for name, oldest in sorted(recipe.tools.items()):
        found = facts.toolchain.get(name, ())
        if not found:
            yield f"{has} no {name}, which the recipe {recipe.name} needs: install it in the image."
        elif oldest and version_key(found[0]) < version_key(oldest):
            yield (
                f"{has} {name} {found[0]}, but the recipe {recipe.name} needs {oldest} or newer:"
                " install that in the image."
            )


def missing_toolkit_in_image(image: Container, toolkit: Toolkit) -> str:
    """Return the sentence about a CUDA toolkit that neither image nor wheels bring."""
    return (
        f"The image {image.image} has no CUDA toolkit {toolkit.version}: base it on an image of"
        f" NVIDIA's that has it (nvidia/cuda, a tag {toolkit.version}...-devel), or install it"
        " there."
    )
