"""Dependencies that die on a node: by known results about files, or by reading them.

In: groups, their locked dependencies, and the results about files that are kept or come with
fleetbuild. Out: bounds below the versions that die, and the problem of each node on which one dies
nevertheless. Files are fetched and read only for CPUs below x86-64-v2, where many new wheels die.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from fleetbuild.audit.evidence import Results, implied_features, shipped_runs, verdict_from
from fleetbuild.audit.needs import read_needs
from fleetbuild.audit.verdict import VERDICT_WORDS, Verdict
from fleetbuild.errors import AuditError, InstallError
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import LockedFile
from fleetbuild.models.problem import Problem
from fleetbuild.plan.decide.groups import DraftGroup
from fleetbuild.plan.decide.resolution import Resolution
from fleetbuild.store.wheels import Store
from fleetbuild.text import version_key


def nodes_with_known_deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], results: Results
) -> dict[str, Problem]:
    """Return the nodes on which a dependency dies, each with versions that ran there."""
    deaths = _deaths(groups, dependencies, results)
    return {node: _problem(file, found, kind) for _, node, file, found, kind in deaths}


def bounds_below_deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], results: Results
) -> dict[str, tuple[str, ...]]:
    """Return bounds for each group with a dependency that dies at import: older minor versions."""
    bounds: dict[str, set[str]] = {}
    for group, _, file, found, _ in _deaths(groups, dependencies, results):
        if found.verdict == "dies-at-import":
            minor = ".".join(map(str, Version(file.version).release[:2]))
            bounds.setdefault(group, set()).add(f"{file.name}<{minor}")
    return {group: tuple(sorted(texts)) for group, texts in bounds.items()}


def read_for_old_cpus(
    groups: Sequence[DraftGroup],
    dependencies: Mapping[str, Resolution],
    store: Store,
    results: Results,
) -> None:
    """Read the dependencies of groups below x86-64-v2 and keep what they need."""
    old = (group for group in groups if RUNGS[group.target.isa] < RUNGS["x86-64-v2"])
    files = {file for group in old for file in dependencies[group.name].wheels}
    for file in sorted(files, key=lambda file: file.file):
        known = results.of(file.sha256, file.file)
        if known.needs is None and not file.file.endswith("-any.whl"):
            with suppress(AuditError, InstallError):  # whoever installs it says so
                needs = read_needs(store.fetch(file))
                results.keep(known.model_copy(update={"needs": needs}))


def _deaths(
    groups: Sequence[DraftGroup], dependencies: Mapping[str, Resolution], results: Results
) -> Iterator[tuple[str, str, LockedFile, Verdict, _Kind]]:
    """Yield group, node, file and verdict of the first dependency that dies on each node."""
    results_of = cache(results.of)  # each file once, whatever the number of nodes
    implied = cache(implied_features)  # most nodes show the same features as others

    @cache
    def verdict(file: LockedFile, kind: _Kind, beside: tuple[LockedFile, ...]) -> Verdict:
        arch, features, sms, python = kind
        return verdict_from(
            results_of(file.sha256, file.file),
            package=file.name,
            arch=arch,
            features=features,
            sms=sms,
            python=python,
            beside=[other.sha256 for other in beside],
        )

    for group in groups:
        for node, facts in group.members.items():
            arch = str(facts.arch)
            kind = (arch, implied(arch, facts.features), facts.sms, group.target.python)
            wheels = dependencies[group.name].wheels
            for file in wheels:
                found = verdict(file, kind, wheels)
                # A death in code that may never be called was only read: it blocks no node.
                if found.verdict == "dies-at-import" or (found.dies and found.evidence != "static"):
                    yield group.name, node, file, found, kind
                    break


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
