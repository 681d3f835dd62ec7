"""Patches of wheels: what changed between the unpacked contents of two wheels, by the program zstd.

The controller unpacks both wheels and has zstd write the patch. The node unpacks the wheel that it
keeps, has zstd apply the patch, and compresses the result again: zlib returns the very bytes of the
wheel where the controller found the settings for that. The sha256 of the whole wheel decides.

An unpacked wheel is a row of segments: what lies between the compressed entries, and what those
entries hold. Each has its length before it, and how it is compressed again.

The controller runs this file as a program, which without arguments prints the path of zstd.
Standard library only, Python 3.6 or newer.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import zipfile
import zlib

RAW = -15  # window bits: 32 KiB without a header, as in a zip
# Level and memory; most tools that make wheels use the first.
SETTINGS = [(level, memory) for level in (6, 9, 1, 5, 8, 7, 4, 3, 2) for memory in (8, 9)]
BROKEN = (ValueError, EOFError, struct.error, zlib.error, zipfile.BadZipFile)
OPTIONS = ["-q", "-f", "--long=31"]  # of zstd; a window of 2 GiB, which is its largest
_SEGMENT = struct.Struct("<QBB")  # length, level and memory; level 0 for bytes as they are
_CHUNK = 1 << 16
_OLDEST = (1, 4, 5)  # the first zstd with --patch-from
_PATH = "/usr/local/bin:/usr/bin:/bin"
_MARGIN = 64 << 20  # bytes of memory and disk for all else
_OWN_CGROUPS, _CGROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"
_PATIENCE = 3600  # seconds for zstd on a node, as for each program of an install


def unpack(archive, out, most, exact=False):
    """Write an unpacked wheel to a file; raise if it has more than `most` bytes.

    With `exact`, the entries for which no setting returns the same bytes stay as they are.
    """
    with open(archive, "rb") as packed:
        at, likely = 0, SETTINGS[0]
        for start, length in _compressed_entries(packed):
            if start < at:
                raise ValueError("entries overlap")
            _write_segment(out, most, (0, 0), _part(packed, at, start - at))
            begin = out.tell()
            _write_segment(out, most, likely, _inflate(packed, start, length))
            if exact:
                packed.seek(start)
                found = _settings_of(packed, length, out, begin, likely)
                if found:
                    likely = found
                    out.seek(begin + _SEGMENT.size - len(found))
                    out.write(bytes(found))
                    out.seek(0, os.SEEK_END)
                else:
                    out.seek(begin)
                    out.truncate()
                    _write_segment(out, most, (0, 0), _part(packed, start, length))
            at = start + length
        rest = os.path.getsize(archive) - at
        _write_segment(out, most, (0, 0), _part(packed, at, rest))


def pack(unpacked, out, most):
    """Write the wheel of an unpacked one, which is read to its end; return its sha256."""
    found = hashlib.sha256()
    while True:
        head = unpacked.read(_SEGMENT.size)
        if not head:
            return found.hexdigest()
        length, level, memory = _SEGMENT.unpack(head)
        most -= len(head) + length
        if most < 0:
            raise ValueError("more bytes than expected")
        pieces = _pieces(unpacked, length)
        for piece in _deflate(pieces, level, memory) if level else pieces:
            found.update(piece)
            out.write(piece)


def apply(patch, path, source, target):
    """Make a wheel at `target` from a patch, whose file is at `path`, and the wheel at `source`.

    Return its sha256, or "" if the patch does not fit. Whatever ends this, even the kernel for
    want of memory: the next run finds that the patch was tried, and takes whole wheels.
    """
    with open(_beside(path, "tried"), "wb"):
        pass
    before, zstd = _beside(path, "unpacked"), find_zstd()
    command = [zstd, *OPTIONS, "-d", "-c", "--patch-from=" + before, path]
    try:
        if not zstd:
            return ""
        with open(before, "wb") as out:
            unpack(source, out, patch["bytes"])
        with open(target, "wb") as out:
            os.chmod(target, 0o600)
            child = subprocess.Popen(
                command, cwd="/", env={"PATH": _PATH}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            alarm = threading.Timer(_PATIENCE, os.killpg, (child.pid, signal.SIGKILL))
            try:
                alarm.start()
                return pack(child.stdout, out, patch["bytes"])
            finally:
                alarm.cancel()
                os.killpg(child.pid, signal.SIGKILL)  # it is there until `wait`
                child.stdout.close()
                child.wait()
    except BROKEN:
        return ""
    except OSError:  # a full disk, which the rest would keep full
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        raise
    finally:
        forget_attempt(path)


def usable(patch, path, needed):
    """Return whether this node can apply a patch that is, or will be, at this path.

    `needed` are the bytes of disk for the release. The unpacked wheel is gone before the install.
    """
    existing = path
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    disk = os.statvfs(existing)
    return (
        sys.maxsize > 1 << 32  # zstd's largest window, and the memory, take 64 bits
        and disk.f_bavail * disk.f_frsize > max(needed, patch["bytes"]) + _MARGIN
        and free_memory() > patch["bytes"] + _MARGIN
        and bool(find_zstd())
        and sample() == patch["zlib"]
    )


def tried(path):
    """Return whether an earlier run has begun to apply this patch, and did not end well."""
    return os.path.lexists(_beside(path, "tried"))


def forget_attempt(path):
    """Remove the unpacked wheel that a killed run left beside a patch."""
    with contextlib.suppress(OSError):
        os.unlink(_beside(path, "unpacked"))


def _beside(path, name):
    return os.path.join(os.path.dirname(path), name)


def find_zstd(path=""):
    """Return the path of a zstd that makes and applies patches, or ""."""
    program = shutil.which("zstd", path=path or _PATH)
    try:
        said = subprocess.check_output([program or "", "--version"], timeout=60) if program else b""
    except (OSError, subprocess.SubprocessError):
        return ""
    version = re.search(rb"v([0-9]+)[.]([0-9]+)[.]([0-9]+)", said)
    return program if version and tuple(map(int, version.groups())) >= _OLDEST else ""


def free_memory():
    """Return the bytes of memory that programs can still take; 0 if that is not known.

    At most what the cgroup of this process, and those above it, may use: a container's own limit
    does not show in /proc/meminfo.
    """
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemAvailable: +([0-9]+) kB$", file.read(), re.MULTILINE)
        return min([int(found.group(1)) << 10, *_memory_limits()]) if found else 0
    return 0


def _memory_limits():
    """Yield the bytes that each of these cgroups may use, of both versions of cgroups."""
    with contextlib.suppress(OSError), open(_OWN_CGROUPS, encoding="utf-8") as file:
        for line in file:
            _, controllers, group = line.rstrip("\n").split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            names = group.strip("/").split("/")
            top, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
            for above in range(len(names) + 1):
                path = os.path.join(_CGROUPS, top, *names[:above], name)
                with contextlib.suppress(OSError, ValueError), open(path, "rb") as limit:
                    yield int(limit.read())  # not if it says "max"


def sample():
    """Return a hash of what this zlib makes of some text, by all settings. zlib-ng has another."""
    words = [hashlib.sha256(b"%d" % number).digest()[: 2 + number % 13] for number in range(512)]
    state, text = 1, []
    for _ in range(12000):
        state = (state * 1103515245 + 12345) % (1 << 31)
        text.append(words[state >> 20 & 511])
    found, text = hashlib.sha256(), b"".join(text)
    for level, memory in SETTINGS:
        for piece in _deflate([text], level, memory):
            found.update(piece)
    return found.hexdigest()


def _compressed_entries(packed):
    """Yield the start and length of the data of each deflated entry, in their order."""
    with zipfile.ZipFile(packed) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    for entry in entries:
        if entry.compress_type == zipfile.ZIP_DEFLATED and not entry.flag_bits & 1:  # encrypted
            packed.seek(entry.header_offset)
            head = packed.read(30)
            name, extra = struct.unpack("<HH", head[26:])
            yield entry.header_offset + len(head) + name + extra, entry.compress_size


def _write_segment(out, most, settings, pieces):
    """Write a segment, its length first; raise if the file then has more than `most` bytes."""
    begin = out.tell()
    out.write(bytes(_SEGMENT.size))
    for piece in pieces:
        out.write(piece)
        if out.tell() > most:
            raise ValueError("more bytes than expected")
    end = out.tell()
    out.seek(begin)
    out.write(_SEGMENT.pack(end - begin - _SEGMENT.size, *settings))
    out.seek(end)


def _part(file, start, length):
    file.seek(start)
    return _pieces(file, length)


def _pieces(file, length):
    """Yield so many bytes of a file; raise if it ends before."""
    while length:
        piece = file.read(min(length, _CHUNK))
        if not piece:
            raise EOFError
        length -= len(piece)
        yield piece


def _inflate(packed, start, length):
    """Yield the content of an entry; raise if the entry is not one whole deflate stream."""
    inflater = zlib.decompressobj(RAW)
    for left in _part(packed, start, length):
        while left:
            yield inflater.decompress(left, _CHUNK << 4)
            left = inflater.unconsumed_tail  # noqa: PLW2901
    yield inflater.flush()
    if not inflater.eof or inflater.unused_data:
        raise ValueError("an entry is damaged")


def _deflate(pieces, level, memory):
    deflater = zlib.compressobj(level, zlib.DEFLATED, RAW, memory)
    for piece in pieces:
        yield deflater.compress(piece)
    yield deflater.flush()


def _settings_of(packed, length, out, begin, likely):
    """Return the settings by which zlib makes an entry, which is next in `packed`, or None.

    `begin` is where the segment with its content begins. Other settings differ early.
    """
    start, size = packed.tell(), out.tell() - begin - _SEGMENT.size
    for settings in dict.fromkeys([likely, *SETTINGS]):
        packed.seek(start)
        pieces = _deflate(_part(out, begin + _SEGMENT.size, size), *settings)
        same = all(packed.read(len(piece)) == piece for piece in pieces)
        if same and packed.tell() == start + length:
            return settings
    return None


def main(old, new, folder, most):
    """Unpack two wheels into files of this folder, for zstd; print what a node needs to know."""
    paths = [os.path.join(folder, name) for name in ("old", "new")]
    for archive, path, exact in zip((old, new), paths, (False, True)):
        with open(path, "w+b") as out:
            unpack(archive, out, int(most), exact)
    total = sum(map(os.path.getsize, paths))
    if 0 < free_memory() < 2 * total:  # zstd takes 1.5 times as much
        sys.exit(f"that takes {2 * total / 1e6:.0f} MB of memory")
    sys.stdout.write(json.dumps({"bytes": total, "zlib": sample()}))


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        sys.stdout.write(find_zstd(os.environ.get("PATH", "")))
