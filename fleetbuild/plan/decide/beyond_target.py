"""Recipe values that do not match a wheel's target: CPU flags beyond it, SMs without code.

In: draft and planned wheels. Out: warnings, and reasons to block a wheel. Checked when a plan is
assembled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetbuild.hardware.flags import features_of_flags
from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import PlannedWheel
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.wheels.draft import DraftWheel
from fleetbuild.recipes import render_environment
from fleetbuild.toolchains.constraints import joined, sm_list
from fleetbuild.toolchains.cuda import runs_on

_LIST = "TORCH_CUDA_ARCH_LIST"
_SM = re.compile(r"(\d{1,2}\.\d[af]?)(?:\(\d{1,2}\.\d\))?(\+PTX)?", re.ASCII)
_NAME = re.compile(r"([A-Za-z]+)(\+PTX)?")


def beyond_target(wheel: PlannedWheel) -> Iterator[str]:
    """Yield a warning for each flag that enables CPU features beyond the wheel's target."""
    target = wheel.target
    for name, value in wheel.environment.items():
        for flag, features in features_of_flags(value).items():
            extra = sorted(features - set(target.features))
            if extra:
                yield (
                    f"{wheel.package} for {target.name}: {name} has {flag}, which enables "
                    f"{joined(extra)}: the audit rejects a wheel that uses this. In the recipe "
                    f"{wheel.recipe}, write {{{{ flags }}}} instead: it enables exactly what the "
                    "target has."
                )


def sm_problem(wheel: DraftWheel) -> Problem | None:
    """Return why this list of SMs makes no torch wheel for the target; None if it makes one."""
    recipe, sms = wheel.package.recipe, wheel.target.sms
    listed = (
        "" if wheel.taken or not sms else render_environment(recipe, wheel.recipe_input).get(_LIST)
    )
    if not listed:
        return None
    setting = f"The recipe {recipe.name} sets {_LIST} to {listed}"
    fix = "Write \"{{ sms | join(';') }}\" there, or leave it to a recipe that yours extends."
    words = listed.replace(";", " ").split()
    invalid = [word for word in words if not (_SM.fullmatch(word) or _NAME.fullmatch(word))]
    if invalid:
        return Problem(f"{setting}, and {invalid[0]} is not an SM such as 8.6.", fix)
    codes = [code for word in words for code in _codes(word)]
    lacking = [sm for sm in sms if not any(code is None or runs_on(code, sm) for code in codes)]
    if not lacking:
        return None
    return Problem(f"{setting}, which builds no code for {sm_list(lacking)}.", fix)


def _codes(word: str) -> list[str | None]:
    """Return the machine code and PTX that a word means; None if it is unknown, such as Common."""
    if exact := _SM.fullmatch(word):
        return [exact[1], *([exact[1] + exact[2]] if exact[2] else [])]
    family = word.removesuffix("+PTX")
    return [name for name, sm in SMS.items() if sm.architecture == family] or [None]
