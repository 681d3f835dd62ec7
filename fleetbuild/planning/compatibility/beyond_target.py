"""What a recipe's own values ask for beyond a wheel's target: flags of the CPU, lists of SMs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetbuild.hardware.cuda import runs_on
from fleetbuild.hardware.flags import asked_for
from fleetbuild.hardware.gpus import SMS
from fleetbuild.models import PlannedWheel
from fleetbuild.planning.compatibility.constraints import joined, sm_list
from fleetbuild.planning.wheels.draft import DraftWheel, job_of
from fleetbuild.recipes import render_environment

_LIST = "TORCH_CUDA_ARCH_LIST"
_SM = re.compile(r"(\d{1,2}\.\d[af]?)(?:\(\d{1,2}\.\d\))?(\+PTX)?", re.ASCII)
_NAME = re.compile(r"([A-Za-z]+)(\+PTX)?")


def beyond_target(wheel: PlannedWheel) -> Iterator[str]:
    """A warning for each flag that turns on what the wheel's nodes are not known to have."""
    target = wheel.target
    for name, value in wheel.environment.items():
        for flag, features in asked_for(value).items():
            more = sorted(features - set(target.features))
            if more:
                yield (
                    f"{wheel.package} for {target.name}: {name} has {flag}, which turns on "
                    f"{joined(more)}: a wheel that uses this is refused by its audit. Say "
                    f"{{{{ flags }}}} in its place in the recipe {wheel.recipe}, which is exactly "
                    "what the target has."
                )


def sm_problem(wheel: DraftWheel) -> tuple[str, str] | None:
    """Why torch's build, told these SMs, makes no wheel for the target, and the fix."""
    recipe, sms = wheel.package.recipe, wheel.target.sms
    listed = "" if wheel.taken or not sms else render_environment(recipe, job_of(wheel)).get(_LIST)
    if not listed:
        return None
    says = f"The recipe {recipe.name} sets {_LIST} to {listed}"
    fix = "Write \"{{ sms | join(';') }}\" there, or leave it to a recipe that yours extends."
    words = listed.replace(";", " ").split()
    odd = [word for word in words if not (_SM.fullmatch(word) or _NAME.fullmatch(word))]
    if odd:
        return f"{says}, and {odd[0]} is no SM as torch's build takes it, such as 8.6.", fix
    codes = [code for word in words for code in _codes(word)]
    lacking = [sm for sm in sms if not any(code is None or runs_on(code, sm) for code in codes)]
    return (f"{says}, and that is no code for {sm_list(lacking)}.", fix) if lacking else None


def _codes(word: str) -> list[str | None]:
    """Machine code and PTX that a word stands for; None for what is not told, such as Common."""
    if exact := _SM.fullmatch(word):
        return [exact[1], *([exact[1] + exact[2]] if exact[2] else [])]
    family = word.removesuffix("+PTX")
    return [name for name, sm in SMS.items() if sm.architecture == family] or [None]
