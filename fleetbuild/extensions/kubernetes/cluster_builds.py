"""Builds in the cluster: write a Job for each wheel, and store the wheels that the Jobs built.

In: a plan made with build.image; later the folder with the Jobs' output. Out: manifest files and
warnings; later a result for each wheel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from fleetbuild.ansible import ansible_dir
from fleetbuild.ansible.role_results import Seconds
from fleetbuild.apply.audit import audit_findings
from fleetbuild.apply.pending import build_spec, key_of, source_of, wheel_identity
from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.extensions.kubernetes.config import Pods
from fleetbuild.extensions.kubernetes.jobs.manifests import (
    BuildOrder,
    bases_in_claim,
    build_jobs,
    builders,
)
from fleetbuild.files import read_input, sha256_of
from fleetbuild.fleet_store import FleetStore
from fleetbuild.models import LockedFile, Plan, PlannedWheel, WheelResult
from fleetbuild.models._base import Frozen
from fleetbuild.models.build_parameters import Requirement
from fleetbuild.models.problem import Problem
from fleetbuild.models.stored import BuildContext
from fleetbuild.run_lock import hold_run_lock
from fleetbuild.store.address_secrets import HIDDEN
from fleetbuild.store.wheels import Store


class BuildInputs(Frozen):
    """What a Job reports: its node and duration, for information, and the hash of its wheel."""

    node: str = ""
    seconds: Seconds = 0
    file: str = ""
    sha256: str = ""


def cluster_builds(
    plan: Plan,
    settings: Pods = Pods(),  # noqa: B008 it is frozen
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the files of the Jobs, one Job for each wheel to build, and warnings."""
    if plan.build_image is None:
        raise BlockedError(
            "The plan has no build image.",
            "Set build.image in fleetbuild.yml, for example python:3.12-bookworm, then plan again.",
        )
    if plan.lock != "complete":
        raise BlockedError(
            f"This plan has no dependency lock ({plan.lock_problem}).",
            "Plan again with access to a package index.",
        )
    orders: list[BuildOrder] = []
    problems: list[Problem] = []
    for wheel, groups in _wheels(plan):
        if problem := _problem(plan, wheel):
            problems.append(problem)
        else:
            orders.append(_order(plan, wheel, groups))
    if not orders:
        why = " ".join(problem.reason for problem in problems) or "The plan builds nothing."
        fixes = dict.fromkeys(problem.fix for problem in problems)
        raise BlockedError(
            f"There is nothing to build in the cluster. {why}",
            " ".join(fixes) or "Continue with: fleetbuild emit k8s",
        )
    plugins = ansible_dir() / "plugins"
    # A Job's log is read by people: it needs the sentences of advice, too.
    advice = [plugins / "plugin_utils" / f"{name}.py" for name in ("advice", "replies")]
    files = (*(plugins / "module_utils" / "builder").glob("*.py"), *advice)
    programs = {path.name: path.read_text(encoding="utf-8") for path in files}
    warnings = tuple(f"{problem.reason} No Job builds it. {problem.fix}" for problem in problems)
    library_warnings = (
        f"{order.wheel.package} {order.wheel.wheel_version} is built with {words}: "
        f"{plan.build_image} must contain it, with its headers."
        for order in orders
        for name, words in order.wheel.requires.libraries.items()
        if name != "cuda"  # part of the toolkit
    )
    tools = dict.fromkeys(tool for order in orders for tool in order.wheel.requires.in_image)
    bases = _unbuilt_bases(plan, orders)
    return build_jobs(plan, orders, programs, settings), (
        *warnings,
        *bases,
        *library_warnings,
        *tools,
    )


def _unbuilt_bases(plan: Plan, orders: Sequence[BuildOrder]) -> Iterator[str]:
    """Yield a warning for each wheel that a Job needs and no Job of this plan builds."""
    for order in orders:
        for base in bases_in_claim(plan, order.wheel):
            if base.action != "build":
                yield (
                    f"{order.wheel.package} is built against {base.package} {base.wheel_version},"
                    " which an earlier plan built. The claim fleetbuild-wheels must still have it"
                    f" in its folder {base.artifact_key}, with the build.json of its Job."
                )


def store_built_wheels(store: FleetStore, folder: Path) -> tuple[WheelResult, ...]:
    """Store the last plan's wheels that Jobs left in this folder."""
    with hold_run_lock(store.state.create().lock_file):
        return add_built_wheels(store.last_plan(), folder, store.open())


def add_built_wheels(plan: Plan, folder: Path, store: Store) -> tuple[WheelResult, ...]:
    """Audit and store the wheels that Jobs left in this folder, as if nodes had built them.

    `folder` has a folder per wheel, named after its artifact key.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder.", "Name the folder that the wheels were copied to."
        )
    wanted = {key_of(wheel): wheel for wheel, _ in _wheels(plan)}
    homes = {child.name: child for child in sorted(folder.iterdir()) if child.is_dir()}
    results = [
        _add_wheel(plan, wheel, homes[key], store) for key, wheel in wanted.items() if key in homes
    ]
    strange = [folder, *(home for name, home in homes.items() if name not in wanted)]
    results += [_unwanted(plan, path) for home in strange for path in _wheels_in(home)]
    if not results:
        raise UsageError(
            f"{folder} has no wheel of the last plan.",
            "Name the folder that the wheels were copied to; one of its folders is "
            + next(iter(wanted), "named after each wheel's artifact key")
            + ".",
        )
    return tuple(results)


def _wheels_in(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if _is_wheel(path)]
    except OSError:  # a folder of root's, such as lost+found
        return []


def _is_wheel(path: Path) -> bool:
    """Whether this is a wheel's file. A Job could leave a pipe, which waits for a writer."""
    return path.suffix == ".whl" and path.is_file()


