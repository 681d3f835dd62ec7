"""Give a wheel its local version: METADATA, the names of its folders, RECORD and its file name.

Standard library only. The same wheel and version always make the same bytes.
"""

import base64
import hashlib
import io
import os
import re
import zipfile

REQUIRES = re.compile(r"Requires-Dist:\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?", re.I)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date that a zip file knows


class StampError(Exception):
    """The file is not a wheel, or not one of the wanted version."""


def normalised(name):
    """Return a distribution's name as in file names (PEP 427, PEP 503)."""
    return re.sub(r"[-_.]+", "_", name).lower()


def public(version):
    """Return the version without its local label and a leading v."""
    return version.split("+")[0].strip().lower().lstrip("v")


def stamp(wheel, version, dest, pins=()):
    """Write `wheel` with this version into the folder `dest`; return the new wheel's path.

    `pins` are exact requirements, which replace the wheel's requirements on the same packages.
    """
    name, old, tags = split_name(os.path.basename(wheel))
    if public(old) != public(version):
        raise StampError(f"The build made {name} {public(old)}, but {public(version)} was wanted.")
    stem = f"{normalised(name)}-{version}"
    target = os.path.join(dest, f"{stem}-{tags}.whl")
    partial = target + ".part"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(partial, "w") as result:
        restamp(source, result, stem, version, pins)
    os.replace(partial, target)
    return target


def restamp(source, result, stem, version, pins):
    """Copy a wheel entry by entry: sorted, .dist-info last, RECORD at the very end."""
    entries = {info.filename: info for info in source.infolist() if not info.filename.endswith("/")}
    old = dist_info(entries)
    record = old + ".dist-info/RECORD"
    left_out = (record, record + ".jws", record + ".p7s")  # the signatures were for the old RECORD
    order = sorted(entries, key=lambda path: (path.startswith(old + ".dist-info/"), path))
    lines = []
    for path in order:
        if path in left_out:
            continue
        if path == old + ".dist-info/METADATA":
            content = io.BytesIO(with_pins(with_version(source.read(path), version), pins))
        else:
            content = source.open(path)
        executable = entries[path].external_attr >> 16 & 0o111
        with content:
            lines.append(add(result, rename(path, old, stem), content, executable))
    path = rename(record, old, stem)
    lines.append(quoted(path) + ",,")
    add(result, path, io.BytesIO(("\n".join(lines) + "\n").encode("utf-8")), False)


def split_name(file):
    """Return (name, version, tags with the build number) of a wheel's file name."""
    parts = file[: -len(".whl")].split("-")
    if not file.endswith(".whl") or len(parts) not in (5, 6):
        raise StampError(f"{file} is not the name of a wheel.")
    return parts[0], parts[1], "-".join(parts[2:])


def dist_info(paths):
    """Return the name of the only .dist-info folder, without its ending."""
    found = {path.split("/")[0] for path in paths if path.split("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise StampError(f"The wheel has {len(found)} .dist-info folders instead of one.")
    return found.pop()[: -len(".dist-info")]


def rename(path, old, new):
    """Return the path with its .dist-info or .data folder renamed."""
    top, slash, below = path.partition("/")
    if top in (old + ".dist-info", old + ".data"):
        return new + top[len(old) :] + slash + below
    return path


def with_version(metadata, version):
    """Return METADATA with this version. Only the header changes, not the description."""
    head, blank, body = metadata.partition(b"\n\n")
    new, count = re.subn(
        rb"(?mi)^Version:[^\r\n]*", b"Version: " + version.encode("ascii"), head, count=1
    )
    if count != 1:
        raise StampError("The wheel's METADATA has no Version.")
    return new + blank + body


def with_pins(metadata, pins):
    """Return METADATA with these exact requirements instead of others on the same packages."""
    head, blank, body = metadata.partition(b"\n\n")
    # Without a description, the header ends where the file does.
    lines = head.decode("utf-8", "surrogateescape").rstrip("\n").split("\n")
    for pin in pins:
        name, version = pin.partition("==")[::2]
        mine = {
            line: extras
            for line in lines
            for of, extras in requires(line)
            if of == normalised(name)
        }
        extras = sorted(set().union(*mine.values()))
        wanted = name + ("[{}]".format(",".join(extras)) if extras else "") + "==" + version
        lines = [line for line in lines if line not in mine] + ["Requires-Dist: " + wanted]
    return "\n".join(lines).encode("utf-8", "surrogateescape") + (blank or b"\n") + body


def requires(line):
    """Return the package that a line of METADATA requires, and its extras, as at most one pair."""
    match = REQUIRES.match(line)
    if not match:
        return []
    extras = {extra.strip() for extra in (match.group(2) or "").split(",")}
    return [(normalised(match.group(1)), extras - {""})]


def add(archive, path, content, executable):
    """Add one file with fixed time and mode; return its line of RECORD."""
    entry = zipfile.ZipInfo(path, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    seen, size = hashlib.sha256(), 0
    with archive.open(entry, "w", force_zip64=True) as out:
        for chunk in iter(lambda: content.read(1 << 20), b""):
            out.write(chunk)
            seen.update(chunk)
            size += len(chunk)
    encoded = base64.urlsafe_b64encode(seen.digest()).rstrip(b"=").decode("ascii")
    return f"{quoted(path)},sha256={encoded},{size}"


def quoted(path):
    """Return a field of RECORD, which is CSV."""
    return '"{}"'.format(path.replace('"', '""')) if re.search('[",]', path) else path
