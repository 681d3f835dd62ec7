"""Hash a source, and unpack it without writing outside its folder. Standard library only."""

# tarfile and zipfile import these late: as the build's user, who may not read them.
import encodings.cp437  # noqa: F401  # pylint: disable=unused-import
import gzip  # noqa: F401  # pylint: disable=unused-import
import hashlib
import os
import shutil
import tarfile
import zipfile

from .wheel_inputs import BuildFailed


def sha256(path):
    """The hash of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()


def text_of(path):
    """Return a small file's text; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def lay_source(source, dest):
    """Replace `dest` by the content of an archive, or of the only folder in it."""
    fresh = dest + ".new"
    for path in (dest, fresh):
        shutil.rmtree(path, ignore_errors=True)
    try:
        unpack(source, fresh)
        inside = os.listdir(fresh)
        only = os.path.join(fresh, inside[0]) if len(inside) == 1 else ""
        is_folder = os.path.isdir(only) and not os.path.islink(only)
        os.rename(only if is_folder else fresh, dest)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def unpack(archive, dest):
    """Unpack an archive; refuse members outside `dest`."""
    os.makedirs(dest)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as found:
            found.extractall(dest)  # drops leading slashes and ".." itself
        return
    try:
        with tarfile.open(archive) as found:
            kwargs = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            inside, links = os.path.realpath(dest), []
            for member in found:  # one by one, since an earlier link may lead a later member astray
                check_member(member, archive, inside)
                member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
                found.extract(member, dest, **kwargs)
                if member.issym() or member.islnk():
                    links.append(member)
            # A later member may lead an earlier link astray. A hard link to a link is a link, too,
            # which leads elsewhere from its own place.
            for member in links:
                check_member(member, archive, inside)
    except tarfile.TarError as error:
        raise BuildFailed(
            f"{os.path.basename(archive)} cannot be unpacked: {error}.",
            ["get-source"],
        ) from error


def check_member(member, archive, dest):
    """Raise unless the member is a file, folder or link inside the folder, as it is there by now.

    Python has such a check only from 3.11.4 on, and the Python of Debian 12 is older.
    """
    place = os.path.join(dest, os.path.dirname(member.name))
    paths = [os.path.join(place, os.path.basename(member.name)), place]
    if member.issym():
        paths.append(os.path.join(os.path.realpath(place), member.linkname))
    elif member.islnk():
        paths.append(os.path.join(dest, member.linkname))
    inside = not os.path.isabs(member.name) and all(
        os.path.commonpath([dest, function(path)]) == dest
        for path in paths
        for function in (os.path.normpath, os.path.realpath)
    )
    if inside and (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return
    raise BuildFailed(
        f"{os.path.basename(archive)} has {member.name}, which is not a file or link inside its "
        "folder.",
        ["do-not-trust"],
    )
