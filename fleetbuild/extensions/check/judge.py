"""Judge whether a wheel runs on a kind of machine, by what its code needs.

In: `WheelNeeds`, the CPU features and SMs of the machine. Out: a `Verdict`, with the file and
symbol at fault. Pure: nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from packaging.utils import canonicalize_name

from fleetbuild.audit.models import ElfAudit, code_runs_on
from fleetbuild.extensions.check.needs import WheelNeeds
from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models.verdict import Verdict, VerdictName
from fleetbuild.text import count

# The worst one counts for the whole wheel.
_WORST = ("dies-at-import", "refuses", "dies-in-use", "no-kernel", "undecided", "runs")
_SHOWN = 3
# A level of the CPU in the name of a file, folder or module: _swigfaiss_avx512, impl/avx2, avx2/_c.
LEVEL = re.compile(
    r"(?:[_-]|(?<![^/]))"
    r"(avx512[a-z0-9_]{0,30}|avx2|avx|sse4_?[12]|ssse3|fma|adx|aesni|p?clmul|shani|neon|sve2?)(?=[./]|$)",
    re.IGNORECASE,
)
_TELLING = frozenset({"archspec", "cpufeature", "py-cpuinfo"})  # packages that tell features
_FEATURES = 2  # named with their symbol, of one file


def judge(
    needs: WheelNeeds,
    *,
    package: str,
    arch: str,
    features: Collection[str],
    sms: Collection[str] = (),
) -> Verdict:
    """Return the verdict for a machine with these CPU features and GPUs."""
    own = [elf for elf in needs.files if elf.arch == arch]
    if needs.files and not own:
        archs = ", ".join(sorted({elf.arch for elf in needs.files}))
        return Verdict(
            verdict="undecided", where=f"it has machine code for {archs}, not for {arch}"
        )
    chosen, alone = _files_for_levels(own, frozenset(features))
    if _has_check(needs):
        chosen, alone = chosen | alone, frozenset()
    verdicts = [
        *(
            finding
            for elf in own
            if elf.path not in chosen
            for finding in _cpu(elf, package, frozenset(features), alone=elf.path in alone)
        ),
        *(
            finding
            for elf in own
            for sm in sorted(sms, key=sm_order)
            for finding in _gpu(elf, sm, package)
        ),
        *(Verdict(verdict="undecided", where=problem) for problem in needs.problems),
        *(
            Verdict(verdict="undecided", where=f"{elf.path} has {what}, which is not read")
            for elf in own
            for what in (*elf.unread, *elf.unknown)
        ),
    ]
    guarded = {
        feature
        for elf in own
        for feature in (*elf.guarded, *((*elf.load, *elf.default) if elf.path in chosen else ()))
    }
    lacking = tuple(sorted(guarded - frozenset(features)))
    if not verdicts:
        return Verdict(verdict="runs", guarded=lacking, native=bool(needs.files))
    worst = min(verdicts, key=lambda each: _WORST.index(each.verdict))
    same = [each for each in verdicts if each.verdict == worst.verdict and each.where]
    more = f"; and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
    return Verdict(
        verdict=worst.verdict,
        where="; ".join(str(each.where) for each in same[:_SHOWN]) + more,
        features=tuple(sorted({name for each in verdicts for name in each.features})),
        guarded=lacking,
        checks=worst.verdict == "undecided" and all(each.features for each in verdicts),
    )


def refusal_of(package: str) -> str | None:
    """Return what this package says on a CPU below its baseline; None if it does not check."""
    packages: dict[str, str] = _table()["packages"]
    return packages.get(canonicalize_name(package))


def _files_for_levels(
    files: Sequence[ElfAudit], features: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files for a level that this CPU lacks, by their neighbours: the same file
    without a level, or other files.

    Packages such as faiss and rapidfuzz load `_fuzz_avx2.so` in place of `_fuzz.so` if the CPU has
    the level. What loads `impl/avx2.so`, and after which check, is not in its machine code. A file
    that another one links is loaded on every CPU.
    """
    paths = {elf.path for elf in files}
    linked = {name for elf in files for name in elf.needed}
    named = {
        path
        for path in paths
        if (level := LEVEL.search(path))
        and _feature_of(level[1].lower()) not in features
        and path.rpartition("/")[2] not in linked
    }
    beside = {path for path in named if LEVEL.sub("", path) in paths}
    return frozenset(beside), frozenset(named - beside) if paths - named else frozenset()


