"""The compiler that a build takes on a node, and its flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.hardware.compilers import gccs_of
from fleetbuild.hardware.rungs import RUNGS, Rung, flags, known_since, unknown_features
from fleetbuild.models import Facts, Target
from fleetbuild.models._base import Frozen
from fleetbuild.planning.groups import numbers


class Compiler(Frozen):
    """A compiler on a node."""

    kind: str  # gcc or clang
    version: str | None
    beside: bool = False  # the default one: the toolchain role finds it, or installs it

    def __str__(self) -> str:
        return f"{self.kind} {self.version or 'of unknown version'}"


def compiler_of(facts: Facts) -> Compiler | None:
    """The node's default compiler: gcc rather than clang; None where there is none."""
    if {"gcc", "g++"} <= facts.toolchain.keys():
        return Compiler(kind="gcc", version=_newest(facts.toolchain["gcc"]))
    if "clang" in facts.toolchain:
        return Compiler(kind="clang", version=_newest(facts.toolchain["clang"]))
    return None


def compiler_for(rung: Rung, facts: Facts) -> Compiler | None:
    """The compiler that a build for this rung takes there: the default one where it knows the
    rung's features, else the oldest gcc beside it that does, if the distribution has one. None
    where the toolchain role installs the default one."""
    default = _default(facts)
    if not unknown_to(default, rung):
        return compiler_of(facts)
    offer = gccs_of(facts.os.id, facts.os.version)
    newer = offer.oldest(lambda version: not unknown_features(rung, "gcc", version))
    return Compiler(kind="gcc", version=newer, beside=True) if newer else default


def unknown_to(compiler: Compiler | None, rung: Rung) -> frozenset[str]:
    """The rung's features that this compiler is too old for."""
    return unknown_features(rung, compiler.kind, compiler.version) if compiler else frozenset()


def gcc_beside(rung: Rung, facts: Facts) -> str | None:
    """The major version of the gcc that a build for this rung takes there, where that is not the
    node's default compiler."""
    compiler = compiler_for(rung, facts)
    return compiler.version if compiler and compiler.beside else None


def flags_for(target: Target, order: Sequence[str], facts: Mapping[str, Facts]) -> str:
    """Flags that every one of these builders understands, whoever it will be."""
    rung = RUNGS[target.isa]
    found = [compiler_for(rung, facts[name]) for name in order]
    known = [compiler for compiler in found if compiler and compiler.version]
    first = found[0]
    same = len(known) == len(found) and all(first and each.kind == first.kind for each in known)
    oldest = min((each.version or "" for each in known), key=numbers) if same else None
    return flags(rung, first.kind if first else "gcc", oldest)


def required_compiler(rung: Rung, facts: Facts) -> str:
    """The compiler as a plan requires it: present, or by the toolchain role, and why."""
    compiler, default = compiler_for(rung, facts), _default(facts)
    if compiler and compiler.beside:
        unknown = ", ".join(sorted(unknown_to(default, rung)))
        return f"{compiler} (by the toolchain role: {default} does not know {unknown})"
    present = compiler_of(facts)
    return f"{present} (present)" if present else "gcc (to be installed by the toolchain role)"


def compiler_to_supply(rung: Rung, builder: str, facts: Facts) -> tuple[str, ...]:
    """A sentence where neither the default compiler nor one beside it knows the whole rung."""
    compiler = compiler_for(rung, facts)
    unknown = ", ".join(sorted(unknown_to(compiler, rung)))
    if not unknown:
        return ()
    sentence = (
        f"{builder} compiles with {compiler}, which does not know {unknown}, and no newer one is "
        f"known to be in its distribution: have gcc {known_since(rung, 'gcc')} or newer as gcc and "
        "g++ there, let another node build (build.builders), or set fleetbuild_isa to a lower rung "
        "for these nodes."
    )
    return (sentence,)


def _default(facts: Facts) -> Compiler | None:
    """The one that is there, or that the distribution's plain gcc package is."""
    version = gccs_of(facts.os.id, facts.os.version).default
    return compiler_of(facts) or (Compiler(kind="gcc", version=version) if version else None)


def _newest(versions: Sequence[str]) -> str | None:
    return max(versions, key=numbers, default=None)
