"""Files that the controller sends for a release: which are missing, where they go, their hashes.

They go into the folder `wheels` beside the releases, by hash. If only root can write there, the
user who logs in sends them into folders of his own in `.incoming`, from which root copies them.

The wheels of complete releases are kept in `.wheels` beside them, so that no wheel is sent again
that another release holds. Each release has a name of its own there for each of its wheels; the
file behind these names is the same, so it is gone with the last of the releases.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time

from . import release_files
from .builder.removal import remove
from .release_root import ASIDE, Problem
from .wheel_installer import kept_uv

LARGEST = 8 << 30  # bytes of a file whose size no one has told
TIDYING = 30  # seconds for what users left in their folders, which may be more than a day's work
_KEPT = re.compile(r"[0-9a-f]{64}[.](?P<release>[A-Za-z0-9][A-Za-z0-9._-]*)\Z")


def staged(params, file):
    """Return the path of a file beside the releases."""
    return _place(params["staging"], file)


def incoming(params):
    """Return the folder that files are sent to."""
    return folder_for_login(params) if params["login_uid"] else params["staging"]


def folder_for_login(params):
    """Return the folder that holds what root makes for the user who logs in."""
    return os.path.join(os.path.dirname(params["staging"]), ".incoming")


def can_enter(path, user):
    """Return whether a user can reach what root makes in this folder, as far as all users can.

    The groups of the user and access lists are left out: they cost more than the other way does.
    """
    path = os.path.realpath(path)
    while True:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(path)
            if not found.st_mode & (stat.S_IXUSR if found.st_uid == user else stat.S_IXOTH):
                return False
        if path == os.sep:
            return True
        path = os.path.dirname(path)


def wanted_files(params):
    """Return the wheels, and what installs them."""
    program = [params["installer"]] if params["wheels"] and params["installer"] else []
    return params["wheels"] + program


def missing(root, params):
    """Return the files that are still to be sent; a damaged one is sent again."""
    uv = params["installer"]
    kept = kept_uv(params["path"], uv) if uv else ""
    names = kept_names(root)
    found = []
    for file in wanted_files(params):
        there = (
            (file is uv and os.path.exists(kept))
            or is_there(params, file)
            or find_kept(root, file, names)
        )
        if not there:
            found.append(file)
    return found


def is_there(params, file):
    """Return whether a file has arrived whole."""
    return is_whole(staged(params, file), file) or is_sent(params, file)


def is_sent(params, file):
    """Return whether the user who logs in has sent a file; `expect` removes another user's."""
    path, user = sent(params, file), params["login_uid"]
    try:
        return os.lstat(os.path.dirname(path)).st_uid == user and is_whole(path, file)
    except OSError:
        return False


def sent(params, file):
    """Return the path that the controller sends a file to."""
    return _place(incoming(params), file)


def _place(folder, file):
    return "{}/{}/{}".format(folder, file["sha256"], file["file"])


def is_whole(path, file):
    """Return whether a file is there with its hash."""
    try:
        return release_files.hash_of(pieces_of(path, file)) == file["sha256"]
    except OSError:  # root's copy, which was cut short; or a bad sector, or it was just removed
        return False


def open_sent(path):
    """Open a file. The user who sends may put a link or a pipe there, and this may be root."""
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0)


def pieces_of(path, file):
    """Yield the bytes of a plain file that has the expected size; raise OSError for anything else.

    Its owner may make it longer meanwhile, or without end, and root reads it.
    """
    with open_sent(path) as there:
        left, size = os.fstat(there.fileno()).st_size, int(file.get("size") or 0)
        if left != size if size else left > LARGEST:
            raise OSError(errno.ENXIO, "Not of the expected size", path)
        while left:
            piece = there.read(min(left, release_files.CHUNK))
            if not piece:
                break
            left -= len(piece)
            yield piece


def expect(params, files):
    """Make the folders that files are sent to, for the user who sends them."""
    folder, user = incoming(params), params["login_uid"]
    wanted = {file["sha256"] for file in files}
    if not user:  # a killed run may have logged in as another user than root
        forget(folder_for_login(params))
    names = os.listdir(folder) if user and os.path.isdir(folder) else ()
    there = [(name, os.path.join(folder, name)) for name in names]
    forget(*(path for name, path in there if name not in wanted or os.lstat(path).st_uid != user))
    for name in wanted:
        path = os.path.join(folder, name)
        release_files.make_folder(path)
        os.chmod(path, 0o700)  # the sender's umask may let others write what arrives here
        if user:
            os.chown(path, user, -1)
    if user and not wanted:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def forget(*paths):
    """Remove folders as far as that is possible, and quick; the next run goes on with the rest."""
    ends = time.monotonic() + TIDYING
    for path in paths:
        with contextlib.suppress(OSError):
            remove(path, ends)


