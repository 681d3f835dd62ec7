"""A script that sets the feature of each node in Slurm, and a job that asks for one.

In: a plan, and what serves on each node. Out: file names, texts and warnings.
"""

from __future__ import annotations

import re
from importlib.resources import files
from shlex import quote

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.errors import BlockedError
from fleetbuild.models.release import release_root

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # scontrol takes commas and brackets for lists


def slurm(emission: Emission) -> EmittedFiles:
    """Write a script that sets each node's feature in Slurm, and a job script.

    A node has the feature of its group while a verified release serves there.
    """
    plan = emission.plan
    prefix = "fleetbuild:" if plan.release == "default" else f"fleetbuild.{plan.release}:"
    groups = {group.name for group in plan.groups}
    features = {
        node: prefix + served.group if served and served.verified and served.group in groups else ""
        for node, served in sorted(emission.serving.items())
        if _NAME.fullmatch(node)
    }
    wanted = sorted(set(filter(None, features.values())))
    if not wanted:
        raise BlockedError(
            "No node serves a verified release, so no job can ask for one.",
            "Install it: fleetbuild apply",
        )
    nodes = "\n".join(f"set_feature {quote(node)} {quote(has)}" for node, has in features.items())
    current = f"{release_root(plan.install_path, plan.release)}/current"
    constraint = f"[{'|'.join(wanted)}]" if wanted[1:] else wanted[0]
    texts = {
        "features.sh": _script("features.sh").replace("@PREFIX@", prefix).replace("@NODES@", nodes),
        "job.sh": _script("job.sh").replace("@FEATURE@", constraint).replace("@CURRENT@", current),
    }
    left_out = (
        f"{node}: its release is not known, so features.sh leaves the node as it is."
        if _NAME.fullmatch(node)
        else f"{node}: Slurm has no such name, so features.sh leaves the node out."
        for node, planned in plan.nodes.items()
        if node not in features and planned.state != "skipped"
    )
    return EmittedFiles(texts, tuple(left_out))


def _script(name: str) -> str:
    return files(__package__ or "").joinpath(f"data/{name}").read_text("utf-8")
