"""Which cipher Ansible's connections use: AES where both CPUs compute it themselves.

In: a login, facts of its node, ssh's configuration. Out: a value for ssh's option Ciphers.
OpenSSH likes ChaCha20 best, which takes nearly twice the CPU then.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from fleetbuild.ansible.alive import names_configuration
from fleetbuild.models import Facts, Login
from fleetbuild.probe.transport.base import NoAnswer
from fleetbuild.probe.transport.openssh import settings_and_files

_QUICK = "aes128-gcm@openssh.com"
_CPU = Path("/proc/cpuinfo")
_CHOSEN = re.compile(rb'^[ \t"]*ciphers\b', re.IGNORECASE | re.MULTILINE)


def quick_ciphers(login: Login, facts: Facts) -> str:
    """Return OpenSSH's ciphers in an order that suits both CPUs; "" where its own order stays."""
    own_program = login.connection == "ssh" and login.ssh_executable == "ssh"
    words = (*login.ssh_args, *login.ssh_common_args)
    if not own_program or names_configuration(words):
        return ""  # another configuration file, which may choose
    return _reordered() if "aes" in facts.features else ""


@functools.cache
def _reordered() -> str:
    """Return the ciphers with the quick one first; "" without AES here, or if the user chose."""
    try:
        computes = re.search(r"^(?:flags|Features)\s*:.*\baes\b", _CPU.read_text(), re.MULTILINE)
        settings, files = settings_and_files(("ssh",), 10.0) if computes else ({}, ())
    except (NoAnswer, OSError):
        return ""
    ciphers = ",".join(settings.get("ciphers", ())).split(",")
    if not files or any(map(_CHOSEN.search, files)) or _QUICK not in ciphers:
        return ""
    return ",".join([_QUICK, *(cipher for cipher in ciphers if cipher != _QUICK)])
