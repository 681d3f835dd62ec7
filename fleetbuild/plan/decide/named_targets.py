"""Read the name of a target, such as sm89-avx2-cp311: a kind of machine to build or judge for."""

from __future__ import annotations

import re

from fleetbuild.errors import ConfigError
from fleetbuild.hardware.gpus import SMS, sm_order
from fleetbuild.hardware.machine_names import read_machine_name
from fleetbuild.hardware.rungs import RUNGS, best
from fleetbuild.models import Target, TargetLibc

_NAME = re.compile(
    r"(?P<sms>cpu|sm\d{2,3}(?:\.sm\d{2,3})*)-(?P<isa>.+)-(?P<python>cp3\d{1,2}t?)(?P<musl>-musl)?",
    re.ASCII,
)


def parse_target(name: str) -> Target:
    """Return the target that a name such as sm80.sm90-avx512-cp311-musl describes, without a libc
    floor."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"The target {name!r} is not the name of a group.",
            "Write SMs (or cpu), a rung and a Python, such as sm89-avx2-cp311, "
            "sm80.sm90-avx512-cp312 or cpu-avx-cp311-musl.",
        )
    machine = read_machine_name(match["isa"])
    rung = best(machine.features, machine.arch) if machine else None
    if rung is None:
        raise ConfigError(
            f"The target {name!r} has the rung {match['isa']!r}, which does not exist.",
            f"The rungs are: {', '.join(RUNGS)}. A CPU's name, such as zen3, stands for its rung.",
        )
    sms = () if match["sms"] == "cpu" else match["sms"].replace("sm", "").split(".")
    spelled = sorted({f"{sm[:-1]}.{sm[-1]}" for sm in sms}, key=sm_order)
    unknown = [sm for sm in spelled if sm not in SMS]
    if unknown:
        raise ConfigError(
            f"The target {name!r} has the SM {unknown[0]}, which is unknown.",
            f"The known SMs are: {', '.join(SMS)}.",
        )
    return Target(
        arch=rung.arch,
        isa=rung.name,
        features=tuple(sorted(rung.features)),
        sms=tuple(spelled),
        python=match["python"],
        libc=TargetLibc(family="musl" if match["musl"] else "glibc", floor=""),
    )
