"""Files that the controller sends for a release: which are missing, where they go, their hashes.

They go into the folder `wheels` beside the releases, by hash. A user who cannot write there gets
them into a folder of his own, from which root takes them.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat

from . import release_files
from .release_root import Problem
from .wheel_installer import kept_uv

OWN = re.compile(r"/.+/[.]cache/fleetbuild/incoming/[0-9a-f]{16}\Z")


def staged(params, file):
    """Return the path of a file beside the releases."""
    return os.path.join(params["staging"], file["sha256"], file["file"])


def own_folder(root):
    """Return the folder of this user for the files of these releases."""
    name = hashlib.sha256(root.path.encode("utf-8")).hexdigest()[:16]
    return os.path.join(os.path.expanduser("~"), ".cache/fleetbuild/incoming", name)


def wanted_files(params):
    """Return the wheels, and uv if there are wheels for it."""
    uv = [params["uv"]] if params["wheels"] and params["uv"] else []
    return params["wheels"] + uv


def missing(params, folder):
    """Return the files that are still to be sent; one that arrived damaged is sent again."""
    kept = kept_uv(os.path.dirname(params["staging"] or ""), params["uv"]) if params["uv"] else ""
    return [
        file
        for file in wanted_files(params)
        if not (file is params["uv"] and os.path.exists(kept))
        and not any(is_whole(path, file) for path in (staged(params, file), sent(folder, file)))
    ]


def sent(folder, file):
    """Return the path that the controller sends a file to."""
    return os.path.join(folder, file["sha256"], file["file"])


def is_whole(path, file):
    """Return whether a file is there with its hash."""
    try:
        return os.path.isfile(path) and release_files.sha256(path) == file["sha256"]
    except PermissionError:  # root's copy, which was cut short
        return False


def expect(folder, files, mine):
    """Make the folders that files are sent to; of a folder that is this user's, remove the rest."""
    wanted = {file["sha256"] for file in files}
    for name in os.listdir(folder) if mine and os.path.isdir(folder) else ():
        if name not in wanted:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    for name in wanted:
        os.makedirs(os.path.join(folder, name), mode=0o755, exist_ok=True)


def take_in(params, file):
    """Have a whole file beside the releases; raise if it arrived damaged, and remove it."""
    path, source = staged(params, file), sent(params["incoming"] or params["staging"], file)
    if is_whole(path, file):
        return
    arrived = ""
    if source != path and os.path.isfile(source):  # over what a copy that ended early left there
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        arrived = copy(source, path)
    if arrived != file["sha256"]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise Problem(
            "{} arrived damaged: its sha256 is not the plan's.".format(file["file"]),
            ["run-to-copy"],
        )
    os.chmod(path, 0o644)


def copy(source, path):
    """Copy a plain file and return the hash of the copied bytes; "" for anything else.

    The user who sends files may put a link or a pipe there, and this may run as root: links are
    not followed, and others can read the copy only once its hash is right.
    """
    found = hashlib.sha256()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return ""
        raise
    with os.fdopen(descriptor, "rb") as here:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(new, "wb") as there:
            for chunk in iter(lambda: here.read(1 << 20), b""):
                found.update(chunk)
                there.write(chunk)
    return found.hexdigest()


def remove_received(params):
    """Remove the files that were sent for this release."""
    for file in wanted_files(params):
        shutil.rmtree(os.path.dirname(staged(params, file)), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(params["staging"])
    if OWN.match(params["incoming"] or ""):
        shutil.rmtree(params["incoming"], ignore_errors=True)
