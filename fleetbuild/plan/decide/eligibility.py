"""Node eligibility: decide for each node whether it can be planned for, and if not, why.

In: inventory, facts, packages, configuration. Out: one `Eligibility` per node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS, Rung, best, why_not
from fleetbuild.models import Config, Facts, Inventory, Node, Python
from fleetbuild.models._base import Frozen
from fleetbuild.models.node import SKIPPED
from fleetbuild.plan.decide.interpreters import NotEligible, choose_interpreter
from fleetbuild.plan.decide.packages import Package, cuda_floors, versions_of
from fleetbuild.recipes import Recipe
from fleetbuild.toolchains.constraints import sm_list
from fleetbuild.toolchains.toolkits import (
    node_incompatibility,
    package_incompatibility,
)

_SHARED = re.compile(
    r"nfs4?|cifs|smbfs|smb[23]|lustre|gpfs|ceph|glusterfs|beegfs|afs|orangefs|pvfs2|9p"
    r"|fuse\.(?!fuse-overlayfs$).+"
)
_SM = re.compile(r"\d{1,2}\.\d")
# The facts that decide, beside the toolchain. A fleet has few kinds of them, each assessed once.
_DECISIVE = (
    "state", "reason", "fix", "arch", "isa", "features", "sms", "driver", "os", "libc", "pythons",
    "missing_interpreters", "install_filesystem", "install_read_only", "requires_signature",
    "unanswered", "warnings",
)  # fmt: skip
_decisive_facts = attrgetter(*_DECISIVE)


class Eligibility(Frozen):
    """Whether a node can be planned for. If `state` is "ok", all fields of a target are set."""

    state: str  # ok, unreachable, blocked, skipped
    reason: str | None = None
    fix: str | None = None
    warnings: tuple[str, ...] = ()
    rung: str | None = None  # the best rung that matters to the packages
    features: tuple[str, ...] = ()  # usable CPU features: all, or the features of fleetbuild_isa
    sms: tuple[str, ...] = ()  # SMs to build GPU code for; empty if no package has GPU code
    python: Python | None = None


def assess_nodes(
    inventory: Inventory, facts: Mapping[str, Facts], packages: Sequence[Package], config: Config
) -> dict[str, Eligibility]:
    """Return the eligibility of each node, by node name."""

    @cache
    def assess_kind(decisive: tuple[Any, ...], tools: Any, **overrides: Any) -> Eligibility:
        # Made of them alone, so that no other fact of the first node of a kind decides about all.
        known = Facts(**dict(zip(_DECISIVE, decisive, strict=True)), toolchain=dict(tools))
        try:
            return _assess(known, packages, config, **overrides)
        except NotEligible as error:
            return Eligibility(state="blocked", warnings=known.warnings, **error.problem._asdict())

    def assess_node(node: Node, known: Facts | None) -> Eligibility:
        if node.skip:
            return Eligibility(state="skipped", reason=SKIPPED)
        if known is None or known.state == "unreachable":
            known = known or Facts(reason="it was not probed")
            return Eligibility(
                state="unreachable",
                reason=known.reason or "no reason given",
                fix=f"{(known.fix or f'try `ssh {node.login.host}`').rstrip('.')}; then plan again",
            )
        return assess_kind(
            _decisive_facts(known),
            tuple(known.toolchain.items()),
            interpreter=node.interpreter,
            isa=node.isa,
            sms=node.sms,
            python=node.python,
        )

    return {
        node.name: assess_node(node, facts.get(node.name))
        for node in sorted(inventory.nodes, key=lambda node: node.name)
    }


def assess_target(facts: Facts, packages: Sequence[Package], config: Config) -> Eligibility:
    """Return whether machines with these facts, a named target's, can be planned for."""
    try:
        return _assess(facts, packages, config)
    except NotEligible as error:
        return Eligibility(state="blocked", **error.problem._asdict())


def allowed_rungs(recipes: Sequence[Recipe], config: Config) -> tuple[str, ...]:
    """Return the rungs that separate groups: rungs that matter to some package, or all rungs."""
    if config.grouping.rungs == "detected":
        return tuple(RUNGS)
    use = config.grouping.optimize_for
    named = {rung for recipe in recipes for rung in recipe.rungs_when(use)}
    return tuple(rung for rung in RUNGS if rung in named)


