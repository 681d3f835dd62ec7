"""Looks for wheels that others publish, and reads those of which nobody says what they need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fleetbuild.audit import audit_wheel
from fleetbuild.models import Facts, LockedFile
from fleetbuild.planning import Draft, LockRequest, Package, source_request
from fleetbuild.planning.groups import DraftGroup
from fleetbuild.planning.packages import versions_of
from fleetbuild.planning.published import Choice, Code, choose_published, must_be_read
from fleetbuild.store import Store
from fleetbuild.store.resolve import find_wheels


def find_published(
    drafted: Draft,
    packages: Sequence[Package],
    local: Collection[str],
    facts: Mapping[str, Facts],
    store: Store,
) -> dict[tuple[str, str], Choice]:
    """For each package and group, what is published. Packages whose source is named are built."""
    asked = {
        (index, group.name): _question(group, package, drafted)
        for group in drafted.groups
        for index, package in enumerate(packages)
        if package.name not in local
    }
    answers = find_wheels(asked.values(), store.settings)
    groups = {group.name: group for group in drafted.groups}
    choices: dict[tuple[str, str], Choice] = {}
    for (index, name), question in asked.items():
        package, group, answer = packages[index], groups[name], answers[question]
        target = group.wheel_targets[index]
        if not answer.wheels:
            why = answer.problem if answer.offline else None
            choices[package.name, name] = Choice(
                why=why or "No wheel of it is published for these nodes."
            )
            continue
        (file,) = answer.wheels
        choices[package.name, name] = choose_published(
            package,
            target,
            [facts[node] for node in group.nodes],
            file,
            versions=versions_of(packages),
            code=_code(file, store) if must_be_read(package, target) else None,
        )
    return choices


def _question(group: DraftGroup, package: Package, drafted: Draft) -> LockRequest:
    request = source_request(group, [package], drafted.fates)
    return request.model_copy(
        update={"requirements": (f"{package.name}=={package.version}",), "sources": ()}
    )


def _code(file: LockedFile, store: Store) -> Code:
    audit = audit_wheel(store.fetch(file))
    return Code(
        features=audit.features,
        sms=tuple(sorted({sm for elf in audit.elfs for sm in elf.sms})),
        ptx=tuple(sorted({sm for elf in audit.elfs for sm in elf.ptx})),
    )
