"""Whether one CUDA toolkit can serve several groups together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from fleetbuild.models import Config, Facts, Target
from fleetbuild.planning.compatibility.constraints import case_of, no_toolkit
from fleetbuild.planning.merging.costs import Sharing
from fleetbuild.planning.packages import Package, cuda_floors
from fleetbuild.text import version_key


def one_toolkit(
    targets: Mapping[str, Target],
    facts: Mapping[str, Facts],
    packages: Sequence[Package],
    config: Config,
) -> Sharing:
    """A judge of groups with these nodes: by all of their SMs and the oldest of their drivers."""
    versions: dict[str, str] = {
        canonicalize_name(package.name): package.version for package in packages
    }
    oldest: dict[Target, Facts] = {}  # of each group, the member with the oldest driver
    for name, target in targets.items():
        oldest[target] = min(oldest.get(target, facts[name]), facts[name], key=_driver)

    def reason(together: Sequence[Target]) -> str | None:
        case = case_of(
            versions,
            {sm for target in together for sm in target.sms},
            together[0].python,
            [oldest[target] for target in together],
            config.cuda,
            floors=cuda_floors(packages),
        )
        return "; ".join(no_toolkit(case)) or None

    return reason


def _driver(facts: Facts) -> tuple[object, ...]:
    # One that is unknown holds nobody down.
    return facts.driver is None, version_key(facts.driver or "")
