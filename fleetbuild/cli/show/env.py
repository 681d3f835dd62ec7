"""What `fleetbuild env` prints: a release's environment for shells, systemd and Jupyter.

A shell keeps the release that it began with. A unit and a kernel are written once and started
often, so they name the link `current`, which leads to the release that is current when they start.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetbuild.this_machine import InstalledRelease

NO_KERNEL = (
    "warning: ipykernel is not in this release, so Jupyter cannot start this kernel. Add it under"
    " packages:, and apply."
)


def shell_exports(release: InstalledRelease) -> str:
    """Return lines for `eval "$(fleetbuild env)"` in any POSIX shell."""
    lines = [f"export {key}={shlex.quote(value)}" for key, value in release.environment.items()]
    programs = shlex.quote(str(release.path / "bin"))
    return "\n".join((*lines, f'export PATH={programs}:"$PATH"', "unset PYTHONHOME")) + "\n"


def systemd_lines(release: InstalledRelease) -> str:
    """Return the lines of a unit, or of a drop-in."""
    search = os.pathsep.join((f"{release.current}/bin", "/usr/local/bin:/usr/bin:/bin"))
    values = {"PATH": search, "VIRTUAL_ENV": str(release.current)}
    # In a unit, % begins a specifier.
    lines = [f'Environment="{key}={value.replace("%", "%%")}"' for key, value in values.items()]
    return "\n".join(("[Service]", *lines)) + "\n"


def kernel_json(release: InstalledRelease) -> str:
    """Return a kernel.json, for a folder of Jupyter's kernels."""
    python = str(release.current / "bin" / "python")
    kernel = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"fleetbuild {release.name}",
        "language": "python",
        "env": {"VIRTUAL_ENV": str(release.current)},
    }
    return json.dumps(kernel, indent=2) + "\n"
