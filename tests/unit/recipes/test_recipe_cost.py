"""What a recipe says about cost, and about rungs that matter to some uses only."""

from __future__ import annotations

import pytest

from fleetbuild.errors import RecipeError
from fleetbuild.recipes import known_recipes, parse_recipe

PLAIN = "name: mine\nrungs: [avx2, avx]\n"


def test_some_rungs_matter_only_with_optimize_for() -> None:
    recipe = parse_recipe(f"{PLAIN}rungs_for: {{int8: [amx, avx512vnni]}}", "r.yml")
    assert recipe.rungs_when("auto") == recipe.rungs_when("bf16") == ("avx", "avx2")
    assert recipe.rungs_when("int8") == ("avx", "avx2", "avx512vnni", "amx")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rungs_for: {int8: [vnni]}", "vnni is not a rung"),
        ("rungs_for: {int4: [avx512vnni]}", "'int8' or 'bf16'"),
        ("cost: {minutes: -1}", "cost.minutes"),
        ("cost: {hours: 1}", "cost.hours"),
        ("cuda: true\nmin_sm: 8.0", "min_sm"),
        ("min_sm: '8.0'", "needs cuda: true in the same recipe"),
    ],
)
def test_an_invalid_cost_is_an_error(line: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(f"{PLAIN}{line}\n", "r.yml")
    assert words in caught.value.message


def test_every_recipe_has_a_cost() -> None:
    plain = parse_recipe(PLAIN, "r.yml")
    assert (plain.cost.minutes, plain.cost.size_mb) == (2, 5)
    costs = [recipe.cost for recipe in known_recipes().values()]
    assert all(cost.minutes > 0 and cost.size_mb > 0 for cost in costs)