def kept_names(root):
    """Return the names in the folder of kept wheels. Its owner may delete it at any time."""
    try:
        return os.listdir(root.wheels)
    except OSError:
        return []


def find_kept(root, file, names=None):
    """Return the path of a whole wheel that another release was made from, or "".

    `names` are the names of the kept wheels, if they are known.
    """
    names = kept_names(root) if names is None else names
    start = file["sha256"] + "."
    paths = [os.path.join(root.wheels, name) for name in names if name.startswith(start)]
    whole = (path for path in paths if not os.path.islink(path) and is_whole(path, file))
    return next(whole, "")


def bytes_there(root, params, lacking):
    """Return the bytes of wheels that take no more space: copied or sent ones, and kept ones where
    a file can have two names. `lacking` are the files that are not there whole."""
    lacks = {file["sha256"] for file in lacking}
    total = 0
    for wheel in params["wheels"]:
        if wheel["sha256"] in lacks:
            continue
        places = (staged(params, wheel), sent(params, wheel))
        path = next(filter(os.path.isfile, places), "")
        if not path:
            path, trial = find_kept(root, wheel), wheel["sha256"] + ".trial"
            if not path or not linkable(path, os.path.join(root.wheels, trial)):
                continue
        total += os.path.getsize(path)
    return total


def linkable(path, trial):
    """Return whether a file can have this name, too. `forget_wheels` removes a trial that stays."""
    try:
        os.link(path, trial)
    except OSError:
        return False
    os.unlink(trial)
    return True


def take_in(root, params, file):
    """Have a whole file beside the releases; raise if it arrived damaged, and remove it."""
    path = staged(params, file)
    if is_whole(path, file):
        os.chmod(path, 0o644)
        return
    release_files.make_folder(os.path.dirname(path))
    kept = find_kept(root, file)
    if kept and linked(kept, path):
        return
    source = kept or sent(params, file)
    arrived = ""
    if source != path and os.path.isfile(source):  # over what a copy that ended early left there
        arrived = copy(source, path, file)
    if params["login_uid"] and not kept:  # so that the disk never has it twice beside the release
        forget(os.path.dirname(source))
    if arrived != file["sha256"]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise Problem(
            "{} arrived damaged: its size or sha256 is not the plan's.".format(file["file"]),
            ["run-to-copy"],
        )
    os.chmod(path, 0o644)


def linked(kept, path):
    """Have a kept wheel under another name, too; return False where a file has one name only."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        os.link(kept, path)
    except OSError:
        return False
    return True


def copy(source, path, file):
    """Copy a plain file of the expected size; return the hash of its bytes, "" for anything else.

    Others can read the copy only once its hash is right.
    """
    found = hashlib.sha256()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(new, "wb") as there:
            for piece in pieces_of(source, file):
                found.update(piece)
                there.write(piece)
    except OSError as error:
        os.unlink(path)  # on a full disk, the rest of the copy would keep it full
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return ""
        raise
    return found.hexdigest()


def keep_wheels(root, params):
    """Keep the wheels of a complete release. What fails here has them sent again, nothing else."""
    with contextlib.suppress(OSError):
        release_files.make_folder(root.wheels)
        for wheel in params["wheels"]:
            name = "{}.{}".format(wheel["sha256"], params["release_id"])
            os.replace(staged(params, wheel), os.path.join(root.wheels, name))


def forget_wheels(root):
    """Remove the kept wheels of releases that are gone; the rest of the folder is left alone."""
    for name in kept_names(root):
        kept = _KEPT.match(name)
        owner = kept.group("release") if kept else ""
        if kept and not any(map(os.path.lexists, (root[owner], root[ASIDE + owner]))):
            with contextlib.suppress(OSError):  # the release serves already
                os.unlink(os.path.join(root.wheels, name))
    with contextlib.suppress(OSError):
        os.rmdir(root.wheels)


def remove_received(params):
    """Remove the files that were sent for this release."""
    forget(*{os.path.dirname(staged(params, file)) for file in wanted_files(params)})
    with contextlib.suppress(OSError):
        os.rmdir(params["staging"])
    if params["login_uid"]:
        forget(incoming(params))