def _has_check(needs: WheelNeeds) -> bool:
    """Return whether a wheel brings or requires what tells its Python code the CPU's features."""
    return not _TELLING.isdisjoint(needs.requires) or any(
        elf.checks_cpu and "cpu" in elf.path.rpartition("/")[2].lower() for elf in needs.files
    )


def _feature_of(level: str) -> str:
    """Return the first feature of a level: avx512f of avx512_spr."""
    beginnings = {
        "avx512": "avx512f", "avx2": "avx2", "avx": "avx", "sse4_2": "sse4_2",
        "aesni": "aes", "shani": "sha_ni", "clmul": "pclmulqdq", "pclmul": "pclmulqdq",
    }  # fmt: skip
    return next((name for start, name in beginnings.items() if level.startswith(start)), level)


def _cpu(
    elf: ElfAudit, package: str, features: frozenset[str], *, alone: bool
) -> Iterator[Verdict]:
    at_load, by_default = elf.load - features, elf.default - features
    if alone or not elf.named:
        if at_load or by_default:
            level = "the file is for this level, and what loads it may check the CPU"
            why = level if alone else "nothing in the wheel names this file"
            yield _finding("undecided", elf, at_load | by_default, why)
        return
    if at_load:
        yield _finding("dies-at-import", elf, at_load, "runs when the file is loaded")
    if by_default and elf.checks_cpu:
        yield _finding("undecided", elf, by_default, "the file checks the CPU, perhaps before this")
    elif by_default:
        refusal = refusal_of(package)
        kind: VerdictName = "refuses" if refusal else "dies-in-use"
        yield _finding(kind, elf, by_default, refusal or "nothing checks the CPU before it")


def _finding(verdict: VerdictName, elf: ElfAudit, lacking: frozenset[str], why: str) -> Verdict:
    shown = sorted(lacking, key=lambda name: (name not in elf.where, name))[:_FEATURES]
    uses = [f"{name} in `{elf.where[name]}`" if name in elf.where else name for name in shown]
    uses += [count(len(lacking) - len(shown), "more feature")] if len(lacking) > len(shown) else []
    return Verdict(
        verdict=verdict,
        where=f"{elf.path} uses {', '.join(uses)} ({why})",
        features=tuple(sorted(lacking)),
    )


def _gpu(elf: ElfAudit, sm: str, package: str) -> Iterator[Verdict]:
    if not elf.sms and not elf.ptx:
        return
    # They have kernels for single GPUs, and choose among them as they run.
    from_nvidia = canonicalize_name(package).startswith("nvidia-")
    if kernels := elf.kernels_missing(sm):
        shown = ", ".join(f"`{kernel}`" for kernel in kernels[:_SHOWN])
        more = f" and {len(kernels) - _SHOWN} more" if len(kernels) > _SHOWN else ""
        if from_nvidia and any(each.run_on(sm) for each in elf.kernels):
            where = f"{elf.path} has SM {sm} code for some kernels, but not for {shown}{more};"
            yield Verdict(
                verdict="undecided", where=f"{where} NVIDIA's libraries choose among their kernels"
            )
        else:
            yield Verdict(
                verdict="no-kernel", where=f"{elf.path} has no SM {sm} code for {shown}{more}"
            )
    elif any(code_runs_on(code, sm) for code in elf.sms):
        return
    elif compiled := [ptx for ptx in elf.ptx if code_runs_on(f"{ptx}+PTX", sm)]:
        yield Verdict(
            verdict="undecided",
            where=f"{elf.path} has only PTX (of SM {compiled[-1]}) for SM {sm}, which needs a"
            " driver as new as its CUDA toolkit",
        )
    else:
        held = ", ".join([*elf.sms, *(f"{each}+PTX" for each in elf.ptx)])
        where = f"{elf.path} has code for SM {held}, not for {sm}"
        if from_nvidia and not elf.kernels and not elf.unread:  # libcufftw.so
            where = f"{where}; no kernel was found in it, so this may not matter"
            yield Verdict(verdict="undecided", where=where)
        else:
            yield Verdict(verdict="no-kernel", where=where)


@cache
def _table() -> dict[str, Any]:
    return load("refusals.yml", "fleetbuild.extensions.check")
