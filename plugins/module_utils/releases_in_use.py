"""Remove old releases of a node that nothing uses, and find what uses the others.

In: the folders of releases. Out: for each one in use, a sentence that says by what. Pods that mount
a release live in other mount namespaces, under paths of their own, so paths of all processes are
translated to places on a file system and compared there.
"""

import os
import re
import threading

from .builder.removal import remove
from .release_receiving import forget_wheels

SECONDS = 1  # for reading processes, of which other users may start many and odd ones
_MOST_READ = 16 << 20  # bytes of one file in /proc
_LONGEST = 4096  # characters of a path; a command line may hold a longer text
_UID = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")
MOST_FOR_OTHERS = 4  # old releases that stay because processes of other users use them


def remove_unused(root, outdated, in_use, removing=remove):
    """Remove old releases, except those in use; return the removed and the kept ones.

    `removing` returns why a release cannot be removed, so that it is kept, or raises.
    """
    uses = {root[name]: reason for name, reason in in_use.items()}
    rest = [root[name] for name in outdated if root[name] not in uses]
    uses.update(find_own_uses(rest))
    others = find_foreign_uses(rest)
    # Any user can stand in any release, so that the disk would fill up: the latest ones stay.
    last = [path for path in rest if path in others and path not in uses][-MOST_FOR_OTHERS:]
    uses.update({path: others[path] for path in last})
    kept = [
        {"release_id": name, "reason": uses[root[name]]} for name in outdated if root[name] in uses
    ]
    unused = [name for name in outdated if root[name] not in uses]
    refused = {name: removing(root[name]) for name in unused}
    kept += [{"release_id": name, "reason": refused[name]} for name in unused if refused[name]]
    forget_wheels(root)
    return [name for name in unused if not refused[name]], kept


def try_to_remove(path):
    """Remove a release; return why that failed, or ""."""
    try:
        remove(path)
    except OSError as error:
        return f"It cannot be removed: {error.strerror}."
    return ""


def find_own_uses(folders):
    """Return find_uses() of the processes that root or this user started."""
    return find_uses(folders, users=(0, os.geteuid()))


def find_foreign_uses(folders):
    """Return find_uses() of all other processes; if that takes too long, each folder is used.

    Other users may have processes that take minutes to read, or that the kernel never lets read.
    """
    done = []
    reading = threading.Thread(
        target=lambda: done.append(find_uses(folders, but=(0, os.geteuid()))), daemon=True
    )
    reading.start()
    reading.join(SECONDS)
    return done[0] if done else dict.fromkeys(folders, "Not all processes could be read in time.")


def find_uses(folders, proc="/proc", users=None, but=()):
    """Return {folder: sentence} for the folders, or links, that are mounted or used by a process.

    With `users`, only processes that these users started count; with `but`, only others do.
    Without root, open files of other users' processes cannot be seen; their mounts can.
    """
    own = _read_mounts(os.path.join(proc, "self"))
    places = {folder: _place(own, _itself(folder)) for folder in folders}
    places = {folder: place for folder, place in places.items() if place}
    if not places:
        return {}
    found = {}
    tables = {}  # mount namespace -> its mounts: containers have thousands of processes in few
    for process in _processes(proc):
        path = os.path.join(proc, process)
        owner = _owner(path)
        if owner in but or (users is not None and owner not in users):
            continue
        namespace = _link(os.path.join(path, "ns", "mnt")) or process
        if namespace not in tables:
            tables[namespace] = _read_mounts(path)
            _note(found, places, tables[namespace][0], "It is mounted", path)
        used = (_place(tables[namespace], name) for name in _paths_in_use(path))
        _note(found, places, used, "It is in use", path)
    return found


def _itself(folder):
    """Return the real path of a folder, or of a link, which a command line may name."""
    return os.path.join(os.path.realpath(os.path.dirname(folder)), os.path.basename(folder))


def _owner(path):
    """Return who started a process; a program such as su runs as root for everybody."""
    found = _UID.search(_read(os.path.join(path, "status")))
    return int(found.group(1)) if found else None  # it ended


def _note(found, places, used, what, process):
    for each in used:
        for folder, place in places.items():
            if folder not in found and each and _is_within(each, place):
                found[folder] = f"{what} by process {_describe(process)}."


def _is_within(each, place):
    return each[0] == place[0] and (each[1] == place[1] or each[1].startswith(place[1] + "/"))


def _describe(process):
    name = "".join(c for c in _read(os.path.join(process, "comm"))[:40] if c.isprintable())
    return f"{os.path.basename(process)} ({name})" if name else os.path.basename(process)


def _processes(proc):
    mine = str(os.getpid())
    return sorted((one for one in os.listdir(proc) if one.isdigit() and one != mine), key=int)


def _read_mounts(process):
    """Return (device, place on the file system) of each mount, and the last one by mount point."""
    mounts, points = [], {}
    for line in _read(os.path.join(process, "mountinfo")).splitlines():
        fields = line.split(" ")
        if len(fields) > 5:
            mounts.append((fields[2], _plain(fields[3])))
            points[_plain(fields[4])] = mounts[-1]
    return mounts, points


def _place(mounts, path):
    """Return (device, place on its file system) of a path, or None. Later mounts cover others."""
    point = path
    while point not in mounts[1]:
        above = os.path.dirname(point)
        if above == point:
            return None
        point = above
    device, place = mounts[1][point]
    rest = path[len(point.rstrip("/")) :]
    return device, (place.rstrip("/") + rest) or "/"


def _paths_in_use(process):
    """Return the paths that a process has open or mapped, runs in, or was started with."""
    paths = {_link(os.path.join(process, name)) for name in ("cwd", "root", "exe")}
    opened = os.path.join(process, "fd")
    try:
        paths.update(_link(os.path.join(opened, number)) for number in os.listdir(opened))
    except OSError:
        pass  # it ended, or belongs to another user
    for line in _read(os.path.join(process, "maps")).splitlines():
        paths.add(line[line.index("/") :] if "/" in line else "")
    # A virtual environment's python is a link, so only the command line shows its folder.
    paths.update(_read(os.path.join(process, "cmdline")).split("\0")[:2])
    return {path for path in paths if path.startswith("/") and len(path) <= _LONGEST}


def _plain(text):
    return _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_READ).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
