"""ELF files and fat binaries made by hand."""

import shutil
import struct
import subprocess

GCC = shutil.which("gcc")


def compile_c(folder, source, *flags):
    """A shared object made by the gcc that is here."""
    (folder / "code.c").write_text(source)
    output = folder / "code.so"
    subprocess.run(
        [GCC, "-shared", "-fPIC", "-O3", *flags, "-o", output, folder / "code.c"], check=True
    )
    return output.read_bytes()


def make_elf(code, *, machine=62, address=0x1000, fatbin=b"", needed=("libc.so.6",), versions=(),
             symbol="kernel"):  # fmt: skip
    """A small ELF file with a .text that holds the code, and a function over all of it."""
    strings = bytearray(b"\0")

    def string(text):
        at = len(strings)
        strings.extend(text.encode() + b"\0")
        return at

    dynamic = b"".join(struct.pack("<qQ", 1, string(name)) for name in needed)
    dynamic += struct.pack("<qQ", 0, 0)
    aux = b"".join(
        struct.pack("<IHHII", 0, 0, 0, string(v), 16 if v != versions[-1] else 0) for v in versions
    )
    need = struct.pack("<HHIII", 1, len(versions), string("libc.so.6"), 16, 0) + aux
    symbols = bytes(24) + struct.pack("<IBBHQQ", string(symbol), 2, 0, 1, address, len(code))
    names = {n: string(n) for n in (".text", ".nv_fatbin", ".dynamic", ".verneed", ".symtab", "s")}
    contents = [
        (".text", 1, 6, address, code, 0),
        (".nv_fatbin", 1, 2, 0, fatbin, 0),
        (".dynamic", 6, 2, 0, dynamic, 6),
        (".verneed", 0x6FFFFFFE, 2, 0, need if versions else b"", 6),
        (".symtab", 2, 0, 0, symbols, 6),
        ("s", 3, 0, 0, bytes(strings), 0),
    ]
    body, headers = bytearray(bytes(64)), [bytes(64)]
    for name, kind, flags, where, data, link in contents:
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", names[name], kind, flags, where, len(body), len(data), link, 0, 1, 0
            )
        )
        body += data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    body[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident, 3, machine, 1, 0, 0, len(body), 0, 64, 56, 0, 64, len(headers), 6,
    )  # fmt: skip
    return bytes(body) + b"".join(headers)


def make_fatbin(*entries):
    """A container with entries of (kind, sm as 86, flags)."""
    body = b"".join(
        struct.pack("<HHIQIIHHIIIQ", kind, 0, 64, 8, 0, 0, 0, 0, sm, 0, 0, flags) + bytes(16 + 8)
        for kind, sm, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
