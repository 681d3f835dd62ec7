"""A module of the collection as one program, for the standard input of a node's Python.

Ansible would send its own code as well, which a node compiles for each execution: 0.14 s of CPU.
"""

from __future__ import annotations

import base64
import datetime
import json
import zlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

_PLUGINS = Path(__file__).resolve().parent.parent
_RUNNER = "plain_module.py"
_PREFIX = "fleetbuild.core."
NAMES = frozenset(_PREFIX + name for name in ("build", "release", "toolchain", "verify"))
# Files in the folder where it starts must not come before Python's own.
_PROGRAM = '''import sys
sys.path = [path for path in sys.path if path not in ("", ".")]
{runner}
import base64, zlib
texts, arguments = json.loads(zlib.decompress(base64.b64decode("""
{packed}""")))
run({name!r}, texts, arguments)
'''


def program(name: str, arguments: dict[str, Any]) -> bytes:
    """Return the program that runs this module of the collection with these arguments."""
    name = name[len(_PREFIX) :]
    paths = [_PLUGINS / "modules" / f"{name}.py", *(_PLUGINS / "module_utils").rglob("*.py")]
    texts = {
        f"/{path.relative_to(_PLUGINS)}": path.read_text(encoding="utf-8")
        for path in paths
        if path.name != _RUNNER
    }
    sent = json.dumps([texts, arguments], default=_plain)
    runner = (_PLUGINS / "module_utils" / _RUNNER).read_text(encoding="utf-8")
    packed = base64.encodebytes(zlib.compress(sent.encode(), 1)).decode()
    return _PROGRAM.format(runner=runner, packed=packed, name=name).encode()


def _plain(value: Any) -> Any:
    """Return a value that JSON has no form for, as Ansible sends it: a date, or vaulted text."""
    if isinstance(value, bytes | Set):
        raise TypeError(f"A value of type {type(value).__name__} cannot be sent to a node.")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else str(value)
