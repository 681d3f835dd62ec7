"""The folder of a node's releases: what serves, what served, and the switch between them.

Standard library alone, Python 3.6 or newer.
"""

import contextlib
import json
import os
import shutil
import stat

from . import release_files

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

ASIDE = ".broken-"  # a damaged release that serves while it is made again; no id starts so
EXCHANGE = 2  # of renameat2: two names change places
HERE = -100  # of renameat2: paths are as for any other call


class Problem(Exception):
    """A sentence that says what is wrong, and one that says what to do."""

    def __init__(self, message, fix=""):
        super().__init__(message)
        self.fix = fix


class Root:
    """The folder that holds the releases of one name."""

    def __init__(self, path):
        self.path = path
        self.releases = os.path.join(path, "releases")
        self.current = os.path.join(path, "current")

    def check(self, *more):
        """Refuse folders in which another user could put files or links under our feet."""
        for path in (self.path, self.releases, os.path.join(self.path, ".lock"), *more):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = os.lstat(path)
                link = stat.S_ISLNK(found.st_mode)
                if not link or os.readlink(path) != os.path.basename(path):  # see put_aside
                    refuse_foreign(path, found)

    def __getitem__(self, release_id):
        return os.path.join(self.releases, release_id)

    def manifest(self, release_id):
        """The manifest of a complete release, else None."""
        try:
            with open(os.path.join(self[release_id], "manifest.json"), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        usable = os.path.exists(os.path.join(self[release_id], "bin", "python"))
        return found if usable and isinstance(found, dict) else None

    def damage(self, release_id, thorough):
        """What is not as it was installed, as a sentence's end; empty if nothing is.

        A release of an older version of this module has no record of its files: it counts as
        undamaged if it was verified.
        """
        found = self.manifest(release_id)
        if found is None:
            return "its manifest or its Python is missing"
        expected = found.get("files_sha256")
        if expected is None:
            return "" if found.get("verified") else "it has no record of its files"
        return release_files.damage(self[release_id], expected, thorough)

    def serves(self, release_id):
        """Does `current` lead to this folder, by whatever name?"""
        there = os.path.realpath(self[release_id])
        return os.path.isdir(there) and os.path.realpath(self.current) == there

    def serving(self):
        """The id of the release that is current, or an empty string."""
        try:
            return os.path.basename(os.readlink(self.current))
        except OSError:
            return ""

    def history(self):
        """The releases that served and are still there, the last one last."""
        try:
            with open(os.path.join(self.path, "history"), encoding="utf-8") as file:
                lines = file.read().split()
        except OSError:
            lines = []
        return [line for line in lines if os.path.isdir(self[line])]

    def switch(self, release_id, history):
        """Let a release serve: a new symlink takes the old one's name."""
        self.point_to(release_id)
        lines = "".join(line + "\n" for line in history)
        release_files.write(os.path.join(self.path, "history"), lines)

    def point_to(self, name):
        """Let `current` lead to a folder, in one step."""
        fresh = self.current + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        os.symlink(os.path.join("releases", name), fresh)
        os.replace(fresh, self.current)
        release_files.persist_names(self.path)

    def put_aside(self, release_id):
        """Rename the folder of a release that serves, which serves on.

        `current` first leads there by way of a link, which then changes places with the folder.
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

    def outdated(self, keep):
        """Releases to remove: all but the last that served or were made.

        The current release stays, and the one that a rollback would return to.
        """
        there = os.listdir(self.releases) if os.path.isdir(self.releases) else []
        aside = [name for name in there if name.startswith(ASIDE) and name != self.serving()]
        there = [name for name in there if not name.startswith(ASIDE)]
        there.sort(key=lambda name: os.stat(self[name]).st_mtime)
        served = self.history()
        order = [name for name in there if name not in served] + served
        order = [name for name in order if name != self.serving()] + [self.serving()]
        stays = {self.serving(), *self.verified_before()[-1:]}
        return aside + [name for name in order[: -max(keep, 1)] if name not in stays]

    def verified_before(self):
        """The verified releases that served before the current one, the last one last."""
        now = self.serving()
        before = [name for name in self.history() if name != now]
        return [name for name in before if (self.manifest(name) or {}).get("verified")]


def refuse_foreign(path, found):
    """Raise if a path is a link, belongs to another user than root and us, or others write it."""
    if stat.S_ISLNK(found.st_mode):
        raise Problem(
            f"{path} is a link to {os.readlink(path)}, and another user may have made it.",
            "Name the folder itself as install.path, or remove the link.",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise Problem(
            f"{path} belongs to user {found.st_uid}, and this run is user {os.geteuid()}.",
            f"See that nothing in it is foreign, then: chown -R {os.geteuid()} {path}; or set "
            "another install path.",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Problem(
            f"{path} can be written by other users.",
            f"See that nothing in it is foreign, then: chmod -R go-w {path}",
        )


def exchanged(one, other):
    """Let two names change places in one step. False if this system cannot."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):  # an old libc, or none that ctypes finds
        return False
    return rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0


def remove(path):
    """Remove a folder with all in it, or a link, if it is there."""
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
