"""A build backend that needs nothing: make, and a zip file of what it made."""

import base64
import hashlib
import pathlib
import subprocess
import zipfile

INFO = "hungry-1.0.dist-info"
METADATA = "Metadata-Version: 2.1\nName: hungry\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: hungry\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"


def prepare_metadata_for_build_wheel(metadata_directory, *_):
    folder = pathlib.Path(metadata_directory, INFO)
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    (folder / "WHEEL").write_text(TAGS)
    return INFO


def build_wheel(wheel_directory, *_):
    subprocess.run(["make"], check=True)
    members = {
        f"hungry/{name}": pathlib.Path("hungry", name).read_bytes()
        for name in ("__init__.py", "libhungry.so")
    }
    members[f"{INFO}/METADATA"] = METADATA.encode()
    members[f"{INFO}/WHEEL"] = TAGS.encode()
    lines = [_line(name, data) for name, data in members.items()]
    members[f"{INFO}/RECORD"] = "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()
    wheel = "hungry-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, wheel), "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return wheel


def _line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"
