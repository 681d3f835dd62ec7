"""Install wheels into the environment whose Python runs this; the arguments are their paths.

installers.py sends it to nodes, as one file with the library `installer`.
"""

from __future__ import annotations

import compileall
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

_SMALL = 1_000_000  # bytes of wheels that one process compiles sooner than several start


class _Environment(SchemeDictionaryDestination):
    def write_file(self, scheme: Any, path: Any, stream: Any, is_executable: bool) -> Any:
        # An archive need not say that a script is one.
        return super().write_file(scheme, path, stream, is_executable or scheme == "scripts")


def main(wheels: list[str]) -> None:
    """Install the wheels, and compile their modules; exit with a message if one is refused."""
    warnings.simplefilter("ignore")  # bytecode in a wheel is left out: it is compiled here
    paths = sysconfig.get_paths()
    headers = f"{paths['data']}/include/site/python{sysconfig.get_python_version()}"
    for path in map(Path, wheels):
        places = {**paths, "headers": f"{headers}/{path.name.partition('-')[0]}"}
        into = _Environment(places, sys.executable, "posix", overwrite_existing=True)
        try:
            with WheelFile.open(path) as source:
                install(source, into, {})
        except Exception as problem:
            said = str(problem) or type(problem).__name__
            sys.exit(f"error: {path.name} cannot be installed: {said}")
    size = sum(Path(path).stat().st_size for path in wheels)
    for folder in sorted({paths["purelib"], paths["platlib"]}):
        compileall.compile_dir(folder, quiet=2, workers=1 if size < _SMALL else 0)  # 0: one a core


if __name__ == "__main__":
    main(sys.argv[1:])
