"""The folder of a node's releases: the current one, earlier ones, and the switch between them.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import json
import os
import stat

from . import release_files
from .builder.removal import remove

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

ASIDE = ".broken-"  # a damaged release that serves while it is made again; no id starts so
EXCHANGE = 2  # of renameat2: two names change places
HERE = -100  # of renameat2: paths are as for any other call


class Problem(Exception):
    """A problem with a release: a sentence with the reason, and advice.

    Advice is an id of plugin_utils/advice.py and the values of its sentence.
    """

    def __init__(self, message, fix=()):
        super().__init__(message)
        self.fix = fix


class Root:
    """The folder that holds the releases of one name."""

    def __init__(self, path):
        self.path = path
        self.releases = os.path.join(path, "releases")
        self.current = os.path.join(path, "current")
        self.wheels = os.path.join(path, ".wheels")  # see release_receiving.keep_wheels

    def check(self, *more):
        """Refuse folders in which another user could replace files or links."""
        names = (".lock", ".lease", ".signed", ".wheels", ".incoming")
        own = [f"{self.path}/{name}" for name in names]
        for path in (self.path, self.releases, *own, *more):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = os.lstat(path)
                link = stat.S_ISLNK(found.st_mode)
                if not link or os.readlink(path) != os.path.basename(path):  # see put_aside
                    refuse_foreign(path, found)

    def __getitem__(self, release_id):
        return self.releases + "/" + release_id

    def manifest(self, release_id):
        """Return the manifest of a complete release, else None."""
        path = self[release_id] + "/manifest.json"
        try:
            found = json.loads(release_files.read(path).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        usable = os.path.exists(self[release_id] + "/bin/python")
        return found if usable and isinstance(found, dict) else None

    def damage(self, release_id, thorough, manifest):
        """Return the damage of a release as the end of a sentence; empty if it is undamaged."""
        return release_files.damage(self[release_id], manifest.get("files_sha256"), thorough)

    def serves(self, release_id):
        """Return whether `current` leads to this folder, by any name."""
        try:
            return os.path.samefile(self.current, os.path.join(self[release_id], ""))
        except OSError:
            return False

    def serving(self):
        """Return the id of the current release, or an empty string."""
        try:
            return os.readlink(self.current).rpartition("/")[2]
        except OSError:
            return ""

    def history(self):
        """Return the existing releases that have served, the latest last.

        It is the current one. The file is written before a switch (see `switch`), so a release may
        follow there whose switch was not done, or which a rollback left.
        """
        lines, now = self.recorded(), self.serving()
        now = now[len(ASIDE) :] if now.startswith(ASIDE) else now
        while now in lines and lines[-1] != now:
            lines.pop()
        if now and now not in lines:
            lines.append(now)
        known = [line for number, line in enumerate(lines) if line not in lines[number + 1 :]]
        return [line for line in known if os.path.isdir(self[line])]

    def recorded(self):
        """Return the lines of the history's file."""
        try:
            return release_files.read(self.path + "/history").decode("utf-8").split()
        except OSError:
            return []

    def record(self):
        """Have what served in the file: a crash near a switch leaves a line too few or too many."""
        served = self.history()
        if served != self.recorded():
            release_files.write(self.path + "/history", as_lines(served))

    def switch(self, release_id, history):
        """Switch to a release of this history: rename a new symlink over the old one.

        The history comes first: nothing that needs space may follow the switch, because a failure
        then means that nothing switched. If nothing serves yet, it gets its name after the switch,
        so that it names no release that never served; `history` adds the current one to it.
        """
        path, lines = os.path.join(self.path, "history"), as_lines(history)
        served = self.serving()
        (release_files.write if served else release_files.prepare)(path, lines)
        self.point_to(release_id)
        if not served:
            with contextlib.suppress(OSError):
                release_files.place(path)

    def point_to(self, name):
        """Point `current` to a folder, in one atomic step."""
        fresh = self.current + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        os.symlink(os.path.join("releases", name), fresh)
        os.replace(fresh, self.current)
        # The link has moved, so a failure here would deny the switch. A loss of power may undo it.
        with contextlib.suppress(OSError):
            release_files.persist_names(self.path)

    def put_aside(self, release_id):
        """Rename the folder of the current release, which keeps serving.

        `current` first points to a link to the folder; then link and folder are exchanged.
        """
        here, aside = self[release_id], self[ASIDE + release_id]
        if not os.path.islink(aside):
            remove(aside)
            os.symlink(release_id, aside)
        self.point_to(ASIDE + release_id)
        # An interruption after the exchange leaves a link `here` that leads to itself.
        if not exchanged(here, aside):
            os.unlink(aside)  # `current` leads nowhere until the next line is done
            os.rename(here, aside)
        remove(here)
        release_files.persist_names(self.releases)

    def made(self):
        """Return what fleetbuild made in the folder of releases; the rest is left alone."""
        found = []
        for name in os.listdir(self.releases) if os.path.isdir(self.releases) else []:
            if os.path.islink(self[name]):
                ours = "/" not in os.readlink(self[name])  # see put_aside
            else:
                inside = os.listdir(self[name]) if os.path.isdir(self[name]) else [""]
                # A release that is being made has an empty record first.
                ours = not inside or any(one.startswith(release_files.RECORD) for one in inside)
            if ours:
                found.append(name)
        return found

    def outdated(self, keep, leased=""):
        """Return the releases to remove: all but the last `keep` that served or were created.

        The current release stays, the release that a rollback would return to, and the `leased`
        release, which a run installs or verifies.
        """
        there, now = self.made(), self.serving()
        busy = (now, ASIDE + leased)
        aside = [name for name in there if name.startswith(ASIDE) and name not in busy]
        there = [name for name in there if not name.startswith(ASIDE)]
        there.sort(key=lambda name: os.stat(self[name]).st_mtime)
        served = self.history()
        order = [name for name in there if name not in served] + served
        order = [name for name in order if name != now] + [now]
        stays = {now, leased, self.previous(served)}
        return aside + [name for name in order[: -max(keep, 1)] if name not in stays]

    def previous(self, served=None):
        """Return the last verified release that served before the current one, or "".

        `served` is the history, if it is known.
        """
        now = self.serving()
        served = self.history() if served is None else served
        before = (name for name in reversed(served) if name != now)
        return next((name for name in before if (self.manifest(name) or {}).get("verified")), "")


def as_lines(history):
    """Return a history as its file holds it."""
    return "".join(line + "\n" for line in history)


def refuse_foreign(path, found):
    """Raise if a path is a link, has another owner than root or this user, or is shared."""
    if stat.S_ISLNK(found.st_mode):
        raise Problem(
            f"{path} is a link to {os.readlink(path)}, and another user may have made it.",
            ["name-folder"],
        )
    if found.st_uid not in (0, os.geteuid()):
        raise Problem(
            f"{path} belongs to user {found.st_uid}, and this run is user {os.geteuid()}.",
            ["take-ownership", path],
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Problem(
            f"{path} can be written by other users.",
            ["take-away-writing", path],
        )


def exchanged(one, other):
    """Exchange two names in one step; return False if this system cannot."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):  # an old libc, or none that ctypes finds
        return False
    return rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0
