"""The record of a release's installed files, to find damaged ones later.

A line of `manifest.files` is `SHA256 SIZE MTIME ./PATH`; a link's hash is the hash of its
destination's path. The manifest holds the hash of the record. The probe (script.sh)
compares all but the hashes, in the same form; `damage` with `thorough` reads every byte.

Standard library only, Python 3.6 or newer.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

RECORD = "manifest.files"
HASH = 65  # characters before the size
READERS = 4
CHUNK = 1 << 16  # bytes; more of them at a time are new pages of memory for each file
# Files that the modules release and verify write beside the installed files.
OWN = (b"./manifest.json", b"./" + RECORD.encode("ascii"), b"./bin/fleetbuild-sanity")


def record(release):
    """Return the text of a release's record."""
    release = os.fsencode(release)
    paths = list(_files(release))
    with ThreadPoolExecutor(READERS) as readers:  # a hash is computed without Python's lock
        hashes = list(readers.map(lambda path: _hash(os.path.join(release, path)), paths))
    lines = [
        found + b" " + _glance(os.path.join(release, path), path)
        for found, path in zip(hashes, paths)
    ]
    return b"".join(line + b"\n" for line in sorted(lines, key=lambda line: line[HASH:]))


def digest(text):
    """Return the hash of a record, which the manifest contains."""
    return hashlib.sha256(text).hexdigest()


def damage(release, expected, thorough):
    """Return the files that have changed since the install, as the end of a sentence, or empty.

    `expected` is the record's hash by the manifest. Without `thorough`, size and time are compared.
    """
    release = os.fsencode(release)
    try:
        text = read(os.path.join(release, os.fsencode(RECORD)))
    except FileNotFoundError:
        return f"{RECORD} is missing"
    if digest(text) != expected:
        return f"{RECORD} is not the one that was written at the install"
    known = {line[HASH:].split(b" ", 2)[2]: line for line in text.splitlines()}
    there = list(_files(release))
    found = [(path, "missing") for path in set(known).difference(there)]
    found += [
        (path, "added") for path in there if path not in known and b"/__pycache__/" not in path
    ]

    def differs(path):
        full, line = release + b"/" + path, known[path]
        try:
            if thorough:
                return _hash(full) != line[: HASH - 1]
            return b"/__pycache__/" not in path and _glance(full, path) != line[HASH:]
        except OSError:
            return True  # the disk does not give it back

    same = [path for path in there if path in known]
    with ThreadPoolExecutor(READERS) as readers:
        found += [
            (path, "changed") for path, other in zip(same, readers.map(differs, same)) if other
        ]
    return told(found)


def told(found):
    """Return the first files by name, and the number of further ones."""
    named = [f"{os.fsdecode(path)[2:202]} ({how})" for path, how in sorted(found)[:3]]
    if len(found) > 3:
        named.append(f"and {len(found) - 3} more")
    return ", ".join(named)


def persist(release):
    """Write a release's files to the disk: by one call of syncfs, or sync if that is missing."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        os.sync()
        return
    folder = os.open(release, os.O_RDONLY)
    try:
        if syncfs(folder):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), release)
    finally:
        os.close(folder)


def persist_names(folder):
    """Write a folder's names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path, content, mode=0o644):
    """Write a file in one atomic step that survives a loss of power, never through a link."""
    prepare(path, content, mode)
    place(path)


def prepare(path, content, mode=0o644):
    """Do all of `write` that needs space; `place` does the rest."""
    fresh, flags = path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(fresh, flags, 0o600)
    except FileExistsError:  # an interrupted run left it
        os.unlink(fresh)
        descriptor = os.open(fresh, flags, 0o600)
    try:
        os.fchmod(descriptor, mode)
        left = content if isinstance(content, bytes) else content.encode("utf-8")
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place(path):
    """Give a prepared file its name."""
    os.replace(path + ".new", path)
    persist_names(os.path.dirname(path))


def read(path):
    """Return a file's bytes. A file object makes twice as many system calls for small files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, CHUNK), b""))
    finally:
        os.close(descriptor)


def make_folder(path):
    """Make a folder, and those above it, if it is missing."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o755, exist_ok=True)


def _files(release):
    """Yield paths of files and links as `find .` prints them, without names that break a line."""
    folders = [b"."]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(release + b"/" + folder))
        except OSError:
            continue
        for entry in entries:  # their kinds come with their names: no question for each
            path = folder + b"/" + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    continue
                plain = entry.is_symlink() or entry.is_file(follow_symlinks=False)
            except OSError:
                continue
            if plain and not path.startswith(OWN) and b"\n" not in path:
                yield path


def _glance(full, path):
    about = os.lstat(full)
    return b"%d %d %s" % (about.st_size, int(about.st_mtime_ns // 10**9), path)


def sha256(path):
    """Return the hash of a file's bytes, in hexadecimal."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return hash_of(iter(lambda: os.read(descriptor, CHUNK), b""))
    finally:
        os.close(descriptor)


def hash_of(pieces):
    """Return the hash of bytes that come in pieces, in hexadecimal."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _hash(path):
    """Return the hash of a file's bytes or of a link's path, as the record has it."""
    found = digest(os.readlink(path)) if os.path.islink(path) else sha256(path)
    return found.encode("ascii")
