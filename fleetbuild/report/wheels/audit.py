"""The report of `fleetbuild audit`."""

from __future__ import annotations

from typing import Any

from fleetbuild.audit import WheelAudit
from fleetbuild.text import count


def audit_document(wheel: WheelAudit) -> dict[str, Any]:
    """Return the document of `audit --json`: each file, and what the wheel needs in all."""
    return {
        "format_version": "1.0",
        "features": list(wheel.features),
        "sms": list(wheel.sms),
        "ptx": list(wheel.ptx),
        "libc_floor": wheel.libc_floor,
        **wheel.model_dump(mode="json"),
    }


def audit_lines(wheel: WheelAudit, *, every_use: bool = False) -> list[str]:
    """Return lines that say what the wheel needs, in which file, and what is wrong with it."""
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
