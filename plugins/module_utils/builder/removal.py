"""Remove what another user may have made. Standard library only, Python 3.6 or newer."""

import os
import time


def remove(path, ends=float("inf")):
    """Remove a folder with its content, or a link, if it exists; raise OSError if time ends before.

    Another user may have filled it, to any depth, and may change it meanwhile. So a folder becomes
    this user's before it is read, and moves to the top: no path grows, or leads elsewhere.
    """
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        folders = [_taken(path)]
        while folders and time.monotonic() < ends:
            folder = folders.pop()
            folders += _empty(folder, path, ends)
            if folder != path:
                os.rmdir(folder)
        os.rmdir(path)


def _empty(folder, top, ends):
    """Remove the files of a folder, and yield its folders, which are at the top then."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > ends:
                break
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            inner = _taken(entry.path)
            if folder != top:
                inner = os.path.join(top, os.urandom(8).hex())
                os.rename(entry.path, inner)
            yield inner


def _taken(folder):
    """Let a folder be this user's alone, and return its path."""
    if os.lstat(folder).st_uid != os.geteuid():
        os.chown(folder, os.geteuid(), -1)
    os.chmod(folder, 0o700)  # this ends what an access list allows, too
    return folder
