"""The nodes' image, made from Debian's packages: no registry is asked."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import NamedTuple

from tests.lab.emulation import with_arch
from tests.lab.podman import PACKAGES, LabError, as_root, podman

SUITE = "bookworm"
CONTAINERS = ("podman", "runc")  # for nodes that build in containers
INCLUDE = [
    *("openssh-server", "sudo", "tini", "iproute2", "procps", "ca-certificates"),
    *("python3", "python3-venv", "python3-dev", "gcc", "g++", "make", "ccache"),
]
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
_PROGRAMS = Path(__file__).parent / "programs"
# `*` allows no password and, unlike `!`, locks nothing: sshd without PAM refuses locked accounts.
_FINISH = r"""
set -e
root=$1
install -m 755 "$2/node-init" "$root/usr/local/sbin/node-init"
install -m 644 "$2/sshd_config" "$root/etc/ssh/sshd_config"
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
chroot "$root" useradd --create-home --shell /bin/bash --password '*' fleet
echo 'fleet ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/fleet"
chmod 440 "$root/etc/sudoers.d/fleet"
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
"""


class System(NamedTuple):
    """What an image is made of: an architecture ("" is this machine's), a suite, packages."""

    arch: str = ""
    suite: str = SUITE
    packages: tuple[str, ...] = ()

    @property
    def foreign(self) -> str:
        """The architecture, if it is not this machine's."""
        return "" if self.arch == platform.machine() else self.arch


NATIVE = System()


def tag(system: System = NATIVE) -> str:
    """The image's name."""
    foreign = [system.foreign] if system.foreign else []
    words = [system.suite, *INCLUDE, *system.packages, _FINISH, *foreign]
    recipe = hashlib.sha256(" ".join(words).encode())
    for name in ("node-init", "sshd_config"):
        recipe.update((_PROGRAMS / name).read_bytes())
    return f"localhost/fleetbuild-lab:{recipe.hexdigest()[:12]}"


def ensure(say: Callable[[str], None], system: System = NATIVE) -> str:
    """The image's tag; builds it where this machine has none yet."""
    image = tag(system)
    if _exists(image):
        return image
    cache = _cache()
    with (cache / "lock").open("w") as lock:  # two labs started at once build it once
        flock(lock, LOCK_EX)
        if not _exists(image):
            takes = f"of {system.arch}, about ten minutes" if system.foreign else "about a minute"
            say(f"making the image {image} from Debian {system.suite}'s packages ({takes}, once)")
            _build(image, cache, system)
    return image


def _exists(image: str) -> bool:
    return podman("image", "exists", image, check=False).returncode == 0


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("FLEETBUILD_LAB_CACHE") or home / "fleetbuild-lab")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _build(image: str, cache: Path, system: System) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix="image-") as scratch:
        tar, finish = Path(scratch) / "root.tar", Path(scratch) / "finish"
        finish.write_text("#!/bin/sh" + _FINISH)
        finish.chmod(0o755)
        hook = f'--customize-hook={finish} "$1" {_PROGRAMS}'
        debootstrap(tar, system.suite, [*INCLUDE, *system.packages], hook, foreign=system.foreign)
        entry = 'ENTRYPOINT ["/usr/local/sbin/node-init"]'
        podman("import", "--change", entry, str(tar), image)
        subprocess.run(as_root(["rm", "-f", str(tar)]), check=True)


def debootstrap(
    tar: Path, suite: str, packages: Iterable[str], *options: str, foreign: str = ""
) -> None:
    """Write the smallest Debian with these packages to a tar file, as this host's apt gets them."""
    if not shutil.which("mmdebstrap"):
        raise LabError(f"mmdebstrap is missing. Fix: apt-get install {' '.join(PACKAGES)}")
    command = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--dpkgopt=force-unsafe-io",
        '--aptopt=Acquire::Languages "none"',
        *_host_apt_options(),
        f"--include={','.join(packages)}",
        *options,
        suite,
        str(tar),
        *_host_sources(suite),
    ]
    if foreign:
        command.insert(1, f"--architectures={DEBIAN_NAMES[foreign]}")
    done = subprocess.run(
        with_arch(foreign, command) if foreign else as_root(command),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise LabError(f"mmdebstrap could not make the system:\n{done.stderr.strip()[-2000:]}")


def _host_sources(suite: str = SUITE) -> list[str]:
    """The mirror that a Debian host of this suite uses itself; else mmdebstrap's default."""
    release = Path("/etc/os-release").read_text()
    if f"VERSION_CODENAME={suite}\n" in release and "\nID=debian\n" in release:
        for name in ("sources.list.d/debian.sources", "sources.list"):
            if (Path("/etc/apt") / name).is_file():
                return [f"/etc/apt/{name}"]
    return []


def _host_apt_options() -> list[str]:
    """How this host reaches its mirrors: proxies, and dates not checked where it uses snapshots."""
    told = subprocess.run(
        ["apt-config", "dump", "--no-empty", "--format", '%f "%v"%n', "Acquire"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Check-")
    return [f"--aptopt={line}" for line in told.splitlines() if line.startswith(wanted)]
