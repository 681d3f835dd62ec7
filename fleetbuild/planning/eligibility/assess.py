"""What becomes of each node: it is planned for, or a sentence says why not and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from jinja2 import TemplateError

from fleetbuild.errors import ConfigError
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS, Rung, best, why_not
from fleetbuild.models import Config, Facts, Inventory, Node, Python
from fleetbuild.models._base import Frozen
from fleetbuild.models.node import SKIPPED
from fleetbuild.planning.compatibility.constraints import sm_list
from fleetbuild.planning.compatibility.toolkits import member_problem, package_problem
from fleetbuild.planning.packages import Package, cuda_floors, versions_of
from fleetbuild.recipes import Recipe
from fleetbuild.recipes.templates import ENVIRONMENT

_SHARED = re.compile(
    r"nfs4?|cifs|smbfs|smb[23]|lustre|gpfs|ceph|glusterfs|beegfs|afs|orangefs|pvfs2|9p"
    r"|fuse\.(?!fuse-overlayfs$).+"
)
_DEBIAN = {"debian", "ubuntu", "linuxmint", "raspbian", "pop"}
_SM = re.compile(r"\d{1,2}\.\d")


class Eligibility(Frozen):
    """A node's lot. One that is `ok` has everything that a target is made of."""

    state: str  # ok, unreachable, blocked, skipped
    reason: str | None = None
    fix: str | None = None
    warnings: tuple[str, ...] = ()
    rung: str | None = None  # the best of those that matter to the packages
    features: tuple[str, ...] = ()  # what may be used: all, or those of fleetbuild_isa
    sms: tuple[str, ...] = ()  # what GPU code is built for; none where no package has any
    python: Python | None = None


class _Blocked(Exception):
    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def assess_nodes(
    inventory: Inventory, facts: Mapping[str, Facts], packages: Sequence[Package], config: Config
) -> dict[str, Eligibility]:
    """The fate of every node, by name."""
    return {
        node.name: assess_node(node, facts.get(node.name), packages, config)
        for node in sorted(inventory.nodes, key=lambda node: node.name)
    }


def assess_node(
    node: Node, facts: Facts | None, packages: Sequence[Package], config: Config
) -> Eligibility:
    """The fate of this node under these packages."""
    if node.skip:
        return Eligibility(state="skipped", reason=SKIPPED)
    if facts is None or facts.state == "unreachable":
        known = facts or Facts(reason="it was not probed")
        return Eligibility(
            state="unreachable",
            reason=known.reason or "no reason given",
            fix=f"{(known.fix or f'try `ssh {node.login.host}`').rstrip('.')}; then plan again",
        )
    try:
        return _planned(node, facts, packages, config)
    except _Blocked as blocked:
        return Eligibility(
            state="blocked", reason=blocked.reason, fix=blocked.fix, warnings=facts.warnings
        )


def allowed_rungs(recipes: Sequence[Recipe], config: Config) -> tuple[str, ...]:
    """The rungs that tell groups apart: those that matter to some package, or all."""
    if config.grouping.rungs == "detected":
        return tuple(RUNGS)
    use = config.grouping.optimize_for
    named = {rung for recipe in recipes for rung in recipe.rungs_when(use)}
    return tuple(rung for rung in RUNGS if rung in named)


def kubernetes_node(node: Node, template: str) -> str:
    """What the node is called in the cluster."""
    values = {"inventory_hostname": node.name, **node.variables}
    try:
        return ENVIRONMENT.from_string(template).render(values).strip()
    except (TemplateError, TypeError, ValueError, ArithmeticError) as problem:
        raise ConfigError(
            f"kubernetes.node_name cannot be rendered for {node.name}: {problem}.",
            "Give the template a default, such as "
            "{{ kubernetes_node | default(inventory_hostname) }}.",
        ) from None


