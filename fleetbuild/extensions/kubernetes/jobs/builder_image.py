"""The image for builds in a cluster: its Python, C library and compilers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from fleetbuild.errors import ConfigError
from fleetbuild.hardware.data import load
from fleetbuild.models import Libc, Python
from fleetbuild.models.config import Build

_OFFICIAL = re.compile(r"(?:.*/)?python:3\.(\d+)(?:\.\d+)?-([a-z]+)(?:@.*)?")
_PYTHON = re.compile(r"3\.(\d+)(t?)")


@dataclass(frozen=True)
class BuilderImage:
    """An image with a Python, a C library and compilers."""

    name: str
    libc: Libc
    minor: int  # of Python 3
    threads: str = ""  # t: the free-threaded one
    path: str = "/usr/local/bin/python3"
    toolchain: tuple[tuple[str, str], ...] = ()

    def python(self, arch: str) -> Python:
        """Return its interpreter, on a node of this architecture."""
        tail = "linux-gnu" if self.libc.family == "glibc" else "linux-musl"
        return Python(
            path=self.path,
            version=f"3.{self.minor}",
            soabi=f"cpython-3{self.minor}{self.threads}-{arch}-{tail}",
            venv=True,
            headers=True,
        )


def builder_image(build: Build, python: str | None) -> BuilderImage:
    """Return the image that build.image names.

    The configuration describes one whose name does not.
    """
    if build.image is None:
        raise ConfigError(
            "The image decides which Python and C library pods have, and build.image is not set.",
            "Set build.image in fleetbuild.yml, such as python:3.12-bookworm.",
        )
    official = _OFFICIAL.fullmatch(build.image)
    row = _table().get(official[2]) if official else None
    if official and row and build.libc is None:
        return BuilderImage(
            name=build.image,
            libc=Libc(family=row["family"], version=row["libc"]),
            minor=_agreed(int(official[1]), python, build.image),
            toolchain=(("gcc", row["gcc"]), ("g++", row["gcc"])),
        )
    wanted = _PYTHON.fullmatch(python or "")
    if build.libc is None or wanted is None:
        raise ConfigError(
            f"The C library and Python of {build.image} are unknown.",
            'Set them in fleetbuild.yml, as build.libc: glibc 2.28 and python: "3.12", or name a'
            f" known image: python:3.12-{', python:3.12-'.join(_table())}.",
        )
    family, version = build.libc.split()
    return BuilderImage(
        name=build.image,
        libc=Libc.model_validate({"family": family, "version": version}),
        minor=int(wanted[1]),
        threads=wanted[2],
        path="python3",
    )


def _agreed(minor: int, python: str | None, image: str) -> int:
    if python is not None and python != f"3.{minor}":
        raise ConfigError(
            f"The configured python is {python}, but the image {image} has 3.{minor}.",
            "Name another image, or leave python out.",
        )
    return minor


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load("builders.yml", "fleetbuild.extensions.kubernetes")
