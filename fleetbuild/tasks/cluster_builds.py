"""Builds in the cluster: what its Jobs are given, and what comes back of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from fleetbuild.ansible import ansible_dir
from fleetbuild.ansible.role_results import Seconds
from fleetbuild.apply.audit import audit_findings
from fleetbuild.apply.pending import BuildPlace, build_spec, key_of, source_of, wheel_identity
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.kubernetes.builds.jobs import BuildOrder, build_jobs, builders
from fleetbuild.models import LockedFile, Plan, PlannedWheel, WheelResult
from fleetbuild.models._base import Frozen
from fleetbuild.models.role_parameters import Requirement
from fleetbuild.store import Store


class BuildInputs(Frozen):
    """What a Job says of its build. Nothing depends on it."""

    node: str = ""
    seconds: Seconds = 0


def cluster_builds(plan: Plan) -> tuple[dict[str, str], tuple[str, ...]]:
    """Files and warnings: a Job for each wheel that is to be built."""
    if plan.build_image is None:
        raise BlockedError(
            "The plan names no image that builds could run in.",
            "Set build.image in fleetbuild.yml, such as python:3.12-bookworm, and plan again.",
        )
    if plan.lock != "complete":
        raise BlockedError(
            f"The plan has no lock of what goes into its builds ({plan.lock_problem}).",
            "Plan again where a package index can be reached.",
        )
    orders: list[BuildOrder] = []
    problems: list[_Problem] = []
    for wheel, groups in _wheels(plan):
        if problem := _problem(plan, wheel):
            problems.append(problem)
        else:
            orders.append(_order(plan, wheel, groups))
    if not orders:
        why = " ".join(f"{problem.what}." for problem in problems) or "The plan builds nothing."
        fixes = dict.fromkeys(f"{problem.fix}." for problem in problems)
        raise BlockedError(
            f"There is nothing to build in the cluster. {why}",
            " ".join(fixes) or "Go on with: fleetbuild emit k8s",
        )
    folder = ansible_dir() / "plugins" / "module_utils" / "builder"
    programs = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    told = tuple(f"{problem.what}, so no Job builds it. {problem.fix}." for problem in problems)
    wanted = (
        f"{order.wheel.package} {order.wheel.wheel_version} is built with {words}: "
        f"{plan.build_image} has to hold it, with its headers."
        for order in orders
        for name, words in order.wheel.requires.libraries.items()
        if name != "cuda"  # part of the toolkit
    )
    return build_jobs(plan, orders, programs), (*told, *wanted)


def add_built_wheels(plan: Plan, folder: Path, store: Store) -> tuple[WheelResult, ...]:
    """Put the wheels that Jobs left in this folder into the store, as if nodes had built them:
    each is held to its target first."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", "Name the one that the wheels were copied to.")
    return tuple(
        _judged(plan, wheel, folder / key_of(wheel), store)
        for wheel, _ in _wheels(plan)
        if (folder / key_of(wheel)).is_dir()
    )


def _wheels(plan: Plan) -> Iterator[tuple[PlannedWheel, tuple[str, ...]]]:
    """Each wheel that is to be built, once, with its groups."""
    groups: dict[str, list[str]] = {}
    wheels: dict[str, PlannedWheel] = {}
    for group in plan.groups:
        for wheel in group.wheels:
            if wheel.action == "build":
                groups.setdefault(key_of(wheel), []).append(group.name)
                wheels.setdefault(key_of(wheel), wheel)
    return ((wheel, tuple(groups[key])) for key, wheel in wheels.items())


class _Problem(NamedTuple):
    what: str
    fix: str


def _problem(plan: Plan, wheel: PlannedWheel) -> _Problem | None:
    """Why no pod can build it: it may run nowhere, or cannot have what goes into the build."""
    name = f"{wheel.package} {wheel.wheel_version}"
    if not builders(plan, wheel):
        taints = ", ".join(plan.nodes[wheel.built_on or ""].taints)
        return _Problem(
            f"{name}: only pods that tolerate {taints} run on {wheel.built_on}, and no other Node"
            " can build it",
            "Take the taint off while it is built, and plan again",
        )
    for file in (source_of(wheel), *wheel.build_dependencies):
        if not file.url.startswith(("https://", "http://")) or not file.sha256:
            return _Problem(
                f"{name}: no pod could fetch {file.file} from {file.url}",
                "Put such files into an index that pods reach by http or https, name that under"
                " index: in fleetbuild.yml, and plan again",
            )
    return None


def _order(plan: Plan, wheel: PlannedWheel, groups: tuple[str, ...]) -> BuildOrder:
    source = source_of(wheel)
    place = BuildPlace(
        node=wheel.built_on,
        python=next(iter(wheel.build_pythons.values()), "python3"),
        cache="none",
        source=source.file,
        source_sha256=source.sha256,
        requirements=tuple(
            Requirement(path=file.file, sha256=file.sha256) for file in wheel.build_dependencies
        ),
    )
    return BuildOrder(
        wheel=wheel,
        key=key_of(wheel),
        groups=groups,
        downloads=tuple(_download(file) for file in (source, *wheel.build_dependencies)),
        params=build_spec(plan, wheel, place).module_options(),
    )


def _download(file: LockedFile) -> dict[str, str]:
    return {"file": file.file, "url": file.url, "sha256": file.sha256}


def _judged(plan: Plan, wheel: PlannedWheel, folder: Path, store: Store) -> WheelResult:
    files = [path for path in sorted(folder.glob("*.whl")) if not path.is_symlink()]
    if len(files) != 1:
        return WheelResult(
            state="refused",
            reason=f"{folder} holds {len(files)} wheels, not one.",
            fix="Copy the folder again.",
            **wheel_identity(wheel),
        )
    if problems := audit_findings(files[0], plan, wheel):
        return WheelResult(
            state="refused",
            reason="; ".join(problems),
            fix="Look at the Job's log for flags that the package adds on its own.",
            **wheel_identity(wheel),
        )
    told = _handed(folder)
    stored = store.add(files[0], wheel, built_on=told.node, seconds=told.seconds)
    return WheelResult(
        state="built",
        built_on=told.node or None,
        seconds=told.seconds,
        file=str(stored.path),
        sha256=stored.sha256,
        **wheel_identity(wheel),
    )


def _handed(folder: Path) -> BuildInputs:
    try:
        return BuildInputs.model_validate_json((folder / "build.json").read_bytes())
    except (OSError, ValidationError):
        return BuildInputs()
