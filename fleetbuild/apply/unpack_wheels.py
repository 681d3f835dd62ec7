"""Install wheels into the environment whose Python runs this; the arguments are their paths.

installers.py sends it to nodes, as one file with the library `installer`.
"""

from __future__ import annotations

import compileall
import os
import sys
import sysconfig
import warnings
from typing import Any

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

_SMALL = 1_000_000  # bytes of wheels that one process compiles sooner than several start


class _Environment(SchemeDictionaryDestination):
    def write_file(self, scheme: Any, path: Any, stream: Any, is_executable: bool) -> Any:
        # An archive need not say that a script is one.
        return super().write_file(scheme, path, stream, is_executable or scheme == "scripts")


def main(wheels: list[str]) -> int:
    """Install the wheels, compile their modules, and return the exit code."""
    warnings.simplefilter("ignore")  # bytecode in a wheel is left out: it is compiled here
    paths = sysconfig.get_paths()
    headers = os.path.join(
        paths["data"], "include", "site", f"python{sysconfig.get_python_version()}"
    )
    for wheel in wheels:
        file = os.path.basename(wheel)
        places = {**paths, "headers": os.path.join(headers, file.partition("-")[0])}
        into = _Environment(places, sys.executable, "posix", overwrite_existing=True)
        try:
            with WheelFile.open(wheel) as source:
                install(source, into, {})
        except Exception as problem:  # noqa: BLE001 (whatever the file holds)
            print(f"error: {file} cannot be installed: {problem or type(problem).__name__}")
            return 1
    processes = 1 if sum(map(os.path.getsize, wheels)) < _SMALL else 0  # 0: one for each core
    for folder in sorted({paths["purelib"], paths["platlib"]}):
        compileall.compile_dir(folder, quiet=2, workers=processes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
