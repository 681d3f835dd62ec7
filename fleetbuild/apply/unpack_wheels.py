"""Install wheels into the environment whose Python runs this; the arguments are their paths.

installers.py sends it to nodes, as one file with the library `installer`.
"""

from __future__ import annotations

import compileall
import io
import os
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InvalidWheelSource
from installer.sources import WheelFile
from installer.utils import canonicalize_name

_SMALL = 1_000_000  # bytes of wheels that one process compiles sooner than several start
_FIRST_LINE = 127  # bytes of it that a Linux before 5.1 reads; later ones read 255
_MOST = 8  # processes: each takes 10 MB, and a container may have less than its node


class _Wheel(WheelFile):
    @property
    def data_dir(self) -> str:
        # As pip and uv: its name may be spelled otherwise in the name of the file.
        return f"{self.dist_info_dir.removesuffix('.dist-info')}.data"


class _Environment(SchemeDictionaryDestination):
    def write_file(self, scheme: Any, path: Any, stream: Any, is_executable: bool) -> Any:
        is_script = scheme == "scripts"
        if is_script and stream.readline().startswith(b"#!python"):
            # The library writes the path of Python as it is.
            stream = io.BytesIO(_first_lines(self.interpreter) + stream.read())
        # An archive need not say that a script is one.
        return super().write_file(scheme, path, stream, is_executable or is_script)

    def write_to_fs(self, scheme: Any, path: str, stream: Any, is_executable: bool) -> Any:
        place = Path(self.scheme_dict[scheme], path)
        if place.is_symlink():  # such as bin/python: it would be written through
            raise ValueError(f"{path} would replace a link of the environment")
        return super().write_to_fs(scheme, path, stream, is_executable)


def _first_lines(python: str) -> bytes:
    """Return how a script begins: a long path by sh, as Linux reads few bytes of the first line."""
    plain = b"#!%s\n" % os.fsencode(python)
    by_sh = b"#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\n" % os.fsencode(python)
    return plain if len(plain) <= _FIRST_LINE else by_sh


def main(wheels: list[str]) -> None:
    """Install the wheels, and compile their modules; exit with a message if one is refused."""
    warnings.simplefilter("ignore")  # bytecode in a wheel is left out: it is compiled here
    paths = sysconfig.get_paths()
    headers = f"{paths['data']}/include/site/python{sysconfig.get_python_version()}"
    for path in map(Path, wheels):
        name = canonicalize_name(path.name.partition("-")[0])
        places = {**paths, "headers": f"{headers}/{name}"}
        into = _Environment(places, sys.executable, "posix", overwrite_existing=True)
        try:
            if not _fits(path.stem):
                raise ValueError("it is for another Python")
            with _Wheel.open(path) as source:
                install(source, into, {})
        except AssertionError:  # of the library, without words
            sys.exit(f"error: {path.name} cannot be installed: its metadata is malformed")
        except Exception as problem:  # whatever the file holds
            said = str(problem.args[-1] if isinstance(problem, InvalidWheelSource) else problem)
            sys.exit(f"error: {path.name} cannot be installed: {said or type(problem).__name__}")
    size = sum(Path(path).stat().st_size for path in wheels)
    workers = 1 if size < _SMALL else min(len(os.sched_getaffinity(0)), _MOST)
    folders = sorted({paths["purelib"], paths["platlib"]})
    _compile([str(file) for folder in folders for file in Path(folder).rglob("*.py")], workers)


def _fits(name: str) -> bool:
    """Return whether a wheel of this name is for this Python; a node may have another one now."""
    pythons, abis = name.split("-")[-3:-1]
    now = sys.version_info.minor
    if {"none", "abi3", f"cp3{now}{sys.abiflags.replace('d', '')}"}.isdisjoint(abis.split(".")):
        return False
    for python in pythons.split("."):
        kind, major, minor = python[:2], python[2:3], python[3:]
        if kind in ("py", "cp") and major == "3" and (minor or "0").isdigit():
            older = kind == "py" or "abi3" in abis
            if not minor or int(minor) == now or (older and int(minor) < now):
                return True
    return False


def _compile(files: list[str], workers: int) -> None:
    """Compile modules in several processes; in this one, where it may start no other.

    The pool of compileall needs semaphores and threads, and can wait forever without them.
    """
    shares = [files[number::workers] for number in range(workers)]
    children = {}
    for share in shares[1:]:
        try:
            child = os.fork()
        except OSError:
            break
        if not child:
            code = 1
            try:
                _compile(share, 1)
                code = 0
            finally:
                os._exit(code)
        children[child] = share
    for share in (shares[0], *shares[1 + len(children) :]):
        for file in share:
            compileall.compile_file(file, quiet=2)
    for child, share in children.items():
        if os.waitpid(child, 0)[1]:  # such as killed for memory; what it compiled is left alone
            _compile(share, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
