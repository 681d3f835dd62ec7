"""The compiler that a build takes on a node, and its flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetbuild.hardware.compilers import gccs_of
from fleetbuild.hardware.cuda import Gcc
from fleetbuild.hardware.rungs import Rung, flags, known_since, unknown_features
from fleetbuild.models import Facts
from fleetbuild.models._base import Frozen
from fleetbuild.planning.compatibility.constraints import joined
from fleetbuild.text import version_key


class Compiler(Frozen):
    """A compiler on a node."""

    kind: str  # gcc or clang
    version: str | None
    beside: bool = False  # the default one: the toolchain role finds it, or installs it

    def __str__(self) -> str:
        return f"{self.kind} {self.version or 'of unknown version'}"


@dataclass(frozen=True)
class Need:
    """What a build asks of its compiler: a rung's features, and what its packages and its CUDA
    toolkit say of gcc."""

    rung: Rung
    gcc: Gcc | None = None

    def objection(self, compiler: Compiler | None) -> str:
        """What is wrong with this compiler; "" where nothing is, or its version is not known."""
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
    """The node's default compiler: gcc rather than clang; None where there is none."""
    if {"gcc", "g++"} <= facts.toolchain.keys():
        return Compiler(kind="gcc", version=_newest(facts.toolchain["gcc"]))
    if "clang" in facts.toolchain:
        return Compiler(kind="clang", version=_newest(facts.toolchain["clang"]))
    return None


def compiler_for(need: Need, facts: Facts) -> Compiler | None:
    """The compiler that a build takes there: the default one where it will do, else the oldest gcc
    beside it that will, if the distribution has one. None where the toolchain role installs the
    default one."""
    default = _default(facts)
    if not need.objection(default):
        return compiler_of(facts)
    beside = (
        Compiler(kind="gcc", version=version, beside=True)
        for version in gccs_of(facts.os.id, facts.os.version).beside
    )
    return next((gcc for gcc in beside if not need.objection(gcc)), default)


def lacks_compiler(need: Need, facts: Facts) -> bool:
    """Whether neither the default compiler nor one beside it will do."""
    return bool(need.objection(compiler_for(need, facts)))


def gcc_beside(need: Need, facts: Facts) -> str | None:
    """The major version of the gcc that a build takes there, where that is not the default one."""
    compiler = compiler_for(need, facts)
    return compiler.version if compiler and compiler.beside else None


def flags_for(need: Need, order: Sequence[str], facts: Mapping[str, Facts]) -> str:
    """Flags that every one of these builders understands, whoever it will be."""
    found = [compiler_for(need, facts[name]) for name in order]
    known = [compiler for compiler in found if compiler and compiler.version]
    first = found[0]
    same = len(known) == len(found) and all(first and each.kind == first.kind for each in known)
    oldest = min((each.version or "" for each in known), key=version_key) if same else None
    return flags(need.rung, first.kind if first else "gcc", oldest)


def required_compiler(need: Need, facts: Facts) -> str:
    """The compiler as a plan requires it: present, or by the toolchain role, and why."""
    compiler, default = compiler_for(need, facts), _default(facts)
    if compiler and compiler.beside:
        return f"{compiler} (by the toolchain role: {default} {need.objection(default)})"
    present = compiler_of(facts)
    return f"{present} (present)" if present else "gcc (to be installed by the toolchain role)"


def compiler_to_supply(
    need: Need, builder: str, facts: Facts, toolkits: Sequence[str] = ()
) -> tuple[str, ...]:
    """A sentence where neither the default compiler nor one beside it will do. With one of these
    CUDA toolkits it would."""
    compiler = compiler_for(need, facts)
    objection = need.objection(compiler)
    if not objection:
        return ()
    ways = [f"have {need} as gcc and g++ there", "let another node build (build.builders)"]
    if Need(need.rung).objection(compiler):
        ways.append("take a lower rung (fleetbuild_isa)")
    elif toolkits:
        ways.append(f"have a CUDA toolkit there that takes it ({joined(toolkits, 'or')})")
    sentence = (
        f"{builder} compiles with {compiler}, which {objection}, and no other is known to be in "
        f"its distribution: {joined(ways, 'or')}."
    )
    return (sentence,)


def compiler_in_image(need: Need, facts: Facts) -> str | None:
    """The compiler that an image has to hold beside its own, and why; None where its own does."""
    compiler, default = compiler_for(need, facts), _default(facts)
    if compiler and compiler.beside:
        return f"{compiler}: its {default} {need.objection(default)}"
    objection = need.objection(compiler)
    return f"{need} as gcc and g++: its {compiler} {objection}" if objection else None


def _default(facts: Facts) -> Compiler | None:
    """The one that is there, or that the distribution's plain gcc package is."""
    version = gccs_of(facts.os.id, facts.os.version).default
    return compiler_of(facts) or (Compiler(kind="gcc", version=version) if version else None)


def _precise(version: str) -> str:
    """A major version stands for the last of its releases, which is what distributions have."""
    return version if "." in version else f"{version}.99"


def _newest(versions: Sequence[str]) -> str | None:
    return max(versions, key=version_key, default=None)
