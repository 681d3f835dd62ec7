"""A script that sets the feature of each node in Slurm, and a job that asks for one.

In: a plan, and what serves on each node. Out: file names, texts and warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.models import Plan
from fleetbuild.models.release import release_root
from fleetbuild.models.serving import hosts
from fleetbuild.text import fold

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # scontrol takes commas and brackets for lists


def slurm(emission: Emission) -> EmittedFiles:
    """Write the features of nodes in Slurm, and a job script.

    A node has the feature of its group while a verified release serves there.
    """
    plan = emission.plan
    prefix = "fleetbuild:" if plan.release == "default" else f"fleetbuild.{plan.release}:"
    whole = emission.whole or plan
    revoked = {group.name for group in whole.groups if group not in plan.groups}
    features = dict.fromkeys(filter(_NAME.fullmatch, hosts(plan)), "?")
    for node, served in emission.serving.items():
        if node in features:
            good = served and served.verified and served.group not in revoked
            features[node] = f"{prefix}{served.group}" if served and good else "-"
    wanted = sorted(set(features.values()) - {"?", "-"})
    nodes = "\n".join(f"{node} {feature}" for node, feature in sorted(features.items()))
    texts = {"features.sh": _script("features.sh", PREFIX=prefix, NODES=nodes)}
    if wanted:
        current = f"{release_root(plan.install_path, plan.release)}/current"
        constraint = f"[{'|'.join(wanted)}]" if wanted[1:] else wanted[0]
        texts["job.sh"] = _script("job.sh", FEATURE=constraint, CURRENT=current)
    return EmittedFiles(texts, tuple(_left_out(plan, features, wanted)))


def _left_out(plan: Plan, features: Mapping[str, str], wanted: Sequence[str]) -> Iterator[str]:
    if unknown := [node for node, feature in features.items() if feature == "?"]:
        yield f"{fold(unknown)}: what serves there is not known, so features.sh changes nothing."
    if others := [node for node in hosts(plan) if node not in features]:
        yield f"{fold(others)}: no node in Slurm can have such a name."
    if not wanted:
        yield "No node is known to serve a verified release, so job.sh is not written."


def _script(name: str, **values: str) -> str:
    text = files(__package__ or "").joinpath(f"data/{name}").read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