def _planned(node: Node, facts: Facts, packages: Sequence[Package], config: Config) -> Eligibility:
    recipes = [package.recipe for package in packages]
    _refuse_unsupported(facts, recipes)
    features = _usable_features(node, facts)
    rung = _rung(facts, features, recipes, config)
    sms = _sms(node, facts, recipes)
    python = _interpreter(node, facts, config)
    _refuse_gpus(sms, packages)
    _refuse_impossible(facts.model_copy(update={"sms": sms}), python, packages, config)
    _refuse_shared(facts, config)
    return Eligibility(
        state="ok",
        warnings=(*facts.warnings, *_gpus_without_code(sms, recipes)),
        rung=rung.name,
        features=features,
        sms=sms,
        python=python,
    )


def _refuse_unsupported(facts: Facts, recipes: Sequence[Recipe]) -> None:
    if facts.state == "unsupported":
        raise _Blocked(
            facts.reason or "It is not supported.",
            "fleetbuild builds for Linux on x86_64 and aarch64. Set fleetbuild_skip: true for it.",
        )
    if facts.arch is None or not facts.features:
        raise _Blocked(
            "The flags of its CPU are unknown: nothing was read from /proc/cpuinfo.",
            "Make /proc readable for the login user and plan again.",
        )
    if facts.libc is None:
        raise _Blocked(
            "Its C library is unknown: neither getconf GNU_LIBC_VERSION nor musl's ldd answered.",
            "Install getconf (Debian: libc-bin) there and plan again.",
        )
    for recipe in recipes:
        if facts.libc.family not in recipe.libc:
            raise _Blocked(
                f"Its C library is {facts.libc.family}, and the recipe {recipe.name} knows "
                f"{' and '.join(recipe.libc)} only.",
                "Set fleetbuild_skip: true for it, or leave the package out.",
            )


def _usable_features(node: Node, facts: Facts) -> tuple[str, ...]:
    if node.isa is None:
        return facts.features
    rung = RUNGS.get(node.isa)
    if rung is None:
        raise _Blocked(
            f"fleetbuild_isa is {node.isa!r}, which is no rung.", f"Rungs are: {', '.join(RUNGS)}."
        )
    fix = f"Take fleetbuild_isa out, or set it to {facts.isa or 'a rung that it has'} or less."
    if rung.arch != facts.arch:
        raise _Blocked(
            f"fleetbuild_isa is {rung.name}, which is of {rung.arch}; the node is {facts.arch}.",
            fix,
        )
    if missing := why_not(rung, facts.features):
        raise _Blocked(f"fleetbuild_isa is {rung.name}, and {missing}", fix)
    return tuple(sorted(rung.features))


def _rung(
    facts: Facts, features: tuple[str, ...], recipes: Sequence[Recipe], config: Config
) -> Rung:
    rung = best(features, facts.arch, allowed_rungs(recipes, config))
    # Every package must have a rung of its own below the group's.
    for recipe in recipes:
        if rung is None or wheel_rung(recipe, rung, config) is None:
            raise _Blocked(
                f"The recipe {recipe.name} has no rung for this CPU ({facts.arch}, "
                f"{facts.isa or 'no known rung'}); it has {', '.join(recipe.rungs)}.",
                f"Add a lower rung to the recipe {recipe.name}, or set fleetbuild_skip: true.",
            )
    assert rung is not None  # there is at least one recipe  # noqa: S101
    return rung


def wheel_rung(recipe: Recipe, rung: Rung, config: Config) -> Rung | None:
    """What a group of this rung gets of a package: the recipe's best rung within it."""
    detected = config.grouping.rungs == "detected"
    allowed = tuple(RUNGS) if detected else recipe.rungs_when(config.grouping.optimize_for)
    return best(rung.features, rung.arch, allowed)


def _sms(node: Node, facts: Facts, recipes: Sequence[Recipe]) -> tuple[str, ...]:
    for sm in node.sms or ():
        if not _SM.fullmatch(sm):
            raise _Blocked(
                f"fleetbuild_sms says {sm!r}, which is no compute capability.",
                'Write it as "8.6".',
            )
    if not any(recipe.cuda for recipe in recipes):
        return ()
    return tuple(sorted(set(facts.sms if node.sms is None else node.sms), key=sm_order))


