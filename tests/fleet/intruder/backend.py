"""A build that looks around: it tells in its log what it could reach, and makes a wheel."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import zipfile


def build_wheel(wheel_directory, *_):
    """Try everything that a build must not do, then build."""
    say(f"user: {os.geteuid()}")
    with contextlib.suppress(OSError):  # some nodes let it
        write(f"{BUILDS}/{os.environ['KEY']}/status.json", FORGED)
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
        except (OSError, subprocess.SubprocessError) as problem:
            say(f"refused: {name}: {problem}")
        else:
            say(f"reached: {name}")
    name = "intruder-1.0-py3-none-any.whl"
    about = "intruder-1.0.dist-info/"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as wheel:
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: intruder\nVersion: 1.0\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "")
    return name


def say(line):
    """Write a line to the build's log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def network():
    """Connect to the machine that the lab runs on."""
    address = (os.environ["LISTENER"], int(os.environ["PORT"]))
    socket.create_connection(address, timeout=3).close()


def read(path):
    """Read a file, or list a folder."""
    place = pathlib.Path(path)
    return list(place.iterdir()) if place.is_dir() else place.read_bytes()


def write(path, text=""):
    """Write over a file."""
    pathlib.Path(path).write_text(text)


def sudo():
    """Become root as the login user may."""
    subprocess.run(["sudo", "-n", "true"], check=True, capture_output=True)


FORGED = '{"state": "done", "file": "forged.whl", "sha256": "0"}'
BUILDS, CACHES = os.environ["BUILDS"], os.environ["CACHES"]
ATTEMPTS = {
    "network": network,
    "another build": lambda: read(f"{BUILDS}/another/work/secret"),
    "another build's status": lambda: write(f"{BUILDS}/another/status.json"),
    "another package's cache": lambda: write(f"{CACHES}/namespaces/another/object"),
    "/root": lambda: read("/root"),
    "a home": lambda: read("/home/fleet/.profile"),
    "the inputs": lambda: write(os.environ["INPUT"]),
    "the system": lambda: write("/usr/local/bin/gcc"),
    "sudo": sudo,
}
