"""The compiler that a build uses on a node, and its flags.

In: a node's facts, a rung and a CUDA toolkit's gcc range. Out: the compiler, its flags, and a
sentence if no compiler on the node suits. Used when builders are chosen and wheels are planned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from fleetbuild.hardware.data import load
from fleetbuild.hardware.flags import flags, known_since, unknown_features
from fleetbuild.hardware.rungs import Rung
from fleetbuild.models import Facts
from fleetbuild.text import version_key
from fleetbuild.toolchains.constraints import joined
from fleetbuild.toolchains.cuda import Gcc

_PACKAGED = load("gcc_packages.yml", "fleetbuild.toolchains")


@dataclass(frozen=True)
class PackagedGccs:
    """Major versions of gcc. `default` is None if unknown."""

    default: str | None = None
    additional: tuple[str, ...] = ()  # oldest first


@cache  # asked several times for each node of a plan
def packaged_gccs(distribution: str | None, version: str | None) -> PackagedGccs:
    """Return the gcc versions of a distribution, by ID and VERSION_ID of its os-release."""
    releases, parts = _PACKAGED.get(distribution or "", {}), (version or "").split(".")
    fronts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    row = next((releases[front] for front in fronts if front in releases), None)
    if row is None:
        return PackagedGccs()
    return PackagedGccs(str(row["default"]), tuple(map(str, sorted(row["beside"]))))


@dataclass(frozen=True)
class Compiler:
    """A compiler on a node."""

    kind: str  # gcc or clang
    version: str | None
    additional: bool = False  # beside the default one

    def __str__(self) -> str:
        return f"{self.kind} {self.version or 'of unknown version'}"


@dataclass(frozen=True)
class CompilerNeed:
    """A build's requirements on its compiler: a rung's features, and the gcc versions that its
    packages and its CUDA toolkit accept."""

    rung: Rung
    gcc: Gcc | None = None

    def problem(self, compiler: Compiler | None) -> str:
        """Return why this compiler does not suit; "" if it does, or if its version is unknown."""
        if compiler is None or compiler.version is None:
            return ""
        unknown = sorted(unknown_features(self.rung, compiler.kind, compiler.version))
        if unknown:
            return f"does not know {', '.join(unknown)}"
        if self.gcc and compiler.kind == "gcc" and not self.gcc.fits(_precise(compiler.version)):
            return f"is not {self.gcc}"
        return ""

    def __str__(self) -> str:
        since = known_since(self.rung, "gcc")
        return str(self.gcc & Gcc(since) if self.gcc else Gcc(since))


def compiler_of(facts: Facts) -> Compiler | None:
    """Return the node's default compiler: gcc before clang; None if neither is installed."""
    if {"gcc", "g++"} <= facts.toolchain.keys():
        return Compiler(kind="gcc", version=_newest(facts.toolchain["gcc"]))
    if "clang" in facts.toolchain:
        return Compiler(kind="clang", version=_newest(facts.toolchain["clang"]))
    return None


def compiler_for(need: CompilerNeed, facts: Facts) -> Compiler | None:
    """Return the compiler that a build uses on this node; None if the toolchain role installs one.

    The default compiler if it suits, else the oldest suitable gcc that is installed beside it, else
    the oldest suitable gcc that the distribution packages.
    """
    default = _default(facts)
    if not need.problem(default):
        return compiler_of(facts)
    packaged = packaged_gccs(facts.os.id, facts.os.version).additional
    additional = (
        Compiler(kind="gcc", version=version, additional=True)
        for version in (*gccs_beside(facts), *packaged)
    )
    return next((gcc for gcc in additional if not need.problem(gcc)), default)


def lacks_compiler(need: CompilerNeed, facts: Facts) -> bool:
    """Return whether neither the default compiler nor a packaged gcc suits."""
    return bool(need.problem(compiler_for(need, facts)))


def additional_gcc(need: CompilerNeed, facts: Facts) -> str | None:
    """Return the major version of the gcc that a build uses there, if not the default one."""
    compiler = compiler_for(need, facts)
    version = compiler.version if compiler and compiler.additional else None
    return version.partition(".")[0] if version else None


def gccs_beside(facts: Facts) -> list[str]:
    """Return the versions of the gccs that are installed beside the default one, oldest first.

    A build finds each by its major version, so one that prints another version does not count.
    """
    versions = (
        version
        for name, printed in facts.toolchain.items()
        for version in printed
        if re.fullmatch(r"gcc-(\d{1,2}) \1(\..*)?", f"{name} {version}", re.ASCII)
    )
    return sorted(versions, key=version_key)


def flags_for(need: CompilerNeed, builders: Sequence[Facts]) -> str:
    """Return flags that the compilers of all these builders understand."""
    found = [compiler_for(need, facts) for facts in builders]
    known = [compiler for compiler in found if compiler and compiler.version]
    first = found[0]
    same = len(known) == len(found) and all(first and each.kind == first.kind for each in known)
    oldest = min((each.version or "" for each in known), key=version_key) if same else None
    return flags(need.rung, first.kind if first else "gcc", oldest)


def required_compiler(need: CompilerNeed, facts: Facts) -> str:
    """Return the compiler as the plan shows it: present, or installed by the toolchain role."""
    compiler, default = compiler_for(need, facts), _default(facts)
    if compiler and compiler.additional:
        source = "present" if compiler.version in gccs_beside(facts) else "by the toolchain role"
        return f"{compiler} ({source}: {default} {need.problem(default)})"
    present = compiler_of(facts)
    return f"{present} (present)" if present else "gcc (to be installed by the toolchain role)"


def missing_compiler(
    need: CompilerNeed, builder: str, facts: Facts, toolkits: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a sentence if no available compiler suits. With one of `toolkits` it would."""
    compiler = compiler_for(need, facts)
    problem = need.problem(compiler)
    if not problem:
        return ()
    options = [f"install {need} as gcc and g++ there", "let another node build (build.builders)"]
    if CompilerNeed(need.rung).problem(compiler):
        options.append("take a lower rung (fleetbuild_isa)")
    elif toolkits:
        options.append(f"install a CUDA toolkit there that accepts it ({joined(toolkits, 'or')})")
    sentence = (
        f"{builder} compiles with {compiler}, which {problem}, and its distribution has no "
        f"other that would do: {joined(options, 'or')}."
    )
    return (sentence,)


def compiler_in_image(need: CompilerNeed, facts: Facts) -> str | None:
    """Return the compiler that an image must contain, and why; None if its own compiler will do."""
    compiler, default = compiler_for(need, facts), _default(facts)
    if compiler and compiler.additional:
        return f"{compiler}: its {default} {need.problem(default)}"
    problem = need.problem(compiler)
    return f"{need} as gcc and g++: its {compiler} {problem}" if problem else None


def _default(facts: Facts) -> Compiler | None:
    """Return the installed default compiler, else the distribution's plain gcc package."""
    version = packaged_gccs(facts.os.id, facts.os.version).default
    return compiler_of(facts) or (Compiler(kind="gcc", version=version) if version else None)


def _precise(version: str) -> str:
    """Return 12.99 for 12: distributions package the last release of a major version."""
    return version if "." in version else f"{version}.99"


def _newest(versions: Sequence[str]) -> str | None:
    return max(versions, key=version_key, default=None)
