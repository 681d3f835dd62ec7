"""Try the README's commands on a bare system: `python -m tests.fresh SUITE TARGET...`.

In: a suite of Debian, or noble (Ubuntu 24.04), and targets of make. A system with the packages that
the README asks for gets a clone of this checkout's last commit, and runs the targets in namespaces
of its own. `demo` starts on a bare system; other targets go on in the system that it left.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.lab.image import debootstrap
from tests.lab.podman import as_root, podman_command, ulimits

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("apt", "ca-certificates", "git", "make", "python3")
_FOLDER = CHECKOUT / ".cache" / "fresh"
_CLONE = "srv/fleetbuild"  # other users, too: /root is closed to them
# Debian 12 has no package with Ubuntu's keys.
_UBUNTU = "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring"
_KEYS = "ubuntu-keyring_2023.11.28.1_all.deb"
_KEYS_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
# How this machine reaches package registries, beside the settings of apt and pip.
_CERTIFICATES = "etc/ssl/certs"
_VARIABLE = re.compile(r"SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|UV_\w*INDEX\w*|(?i:\w+_proxy)")


def main(suite: str, targets: list[str]) -> int:
    """Run the targets one after the other, until one fails; return its exit code."""
    root = _FOLDER / suite
    if "demo" in targets or not root.exists():
        _unpack(_bare(suite), root)
    _clone(root / _CLONE)
    folders = _settings(root)
    for target in targets:
        print(f"== {suite}: make {target}", flush=True)
        began = time.monotonic()
        code = subprocess.run(_in(root, folders, target), check=False).returncode
        print(f"== {suite}: make {target}: {code}, {time.monotonic() - began:.0f} s", flush=True)
        if code:
            return code
    return 0


def _bare(suite: str) -> Path:
    tar = _FOLDER / f"{suite}.tar"
    if not tar.exists():
        print(f"== {suite}: making the bare system (about a minute, once)", flush=True)
        _FOLDER.mkdir(parents=True, exist_ok=True)
        part = _FOLDER / f"{suite}.part.tar"
        debootstrap(part, suite, PACKAGES, *(_of_ubuntu() if suite == "noble" else ()))
        part.rename(tar)
    return tar


def _of_ubuntu() -> tuple[str, ...]:
    """Return mmdebstrap's options for Ubuntu: its keys, and the archive that has python3-venv."""
    with urllib.request.urlopen(f"{_UBUNTU}/{_KEYS}", timeout=60) as answer:  # noqa: S310
        package = answer.read()
    if hashlib.sha256(package).hexdigest() != _KEYS_SHA256:
        sys.exit(f"{_KEYS} has another hash than expected, so Ubuntu's keys are not trusted.")
    (_FOLDER / _KEYS).write_bytes(package)
    keys = _FOLDER / "ubuntu-keyring"
    subprocess.run(["dpkg-deb", "--extract", _FOLDER / _KEYS, keys], check=True)
    keyring = keys / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
    return f"--keyring={keyring}", "--components=main,universe"


def _unpack(tar: Path, root: Path) -> None:
    _as_root("rm", "-rf", root)
    root.mkdir()
    _as_root("tar", "--extract", "--file", tar, "--directory", root)


def _clone(clone: Path) -> None:
    if not clone.exists():
        _as_root("git", "clone", "--quiet", CHECKOUT, clone)
    _as_root("git", "-C", clone, "fetch", "--quiet", CHECKOUT, "HEAD")
    _as_root("git", "-C", clone, "reset", "--quiet", "--hard", "FETCH_HEAD")


def _settings(root: Path) -> set[Path]:
    """Copy this machine's certificates and pip settings; return the folders that these name."""
    _as_root("cp", "--archive", f"/{_CERTIFICATES}/.", root / _CERTIFICATES)
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.M))
    conf = "".join(f"{name} = {value}\n" for name, value in found.items())
    (_FOLDER / "pip.conf").write_text(f"[global]\n{conf}")
    _as_root("cp", _FOLDER / "pip.conf", root / "etc/pip.conf")
    named = (Path(path) for path in re.findall(r"(?:(?<= )|(?<=file://))/[^\s]+", conf))
    # An index's links may lead to its neighbours.
    return {Path(*path.parts[:3]) for path in named if path.parts[1] != "etc" and path.exists()}


def _in(root: Path, folders: set[Path], target: str) -> list[str]:
    """Return the command that runs a target in the system, where it can start containers."""
    options = [f"--network={_network()}"]
    options += [f"--env={name}" for name in os.environ if _VARIABLE.fullmatch(name)]
    options += [f"--volume={folder}:{folder}:ro" for folder in folders]
    # Two commands, so that the shell stays and reaps what the tests leave, as init does.
    script = f"make --no-print-directory {target}; exit $?"
    command = [*podman_command(), "run", "--rm", "--privileged", *ulimits(), *options]
    command += ["--env=PYTEST_ARGS", f"--workdir=/{_CLONE}", "--rootfs", str(root)]
    return as_root([*command, "bash", "-c", script])


def _network() -> str:
    """Make a network with packets as large as this machine sends them; return its name.

    Where larger ones are dropped silently, OpenSSL 3.5 waits for an answer to its first message.
    """
    routes = (line.split() for line in Path("/proc/net/route").read_text().splitlines())
    link = next(route[0] for route in routes if route[1] == "00000000")
    size = Path("/sys/class/net", link, "mtu").read_text().strip()
    name = f"fleetbuild-fresh-{size}"
    podman = [*podman_command(), "network"]
    if subprocess.run(as_root([*podman, "exists", name]), check=False).returncode:
        _as_root(*podman, "create", "--opt", f"mtu={size}", name)
    return name


def _as_root(*command: str | Path) -> None:
    subprocess.run(as_root([str(word) for word in command]), check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
