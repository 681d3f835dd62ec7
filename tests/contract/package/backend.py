"""A build backend that needs no compiler and no index; `leaf` is what `tiny` depends on."""

import sys
import zipfile
from pathlib import Path


def build_wheel(wheel_directory, *_):
    return write_wheel(Path(wheel_directory), "tiny", "Requires-Dist: leaf==1.0\n")


def write_wheel(folder, name, requires=""):
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    files[record] = "".join(f"{member},,\n" for member in (*files, record))
    file = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for member, text in files.items():
            wheel.writestr(member, text)
    return file


if __name__ == "__main__":
    write_wheel(Path(sys.argv[1]), "leaf")
