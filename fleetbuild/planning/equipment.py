"""Which CUDA toolkit a group's wheels are built with, and the nodes for which there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.models import Config, Facts
from fleetbuild.planning.compatibility.toolkits import Toolkit, Unfit, choose_toolkit
from fleetbuild.planning.eligibility.assess import Eligibility
from fleetbuild.planning.groups import DraftGroup
from fleetbuild.planning.packages import Package, cuda_floors, versions_of
from fleetbuild.planning.wheels.builders import choose_builders


def choose_toolkits(
    groups: Sequence[DraftGroup],
    packages: Sequence[Package],
    fates: Mapping[str, Eligibility],
    *,
    facts: Mapping[str, Facts],
    strong: Sequence[str],
    config: Config,
) -> tuple[tuple[DraftGroup, ...], dict[str, tuple[str, str]]]:
    """The groups with their toolkits; and the nodes that are out, each with reason and fix."""
    fit: list[DraftGroup] = []
    unfit: dict[str, tuple[str, str]] = {}
    for group in groups:
        builders = choose_builders(group.target, [group], fates, facts, strong).able
        answer = _toolkit(group, packages, facts, builders, config.cuda)
        if isinstance(answer, Unfit):
            unfit |= dict.fromkeys(group.nodes, (answer.reason, answer.fix))
        else:
            fit.append(group.model_copy(update={"toolkit": answer}))
    return tuple(fit), unfit


def _toolkit(
    group: DraftGroup,
    packages: Sequence[Package],
    facts: Mapping[str, Facts],
    builders: Sequence[str],
    pin: str | None,
) -> Toolkit | Unfit | None:
    if not group.target.sms:
        return None
    return choose_toolkit(
        versions_of(packages),
        group.target.sms,
        group.target.python,
        [facts[name] for name in group.nodes],
        {name: facts[name] for name in builders},
        pin=pin,
        floors=cuda_floors(packages),
    )
