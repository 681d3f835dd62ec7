"""Refuse folders with settings that another user could have written, and files outside a folder.

In: the environment, the current folder, an inventory's path, names of files. Out: nothing, or
`UsageError`.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from fleetbuild.errors import UsageError
from fleetbuild.files import is_there


def refuse_foreign_home(environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError if others can write in HOME, where uv, git and Ansible look for settings.

    uv, pip and git look in XDG_CONFIG_HOME instead, if it is set.
    """
    places = {"HOME": environ.get("HOME") or str(Path.home())}
    places["XDG_CONFIG_HOME"] = environ.get("XDG_CONFIG_HOME") or places["HOME"]
    for name, place in places.items():
        try:
            status = Path(place).stat()
        except OSError:  # so it has no settings
            continue
        if status.st_uid not in {os.geteuid(), 0}:
            problem = f"belongs to {user_name(status.st_uid)}"
        elif status.st_mode & stat.S_IWOTH:
            problem = "any user can write to"
        else:
            continue
        raise UsageError(
            f"{name} is {place}, which {problem}. uv, git and Ansible would take settings from"
            " there.",
            f"Run with a folder of your own: sudo -H fleetbuild …, or {name}=FOLDER fleetbuild …",
        )


def refuse_foreign_ansible_cfg(environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError if Ansible would read an ansible.cfg in a current folder of another user.

    It may name plugins, which run as this user. Ansible leaves out only folders where all can
    write.
    """
    folder = Path.cwd()
    if environ.get("ANSIBLE_CONFIG") or not is_there(folder / "ansible.cfg"):
        return
    owner = folder.stat().st_uid
    if owner not in _trusted(environ):
        raise UsageError(
            f"{folder} belongs to {user_name(owner)}, and Ansible would run the plugins that the"
            " ansible.cfg there names as you.",
            "Go to a folder of your own. Or, if you trust that user:"
            f" ANSIBLE_CONFIG={shlex.quote(str(folder / 'ansible.cfg'))} fleetbuild …",
        )


def _trusted(environ: Mapping[str, str]) -> set[int]:
    """Return whose folders this user may work in: root's, the own ones, and sudo's caller's."""
    own = os.geteuid()
    return {0, own} | ({int(environ.get("SUDO_UID") or 0)} if own == 0 else set())


def folder_of(inventory: str) -> Path:
    """Return the folder in which an inventory lies; the current one for a list of hosts."""
    source = Path(inventory)
    return source if is_there(source) and source.is_dir() else source.parent


def refuse_foreign_folder(source: str, folder: Path | None = None) -> None:
    """Raise UsageError if others can put an inventory, fleetbuild.yml or recipes into its folder.

    Whoever names the folder, and be it `./`, trusts its owner. A name alone, or a list of hosts,
    means the current folder, which nobody named.
    """
    folder = folder or folder_of(source)
    try:
        status = folder.stat()
    except OSError:  # who reads the inventory says why
        return
    if status.st_uid not in _trusted(os.environ) and "/" not in source:
        raise UsageError(
            f"{folder.absolute()} belongs to {user_name(status.st_uid)}, whose inventory,"
            " fleetbuild.yml and recipes would be used, and they run commands as you.",
            "Go to a folder of your own. Or, if you trust that user, name the inventory with its"
            f" folder: {folder.absolute()}/INVENTORY",
        )
    if status.st_mode & stat.S_IWOTH:
        raise UsageError(
            f"{folder.absolute()} is a folder where any user can write, also an inventory,"
            " fleetbuild.yml, recipes and group_vars that would be used.",
            "Move your inventory and fleetbuild.yml to a folder of your own, or for a list of hosts"
            " go to one.",
        )


def refuse_outside(folder: Path, names: Iterable[str]) -> None:
    """Raise if a file's name, which may come from a Node's name, leads out of the folder."""
    for name in names:
        if name.startswith("/") or ".." in PurePosixPath(name).parts or "\0" in name:
            raise UsageError(
                f"{name!r} is to be written, which is not below {folder}.",
                "Correct the name of the node or group in it, and plan again.",
            )


def user_name(uid: int) -> str:
    """Return the name of a user, or words for one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
