"""Dependencies of which it is known that they die on a node.

In: groups, their locked dependencies, and the results about files that are kept or come with
fleetbuild. Out: the problem of each node on which one of them dies. Nothing is fetched or read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from fleetbuild.audit.evidence import Results, implied_features, shipped_runs, verdict_from
from fleetbuild.audit.verdict import VERDICT_WORDS, Verdict
from fleetbuild.models import LockedFile
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.resolution import Resolution
from fleetbuild.text import version_key


def nodes_with_known_deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], results: Results
) -> dict[str, Problem]:
    """Return the nodes on which a dependency dies, each with versions that ran there."""
    results_of = cache(results.of)  # each file once, whatever the number of nodes
    implied = cache(implied_features)  # most nodes show the same features as others

    @cache
    def verdict(file: LockedFile, kind: _Kind, beside: tuple[LockedFile, ...]) -> Verdict:
        arch, features, sms, python = kind
        known = results_of(file.sha256, file.file)
        return verdict_from(
            known,
            package=file.name,
            arch=arch,
            features=features,
            sms=sms,
            python=python,
            beside=[other.sha256 for other in beside],
        )

    problems: dict[str, Problem] = {}
    for group in groups:
        for node, facts in group.members.items():
            arch = str(facts.arch)
            kind = (arch, implied(arch, facts.features), facts.sms, group.target.python)
            wheels = dependencies[group.name].wheels
            for file in wheels:
                found = verdict(file, kind, wheels)
                # A death in code that may never be called was only read: it blocks no node.
                if found.verdict == "dies-at-import" or (found.dies and found.evidence != "static"):
                    problems[node] = _problem(file, found, kind)
                    break
    return problems


_Kind = tuple[str, frozenset[str], tuple[str, ...], str]


def _problem(file: LockedFile, found: Verdict, kind: _Kind) -> Problem:
    said = "has no kernel" if found.verdict == "no-kernel" else VERDICT_WORDS[found.verdict]
    reason = f"{file.name} {file.version}, a dependency, {said} there: {found.where}."
    others = sorted(_running(file.name, kind), key=version_key)
    constrain = f"{file.name}=={others[-1]}" if others else f"{file.name}!={file.version}"
    ran = f" ({', '.join(others)} ran on such a CPU)" if others else ""
    return Problem(
        reason, f"Write {constrain} into a constraints file and plan with --constraint FILE{ran}."
    )


def _running(name: str, kind: _Kind) -> Iterator[str]:
    """Yield the versions that ran on such a CPU, by the runs that come with fleetbuild."""
    _, features, _, python = kind
    for results in shipped_runs().values():
        try:
            package, version, *_ = parse_wheel_filename(results.file)
        except InvalidWheelFilename:
            continue
        run = results.on_cpu(features, python) if package == name else None
        if run and run.verdict.verdict == "runs":
            yield str(version)
