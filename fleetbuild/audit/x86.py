"""Find the CPU features that x86-64 machine code uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from iced_x86 import (
    Code,
    CpuidFeature,
    Decoder,
    Formatter,
    FormatterSyntax,
    Instruction,
    Mnemonic,
)

from fleetbuild.audit.models import FeatureUse


def used_features(data: bytes, address: int, known: frozenset[str]) -> Iterator[FeatureUse]:
    """Yield the first use of each feature beyond the baseline that is not in `known`."""
    seen: set[int] = set()
    found = set(known)
    for instruction in Decoder(64, data, ip=address):
        # Each of the about 5,000 kinds of instructions is examined once.
        if instruction.code in seen:
            continue
        seen.add(instruction.code)
        for feature in features_of(instruction):
            if feature not in found:
                found.add(feature)
                yield FeatureUse(
                    feature=feature, instruction=_text(instruction), address=instruction.ip
                )


def features_of(instruction: Instruction) -> tuple[str, ...]:
    """Return the features that an instruction needs, as /proc/cpuinfo names them."""
    if instruction.code == Code.INVALID or instruction.mnemonic in _harmless():
        return ()
    if special := _special().get(instruction.mnemonic):
        return (special,)
    names = (_feature_names()[feature] for feature in instruction.cpuid_features())
    kernel, baseline = _table()["kernel"], _table()["baseline"]
    return tuple(kernel.get(name, name.lower()) for name in names if name not in baseline)


def implied(features: frozenset[str]) -> frozenset[str]:
    """Return the features that these features imply."""
    more = (other for feature in features for other in _table()["implied"].get(feature, ()))
    return features.union(more)


def _text(instruction: Instruction) -> str:
    return str(Formatter(FormatterSyntax.INTEL).format(instruction))


@cache
def _table() -> dict[str, Any]:
    text = files("fleetbuild.audit").joinpath("data/x86_64.yml").read_text("utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return {**table, "baseline": frozenset(table["baseline"])}


@cache
def _harmless() -> frozenset[int]:
    return frozenset(
        getattr(Mnemonic, name) for row in _table()["harmless"] for name in row["mnemonics"]
    )


@cache
def _special() -> dict[int, str]:
    return {getattr(Mnemonic, name): use for name, use in _table()["instructions"].items()}


@cache
def _feature_names() -> dict[int, str]:
    return {getattr(CpuidFeature, name): name for name in dir(CpuidFeature) if name[0].isupper()}