def _assess(
    facts: Facts,
    packages: Sequence[Package],
    config: Config,
    *,
    interpreter: str | None = None,
    isa: str | None = None,
    sms: tuple[str, ...] | None = None,
    python: str | None = None,
) -> Eligibility:
    """Return the eligibility of a machine. The inventory may override what the probe found."""
    _refuse_unsupported(facts, [package.recipe for package in packages])
    _refuse_missing_interpreter(interpreter, facts)
    assessed = assess_hardware(facts, packages, config, isa=isa, sms=sms, python=python)
    _refuse_shared_path(facts, config)
    _refuse_read_only(facts, config)
    _refuse_unsigned(facts, config)
    return assessed


def assess_hardware(
    facts: Facts,
    packages: Sequence[Package],
    config: Config,
    *,
    isa: str | None = None,
    sms: tuple[str, ...] | None = None,
    python: str | None = None,
) -> Eligibility:
    """Return the CPU, GPUs and Python to build for, on any system. Raises NotEligible."""
    recipes = [package.recipe for package in packages]
    features = _usable_features(isa, facts)
    rung = _rung(facts, features, recipes, config)
    sms = _sms(sms, facts, recipes)
    chosen = choose_interpreter(python or config.python, facts)
    _refuse_old_gpus(sms, packages)
    counted = facts if sms == facts.sms else facts.model_copy(update={"sms": sms})
    _refuse_without_toolkit(counted, chosen, packages, config)
    return Eligibility(
        state="ok",
        warnings=(*facts.warnings, *_gpus_without_code(sms, recipes)),
        rung=rung.name,
        features=features,
        sms=sms,
        python=chosen,
    )


def _refuse_missing_interpreter(interpreter: str | None, facts: Facts) -> None:
    """Refuse a node on which Ansible could run no module."""
    if interpreter in facts.missing_interpreters:
        raise NotEligible(
            f"ansible_python_interpreter is {interpreter}, which does not exist there.",
            "Correct it in the inventory, or remove it; then a Python that exists there is used.",
        )


def _refuse_unsupported(facts: Facts, recipes: Sequence[Recipe]) -> None:
    if facts.state == "unsupported":
        raise NotEligible(
            facts.reason or "This operating system or architecture is not supported.",
            facts.fix
            or "fleetbuild builds for Linux on x86_64 and aarch64. Set fleetbuild_skip: true here.",
        )
    if facts.arch is None or not facts.features:
        raise NotEligible(
            "The CPU flags are unknown: /proc/cpuinfo could not be read.",
            "Make /proc readable for the login user and plan again.",
        )
    if facts.libc is None:
        raise NotEligible(
            "The C library is unknown: neither getconf GNU_LIBC_VERSION nor musl's ldd answered.",
            "Install getconf (Debian: libc-bin) there and plan again.",
        )
    for recipe in recipes:
        if facts.libc.family not in recipe.libc:
            raise NotEligible(
                f"The C library is {facts.libc.family}, but the recipe {recipe.name} supports only "
                f"{' and '.join(recipe.libc)}.",
                "Set fleetbuild_skip: true for this node, or leave the package out.",
            )


def _usable_features(isa: str | None, facts: Facts) -> tuple[str, ...]:
    if isa is None:
        return facts.features
    rung = RUNGS.get(isa)
    if rung is None:
        raise NotEligible(
            f"fleetbuild_isa is {isa!r}, which is not a rung.",
            f"The rungs are: {', '.join(RUNGS)}.",
        )
    fix = (
        f"Remove fleetbuild_isa, or set it to {facts.isa or 'a rung of this CPU'} or a lower rung."
    )
    if rung.arch != facts.arch:
        raise NotEligible(
            f"fleetbuild_isa is {rung.name}, a rung of {rung.arch}, but the node is {facts.arch}.",
            fix,
        )
    if missing := why_not(rung, facts.features):
        raise NotEligible(f"fleetbuild_isa is {rung.name}, but {missing}", fix)
    return tuple(sorted(rung.features))