def _unwanted(plan: Plan, path: Path) -> WheelResult:
    builds = [f"{wheel.package} {wheel.wheel_version}" for wheel, _ in _wheels(plan)]
    shown = ", ".join(builds[:5]) + (f" and {len(builds) - 5} more" if len(builds) > 5 else "")
    return WheelResult(
        package=path.name,
        wheel_version="",
        artifact_key="",
        state="refused",
        reason=f"It is in no folder of a wheel of the last plan, which builds {shown or 'nothing'}",
        fix="Plan for it first, copy its Job's whole folder, or remove it",
    )


def _wheels(plan: Plan) -> Iterator[tuple[PlannedWheel, tuple[str, ...]]]:
    """Return each wheel to build, once, with the names of its groups."""
    groups: dict[str, list[str]] = {}
    wheels: dict[str, PlannedWheel] = {}
    for group in plan.groups:
        for wheel in group.wheels:
            if wheel.action == "build":
                groups.setdefault(key_of(wheel), []).append(group.name)
                wheels.setdefault(key_of(wheel), wheel)
    return ((wheel, tuple(groups[key])) for key, wheel in wheels.items())


def _problem(plan: Plan, wheel: PlannedWheel) -> Problem | None:
    """Return why no pod can build a wheel (taints, or files that pods cannot fetch), or None."""
    name = f"{wheel.package} {wheel.wheel_version}"
    if not builders(plan, wheel):
        taints = ", ".join(plan.nodes[wheel.built_on or ""].taints)
        return Problem(
            f"{name}: only pods that tolerate {taints} run on {wheel.built_on}, and no other Node"
            " can build it.",
            "Remove the taint during the build, and plan again.",
        )
    for file in _files(plan, wheel):
        public = file.url.startswith(("https://", "http://")) and HIDDEN not in file.url
        if not public or not file.sha256:
            return Problem(
                f"{name}: pods cannot fetch {file.file} from {file.url}.",
                "Put such files into an index that pods reach by http or https, add it under index:"
                " in fleetbuild.yml, and plan again.",
            )
    return None


def _published_bases(plan: Plan, wheel: PlannedWheel) -> tuple[LockedFile, ...]:
    """Return the published wheels that it is built against."""
    bases = (plan.wheels_by_key[key] for key in wheel.built_against)
    return tuple(base.published for base in bases if base.published)


def _files(plan: Plan, wheel: PlannedWheel) -> tuple[LockedFile, ...]:
    """Return the files that a pod downloads to build a wheel, its source first."""
    return (source_of(wheel), *_published_bases(plan, wheel), *wheel.build_dependencies)


def _order(plan: Plan, wheel: PlannedWheel, groups: tuple[str, ...]) -> BuildOrder:
    source, *required = _files(plan, wheel)
    spec = build_spec(
        plan,
        wheel,
        wheel.built_on or "",
        cache=plan.cache,
        isolation="preferred",  # a pod is kept apart by its cluster, which seldom allows it more
        source=source.file,
        source_sha256=source.sha256,
        requirements=tuple(Requirement(path=file.file, sha256=file.sha256) for file in required),
        dest="",
    )
    return BuildOrder(
        wheel=wheel,
        key=key_of(wheel),
        groups=groups,
        downloads=tuple(_download(file) for file in (source, *required)),
        params=spec.for_pod(),
    )


def _download(file: LockedFile) -> dict[str, str]:
    return {"file": file.file, "url": file.url, "sha256": file.sha256}


def _add_wheel(plan: Plan, wheel: PlannedWheel, folder: Path, store: Store) -> WheelResult:
    files = [path for path in _wheels_in(folder) if not path.is_symlink()]
    if len(files) != 1:
        return WheelResult(
            state="refused",
            reason=f"{folder} contains {len(files)} wheels instead of one.",
            fix="Copy the folder again.",
            **wheel_identity(wheel),
        )
    inputs = _build_inputs(folder)
    if inputs.sha256 != sha256_of(files[0]):
        return WheelResult(
            state="refused",
            reason=f"{files[0].name} is not the wheel whose hash its Job reports in build.json.",
            fix=f"Copy the folder again, with its build.json, or delete {wheel.artifact_key} from "
            "the claim and run the Job again.",
            **wheel_identity(wheel),
        )
    if problems := audit_findings(files[0], plan, wheel, store.revocations):
        return WheelResult(
            state="refused",
            reason="; ".join(problems),
            fix="Look in the Job's log for compiler flags that the package adds on its own.",
            **wheel_identity(wheel),
        )
    return _stored(plan, wheel, files[0], inputs, store)


def _stored(
    plan: Plan, wheel: PlannedWheel, path: Path, inputs: BuildInputs, store: Store
) -> WheelResult:
    context = BuildContext(plan_digest=plan.digest)
    stored = store.add(path, wheel, built_on=inputs.node, seconds=inputs.seconds, context=context)
    return WheelResult(
        state="built",
        built_on=inputs.node or None,
        seconds=inputs.seconds,
        file=str(stored.path),
        sha256=stored.sha256,
        **wheel_identity(wheel),
    )


def _build_inputs(folder: Path) -> BuildInputs:
    try:
        return BuildInputs.model_validate_json(read_input(folder / "build.json"))
    except (OSError, ValidationError):
        return BuildInputs()