def _refuse_gpus(sms: tuple[str, ...], packages: Sequence[Package]) -> None:
    for package in packages:
        if package.recipe.min_sm and not package.recipe.sms_of(sms):
            raise _Blocked(
                f"{package.name} needs a GPU of SM {package.recipe.min_sm} or newer, and "
                f"{f'its GPUs are {sm_list(sms)}' if sms else 'none is planned for'} here.",
                f"Plan such nodes apart, without {package.name} and under a release name of their "
                "own, or set fleetbuild_skip: true.",
            )


def _gpus_without_code(sms: tuple[str, ...], recipes: Sequence[Recipe]) -> Iterator[str]:
    for recipe in recipes:
        left = [sm for sm in sms if recipe.cuda and sm not in recipe.sms_of(sms)]
        if left:
            yield f"{recipe.name} has no code for its GPUs of {sm_list(left)}."


def _interpreter(node: Node, facts: Facts, config: Config) -> Python:
    wanted = node.python or config.python
    found = [python for python in facts.pythons if _is_wanted(python, wanted)]
    if not found:
        raise _no_python(wanted, facts)
    # Without a wish it is the node's python3, which stands first.
    candidates = found if wanted else found[:1]
    chosen = next((python for python in candidates if python.venv is not False), None)
    if chosen is None:
        raise _no_venv(candidates[0], facts, [each for each in facts.pythons if each.venv])
    return chosen


def _is_wanted(python: Python, wanted: str | None) -> bool:
    if wanted is None:
        return True
    if wanted.startswith("/"):
        return python.path == wanted
    parts = wanted.removesuffix("t").split(".")
    alike = python.version.split(".")[: len(parts)] == parts
    return alike and _free_threaded(python) == wanted.endswith("t")


def _free_threaded(python: Python) -> bool:
    return python.tag.endswith("t")


def _no_python(wanted: str | None, facts: Facts) -> _Blocked:
    found = ", ".join(
        f"{'free-threaded ' * _free_threaded(python)}{python.version} ({python.path})"
        for python in facts.pythons
    )
    has = f"it has {found}" if found else "it has none"
    what = f"Python {wanted}" if wanted else "CPython"
    return _Blocked(
        f"There is no {what} on it; {has}.",
        f"Install it ({_command(wanted, facts)}), or choose one that is there with python: or "
        "fleetbuild_python.",
    )


def _command(wanted: str | None, facts: Facts) -> str:
    if wanted is None or wanted.startswith("/"):
        return f"{_installer(facts)} python3"
    if wanted.endswith("t"):  # distributions have a name each for it, or none
        return f"uv python install {wanted}"
    return f"{_installer(facts)} python{wanted}"


def _no_venv(python: Python, facts: Facts, others: Sequence[Python]) -> _Blocked:
    minor = ".".join(python.version.split(".")[:2])
    system = facts.os.id in _DEBIAN and python.path.startswith("/usr/bin/")
    name = "python3" if python.path == "/usr/bin/python3" else f"python{minor}"
    fix = f"apt install {name}-venv" if system else f"Install venv and ensurepip for {python.path}"
    if others:
        fix += f", or set fleetbuild_python: {others[0].path} ({others[0].version})"
    return _Blocked(
        f"{python.path} ({python.version}) cannot make virtual environments: it lacks venv or "
        "ensurepip.",
        f"{fix}.",
    )


def _installer(facts: Facts) -> str:
    if facts.os.id in _DEBIAN:
        return "apt install"
    return "apk add" if facts.libc and facts.libc.family == "musl" else "dnf install"


def _refuse_impossible(
    facts: Facts, python: Python, packages: Sequence[Package], config: Config
) -> None:
    """What its GPUs, their driver and its Python allow must hold something to build with."""
    versions = versions_of(packages)
    problem = package_problem(versions) or member_problem(
        versions, facts, python.tag, pin=config.cuda, floors=cuda_floors(packages)
    )
    if problem:
        raise _Blocked(problem.reason, problem.fix)


def _refuse_shared(facts: Facts, config: Config) -> None:
    kind = facts.install_filesystem
    if kind and _SHARED.fullmatch(kind):
        raise _Blocked(
            f"{config.install.path} lies on a shared file system ({kind}): nodes of other groups "
            "would install over each other there.",
            "Set install.path in fleetbuild.yml to a folder on a local disk.",
        )