def _rung(
    facts: Facts, features: tuple[str, ...], recipes: Sequence[Recipe], config: Config
) -> Rung:
    rung = best(features, facts.arch, allowed_rungs(recipes, config))
    # Every package must have a rung of its own below the group's.
    for recipe in recipes:
        if rung is None or wheel_rung(recipe, rung, config) is None:
            raise NotEligible(
                f"The recipe {recipe.name} has no rung that this CPU can run ({facts.arch}, "
                f"{facts.isa or 'no known rung'}). Its rungs are {', '.join(recipe.rungs)}.",
                f"Add a lower rung to the recipe {recipe.name}, or set fleetbuild_skip: true.",
            )
    assert rung is not None  # there is at least one recipe  # noqa: S101
    return rung


def wheel_rung(recipe: Recipe, rung: Rung, config: Config) -> Rung | None:
    """Return the best of a recipe's rungs that nodes of this rung can run."""
    detected = config.grouping.rungs == "detected"
    allowed = tuple(RUNGS) if detected else recipe.rungs_when(config.grouping.optimize_for)
    return best(rung.features, rung.arch, allowed)


def _sms(own: tuple[str, ...] | None, facts: Facts, recipes: Sequence[Recipe]) -> tuple[str, ...]:
    for sm in own or ():
        if not _SM.fullmatch(sm):
            raise NotEligible(
                f"fleetbuild_sms contains {sm!r}, which is not a compute capability.",
                'Write it as "8.6".',
            )
    if not any(recipe.cuda for recipe in recipes):
        return ()
    if own is None and not facts.sms and "nvidia-smi" in facts.unanswered:
        raise NotEligible(
            "Its GPUs are unknown: nvidia-smi did not answer in time.",
            "Plan again with a longer --timeout, repair the driver there, or set fleetbuild_sms "
            "for this node ([] for none).",
        )
    return tuple(sorted(set(facts.sms if own is None else own), key=sm_order))


def _refuse_old_gpus(sms: tuple[str, ...], packages: Sequence[Package]) -> None:
    for package in packages:
        if package.recipe.min_sm and not package.recipe.sms_of(sms):
            raise NotEligible(
                f"{package.name} needs a GPU of SM {package.recipe.min_sm} or newer, and "
                f"this node has {f'only {sm_list(sms)}' if sms else 'no GPU to plan for'}.",
                f"Plan these nodes separately, without {package.name} and as another release, "
                "or set fleetbuild_skip: true.",
            )


def _gpus_without_code(sms: tuple[str, ...], recipes: Sequence[Recipe]) -> Iterator[str]:
    for recipe in recipes:
        left = [sm for sm in sms if recipe.cuda and sm not in recipe.sms_of(sms)]
        if left:
            yield f"The wheel of {recipe.name} has no code for this node's GPUs of {sm_list(left)}."


def _refuse_without_toolkit(
    facts: Facts, python: Python, packages: Sequence[Package], config: Config
) -> None:
    """Block a node whose GPUs, driver and Python leave no CUDA toolkit to build with."""
    versions = versions_of(packages)
    problem = package_incompatibility(versions) or node_incompatibility(
        versions, facts, python.tag, pin=config.cuda, floors=cuda_floors(packages)
    )
    if problem:
        raise NotEligible(problem.reason, problem.fix)


def _refuse_unsigned(facts: Facts, config: Config) -> None:
    if facts.requires_signature and not config.signs:
        raise NotEligible(
            "The node accepts only signed releases (/etc/fleetbuild/allowed_signers), and"
            " signing.key is not set.",
            "Set signing.key in fleetbuild.yml to the SSH key of an allowed signer.",
        )


def _refuse_read_only(facts: Facts, config: Config) -> None:
    if facts.install_read_only:
        raise NotEligible(
            f"{config.install.path} is on a file system that is mounted read-only, so nothing can "
            "be installed there.",
            "Look there why (a disk error does it too: dmesg) and mount it for writing, or set "
            "install.path in fleetbuild.yml, for all nodes; then plan again",
        )


def _refuse_shared_path(facts: Facts, config: Config) -> None:
    kind = facts.install_filesystem
    if kind and _SHARED.fullmatch(kind):
        raise NotEligible(
            f"{config.install.path} is on a shared file system ({kind}): nodes of different "
            "groups would overwrite each other's releases.",
            "Set install.path in fleetbuild.yml to a folder on a local disk.",
        )
