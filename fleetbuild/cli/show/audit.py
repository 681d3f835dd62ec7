"""The report of `fleetbuild audit`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fleetbuild.audit import WheelAudit
from fleetbuild.cli.show.text import with_short_symbols
from fleetbuild.hardware.machine_names import read_machine_name
from fleetbuild.models.verdict import VERDICT_WORDS, Verdict
from fleetbuild.text import count


def audit_document(
    wheel: WheelAudit, verdicts: Mapping[str, Verdict] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the document of `audit --json`: each file, what the wheel needs in all, and verdicts
    for the kinds of machines that --for names."""
    shown = ("verdict", "where", "evidence")
    judged = [
        {"kind": kind, **{name: getattr(verdict, name) for name in shown}}
        for kind, verdict in verdicts.items()
    ]
    return {
        "features": list(wheel.features),
        "sms": list(wheel.sms),
        "ptx": list(wheel.ptx),
        "libc_floor": wheel.libc_floor,
        # Names of kernels are for `check`; a library can have a hundred thousand.
        **wheel.model_dump(mode="json", exclude={"elfs": {"__all__": {"kernels"}}}),
        **({"verdicts": judged} if verdicts else {}),
    }


def verdict_lines(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return how the names of --for were read, and a line for each of these kinds of machine."""
    names = {kind: machine.read_as for kind in verdicts if (machine := read_machine_name(kind))}
    readings = [f"  {kind} is read as {name}." for kind, name in names.items() if name != kind]
    return readings + [
        f"  {kind:<10}  {VERDICT_WORDS[verdict.verdict]}"
        + (f" ({verdict.evidence})" if verdict.evidence != "static" else "")
        + (f": {with_short_symbols(verdict.where)}" if verdict.where else "")
        for kind, verdict in verdicts.items()
    ]


def audit_lines(wheel: WheelAudit, *, every_use: bool = False) -> list[str]:
    """Return lines with the wheel's requirements, the files that have them, and its problems."""
    wrong = [f"  wrong       {problem}" for problem in wheel.problems]
    if wrong and wheel.name is None and not wheel.elfs:
        return [wheel.file, *wrong]  # nothing could be read
    lines = [
        wheel.file,
        (
            f"  is          {wheel.name or 'no name'} {wheel.version or 'no version'}"
            f" ({' '.join(wheel.tags) or 'no tags'})"
        ),
        f"  features    {' '.join(wheel.features) or 'none beyond the baseline'}",
        f"  SMs         {' '.join(wheel.sms) or 'no GPU code'}",
    ]
    if wheel.ptx:
        lines.append(f"  PTX for     {' '.join(wheel.ptx)}")
    lines.append(f"  libc floor  {f'glibc {wheel.libc_floor}' if wheel.libc_floor else 'none'}")
    shown = set()
    for elf in wheel.elfs:
        for use in elf.features:
            if every_use or use.feature not in shown:
                lines.append(f"  uses        {use}: {elf.path}")
            shown.add(use.feature)
    lines.append(f"  looked at   {count(len(wheel.elfs), 'binary file')}, sha256 {wheel.sha256}")
    return lines + wrong
