"""Wheels, ELF files and fat binaries made by hand for the tests of the audit."""

import base64
import hashlib
import shutil
import struct
import subprocess
import zipfile

GCC = shutil.which("gcc")
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n{tags}"


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f'"{name}",sha256={digest},{len(data)}\n'


def make_wheel(
    folder,
    files=None,
    *,
    name="demo",
    version="1.0+cpu.avx",
    tag="cp311-cp311-linux_x86_64",
    replace=None,
    extra=(),
    file_name=None,
):
    """A wheel on disk; `replace` overwrites members after RECORD was made, None removes one."""
    info = f"{name}-{version}.dist-info"
    members = {
        **{path: bytes(data) for path, data in (files or {}).items()},
        f"{info}/METADATA": METADATA.format(name=name, version=version).encode(),
        f"{info}/WHEEL": WHEEL.format(tags=f"Tag: {tag}\n").encode(),
    }
    record = "".join(record_line(path, data) for path, data in members.items())
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    members.update({key.format(info=info): data for key, data in (replace or {}).items()})
    path = folder / (file_name or f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            if data is not None:
                archive.writestr(member, data)
        for member, data in extra:
            archive.writestr(member, data)
    return path


def compile_c(folder, source, *flags):
    """A shared object made by the gcc that is here."""
    (folder / "code.c").write_text(source)
    output = folder / "code.so"
    subprocess.run(
        [GCC, "-shared", "-fPIC", "-O3", *flags, "-o", output, folder / "code.c"], check=True
    )
    return output.read_bytes()


def make_elf(code, *, machine=62, address=0x1000, fatbin=b"", needed=("libc.so.6",), versions=()):
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
    symbols = bytes(24) + struct.pack("<IBBHQQ", string("kernel"), 2, 0, 1, address, len(code))
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
