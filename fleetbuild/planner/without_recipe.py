"""Choose how to plan a package that has no recipe, by what its source shows.

In: a package with the generic recipe and the `SourceSurvey` of its source. Out: the package with
the recipe it is planned with, and the nodes whose GPUs nothing is known to build for.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.models import Facts, Inventory
from fleetbuild.planning import PlanDraft, Source
from fleetbuild.recipes import GENERIC, Recipe
from fleetbuild.store.survey import SourceSurvey

TORCH_EXTENSION = "torch-extension"


def planned_recipe(name: str, recipe: Recipe, survey: SourceSurvey, extension: Recipe) -> Recipe:
    """Return the recipe for this source: torch-extension if its build imports torch."""
    if recipe.name != GENERIC or not survey.against_torch:
        return recipe
    changes = {
        "packages": (name,),
        "requires": survey.requires or (),
        "cuda": bool(survey.gpu_code),
    }
    return extension.model_copy(update=changes)


def nodes_to_block(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    drafted: PlanDraft,
    sources: Mapping[str, Source],
) -> dict[str, tuple[str, str]]:
    """Return the nodes with GPUs that would get a package whose GPU code no recipe builds."""
    gpus = {
        node.name: tuple(facts[node.name].sms if node.sms is None else node.sms)
        for node in inventory.nodes
        if node.name in facts
    }
    members = {group.name: group.nodes for group in drafted.groups}
    blocked: dict[str, tuple[str, str]] = {}
    for wheel in drafted.wheels:
        package, name = wheel.package, wheel.package.name
        source = sources.get(name)
        if wheel.taken or not source or not source.gpu_code or package.recipe.name != GENERIC:
            continue
        reason = (
            f"{name} has GPU code ({'; '.join(source.gpu_code)}) but no recipe, so it is unknown "
            "how to build it for the node's GPUs."
        )
        fix = (
            f"Write a recipe: fleetbuild init recipe {name}=={package.version} drafts one from "
            "this source. To build for the CPU alone, set fleetbuild_sms: [] for the node."
        )
        for group in wheel.groups:
            blocked |= {node: (reason, fix) for node in members[group] if gpus[node]}
    return blocked
