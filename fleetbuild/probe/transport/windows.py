"""The command that runs a PowerShell script on Windows, for cmd.exe or PowerShell as the shell."""

from __future__ import annotations

import base64
from collections.abc import Sequence

# The script is too long for a command line of cmd.exe, so it comes on standard input. `$input` has
# its lines; PowerShell's own "-Command -" would read them as if they were typed, block by block.
_BOOTSTRAP = '& ([ScriptBlock]::Create((@($input) -join "`n"))) {arguments}'


def powershell_command(arguments: Sequence[str]) -> str:
    """Return the command; the script goes to its standard input.

    It has only letters, digits and "+/=-.", which no shell of Windows reads in another way.
    """
    quoted = " ".join("'" + argument.replace("'", "''") + "'" for argument in arguments)
    text = _BOOTSTRAP.format(arguments=quoted)
    encoded = base64.b64encode(text.encode("utf-16-le")).decode()
    return (
        "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
        f"-EncodedCommand {encoded}"
    )
