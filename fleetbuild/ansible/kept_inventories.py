"""Keep what Ansible said of an inventory in the user's cache, as long as no file of it changes.

In: a source, a limit, and how to read them. Out: the listing that Ansible gave for the same files.
Not kept: what scripts, plugins, vaults or templates compute, passwords, and anything where an
ansible.cfg or a variable ANSIBLE_* may decide what Ansible reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import config_files, find_program
from fleetbuild.ansible.listing import Listing, is_host_list
from fleetbuild.ansible.secrets import Secrets, vault_arguments
from fleetbuild.files import is_own, make_cache, own_cache, remove_old, write_atomically

_FORMAT = 1
_MOST_BYTES, _MOST_FILES, _DAYS = 16 << 20, 5000, 30
_VARS = ("group_vars", "host_vars")
# Plugins there give hosts variables without being enabled.
_VARS_PLUGINS = ("~/.ansible/plugins/vars", "/usr/share/ansible/plugins/vars")
_COMPUTED = re.compile(rb"^#!|\$ANSIBLE_VAULT|!vault|\bplugin[\"']?\s*:", re.MULTILINE)
_TEMPLATE = re.compile(rb"\{[{%].*?[}%]\}", re.DOTALL)
_REFERENCE = re.compile(rb"\{\{\s*[A-Za-z_]\w*\s*\}\}")  # another variable and nothing else
_SECRET = re.compile(
    r"pass|pwd|_pw$|secret|token|credential|auth|(access|api|private|vault)_?key(?!_file)",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(r"PRIVATE KEY|://[^/\s:@]*:[^/\s@]+@")


def read_once(
    source: str, limit: str | None, secrets: Secrets, read: Callable[[], Listing]
) -> Listing:
    """Return the kept listing of the same files, else what `read` returns."""
    key = None if vault_arguments(secrets) else _key(source, limit)
    if key is None:
        return read()
    file = own_cache("inventories") / f"{_digest(str(Path.cwd()), source, repr(limit))}.json"
    damaged = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
    with contextlib.suppress(OSError, *damaged):
        record = json.loads(file.read_bytes()) if is_own(file.parent) else {}
        if record["key"] == key:
            return _listing(record["listing"])
    listing = read()
    # Files that changed meanwhile may have been read before or after the change.
    secret = any(map(_has_secret, listing.hosts.values()))
    if not secret and _key(source, limit) == key:
        _keep(file, {"key": key, "listing": vars(listing)})
    return listing


def _key(source: str, limit: str | None) -> str | None:
    """Return a hash of all that decides the listing, or None if more than files decides it."""
    settings = config_files() or any(name.startswith("ANSIBLE_") for name in os.environ)
    plugins = any(Path(place).expanduser().exists() for place in _VARS_PLUGINS)
    if settings or plugins or (limit and "@" in limit):  # @ names a file with hosts
        return None
    program = Path(find_program("ansible-inventory"))
    parts = [str(_FORMAT), str(program), str(program.stat().st_mtime_ns), str(Path.home())]
    try:
        files = () if is_host_list(source) else _files(Path(source))
        budget = _MOST_BYTES
        for number, path in enumerate(files):
            about = path.stat()
            budget -= about.st_size
            if number >= _MOST_FILES or budget < 0 or not stat.S_ISREG(about.st_mode):
                return None
            content = path.read_bytes()
            if _is_computed(path, content):
                return None
            parts.append(_digest(str(path), content))
    except OSError:
        return None
    return _digest(str(Path.cwd()), source, repr(limit), *parts)


def _files(source: Path) -> Iterator[Path]:
    """Yield the files that Ansible may read for this inventory."""
    if source.is_file():
        yield source
    folders = [source] if source.is_dir() else [source.parent / name for name in _VARS]
    for folder in folders:
        if folder.is_file():
            yield folder
        for place, inner, files in os.walk(folder, onerror=_raise):
            if any(Path(place, name).is_symlink() for name in inner):
                raise OSError(f"{place} has links to folders")
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            # Ansible passes over hidden files, too, such as the state directory's.
            yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_computed(path: Path, content: bytes) -> bool:
    """Return whether a file is a program, or has values that Ansible works out."""
    templates = _TEMPLATE.findall(content)
    return (
        os.access(path, os.X_OK)
        or _COMPUTED.search(content) is not None
        or not all(map(_REFERENCE.fullmatch, templates))
    )


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_SECRET.search(str(name)) or _has_secret(inner) for name, inner in value.items())
    if isinstance(value, list):
        return any(map(_has_secret, value))
    return isinstance(value, str) and _SECRET_TEXT.search(value) is not None


def _listing(kept: Mapping[str, Any]) -> Listing:
    return Listing(
        hosts=dict(kept["hosts"]),
        groups={host: tuple(groups) for host, groups in kept["groups"].items()},
        settings=dict(kept["settings"]),
        warnings=tuple(kept["warnings"]),
    )


def _keep(file: Path, record: Mapping[str, Any]) -> None:
    """Write the record; a cache that cannot be written costs time and nothing else."""
    with contextlib.suppress(OSError):
        make_cache(file.parent)
        write_atomically(file, json.dumps(record))
        remove_old(file.parent.glob("*.json"), _DAYS)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
