"""Catalogue: wheels for kinds of machines without a node, and fewer wheel sets for a fleet.

In: names of targets, or grouping.max_wheel_sets and grouping.optimize_for. Out: plans in which
nodes only build, or in which groups share wheels. Read `targets.py`, and `merge.py`, first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetbuild.extension import Extension, Members, PlanBasis

if TYPE_CHECKING:
    from fleetbuild.models import Config, Facts, Plan, Target
    from fleetbuild.models.plan import MergedTargets


class Catalogue(Extension):
    """See the module."""

    def members(self, names: Sequence[str], basis: PlanBasis) -> Members:
        from fleetbuild.extensions.catalogue.planned_targets import plan_fields
        from fleetbuild.extensions.catalogue.targets import name_targets

        named = name_targets(names, basis)
        return Members(
            facts={target.name: target.facts for target in named if target.facts},
            builders={target.name: target.builders for target in named},
            plan_fields=partial(plan_fields, named, basis),
        )

    def merge(
        self,
        targets: Mapping[str, Target],
        features: Mapping[str, Collection[str]],
        facts: Mapping[str, Facts],
        packages: Sequence[Any],
        config: Config,
    ) -> MergedTargets | None:
        grouping = config.grouping
        if grouping.max_wheel_sets is None and grouping.optimize_for == "auto":
            return None
        from fleetbuild.extensions.catalogue.merge import merge_targets

        return merge_targets(targets, features, facts, packages, config)

    def explain(self, plan: Plan, name: str) -> Sequence[str]:
        from fleetbuild.extensions.catalogue.explain import explain

        return explain(plan, name)

    def plan_table(self, plan: Plan) -> Any:
        if not plan.tradeoffs:
            return None
        from fleetbuild.extensions.catalogue.show import tradeoff_table

        return tradeoff_table(plan)


extension = Catalogue()
