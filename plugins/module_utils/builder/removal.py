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
    """Let a folder be this user's alone, and return its path; raise if it is a link by now.

    The mode ends what an access list allows, too.
    """
    if os.geteuid():
        os.chmod(folder, 0o700)
        return folder
    os.chown(folder, 0, -1, follow_symlinks=False)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
    return folder
