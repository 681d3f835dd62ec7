"""The Python interpreter that a node's releases use."""

from __future__ import annotations

from collections.abc import Sequence

from fleetbuild.models import Facts, Python
from fleetbuild.models.problem import Problem
from fleetbuild.text import named_path, version_key

# From this version on, a node of any architecture installs by the library that apply sends it.
_WITHOUT_PIP = (3, 10)
_DEBIAN = {"debian", "ubuntu", "linuxmint", "raspbian", "pop"}


def choose_interpreter(wanted: str | None, facts: Facts) -> Python:
    """Return the interpreter that releases use: of a wanted version or path; else raise."""
    found = [python for python in facts.pythons if _is_wanted(python, wanted)]
    if not found and wanted:  # an interpreter's own path counts before a link
        found = [python for python in facts.pythons if wanted in python.links]
    if not found and "python" in facts.unanswered:
        raise NotEligible(
            "Its Python interpreters are unknown: the node did not list them in time.",
            "Plan again with a longer --timeout, or find out which folder in its PATH does not "
            "answer.",
        )
    if not found:
        raise _no_python(wanted, facts)
    # Without a configured version, use the node's python3, which is listed first.
    candidates = found if wanted else found[:1]
    chosen = next(filter(_makes_releases, candidates), None)
    if chosen is None:
        others = [each for each in facts.pythons if each.venv and _makes_releases(each)]
        raise _no_venv(candidates[0], facts, others)
    return chosen


def _makes_releases(python: Python) -> bool:
    if python.venv is False:
        return False
    return python.ensurepip is not False or version_key(python.version)[:2] >= _WITHOUT_PIP


def _is_wanted(python: Python, wanted: str | None) -> bool:
    if wanted is None:
        return True
    if _is_path(wanted):
        return python.path == wanted
    parts = wanted.removesuffix("t").split(".")
    alike = python.version.split(".")[: len(parts)] == parts
    return alike and _free_threaded(python) == wanted.endswith("t")


def _is_path(wanted: str) -> bool:
    return "/" in wanted or "\\" in wanted


def _free_threaded(python: Python) -> bool:
    return python.tag.endswith("t")


def _no_python(wanted: str | None, facts: Facts) -> NotEligible:
    found = ", ".join(
        f"{'free-threaded ' * _free_threaded(python)}{python.version} ({named_path(python.path)})"
        for python in facts.pythons
    )
    has = f" It has {found}." if found else ""
    what = f"Python {wanted}" if wanted else "CPython"
    fix = f"Install it ({_command(wanted, facts)}), or choose an installed one with python: or "
    fix += "fleetbuild_python."
    if wanted and _is_path(wanted):
        fix += " Links and virtual environments count if they are in the PATH of the node."
    return NotEligible(f"The node has no {what}.{has}", fix)


def _command(wanted: str | None, facts: Facts) -> str:
    if wanted is None or _is_path(wanted):
        return f"{_installer(facts)} python3"
    if wanted.endswith("t"):  # distributions name it differently, or do not have it
        return f"uv python install {wanted}"
    return f"{_installer(facts)} python{wanted}"


def _no_venv(python: Python, facts: Facts, others: Sequence[Python]) -> NotEligible:
    minor = ".".join(python.version.split(".")[:2])
    system = facts.os.id in _DEBIAN and python.path.startswith("/usr/bin/")
    name = "python3" if python.path == "/usr/bin/python3" else f"python{minor}"
    fix = (
        f"apt install {name}-venv"
        if system
        else f"Install venv and ensurepip for {named_path(python.path)}"
    )
    if others:
        fix += f", or set fleetbuild_python: {named_path(others[0].path)} ({others[0].version})"
    lacks = (
        "cannot make virtual environments: it lacks venv or zlib."
        if python.venv is False
        else "lacks ensurepip, whose pip installs wheels where Python is older than 3.10."
    )
    return NotEligible(
        f"{named_path(python.path)} ({python.version}) {lacks}",
        f"{fix}; then plan again",
    )


def _installer(facts: Facts) -> str:
    if facts.os.id in _DEBIAN:
        return "apt install"
    return "apk add" if facts.libc and facts.libc.family == "musl" else "dnf install"


class NotEligible(Exception):
    """A node cannot be planned for."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.problem = Problem(reason, fix)
