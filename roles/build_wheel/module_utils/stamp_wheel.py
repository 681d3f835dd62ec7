"""Give a wheel its local version: METADATA, the names of its folders, RECORD and its file name.

Standard library only. The same wheel and version always make the same bytes.
"""

import base64
import hashlib
import os
import re
import zipfile

EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date that a zip file knows


class StampError(Exception):
    """The file is not a wheel, or not one of the wanted version."""


def normalised(name):
    """A distribution's name as file names spell it (PEP 427, PEP 503)."""
    return re.sub(r"[-_.]+", "_", name).lower()


def public(version):
    """The version without its local label, in a form that compares: 1.0 and 1.00 differ, v1 and 1 do not."""
    return version.split("+")[0].strip().lower().lstrip("v")


def stamp(wheel, version, dest):
    """Write `wheel` with `version` into the folder `dest`; the path of what was written."""
    name, old, rest = split_name(os.path.basename(wheel))
    if public(old) != public(version):
        raise StampError(
            "The build made {} {}, but {} was wanted.".format(name, public(old), public(version))
        )
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        content = {path: archive.read(path) for path in files}
    info_dir = dist_info(content)
    stem = "{}-{}".format(normalised(name), version)
    renamed = {}
    modes = {}
    for path, data in content.items():
        new = rename(path, info_dir, stem)
        renamed[new] = data
        modes[new] = files[path].external_attr >> 16
    metadata = stem + ".dist-info/METADATA"
    renamed[metadata] = with_version(renamed[metadata], version)
    target = os.path.join(dest, "{}-{}.whl".format(stem, rest))
    write(target, stem + ".dist-info/RECORD", renamed, modes)
    return target


def split_name(file):
    """(name, version, tags with the build number) of a wheel's file name."""
    parts = file[: -len(".whl")].split("-")
    if not file.endswith(".whl") or len(parts) not in (5, 6):
        raise StampError("{} is not the name of a wheel.".format(file))
    return parts[0], parts[1], "-".join(parts[2:])


def dist_info(paths):
    """The one .dist-info folder, without its ending."""
    found = {path.split("/")[0] for path in paths if path.split("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise StampError("A wheel has one .dist-info folder, this one has {}.".format(len(found)))
    return found.pop()[: -len(".dist-info")]


def rename(path, old, new):
    """The path with its .dist-info or .data folder under the new name."""
    top, slash, below = path.partition("/")
    if top in (old + ".dist-info", old + ".data"):
        return new + top[len(old) :] + slash + below
    return path


def with_version(metadata, version):
    """METADATA that says this version. Only the header is touched, never the description."""
    head, blank, body = metadata.partition(b"\n\n")
    new, count = re.subn(
        rb"(?mi)^Version:[^\r\n]*", b"Version: " + version.encode("ascii"), head, count=1
    )
    if count != 1:
        raise StampError("The wheel's METADATA has no Version.")
    return new + blank + body


def write(target, record, content, modes):
    """A zip file in sorted order with fixed times; .dist-info last, RECORD at the very end."""
    signatures = (record + ".jws", record + ".p7s")
    for signature in signatures:
        content.pop(signature, None)  # signed the old RECORD
    content.pop(record, None)
    info_dir = os.path.dirname(record) + "/"
    order = sorted(content, key=lambda path: (path.startswith(info_dir), path))
    lines = ["{},sha256={},{}".format(quoted(p), digest(content[p]), len(content[p])) for p in order]
    content[record] = ("\n".join([*lines, quoted(record) + ",,"]) + "\n").encode("utf-8")
    partial = target + ".part"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*order, record]:
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            executable = modes.get(path, 0) & 0o111
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, content[path])
    os.replace(partial, target)


def quoted(path):
    """A field of RECORD, which is CSV."""
    return '"{}"'.format(path.replace('"', '""')) if re.search('[",]', path) else path


def digest(data):
    """A hash as RECORD spells it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
