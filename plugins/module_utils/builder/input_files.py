"""The files that a build needs: which are still to be sent, and which an earlier build had.

They arrive by hash in `incoming`. Whole ones are kept beside all builds for the next one, because a
CUDA toolkit has gigabytes. Standard library only.
"""

import contextlib
import os
import shutil
import stat
import time

from .source_tree import sha256

KEPT = ".inputs"  # beside the folders of builds
DAYS = 14  # for which a file that no build uses is kept


class InputFiles:
    """The files of a build, as (name, sha256)."""

    def __init__(self, build, wanted):
        self.place = os.path.join(build, "in")
        self.incoming = os.path.join(build, "incoming")
        self.kept = os.path.join(os.path.dirname(build), KEPT)
        self.wanted = wanted

    def expect(self):
        """Return the hashes of the files that are still to be sent, and make their folders."""
        self.remove_unused()
        missing = {sha for name, sha in self.wanted if not self.is_there(name, sha)}
        for sha in os.listdir(self.incoming) if os.path.isdir(self.incoming) else ():
            if sha not in missing:
                shutil.rmtree(os.path.join(self.incoming, sha), ignore_errors=True)
        for sha in missing:
            folder = os.path.join(self.incoming, sha)
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o700)  # the sender's umask may let others write what arrives here
        return sorted(missing)

    def is_there(self, name, sha):
        """Return whether a file need not be sent; keep one that arrived whole in an earlier run."""
        kept = os.path.join(self.kept, sha, name)
        if not is_plain(kept):
            here = (os.path.join(self.place, name), os.path.join(self.incoming, sha, name))
            whole = next((path for path in here if is_plain(path) and sha256(path) == sha), None)
            if whole is None:
                return False
            self.keep(whole, sha)
        os.utime(os.path.join(self.kept, sha))  # a build needs it from now
        return True

    def lay(self, name, sha):
        """Have a file in `in`; return whether it is whole. Forget a damaged one."""
        path = os.path.join(self.place, name)
        sources = [os.path.join(folder, sha, name) for folder in (self.kept, self.incoming)]
        for source in (path, *sources):
            if is_plain(source) and sha256(source) == sha:
                if source != path:
                    put(source, path)
                self.keep(path, sha)
                return True
            with contextlib.suppress(OSError):
                os.unlink(source)
        return False

    def keep(self, path, sha):
        """Keep a whole file for later builds, and note that a build uses it."""
        folder = os.path.join(self.kept, sha)
        os.makedirs(folder, exist_ok=True)
        kept = os.path.join(folder, os.path.basename(path))
        if not os.path.lexists(kept):
            put(path, kept)
        os.chmod(kept, 0o644)
        os.utime(folder)

    def remove_unused(self):
        """Remove kept files that no build has used for a while."""
        for sha in os.listdir(self.kept) if os.path.isdir(self.kept) else ():
            folder = os.path.join(self.kept, sha)
            with contextlib.suppress(FileNotFoundError):  # another build has removed it
                if os.lstat(folder).st_mtime < time.time() - DAYS * 86400:
                    shutil.rmtree(folder, ignore_errors=True)


def is_plain(path):
    """Return whether a path is a file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def put(source, path):
    """Put a file at a second path, by a link where the file system has them."""
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path + ".part")
        os.replace(path + ".part", path)
