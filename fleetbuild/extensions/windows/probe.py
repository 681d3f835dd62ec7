"""Ask Windows nodes by SSH: run script.ps1 there in PowerShell, in one round trip.

In: nodes of an inventory. Out: their captures, or why a node did not answer.
"""

from __future__ import annotations

import base64
import functools
import secrets
from collections.abc import Sequence
from importlib.resources import files

from fleetbuild.extensions.windows.facts import SECTIONS
from fleetbuild.models import Become, Capture, Login, Node, OnEvent, Unreachable, ignore
from fleetbuild.probe.parsing.framing import split
from fleetbuild.probe.probing import ask, section_seconds
from fleetbuild.probe.transport.base import Answer, NoAnswer
from fleetbuild.probe.transport.failure_reasons import unusable_answer


def probe_windows(
    nodes: Sequence[Node], *, timeout: float = 30, forks: int = 64, on_event: OnEvent = ignore
) -> dict[str, Capture | Unreachable]:
    """Return the captures of these nodes."""
    nonce = f"fleetbuild-{secrets.token_hex(16)}"
    return ask(
        nodes,
        script(),
        (nonce, section_seconds(timeout)),
        functools.partial(_read, nonce=nonce),
        timeout=timeout,
        forks=forks,
        on_event=on_event,
        command=powershell_command,
    )


def script() -> bytes:
    """Return the probe script."""
    return files(__package__ or "").joinpath("data/script.ps1").read_bytes()


def _read(answer: Answer, login: Login, *, nonce: str) -> Capture:
    if capture := split(answer.out.decode(errors="replace"), nonce, SECTIONS):
        return capture
    if answer.code == 127 or b"powershell.exe" in answer.err:
        raise NoAnswer(
            "it has no powershell.exe",
            "remove ansible_shell_type if this is not a Windows node; else put powershell.exe into "
            "the PATH of its OpenSSH server",
        )
    raise unusable_answer(answer, login)


# The script is too long for a command line of cmd.exe, so it comes on standard input. `$input` has
# its lines; PowerShell's own "-Command -" would read them as if they were typed, block by block.
_BOOTSTRAP = '& ([ScriptBlock]::Create((@($input) -join "`n"))) {arguments}'


def powershell_command(
    _become: Become | None, script: bytes, arguments: Sequence[str]
) -> tuple[str, bytes]:
    """Return the command that runs a script as the login user, and its standard input.

    It has only letters, digits and "+/=-.", which no shell of Windows reads in another way.
    """
    quoted = " ".join("'" + argument.replace("'", "''") + "'" for argument in arguments)
    text = _BOOTSTRAP.format(arguments=quoted)
    encoded = base64.b64encode(text.encode("utf-16-le")).decode()
    return (
        "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
        f"-EncodedCommand {encoded}"
    ), script
