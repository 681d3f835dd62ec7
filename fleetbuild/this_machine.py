"""One machine without an inventory: which inventory is meant, where releases go, what they offer.

In: the current folder, the user's rights, a release's name. Out: an inventory's source, a folder,
an `InstalledRelease`. No SSH and no root: a user's own releases live in the user's data folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.errors import BlockedError, UsageError
from fleetbuild.files import own_cache, own_folder, remove_old
from fleetbuild.foreign_settings import user_name

if TYPE_CHECKING:
    from fleetbuild.models import Config, Inventory

# Not imported: reading an inventory starts Ansible before it loads the models.
INSTALL_PATH = "/opt/fleetbuild"
THIS_MACHINE = "localhost,"  # Ansible's list of one host
_NAMES = ("localhost", "127.0.0.1", "::1")
_BESIDE = (
    "inventory.yml", "inventory.yaml", "inventory.ini", "inventory", "hosts.yml", "hosts.yaml",
    "hosts.ini", "hosts",
)  # fmt: skip
_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")  # as install.path takes it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,252}")


def default_inventory(folder: Path | str = ".") -> str:
    """Return the inventory in this folder, else this machine as a list of one host."""
    candidates = (Path(folder) / name for name in _BESIDE)
    return next((str(path) for path in candidates if path.exists()), THIS_MACHINE)


def local_hosts(source: str) -> tuple[str, ...]:
    """Return the hosts of an inventory `localhost,` that are this machine: no SSH reaches them."""
    if "," not in source:
        return ()
    return tuple(name for host in source.split(",") if (name := host.strip()) in _NAMES)


def is_this_machine(source: str) -> bool:
    """Whether an inventory is this machine and no other."""
    names = [name for host in source.split(",") if (name := host.strip())]
    return bool(names) and list(local_hosts(source)) == names


def users_folder() -> Path:
    """Return the folder of this user's own releases."""
    return own_folder("DATA", ".local/share") / "fleetbuild"


def with_users_folder(config: Config, inventory: Inventory, *, may_become: bool) -> Config:
    """Return the configuration with the user's folder, if releases cannot go to the default path.

    That is so on this machine alone, without install.path in fleetbuild.yml, without a become
    password or `ansible_become`, and without rights to /opt/fleetbuild.
    """
    local = is_this_machine(inventory.source) and "path" not in config.install.model_fields_set
    may_become = may_become or any(node.login.become for node in inventory.nodes)
    if not local or may_become or may_write(Path(config.install.path)):
        return config
    folder = str(users_folder())
    if not _PATH.fullmatch(folder):
        raise UsageError(
            f"You may not write to {config.install.path}, and your own data folder {folder} has"
            " characters that a release's path cannot have.",
            "Set XDG_DATA_HOME to a folder of letters, digits, dots, dashes and underscores, or"
            " set install.path in fleetbuild.yml.",
        )
    install = config.install.model_copy(update={"path": folder})
    return config.model_copy(update={"install": install})


def may_write(path: Path) -> bool:
    """Whether this user can create files at a path, or the path itself."""
    while not os.path.lexists(path):
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def compiled_folders(folder: str) -> dict[str, str]:
    """Return the folders below this one for what packages compile as they run, by variable.

    Code for one GPU or CPU runs on another and computes wrong, or dies: in a folder that nodes
    share, each group and each release has folders of its own.
    """
    return {
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
        "CUDA_CACHE_PATH": f"{folder}/cuda",
        "NUMBA_CACHE_DIR": f"{folder}/numba",
    }


@dataclass(frozen=True)
class InstalledRelease:
    """The current release of a name on this machine."""

    name: str
    id: str
    path: Path  # its own folder, which stays the same when `current` switches
    current: Path  # the link to the current release
    group: str

    compiled_below = staticmethod(compiled_folders)  # for a start that keeps them elsewhere

    @property
    def environment(self) -> dict[str, str]:
        """The variables that an activated environment has, without PATH."""
        named = {"VIRTUAL_ENV": str(self.path), "FLEETBUILD_RELEASE": f"{self.name}/{self.id}"}
        return {**named, **compiled_folders(str(self._compiled))}

    @property
    def _compiled(self) -> Path:
        return own_cache("compiled") / self.group / self.id

    def remove_old_caches(self) -> None:
        """Remove caches of releases that this user did not use for 30 days; this one is in use."""
        folder = own_cache("compiled")
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid():  # no link of another user, for root
                remove_old(folder.glob("*/*"), days=30)
                os.utime(self._compiled)


def installed_release(name: str = "default", paths: Sequence[str] = ()) -> InstalledRelease:
    """Return the current release on this machine.

    `paths` are the install paths to look at; by default this user's own folder, then
    /opt/fleetbuild.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a release's name.",
            "A name has letters, digits, dots, dashes and underscores.",
        )
    folders = list(paths) or [str(users_folder()), INSTALL_PATH]
    for folder in folders:
        current = Path(folder, *([] if name == "default" else [name]), "current")
        release = current.resolve()
        if not (release / "bin" / "python").exists():
            continue
        for path in (Path(folder), current.parent, release.parent, release):
            _refuse_foreign(path)
        if group := _group_of(release, name):
            return InstalledRelease(name, release.name, release, current, group)
    elsewhere = "" if paths else ", and no fleetbuild.yml here names another install.path"
    first = "" if name == "default" else f"set release: {name} in fleetbuild.yml, then run: "
    raise BlockedError(
        f"This machine has no release called {name}: not in {' or '.join(folders)}{elsewhere}.",
        "If another one is meant, name it: --release NAME, or --config FILE with the fleetbuild.yml"
        f" of its install. To install one: {first}fleetbuild apply 'localhost,' --package"
        " NAME==VERSION",
    )


def _refuse_foreign(path: Path) -> None:
    """Raise if others could have put programs there, as nodes do before they serve a release."""
    found = path.stat()
    foreign = found.st_uid not in {0, os.geteuid()}
    if foreign or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"belongs to {user_name(found.st_uid)}" if foreign else "can be written by others"
        raise UsageError(
            f"{path} {why}, and the programs of its release would run as you.",
            "Name another install.path in fleetbuild.yml, or go to a folder without that file.",
        )


def _group_of(folder: Path, name: str) -> str:
    """Return the group of a release of this name; empty if it is another."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(manifest, dict) or manifest.get("release") != name:
        return ""
    group = str(manifest.get("group"))
    return group if _GROUP.fullmatch(group) else "unknown"
