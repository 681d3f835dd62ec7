"""Core files made by hand, with the notes that Linux writes."""

import struct

_NOTE = struct.Struct("<III")
_PROGRAM = struct.Struct("<IIQQQQQQ")


def make_core(rip, *, signal=4, files=(), memory=(), machine=62, kind=4):
    """A core with a thread at `rip`; `files` are (start, path), `memory` is (address, bytes)."""
    registers = [0] * 27
    registers[16] = rip
    notes = _note(1, struct.pack("<i108x27Q8x", signal, *registers))
    if files:
        rows = b"".join(struct.pack("<QQQ", start, start + 0x10000, 0) for start, _ in files)
        names = b"".join(str(path).encode() + b"\0" for _, path in files)
        notes += _note(0x46494C45, struct.pack("<QQ", len(files), 4096) + rows + names)
    count = 1 + len(memory)
    at = 64 + count * _PROGRAM.size
    programs = [_PROGRAM.pack(4, 0, at, 0, 0, len(notes), 0, 4)]
    content = notes
    for address, data in memory:
        place = at + len(content)
        programs.append(_PROGRAM.pack(1, 5, place, address, 0, len(data), len(data), 1))
        content += data
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0
    )
    return header + b"".join(programs) + content


def _note(kind, content):
    content += bytes(-len(content) % 4)
    return _NOTE.pack(5, len(content), kind) + b"CORE\0\0\0\0" + content
