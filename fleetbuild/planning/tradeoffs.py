"""Fewer wheel sets: which groups share one, and what that costs whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.fates import Fate
from fleetbuild.recipes import Recipe


class Merged(Frozen):
    """The target of each node, after groups were merged."""

    targets: dict[str, Target]


def merge_targets(
    targets: Mapping[str, Target],
    fates: Mapping[str, Fate],
    recipes: Sequence[Recipe],
    config: Config,
) -> Merged:
    """The targets of these nodes, as many as the configuration allows."""
    del fates, recipes
    names = sorted({target.name for target in targets.values()})
    cap = config.grouping.max_wheel_sets
    if cap is not None and len(names) > cap:
        raise ConfigError(
            f"grouping.max_wheel_sets is {cap}, and these nodes need {len(names)} wheel sets "
            f"({', '.join(names)}); this version does not merge groups.",
            "Raise the cap, or lower some nodes yourself with fleetbuild_isa in the inventory.",
        )
    return Merged(targets=dict(targets))
