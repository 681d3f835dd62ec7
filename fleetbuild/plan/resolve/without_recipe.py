"""Choose how to plan a package that has no recipe, by the files of its source.

In: a package with the generic recipe and the `SourceSurvey` of its source. Out: the package with
the recipe to use, and the nodes for which no recipe can build it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetbuild.models import Facts, Inventory
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide import PlanDraft, Source
from fleetbuild.plan.decide.wheels.draft import DraftWheel, recipe_input
from fleetbuild.plan.resolve.survey import SourceSurvey
from fleetbuild.recipes import GENERIC, Recipe, render_not_buildable

_BASELINE = ("x86-64", "armv8")
_EXTENSION, _RUST = "torch-extension", "rust-extension"


def planned_recipe(
    name: str, recipe: Recipe, survey: SourceSurvey, recipes: Mapping[str, Recipe]
) -> Recipe:
    """Return the recipe for this source: torch-extension if its build imports torch,
    rust-extension if it runs cargo."""
    if recipe.name != GENERIC:
        return recipe
    if survey.built_by_cargo and not survey.against_torch:
        return recipes[_RUST].model_copy(update={"packages": (name,)})
    if survey.pure:  # one wheel for each architecture and Python, whatever the CPU
        return recipe.model_copy(update={"packages": (name,), "rungs": _BASELINE})
    if not survey.against_torch:
        return recipe
    changes = {
        "packages": (name,),
        "requires": survey.requires or (),
        "cuda": bool(survey.gpu_code),
    }
    return recipes[_EXTENSION].model_copy(update=changes)


def nodes_to_block(
    inventory: Inventory,
    facts: Mapping[str, Facts],
    drafted: PlanDraft,
    sources: Mapping[str, Source],
) -> dict[str, Problem]:
    """Return the nodes for which a package cannot be built, each with its problem."""
    gpus = {
        node.name: tuple(facts[node.name].sms if node.sms is None else node.sms)
        for node in inventory.nodes
        if node.name in facts
    }
    members = {group.name: group.nodes for group in drafted.groups}
    blocked: dict[str, Problem] = {}
    for wheel in drafted.wheels:
        package, name = wheel.package, wheel.package.name
        source = sources.get(name)
        nodes = [node for group in wheel.groups for node in members[group]]
        if not wheel.taken and (why := why_not_buildable(wheel)):
            blocked |= dict.fromkeys(nodes, _not_buildable(wheel, why))
        if wheel.taken or not source:
            continue
        if source.crates_missing:
            blocked |= dict.fromkeys(nodes, _without_crates(wheel, source))
        if not source.gpu_code or package.recipe.name != GENERIC:
            continue
        reason = (
            f"{name} has GPU code ({'; '.join(source.gpu_code)}) but no recipe, so it is unknown "
            "how to build it for the node's GPUs."
        )
        fix = (
            f"Write a recipe: fleetbuild init recipe {name}=={package.version} drafts one from "
            "this source. To build only for the CPU, set fleetbuild_sms: [] for the node."
        )
        blocked |= {node: Problem(reason, fix) for node in nodes if gpus[node]}
    return blocked


def _published_instead(wheel: DraftWheel) -> str:
    """Return the fix that takes a published wheel, or why none of them serves."""
    if wheel.published is None:
        return "take its published wheel, if it fits the node: build.policy: auto."
    return f"{wheel.published.why} Leave these nodes out with fleetbuild_skip: true."


def why_not_buildable(wheel: DraftWheel) -> str:
    """Return why the recipe says that this wheel cannot be built, as a clause; "" if it can."""
    return render_not_buildable(wheel.package.recipe, recipe_input(wheel))


def _not_buildable(wheel: DraftWheel, why: str) -> Problem:
    fix = _published_instead(wheel)
    version = f"{wheel.package.name} {wheel.package.version}"
    return Problem(f"{version} cannot be built: {why}.", fix[0].upper() + fix[1:])


def _without_crates(wheel: DraftWheel, source: Source) -> Problem:
    """Return why nothing builds a Rust source without its crates, and the fix."""
    package = wheel.package
    reason = (
        f"The source of {package.name} {package.version} needs crates that it does not contain, "
        "and a build downloads nothing."
    )
    given = source.path or f"{package.name}-{package.version}"
    fix = (
        f"Add them: unpack {source.file.file if source.file else given}, run cargo vendor in the "
        "folder of its Cargo.lock, write what that prints into .cargo/config.toml there, and name "
        f"the tree: {package.name}=={package.version} @ ./{package.name}-{package.version}. Or: "
        f"{_published_instead(wheel)}"
    )
    return Problem(reason, fix)
